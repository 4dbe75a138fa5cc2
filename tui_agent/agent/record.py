"""The record of a conversation: the one place that appends to its log.

An entry is on disk before it is in the view, so everything the program acts on survives a crash.
"""

import asyncio
import json
import traceback
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import msgspec

from tui_agent.context.engine import ContextEngine
from tui_agent.context.known import policy_of
from tui_agent.conversation.blocks import ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import (
    AnyEntry,
    ContextEntry,
    HeadMoved,
    Message,
    ModeChanged,
    Outcome,
    Prefix,
    Recorded,
    UnattributedCall,
    Withdrawn,
    tool_result,
    valid_entry,
)
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.conversation.view import View
from tui_agent.models.base import Completed, Metered
from tui_agent.models.usage import UsageTracker, cost_of
from tui_agent.storage.errors import StorageError
from tui_agent.storage.store import Kind, Store
from tui_agent.system.durable import in_thread, to_completion
from tui_agent.telemetry.telemetry import Telemetry

Result = TypeVar("Result")

_CHANGES_MANY_MESSAGES = (ContextEntry, Prefix)
_MOVED_AT_ONCE = 200
"""Entries between the old and the new head that are taken back and applied at once, which takes some 8 ms."""


class Record:
    """Appends to the log of one conversation, one append at a time, each atomically."""

    def __init__(self, engine: ContextEngine, store: Store, telemetry: Telemetry | None = None) -> None:
        self.engine = engine
        self.telemetry = telemetry or Telemetry()
        self._store = store
        self._lock = asyncio.Lock()
        self._waiting: list[AnyEntry] = []
        self._torn = False
        """Whether the store may hold entries that the view lacks."""

    @property
    def view(self) -> View:
        return self.engine.view

    async def read(self, work: Callable[[], Result]) -> Result:
        """Run `work`, which reads the view, in a thread, while nothing is appended."""
        async with self._lock:
            return await in_thread(work)

    async def append(self, *entries: AnyEntry, because: Sequence[Message | ModeChanged] = ()) -> int:
        """Commit these entries and apply them to the view; returns the number of the last one.

        `because`: what comes because of the last one. It is committed right before it, with its number.

        Texts that were queued before the head moves were handled on another branch, so a `HeadMoved` withdraws them, in
        the same transaction; texts queued since stay queued.

        A cancellation takes effect only afterwards, so an append is never partial. Raises `StorageError`, and then
        nothing was appended.
        """
        if not (entries or self._waiting):
            return len(self.view.log)
        return await to_completion(self._append(entries, because))

    def append_soon(self, entry: AnyEntry) -> None:
        """Append an entry together with the next append, or with `flush`."""
        self._waiting.append(entry)

    def note(self, kind: Kind, body: object) -> None:
        """Append something for the trace, soon. `body` must encode to a JSON object; secrets are the caller's to leave
        out.
        """
        try:
            text = msgspec.json.encode(body).decode()
        except UnicodeEncodeError:
            # A lone surrogate, as in the message of an exception.
            text = valid_text(json.dumps(msgspec.to_builtins(body), ensure_ascii=False))
        self.append_soon(Recorded(kind=kind, body=text))

    async def flush(self) -> None:
        """Write pending entries, unless nothing happened but the start of the program. Raises `StorageError`."""
        if any(not isinstance(entry, Recorded) or entry.kind != "session" for entry in self._waiting):
            await self.append()

    async def use_model(self, model: ModelProfile) -> None:
        async with self._lock:
            if self.engine.is_long and policy_of(model) != self.view.policy:
                self.engine.become(await in_thread(self.view.after, (), policy_of(model)), ())
            self.engine.use(model)

    async def answer_open_calls(self, text: str | Callable[[ToolCall], str] = INTERRUPTED) -> tuple[ToolCall, ...]:
        """Answer every call that has no result with `text`, or with what it says of the call; returns these calls."""
        calls = self.view.unanswered()
        if calls:
            said = [text] * len(calls) if isinstance(text, str) else await in_thread(lambda: [*map(text, calls)])
            results = (ToolResult(call.id, each, is_error=True) for call, each in zip(calls, said, strict=True))
            outcome = Outcome(notes=1)
            await self.append(*(tool_result(each, stop_reason="interrupted", outcome=outcome) for each in results))
        return calls

    async def _append(self, entries: Sequence[AnyEntry], because: Sequence[Message | ModeChanged]) -> int:
        async with self._lock:
            await self._mend()
            now, waiting = self.engine.clock(), len(self._waiting)
            stamped: list[AnyEntry] = []
            last = len(self.view.log) + waiting + len(because) + len(entries)
            group = (msgspec.structs.replace(entry, because=last) for entry in because)
            for entry in (*self._waiting, *entries[:-1], *group, *entries[-1:]):
                stamped.append(self.view.log.stamp(valid_entry(entry), now, after=stamped[-1:]))
            for move in [entry for entry in stamped if isinstance(entry, HeadMoved)]:
                # What was queued before it was handled on another branch.
                for queued in self.view.queued(move.to):
                    stamped.append(self.view.log.stamp(Withdrawn(queued=queued.seq), now, after=stamped[-1:]))
            then: View | None = None
            if self.engine.is_long and any(self._is_much(entry) for entry in stamped):
                then = await in_thread(self.view.after, stamped)
            await self._commit(stamped)
            del self._waiting[:waiting]
            try:
                # Entries that change many messages take long to apply: a thread has applied them, to a copy that now
                # replaces the view.
                if then is not None:
                    self.engine.become(then, stamped)
                else:
                    for entry in stamped:
                        self.engine.apply(entry)
                self._torn = False
            except Exception:
                # They are in the store, so they count.
                self.note("error", {"kind": "internal", "traceback": traceback.format_exc()})
                await self._mend()
            newest = len(self.view.log)
            self.telemetry.appended(stamped)
            if not self.view.log.is_packed:
                await asyncio.to_thread(self.view.log.pack)
            return newest

    def _is_much(self, entry: AnyEntry) -> bool:
        """Whether applying this entry may take longer than a key press may wait."""
        if not isinstance(entry, HeadMoved):
            return isinstance(entry, _CHANGES_MANY_MESSAGES)
        kinds = self.view.way_to(entry.to)
        return len(kinds) > _MOVED_AT_ONCE or any(issubclass(kind, _CHANGES_MANY_MESSAGES) for kind in kinds)

    async def _commit(self, stamped: Sequence[AnyEntry]) -> None:
        self._torn = True
        try:
            await self._store.append(stamped)
        except StorageError:
            self._torn = False
            raise
        except ValueError as error:
            known = len(self.view.log)
            await self._mend()
            message = f"The store holds {len(self.view.log)} entries, of which this conversation knew {known}."
            hint = "Send the message again. A conversation that goes on begins with View(await store.load())."
            raise StorageError(f"{message} Nothing was added; now it knows them all.", hint) from error

    async def _mend(self) -> None:
        """If an append broke off, fold again what the store holds: it may be more than the view knows."""
        if self._torn:
            entries = await self._store.load()
            self.engine.become(await in_thread(lambda: View(entries).after((), self.view.policy)), ())
            self._torn = False


