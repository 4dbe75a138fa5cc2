"""The record of a conversation: the one place that appends to its log.

An entry is on disk before it is in the view, so whatever the program acts on is there after a crash.
"""

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec

from tui_agent.aside import aside
from tui_agent.context.economics import ModelFacts
from tui_agent.context.engine import ContextEngine
from tui_agent.context.state import policy_of
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    ContextEntry,
    HeadMoved,
    Message,
    Prefix,
    UnattributedCall,
    Usage,
    Withdrawn,
    model_call,
    tool_result,
)
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.conversation.view import View
from tui_agent.durable import to_completion
from tui_agent.models.base import ModelProfile
from tui_agent.models.usage import UsageTracker, cost_usd
from tui_agent.storage.store import Store, TraceSink

_TOUCHING_MUCH = (ContextEntry, Prefix)


class Record:
    """Appends to the log of one conversation, one append at a time, each whole or not at all."""

    def __init__(self, engine: ContextEngine, store: Store, trace: TraceSink) -> None:
        self.engine = engine
        self.trace = trace
        self._store = store
        self._lock = asyncio.Lock()
        self._waiting: list[AnyEntry] = []

    @property
    def view(self) -> View:
        """The conversation as it stands."""
        return self.engine.view

    async def append(self, *entries: AnyEntry) -> int:
        """Commit these entries and take them into the view; the number of the last one.

        A cancellation takes effect only after that: the entries are never half there. Raises `StorageError`, and then
        nothing was appended.
        """
        return await to_completion(self._append(entries))

    def append_soon(self, entry: AnyEntry) -> None:
        """Let an entry go in with the next append, or with `flush`."""
        self._waiting.append(entry)

    async def flush(self) -> None:
        """Write what waits to be written, also of the trace. Raises `StorageError`."""
        if self._waiting:
            await self.append()
        await self.trace.flush()

    async def move_head(self, to: int, reason: Literal["rewind", "fork", "switch"]) -> int:
        """Let the conversation go on after entry `to`; the number of the entry that says so. Raises `StorageError`.

        What waited for delivery at that place of the log was dealt with on another branch: it is taken back. What was
        sent since belongs here.
        """
        seq = await self.append(HeadMoved(to=to, reason=reason))
        if waiting := [queued.seq for queued in self.view.queued() if queued.seq < seq]:
            await self.append(*(Withdrawn(queued=queued) for queued in waiting))
        return seq

    async def use_model(self, model: ModelFacts) -> None:
        """Let the engine decide for this model from here on."""
        async with self._lock:
            if self.engine.is_long and policy_of(model) != self.view.policy:
                then = await aside(lambda: self.view.after((), policy_of(model)))
                await aside(self.engine.become(then, ()).let_go)
            self.engine.use(model)

    async def answer_open_calls(self, text: str = INTERRUPTED) -> tuple[ToolCall, ...]:
        """Give every call without a result one that says it was stopped; those calls."""
        calls = self.view.unanswered()
        if calls:
            results = (ToolResult(call.id, text, is_error=True) for call in calls)
            await self.append(*(tool_result(result, stop_reason="interrupted") for result in results))
        return calls

    async def _append(self, entries: Sequence[AnyEntry]) -> int:
        async with self._lock:
            now = self.engine.clock()
            stamped: list[AnyEntry] = []
            for entry in (*self._waiting, *map(self._vouched, entries)):
                stamped.append(self.view.log.stamp(entry, now, after=stamped[-1:]))
            await self._store.append(stamped)
            self._waiting.clear()
            left: View | None = None
            moves = any(isinstance(entry, HeadMoved) for entry in stamped)
            if moves or (self.engine.is_long and any(isinstance(entry, _TOUCHING_MUCH) for entry in stamped)):
                # What touches many messages takes long, and where the head goes there may be more than here: the view
                # goes on as a copy of it that was worked out aside.
                left = self.engine.become(await aside(lambda: self.view.after(stamped)), stamped)
            else:
                for entry in stamped:
                    self.engine.apply(entry)
            for entry in stamped:
                self.trace.record_entry(entry)
            newest = len(self.view.log)
            if left is not None:
                await aside(left.let_go)
            return newest

    def _vouched(self, entry: AnyEntry) -> AnyEntry:
        """A model call's entry names the trace's newest event, so that neither can be rewritten alone."""
        head = self.trace.head
        if head is not None and isinstance(entry, Message | UnattributedCall) and model_call(entry) is not None:
            return msgspec.structs.replace(entry, trace=head)
        return entry


class CallAccount:
    """Counts the calls that are no message of the conversation: in its totals, and in its log for the next start.

    A call that breaks off is billed as far as it went, so what it told of its use is remembered until it ends.
    `spent_usd` is what all these calls have cost, as far as prices are known.
    """

    def __init__(self, record: Record, tracker: UsageTracker) -> None:
        self._record = record
        self._tracker = tracker
        self._running: tuple[ModelProfile, Usage] | None = None
        self.spent_usd = 0.0

    def used_so_far(self, profile: ModelProfile, usage: Usage) -> None:
        """What the running call has used as far as its provider has told."""
        self._running = profile, usage

    def answered(self) -> None:
        """The running call is answered, and counted as its message."""
        self._running = None

    async def broke_off(self) -> None:
        """The running call, if there is one, brings no answer. Raises `StorageError`."""
        if self._running is not None:
            (profile, usage), self._running = self._running, None
            await self._enter(profile, usage, "unfinished")

    async def count(self, profile: ModelProfile, usage: Usage, purpose: Literal["summary", "digest"]) -> float | None:
        """A call of context work is answered; its cost in USD, None where the price is not known.

        Raises `StorageError`.
        """
        self._running = None
        return await self._enter(profile, usage, purpose)

    async def _enter(
        self, profile: ModelProfile, usage: Usage, purpose: Literal["summary", "digest", "unfinished"]
    ) -> float | None:
        cost = cost_usd(usage, profile.prices)
        self._tracker.record(profile.name, usage, cost)
        self.spent_usd += cost or 0.0
        await self._record.append(UnattributedCall(model=profile.name, usage=usage, purpose=purpose, cost_usd=cost))
        return cost
