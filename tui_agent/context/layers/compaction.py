"""Compaction: replaces older turns by a summary, at a threshold or at the cheapest moment before it.

The newest turns, and everything that the model has not seen yet, stay word for word; earlier summaries stay as they
are. The check is made before every model call, between turns and inside a tool loop (docs/context.md, "Layers" and
"Cost").
"""

from typing import Final, NamedTuple

from tui_agent.context.budget import keep_tokens
from tui_agent.context.changes import resting_after_undo
from tui_agent.context.compaction.plan import TRIGGER_SHARE, Plan, plan_compaction, smallest_gain
from tui_agent.context.economics import (
    LONGEST_SUMMARY,
    LayerPreview,
    Situation,
    Worth,
    clearing_cost_per_token,
    compaction_worth,
    layer_preview,
    pays_from,
    pays_or_waits,
    reason_it_pays,
)
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Cleared
from tui_agent.conversation.profile import Rates
from tui_agent.conversation.view import View
from tui_agent.settings import Compaction as CompactionSettings
from tui_agent.settings import Settings

WRITER_SPEED: Final = 2
"""The assumed speed of a summary's writer, as a multiple of the conversation's model."""
MAX_CALLS_AHEAD: Final = 8

_FREE: Final = Rates(0.0, 0.0, 0.0, 0.0)


class Backoff(NamedTuple):
    """The pause after failed compactions: 2, 4, … turns, up to `longest`. A success resets it."""

    longest: int = 32
    failures: int = 0
    turns: int = 0

    @property
    def resting(self) -> bool:
        """Whether automatic compaction pauses; one that the user asks for never does."""
        return self.turns > 0

    def failed(self) -> "Backoff":
        """The state after a failed compaction."""
        failures = min(self.failures + 1, 16)
        return self._replace(failures=failures, turns=min(2**failures, self.longest))

    def succeeded(self) -> "Backoff":
        """The state after a successful compaction."""
        return self._replace(failures=0, turns=0)

    def turn_ended(self) -> "Backoff":
        """The state after a turn."""
        return self._replace(turns=max(0, self.turns - 1))


class Compaction:
    """The layer. Owns the pause after failed compactions."""

    name = "compaction"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.compaction
        self.on = settings.context.preset != "off" and settings.compaction.auto
        self.backoff = Backoff(longest=settings.compaction.max_backoff_turns)

    def follow(self, settings: Settings) -> None:
        """Decide by these settings from now on."""
        self._settings = settings.compaction

    def plan(self, view: View, situation: Situation) -> Plan | None:
        """The summary that is due now, ignoring clearing."""
        return self.plan_with(view, situation, None)

    def plan_with(
        self, view: View, situation: Situation, cleared: Cleared | None, *, beside: bool = False
    ) -> Plan | None:
        """The summary that is due despite the planned clearing `cleared`, or that frees tokens at less cost than that.

        `beside`: it is written in the background, so it starts before the trigger is reached.
        """
        if not self.on or self.backoff.resting:
            return None
        freed = cleared.before - cleared.after if cleared is not None else 0
        ahead = growth_meanwhile(situation) if beside else 0
        trigger = situation.limits.compact.tokens or None
        if reason := self._reason(view, situation, freed, ahead):
            plan = plan_compaction(view, situation, self._settings, trigger=trigger, reason=reason)
            if isinstance(plan, Refusal):
                self.backoff = self.backoff.failed()
        elif cleared is not None and self._frees_at_less_cost(cleared, view, situation):
            reason = "it frees tokens at less cost than clearing would"
            plan = plan_compaction(view, situation, self._settings, trigger=trigger, reason=reason)
        else:
            return None
        return None if isinstance(plan, Refusal) else plan

    def preview(self, here: Situation) -> LayerPreview:
        """What it would do now, from running sizes and prices alone."""
        settings = self._settings
        keep = keep_tokens(settings, here.budget, here.limits.compact.tokens)
        worth = compaction_worth(here, settings, here.rates or _FREE, keep=keep, small=here.small_rates)
        if worth.freed <= 0:
            return LayerPreview(why=f"nothing to gain yet: the newest {keep:,} tokens stay word for word")
        why = ""
        if not settings.auto:
            why = "not by itself: compaction.auto is off"
        elif here.rates is not None:
            needed = pays_from(here, settings, here.rates, worth, growth=here.growth_of_all)
            least = smallest_gain(here.budget.window, here.limits.compact.tokens)
            why = pays_or_waits(worth.freed, max(least, needed)) if needed is not None else ""
        return layer_preview(worth.freed, worth.cost, here.rates, why)

    def _reason(self, view: View, here: Situation, freed: int, ahead: int) -> str:
        left, trigger, limit = here.tokens - freed, here.limits.compact, here.limits.limit
        if trigger.rests or resting_after_undo(view):
            return "the view reached the limit" if limit.reached(left + ahead) else ""
        if trigger.reached(left + ahead, view.message_count if trigger.messages else 0):
            reaches = "reached" if left >= trigger.tokens else "is about to reach"
            return (
                f"the view {reaches} {trigger.tokens:,} tokens ({trigger.source})" if trigger.tokens else trigger.source
            )
        worth = compaction_now(here, self._settings)
        if worth is None or here.rates is None or worth.freed < smallest_gain(here.budget.window, trigger.tokens):
            return ""
        return reason_it_pays(here, self._settings, here.rates, worth, growth=here.growth_of_all)

    def _frees_at_less_cost(self, cleared: Cleared, view: View, here: Situation) -> bool:
        """Whether a compaction frees tokens at less cost than this clearing; on a cold cache clearing is free."""
        worth = compaction_now(here, self._settings)
        if worth is None or here.rates is None or here.cold or resting_after_undo(view):
            return False
        freed = cleared.before - cleared.after
        first = next(result for result in view.live_results() if result.seq == cleared.results[0])
        tail = max(0, here.tokens_of(first.after) - (freed - here.tokens_of(first.size)))
        return worth.per_token < clearing_cost_per_token(here.rates, freed=freed, tail=tail)


def growth_meanwhile(here: Situation) -> int:
    """Estimated growth of the conversation, in tokens, while a summary is written: it starts this far before the
    trigger.

    The number of calls in that time is estimated from what the model writes in one, at half the speed of the writer.
    """
    written = max(1.0, here.growth_of_all - here.growth)
    calls = min(MAX_CALLS_AHEAD, max(1, round(LONGEST_SUMMARY / WRITER_SPEED / written)))
    return min(round(calls * here.growth_of_all), int((here.limits.compact.tokens or 0) * TRIGGER_SHARE))


def compaction_now(here: Situation, settings: CompactionSettings) -> Worth | None:
    """What a compaction would cost and free now; None if prices or limits are unknown, or thrift is 0."""
    trigger = here.limits.compact
    if here.rates is None or not settings.thrift or trigger.rests or not trigger.tokens:
        return None
    keep = keep_tokens(settings, here.budget, trigger.tokens)
    return compaction_worth(here, settings, here.rates, keep=keep, small=here.small_rates)