class CallAccount:
    """Accounts for model calls that add no message, such as summaries: in the totals, and in the log for later starts.

    A call that breaks off is billed for what it used, so its usage so far is kept until it ends. `spent_usd`: the cost
    of all these calls, as far as prices are known.
    """

    def __init__(self, record: Record, tracker: UsageTracker) -> None:
        self._record = record
        self._tracker = tracker
        self._running: tuple[ModelProfile, Completed | Metered] | None = None
        self.spent_usd = 0.0

    def used_so_far(self, profile: ModelProfile, answer: Completed | Metered) -> None:
        """Note the running call's usage so far, as its provider reports it."""
        self._running = profile, answer

    def answered(self) -> None:
        """The running call was answered; its message carries the usage."""
        self._running = None

    async def broke_off(self) -> None:
        """The running call, if any, ended without an answer: count its usage. Raises `StorageError`."""
        if self._running is not None:
            await self.count(*self._running, "unfinished")

    async def count(
        self,
        profile: ModelProfile,
        answer: Completed | Metered,
        purpose: Literal["summary", "digest", "unfinished"],
        duration_ms: int = 0,
    ) -> float | None:
        """Count a call that is over; returns its cost in USD, None if the price is unknown. Raises `StorageError`."""
        self._running = None
        cost, usage = cost_of(answer, profile), answer.usage
        self._tracker.record(profile.name, usage, cost)
        self.spent_usd += cost or 0.0
        call = UnattributedCall(
            model=profile.name, usage=usage, purpose=purpose, cost_usd=cost, duration_ms=duration_ms
        )
        await self._record.append(call)
        return cost
