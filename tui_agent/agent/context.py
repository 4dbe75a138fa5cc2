"""The context of one conversation, as people see and steer it: what fills it, previews, steps and their undoing."""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeVar

import msgspec
from msgspec import structs

from tui_agent.agent import events
from tui_agent.agent.briefing.briefing import memory_in
from tui_agent.agent.history.as_events import step_event
from tui_agent.agent.history.calls import CallHistory
from tui_agent.agent.turn.model_calls import TurnParts
from tui_agent.agent.turn.turns import Turns
from tui_agent.context.before_expiry import ExpirySummary
from tui_agent.context.budget import Threshold
from tui_agent.context.changes import PreviewedStep, StepPreview
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.counting import estimate
from tui_agent.context.effects import Refusal, StepDone, Steps, step_of
from tui_agent.context.forecast import Forecast, expired
from tui_agent.context.layers.clearing import protected_tokens
from tui_agent.context.stats import ContextStats, ModelUse, SubtaskUse
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult, text_in
from tui_agent.conversation.entries import Message, Words
from tui_agent.conversation.fold import MeasuredCall
from tui_agent.conversation.items import Item
from tui_agent.conversation.profile import MILLION
from tui_agent.conversation.recalled import RecallHits
from tui_agent.conversation.sizes import Category
from tui_agent.conversation.tasks import TodoList, newest_todo
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.models.base import Model
from tui_agent.settings import PolicyName, with_policy
from tui_agent.storage.store import Texts
from tui_agent.system.durable import in_thread
from tui_agent.text import call_summary, one_line
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.recall import RecallSource

T = TypeVar("T")
SummaryStep = Literal["compact", "checkpoint"]

ITEM_NAMES: Final[dict[Category, str]] = {
    "user": "you",
    "notices": "notice",
    "assistant": "answer",
    "calls": "calls",
    "reasoning": "thought",
    "summaries": "summary",
    "system": "system",
    "tools": "tools",
}

ITEM_CHARS: Final = 28
"""Characters of an item's text on its line, so that the line fits a dialog of 80 columns."""
EXCERPT_CHARS: Final = 200
"""Characters at the start of an item's text that an excerpt is taken from."""


class Step(msgspec.Struct, frozen=True):
    """A past context step: what it did, when (seconds since the epoch), and whether it is still in force."""

    event: events.ContextStep
    time: float
    counts: bool


class Overview(msgspec.Struct, frozen=True):
    """Everything that the context panel shows.

    protected: tokens at the end in which nothing is cleared automatically. words: the user's kept words, oldest first.
    """

    stats: ContextStats
    items: Sequence[Item]
    steps: tuple[Step, ...]
    course: tuple[MeasuredCall, ...]
    protected: int
    words: tuple[Words, ...] = ()


class WindowFill(msgspec.Struct, frozen=True):
    """How full the window is: tokens of the next request and of the window, and the layers in the order in which they
    start, each with the share of the window at which it does.
    """

    tokens: int
    window: int
    measured: bool
    starts: tuple[tuple[str, float], ...]


class SwitchPreview(msgspec.Struct, frozen=True):
    """The effects of switching to another model.

    `tokens`: the estimated size of the request. Windows are in tokens, 0 if unknown. `fires`: the layer whose threshold
    the request would pass (``clear``, ``compact`` or ``limit``; empty: none). `cost_usd`: of the next request, with a
    cold cache; `call_usd`: of each later one, read from the cache; None if prices are unknown. `reasoning_dropped`:
    blocks of reasoning that only the present model accepts.
    """

    before: str
    after: str
    tokens: int
    window_before: int
    window_after: int
    marks: tuple[Threshold, ...]
    fires: str
    cost_usd: float | None
    call_usd: float | None
    call_usd_before: float | None
    reasoning_dropped: int


