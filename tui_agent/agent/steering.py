"""Steering a conversation's context: what a person can see of it and do to it, between turns."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias, TypeVar

from tui_agent.agent import events
from tui_agent.agent.drafts import Draft
from tui_agent.agent.overview import (
    Fullness,
    Overview,
    SwitchOutlook,
    excerpt,
    fullness,
    original,
    overview,
    switch_outlook,
)
from tui_agent.agent.record import Record
from tui_agent.agent.snapshot import snapshot
from tui_agent.agent.upkeep import CompactionResult, Upkeep
from tui_agent.context.asked import Asked, Outlook, PreviewedStep
from tui_agent.context.compaction import CompactionPlan
from tui_agent.context.manager import ModelFacts
from tui_agent.context.refusal import Refusal
from tui_agent.context.stats import ContextStats
from tui_agent.conversation.entries import AnyContextEntry
from tui_agent.conversation.view import Item
from tui_agent.models.base import Model, ModelProfile
from tui_agent.models.usage import UsageTracker
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.recall import RecallHits, RecallSource

Plan = TypeVar("Plan")
Done = TypeVar("Done")
Planning: TypeAlias = Callable[[ModelFacts, float], CompactionPlan | Refusal]


class AgentBusy(RuntimeError):
    """A turn is running: send the text with `Agent.queue`."""


class Steered:
    """A conversation whose context can be looked at and changed. `agent.Agent` adds the turns.

    One step or turn happens at a time: a step waits for the turn that runs, and the other way round.
    """

    def __init__(
        self, record: Record, model: Model, tracker: UsageTracker, upkeep: Upkeep, recaller: RecallSource | None
    ) -> None:
        self.tracker = tracker
        self._record = record
        self._model = model
        self._upkeep = upkeep
        self._manager = upkeep.manager
        self._asked = Asked(upkeep.manager)
        self._recaller = recaller
        self._one_at_a_time = asyncio.Lock()
        self._holder: asyncio.Task[object] | None = None
        self._listeners: list[Callable[[events.AgentEvent], None]] = []
        self._worker: asyncio.Task[None] | None = None
        self._connecting: asyncio.Future[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._worker is not None

    @property
    def profile(self) -> ModelProfile:
        """What is known of the model that answers."""
        return self._model.profile

    async def connect(self) -> ModelProfile:
        """Learn what the provider tells of the model, once; slow (it imports an SDK). Never raises."""
        if self._connecting is None:
            self._connecting = asyncio.ensure_future(self._upkeep.learn(self._model))
        await asyncio.shield(self._connecting)
        return self._model.profile

    def context_stats(self) -> ContextStats:
        """How full the window is, what happens next, and what the session has cost."""
        return snapshot(self._record.view, self._manager, self._upkeep.facts(self._model), self.tracker)

    def fullness(self) -> Fullness:
        """How full the window is; cheap, also in a long conversation."""
        return fullness(self._record.view, self._manager, self._upkeep.facts(self._model))

    @property
    def cache_share(self) -> float | None:
        """How much of all input so far was read from the provider's cache; None before the first call."""
        return self.tracker.session.cache_share

    async def compact(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns now. Raises `AgentBusy`, `StorageError`."""
        return await self._summarized(self._compaction(focus))

    async def compact_if_needed(self, focus: str = "") -> CompactionResult:
        """Summarise the older turns if a threshold or the price says so. Raises `AgentBusy`, `StorageError`."""
        self._must_be_idle()
        if self._upkeep.is_due(self._model, between_turns=True).summary is None:
            return self._unchanged(Refusal("nothing is due"))
        return await self.compact(focus)

    async def checkpoint(self, note: str = "") -> CompactionResult:
        """Write the completion record of the task that just ended. Raises `AgentBusy`, `StorageError`."""
        return await self._summarized(self._checkpoint(note))

    async def draft_compaction(self, focus: str = "") -> Draft | Refusal:
        """Have a summary of the older turns written, to be looked at before it counts. Raises `AgentBusy`.

        The conversation stays as it is until `accept`; what the writing has cost counts either way.
        """
        return await self._drafted(self._compaction(focus))

    async def draft_checkpoint(self, note: str = "") -> Draft | Refusal:
        """Have the completion record of the task that just ended written, as `draft_compaction` does a summary."""
        return await self._drafted(self._checkpoint(note))

    def revise(self, draft: Draft, text: str) -> Draft | Refusal:
        """The draft with another text and its exact figures, or why that cannot be entered.

        The text is what the model will be shown, to the letter: no fact is put back that was taken out.
        """
        return self._upkeep.current(draft, text)

    async def accept(self, draft: Draft, text: str | None = None) -> CompactionResult:
        """Enter a draft, with another text if one is given. Raises `AgentBusy`, `StorageError`.

        What was said since it was written stays after it. Where what it replaces is no longer shown as it was, or the
        text takes no less than that, nothing is done and the result says why.
        """
        async with self.held():
            revised = self._upkeep.current(draft, text)
            if isinstance(revised, Refusal):
                return self._unchanged(revised)
            return await self._upkeep.enter(revised, self._model, self._tell)

    def outlook(self, draft: Draft) -> Outlook:
        """What entering a draft would do and cost. Looks through the whole view."""
        accepted, facts = draft.written.accepted, self._upkeep.facts(self._model)
        return self._asked.drafted(
            self._record.view, facts, time.time(), draft.plan, accepted, spent_usd=draft.spent_usd
        )

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Let no turn and no step of another task begin meanwhile; a prompt that is sent waits, on disk.

        Raises `AgentBusy` where a turn runs already.
        """
        self._must_be_idle()
        async with self._exclusively():
            yield

    async def clear_results(self) -> events.ContextStep | Refusal:
        """Clear all old tool results now. Raises `AgentBusy`, `StorageError`."""
        plan = self._planned(lambda model, now: self._asked.clear_results(self._record.view, model, now))
        return await self._changed(plan, "cleared")

    async def clear_items(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Clear these tool results now. Raises as `clear_results`."""
        plan = self._planned(lambda model, now: self._asked.clear_items(self._record.view, items, model, now))
        return await self._changed(plan, "cleared")

    async def pin(self, items: Sequence[int], *, pinned: bool = True) -> events.ContextStep | Refusal:
        """Pin messages or results by number, each with its group, or take the pins off. Raises as `clear_results`."""
        plan = self._planned(self._asked.pin(self._record.view, items, pinned))
        return await self._changed(plan, "pinned" if pinned else "unpinned")

    async def restore(self, items: Sequence[int]) -> events.ContextStep | Refusal:
        """Show messages or results whole again. Raises as `clear_results`."""
        self._must_be_idle()
        texts = [await self._upkeep.whole_text(seq) for seq in items]
        return await self._changed(self._planned(self._asked.restore(self._record.view, items, texts)), "restored")

    async def undo(self, target: int | None = None) -> events.ContextStep | Refusal:
        """Undo a context step, by default the newest. Raises as `clear_results`."""
        return await self._changed(self._planned(self._asked.undo(self._record.view, target)), "undone")

    def preview(self, step: PreviewedStep, focus: str = "") -> Outlook | Refusal:
        """What ``compact``, ``clear`` or ``checkpoint`` would do, before it is done. Looks through the whole view."""
        facts, now, view = self._upkeep.facts(self._model), time.time(), self._record.view
        return self._asked.preview(view, facts, now, step, focus=focus)

    def preview_switch(self, profile: ModelProfile) -> SwitchOutlook:
        """What it would mean to let another model answer. Looks through the whole view."""
        return switch_outlook(self._record.view, self._manager, self._upkeep.facts(self._model), profile)

    def overview(self) -> Overview:
        """The context with all its items and steps; an item is made when it is looked at."""
        return overview(self._record.view, self._manager, self._upkeep.facts(self._model), self.tracker)

    def excerpt(self, seq: int) -> str:
        """The beginning of a message or result; untrusted text."""
        return excerpt(self._record.view, seq)

    async def original(self, seq: int) -> str:
        """A message or result as it was before any context step; untrusted text. Raises `StorageError`."""
        return await self._upkeep.whole_text(seq) or original(self._record.view, seq)

    async def recall(self, query: str, limit: int = 20) -> RecallHits:
        """Search all that was ever said, what has left the view first. Raises `ToolFailure`."""
        if self._recaller is None:
            raise ToolFailure("This conversation keeps no index.")
        return await self._recaller(query, limit)

    def items(self) -> list[Item]:
        """Every message and result with its size and state, oldest first."""
        return self._record.view.items()

    @property
    def has_compactor(self) -> bool:
        """Whether `compact` can be used."""
        return True

    @property
    def has_checkpointer(self) -> bool:
        """Whether `checkpoint` and ``mark_task_done`` can be used."""
        return self._manager.has_checkpoints

    def _must_be_idle(self) -> None:
        if self.busy and self._holder is not asyncio.current_task():
            raise AgentBusy("a turn is running")

    @asynccontextmanager
    async def _exclusively(self) -> AsyncIterator[None]:
        task = asyncio.current_task()
        if self._holder is task:
            yield
            return
        async with self._one_at_a_time:
            self._holder = task
            try:
                yield
            finally:
                self._holder = None

    def _planned(self, plan: Callable[[ModelFacts, float], Plan]) -> Plan:
        self._must_be_idle()
        return plan(self._upkeep.facts(self._model), time.time())

    def _compaction(self, focus: str) -> Planning:
        return lambda model, now: self._asked.compaction(self._record.view, model, now, focus=focus)

    def _checkpoint(self, note: str) -> Planning:
        return lambda model, now: self._asked.checkpoint(self._record.view, model, now, note=note)

    async def _summarized(self, plan: Planning) -> CompactionResult:
        done = await self._carried_out(plan, lambda plan: self._upkeep.summarize(plan, self._model, self._tell))
        return self._unchanged(done) if isinstance(done, Refusal) else done

    async def _drafted(self, plan: Planning) -> Draft | Refusal:
        draft = await self._carried_out(plan, lambda plan: self._upkeep.draft(plan, self._model, self._tell))
        if isinstance(draft, Draft):
            self._record.trace.record("context", draft.told())
        return draft

    async def _carried_out(self, plan: Planning, do: Callable[[CompactionPlan], Awaitable[Done]]) -> Done | Refusal:
        self._must_be_idle()
        await self.connect()
        async with self._exclusively():
            # Planned only now: what was asked for before it may just have changed the view.
            planned = plan(self._upkeep.facts(self._model), time.time())
            return planned if isinstance(planned, Refusal) else await do(planned)

    def _unchanged(self, refusal: Refusal) -> CompactionResult:
        tokens = self._manager.tokens(self._record.view)
        return CompactionResult(tokens, tokens, error=refusal.reason)

    async def _changed(self, plan: AnyContextEntry | Refusal, step: str) -> events.ContextStep | Refusal:
        if isinstance(plan, Refusal):
            return plan
        async with self._exclusively():
            return await self._upkeep.change(plan, self._tell, step)

    def _tell(self, event: events.AgentEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def listen(self, listener: Callable[[events.AgentEvent], None]) -> None:
        """Have what happens outside a turn told: the steps of `compact`, `undo` and their like."""
        self._listeners.append(listener)
