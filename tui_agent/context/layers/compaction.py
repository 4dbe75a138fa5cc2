"""When older turns become a summary, and a finished task its completion record.

A summary is due at a threshold, or at the cheapest moment before it. The newest turns, and everything that the model
has not seen yet, stay word for word; earlier summaries stay as they are (docs/context.md, "Layers" and "Cost"). The
model declares a task done with the tool `mark_task_done`, which only sets a flag: the next turn writes the record of
everything since the last boundary before anything else. What the model said after the declaration stays in view.
"""

from typing import Final

import msgspec
from msgspec import structs

from tui_agent.context.budget import keep_tokens
from tui_agent.context.changes import undone_by_user
from tui_agent.context.compaction.plan import TRIGGER_SHARE, Plan, plan_checkpoint, plan_compaction, smallest_gain
from tui_agent.context.economics import (
    CompactionWorth,
    Situation,
    TaskDone,
    clearing_cost_per_token,
    compaction_worth,
    expected_summary,
    longest_summary,
    reason_it_pays,
)
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Checkpointed, Cleared
from tui_agent.conversation.states import calls_in
from tui_agent.conversation.view import View
from tui_agent.system.lenient import object_in

WRITER_SPEED: Final = 2
"""The assumed speed of a summary's writer, as a multiple of the conversation's model."""
MAX_CALLS_AHEAD: Final = 8
TASK_DONE: Final = "mark_task_done"


class Backoff(msgspec.Struct, frozen=True):
    """The pause after failed compactions: 2, 4, … turns, up to `longest`. A success resets it."""

    longest: int = 32
    failures: int = 0
    turns: int = 0

    @property
    def resting(self) -> bool:
        """Whether automatic compaction pauses; one that the user asks for never does."""
        return self.turns > 0

    def failed(self) -> "Backoff":
        failures = min(self.failures + 1, 16)
        return structs.replace(self, failures=failures, turns=min(2**failures, self.longest))

    def succeeded(self) -> "Backoff":
        return structs.replace(self, failures=0, turns=0)

    def turn_ended(self) -> "Backoff":
        return structs.replace(self, turns=max(0, self.turns - 1))


class CompactionLayer:
    """The layer that replaces older turns by a summary."""

    def plan(self, view: View, situation: Situation) -> Plan | Refusal | None:
        """The summary that is due despite the planned clearing, or that frees tokens at less cost than that.

        A refusal: one is due, but there is nothing that it could replace.
        """
        settings, cleared = situation.settings, situation.cleared
        if settings.context.preset == "off" or not settings.compaction.auto or situation.resting:
            return None
        if reason := _reason(view, situation):
            return plan_compaction(view, situation, reason=reason)
        if cleared is not None and _frees_at_less_cost(cleared, view, situation):
            reason = "it frees tokens at less cost than clearing would"
            plan = plan_compaction(view, situation, reason=reason)
            return plan if isinstance(plan, Plan) else None
        return None


class CheckpointLayer(msgspec.Struct, frozen=True):
    """The layer that replaces a finished task by its completion record. `on`: whether the model can declare one."""

    on: bool = True

    def plan(self, view: View, situation: Situation) -> Plan | None:
        """The record of a task that the model has declared done, due at the start of the next turn."""
        task = situation.task_done
        off = not self.on or situation.settings.context.preset == "off" or situation.resting
        if task is None or off or not situation.between_turns:
            return None
        reason = "the model declared the task done"
        plan = plan_checkpoint(view, situation, step=task.step, note=task.detail, reason=reason)
        return plan if isinstance(plan, Plan) else None


def task_done(view: View) -> TaskDone | None:
    """The newest task in view that the model has declared done, if it has no record; one that was undone counts."""
    step = max(view.callers(TASK_DONE), default=0)
    records = (entry for entry, _ in view.context_entries() if isinstance(entry, Checkpointed))
    message = view.log.message(step) if step else None
    if message is None or any(record.first <= step <= record.last for record in records):
        return None
    call = next(each for each in calls_in(message.blocks).values() if each.name == TASK_DONE)
    return TaskDone(step, str(object_in(call.arguments).get("detail", "")))


def growth_meanwhile(here: Situation) -> int:
    """Estimated growth of the conversation, in tokens, while a summary is written in the background.

    The number of calls in that time is estimated from what the model writes in one, at half the speed of the writer.
    """
    written = max(1.0, here.growth_of_all - here.growth)
    longest = expected_summary(here.tokens, longest_summary(here))
    calls = min(MAX_CALLS_AHEAD, max(1, round(longest / WRITER_SPEED / written)))
    room = max(0, here.limits.compact.tokens - here.budget.fixed)
    return min(round(calls * here.growth_of_all), int(room * TRIGGER_SHARE))


def begins_at(here: Situation, *, in_background: bool) -> int:
    """The size in tokens from which a summary is begun: the trigger. In the background also earlier if calls would
    have to wait for it otherwise, since they would not fit or pass a price cliff before it is written.
    """
    start, ends = here.limits.compact.tokens, (here.limits.cliff, here.limits.limit.tokens)
    last = min(filter(None, ends), default=0)
    return min(start, last - growth_meanwhile(here)) if in_background and last else start


def _reason(view: View, here: Situation) -> str:
    """Why a summary is due; empty if none is."""
    trigger, limit = here.limits.compact, here.limits.limit
    left = here.tokens - (here.cleared.before - here.cleared.after if here.cleared is not None else 0)
    if trigger.rests or undone_by_user(view):
        then = left + (growth_meanwhile(here) if here.in_background else 0)
        return "the view reached the limit" if limit.reached(then) else ""
    if trigger.messages:
        return trigger.source if trigger.reached(left, view.message_count) else ""
    if trigger.tokens and left >= begins_at(here, in_background=here.in_background):
        reaches = "reached" if left >= trigger.tokens else "is about to reach"
        return f"the view {reaches} {trigger.tokens:,} tokens ({trigger.source})"
    worth = _worth_now(here)
    if worth is None or worth.freed < smallest_gain(here):
        return ""
    return reason_it_pays(here, worth)


def _frees_at_less_cost(cleared: Cleared, view: View, here: Situation) -> bool:
    """Whether a compaction frees tokens at less cost than this clearing; on a cold cache clearing is free."""
    worth = _worth_now(here)
    if worth is None or here.rates is None or here.cold or undone_by_user(view):
        return False
    freed = cleared.before - cleared.after
    first = next(result for result in view.live_results() if result.seq == cleared.results[0])
    tail = max(0, here.tokens_of(first.after) - (freed - here.tokens_of(first.size)))
    return worth.per_token < clearing_cost_per_token(here.rates, freed=freed, tail=tail)


def _worth_now(here: Situation) -> CompactionWorth | None:
    """What a compaction would cost and free now; None if prices or limits are unknown, or thrift is 0."""
    trigger, settings = here.limits.compact, here.settings.compaction
    if here.rates is None or not settings.thrift or trigger.rests or not trigger.tokens:
        return None
    return compaction_worth(here, keep=keep_tokens(settings, here.budget, trigger.tokens))