class AgentContext:
    """What the model of one conversation is shown, for people and programs to read and change.

    Changes wait for a running step; each is an entry of the log and can be undone. While a turn runs they raise
    `AgentBusy`; all raise `StorageError`. What writes summaries returns a `ContextStep` whose `error` says why nothing
    was done, if so. `recaller`: the source that `recall` searches, `elsewhere` for other sessions; None: nothing.
    """

    def __init__(
        self,
        parts: TurnParts,
        turns: Turns,
        texts: Texts,
        recaller: RecallSource | None,
        elsewhere: RecallSource | None = None,
    ) -> None:
        self._record, self._active, self._steps = parts.record, parts.active, parts.steps
        self._tracker, self._caches, self._offered = parts.tracker, parts.caches, parts.offered
        self._ceiling = parts.guards.ceiling
        self._engine = parts.record.engine
        self._turns = turns
        self._texts = texts
        self._recaller, self._elsewhere = recaller, elsewhere

    # Reading

    def stats(self) -> ContextStats:
        """How full the window is, which context step comes next, and what the session has cost."""
        tracker, view = self._tracker, self._record.view
        subtasks, memory = tracker.subtasks, memory_in(view.prefix.system) if view.prefix is not None else ""
        models = (
            ModelUse(name, each.calls, each.usage.input_tokens, each.usage.output_tokens, each.known_cost_usd)
            for name, each in tracker.by_model().items()
        )
        stats = structs.replace(
            self._engine.stats(between_turns=not self._turns.busy),
            cost_usd=tracker.session.known_cost_usd,
            turn_cost_usd=tracker.turn.known_cost_usd,
            cache_share=tracker.session.cache_share,
            subtasks=SubtaskUse(
                tracker.subtask_count,
                subtasks.usage.input_tokens,
                subtasks.usage.output_tokens,
                subtasks.known_cost_usd,
            ),
            models=tuple(models),
            memory=self._engine.meter.tokens_of_text(view, memory, "prose") if memory else 0,
        )
        if self._offered is None or view.prefix is None or not self._offered.servers:
            return stats
        return structs.replace(stats, servers=self._offered.uses(view.prefix.tools, self._active.profile.prices))

    def overview(self) -> Overview:
        """The context with all its items and steps. Items are created on access, so this is cheap at any length."""
        view = self._record.view
        entries = view.context_entries()
        return Overview(
            stats=self.stats(),
            items=view.outline(),
            steps=tuple(Step(step_event(step_of(entry)), entry.time, counts) for entry, counts in entries),
            course=view.measured_calls(),
            protected=protected_tokens(self._engine.settings.clearing, self._engine.window.tokens),
            words=view.words(),
        )

    async def past(self) -> CallHistory:
        """The calls so far, on all branches, and what the model saw at each. Call its methods in a thread."""
        return CallHistory(await in_thread(self._record.view.copy), self._engine.meter)

    def forecast(self) -> Forecast:
        """What the next call costs, the step that is taken before it, and the one that comes next."""
        return self._engine.forecast(between_turns=not self._turns.busy)

    async def forecast_when_known(self) -> Forecast:
        """The same, without keeping the event loop if the conversation is long, and with what the catalogue on disk
        knows of the model if its provider was not asked yet.
        """
        await self._active.look_up()
        return await self._steps.compute(self.forecast)

    def expired(self, seen: Forecast) -> str:
        """One line on what an expired cache costs, before anything is sent; empty if there is nothing to say."""
        return expired(seen, at_least_usd=self._engine.settings.context.cold_notice_usd)

    @property
    def newest_answer(self) -> int:
        """The number of the newest answer; 0: there is none."""
        call = self._engine.view.last_call
        return call.seq if call is not None else 0

    @property
    def expires_in(self) -> float | None:
        """In how many seconds the provider's cache of the conversation expires; None: nothing was answered yet."""
        return self._engine.cache.expires_in if self.newest_answer else None

    async def summary_before_expiry(self, *, start: bool = False) -> ExpirySummary | None:
        """The summary that costs less now than reading all of it anew once the cache has expired; None: none does.

        `start`: write it in the background; it is entered once it is written, and can be undone. It is never written if
        that could reach a cost ceiling, or while a turn runs.
        """
        if self._turns.busy or self._steps.writing:
            return None
        async with self._turns.exclusively():
            worth = await self._steps.compute(self._engine.summary_before_expiry)
            if worth is None or not self._ceiling.allows(2 * worth.writing_usd):
                return None
            if start:
                await self._steps.run(self._engine.write_in_background(worth.plan), self._steps.tell)
        return worth

    def keep_as_it_is(self) -> None:
        """Let nothing leave the view by itself before the next answer, unless the request does not fit."""
        self._engine.keep_as_it_is()

    def fullness(self) -> WindowFill:
        """How full the window is, in time proportional to what is new."""
        engine = self._engine
        window, limits = engine.window.tokens, engine.thresholds
        layers = [each for each in (limits.clear, limits.compact) if window and each.tokens and not each.rests]
        starts = tuple((each.layer, each.tokens / window) for each in sorted(layers, key=lambda each: each.tokens))
        return WindowFill(engine.tokens, window, engine.meter.measured, starts)

    def items(self) -> list[Item]:
        """Every message and result with its size and state, oldest first."""
        return self._record.view.items()

    def todo(self) -> TodoList:
        """The model's task list on the present branch; untrusted text."""
        return newest_todo(self._record.view.log)

    def excerpt(self, seq: int) -> str:
        """The beginning of a message or result; untrusted text."""
        entry = self._said(seq)
        if entry is None:
            return ""
        for block in entry.blocks:
            match block:
                case Text() if block.text.strip():
                    return (entry.typed or block.text)[:EXCERPT_CHARS]
                case ToolResult():
                    call = self._record.view.call(block.call_id)
                    asked = call_summary(call.arguments)[:EXCERPT_CHARS] if call is not None else ""
                    return ": ".join(part for part in (asked, block.text[:EXCERPT_CHARS].strip()) if part)
                case ToolCall():
                    return f"{block.name} {call_summary(block.arguments)}"[:EXCERPT_CHARS]
                case Image():
                    return "[image]"
        return "[reasoning]" if any(isinstance(block, Reasoning) for block in entry.blocks) else ""

    async def original(self, seq: int) -> str:
        """A message or result as it was before any context step; untrusted text. Raises `StorageError`."""
        if whole := await self._whole_text(seq):
            return whole
        blocks = entry.blocks if (entry := self._said(seq)) is not None else ()
        parts = [text_in(blocks, Reasoning), text_in(blocks)]
        for block in blocks:
            match block:
                case ToolCall():
                    parts.append(f"{block.name} {block.arguments}")
                case ToolResult():
                    parts.append(block.text)
        return "\n\n".join(filter(None, parts))

    async def recall(self, query: str, limit: int = 20, *, everywhere: bool = False) -> RecallHits:
        """Search everything ever said, what has left the view first. Raises `ToolFailure`.

        everywhere: in the other sessions of this project instead, other agents' included. Raises `StorageError`.
        """
        source = self._elsewhere if everywhere else self._recaller
        if source is None:
            raise ToolFailure("This conversation cannot be searched.")
        return await source(query, limit)

    def missed_caches(self) -> list[str]:
        """Lines on calls that read less from the provider's cache than they could have, with the reasons."""
        return self._caches.report()

    # Previews

    async def preview(self, step: PreviewedStep, focus: str = "") -> StepPreview | Refusal:
        """Preview what ``compact``, ``clear`` or ``checkpoint`` would do and cost, without doing it."""
        await self._active.connect()
        async with self._turns.exclusively():
            return await self._steps.compute(lambda: self._engine.preview(step, focus))

    async def preview_draft(self, draft: Draft) -> StepPreview:
        """Preview what accepting a draft would do and cost."""
        self._turns.must_be_idle()
        return await self._steps.compute(lambda: self._engine.preview_draft(draft))

    async def preview_switch(self, model: Model) -> SwitchPreview:
        """Preview a switch to another model; asks its provider for its window first."""
        await model.describe()

        def switched() -> SwitchPreview:
            engine, then = self._engine, model.profile
            tokens, now = engine.tokens, engine.model
            window, _, limits = engine.limits(then)
            firing = [each for each in limits.all() if each.tokens and (each.layer == "limit" or not each.rests)]
            passed = [each.layer for each in firing if tokens >= each.tokens]
            rates, before = then.rates(tokens), now.rates(tokens)
            cold = tokens * max(1.0, rates.write) * rates.input_usd / MILLION if rates else None
            return SwitchPreview(
                before=now.name,
                after=then.name,
                tokens=tokens,
                window_before=engine.window.tokens,
                window_after=window.tokens,
                marks=limits.all(),
                fires=passed[-1] if passed else "",
                cost_usd=0.0 if model.profile.local else cold,
                call_usd=tokens * rates.read * rates.input_usd / MILLION if rates else None,
                call_usd_before=tokens * before.read * before.input_usd / MILLION if before else None,
                reasoning_dropped=engine.view.reasoning_shown(),
            )

        return await self._steps.compute(switched)

    # Summaries

    @property
    def awaits_summary(self) -> bool:
        """Whether the running turn is waiting for a summary, without which its request does not fit."""
        return self._steps.awaited

    def stop_writing(self) -> bool:
        """Stop the summary that is being written; a turn that waits for it goes on without it.

        False if none was being written.
        """
        return self._steps.stop_writing("Stopped by the user.")

    async def compact(self, step: SummaryStep = "compact", focus: str = "") -> events.ContextStep:
        """Summarise the older turns (``compact``), or the task that just ended (``checkpoint``), now."""
        return step_event(await self._done(lambda: self._engine.compact(step, focus), anew=True))

    async def compact_if_needed(self, focus: str = "") -> events.ContextStep:
        """Summarise the older turns if a threshold is passed or it pays off."""
        self._turns.must_be_idle()
        situation = self._engine.situation(between_turns=True)
        due = await self._steps.compute(lambda: self._engine.layers.compaction.plan(self._engine.view, situation))
        if not isinstance(due, Plan):
            tokens = self._engine.tokens
            return events.ContextStep(step="summary", seq=0, before=tokens, after=tokens, error="nothing is due")
        return await self.compact(focus=focus)

    async def draft(self, step: SummaryStep = "compact", focus: str = "") -> Draft | Refusal:
        """Write what `compact` would, for review.

        The conversation does not change until `accept`; the cost of writing counts either way.
        """
        before = self._tracker.session
        draft = await self._done(lambda: self._engine.draft(step, focus), anew=True)
        if isinstance(draft, Refusal):
            return draft
        after = self._tracker.session
        spent = after.cost_usd - before.cost_usd if after.unpriced == before.unpriced else None
        draft = structs.replace(draft, spent_usd=spent)
        self._record.note("context", draft.as_trace())
        return draft

    def revise(self, draft: Draft, text: str) -> Draft | Refusal:
        """The draft with another text and its exact figures, or why that text cannot be used.

        The model will be shown exactly this text: facts that were deleted from it are not restored.
        """
        return self._engine.current(draft, text)

    async def accept(self, draft: Draft, text: str | None = None) -> events.ContextStep:
        """Put a draft into the conversation, with another text if one is given.

        Messages since it was written stay after it. If what it replaces has changed meanwhile, or the text is no
        smaller than that, nothing is done and the result says why.
        """
        return step_event(await self._done(lambda: self._engine.enter(draft, text)))

    # Other changes

    async def use_policy(self, name: PolicyName) -> None:
        async with self._turns.held():
            self._engine.settings = with_policy(self._engine.settings, name)

    async def clear_results(self, items: Sequence[int] = ()) -> events.ContextStep | Refusal:
        """Clear these tool results now, by default all old ones."""
        return await self._changed(lambda: self._engine.clear_items(items) if items else self._engine.clear_results())

    async def pin(self, items: Sequence[int], *, pinned: bool = True) -> events.ContextStep | Refusal:
        """Pin messages or results by number, each with its group, or unpin them."""
        return await self._changed(lambda: self._engine.pin(items, pinned=pinned))

    async def restore(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Restore messages or results to their full text."""
        self._turns.must_be_idle()
        texts = [await self._whole_text(seq) for seq in items]
        return await self._changed(lambda: self._engine.restore(items, texts))

    async def edit_words(self, edits: Sequence[Words]) -> events.ContextStep | Refusal:
        """Change the user's words that are kept verbatim with the summaries; an empty text drops those of a message."""
        return await self._changed(lambda: self._engine.edit_words(edits))

    async def undo(self, target: int | None = None) -> events.ContextStep | Refusal:
        """Undo a context step, by default the newest."""
        return await self._changed(lambda: self._engine.undo(target))

    async def _changed(self, steps: Callable[[], Steps[StepDone | Refusal]]) -> events.ContextStep | Refusal:
        done = await self._done(steps)
        return done if isinstance(done, Refusal) else step_event(done)

    async def _done(self, steps: Callable[[], Steps[T]], *, anew: bool = False) -> T:
        """Carry out steps, which are planned only once nothing else can change the view.

        `anew`: they write a summary, so drop one that is being written in the background.
        """
        self._turns.must_be_idle()
        await self._active.connect()
        async with self._turns.exclusively():
            if anew:
                await self._steps.drop_writing("Another summary was asked for.")
            done = await self._steps.run(steps(), self._steps.tell)
            await self._steps.keep_if_it_holds()
            return done

    async def _whole_text(self, seq: int) -> str:
        """The full text of a message or result that entered as a preview; empty if the log has it in full."""
        message = self._said(seq)
        return await self._texts.read(message.artifact) if message is not None and message.artifact else ""

    def _said(self, seq: int) -> Message | None:
        log = self._record.view.log
        return log.message(seq) if 1 <= seq <= len(log) else None


def item_line(item: Item, excerpt: str, scale: float) -> str:
    """An item on a line, without its number: kind, tokens, state, and the start of its text. `scale`: as in
    `ContextStats`.
    """
    state = ", ".join(filter(None, ("pinned" if item.pinned else "", "" if item.state == "verbatim" else item.state)))
    name = facts_of(one_line(item.name)).title or ITEM_NAMES.get(item.category, item.category)
    begins = one_line(excerpt, ITEM_CHARS)
    return f"{name:<12}{round(estimate(item.full) * scale):>7,} tokens  {state and f'{state}  '}{begins}".rstrip()
