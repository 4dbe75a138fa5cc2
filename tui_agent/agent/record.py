"""The record of a conversation: the one place that appends to its log.

An entry is on disk before it is in the view, so whatever the program acts on is there after a crash.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import AnyEntry, tool_result
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.conversation.view import View
from tui_agent.storage.durable import to_completion
from tui_agent.storage.store import Store, TraceSink


class Record:
    """Owns a view and appends to it, one append at a time, each whole or not at all."""

    def __init__(self, view: View, store: Store, trace: TraceSink, clock: Callable[[], float] = time.time) -> None:
        self.view = view
        self.trace = trace
        self._store = store
        self._clock = clock
        self._lock = asyncio.Lock()

    async def append(self, *entries: AnyEntry) -> int:
        """Commit these entries and take them into the view; the number of the last one.

        A cancellation takes effect only after that: the entries are never half there. Raises `StorageError`, and then
        nothing was appended.
        """
        return await to_completion(self._append(entries))

    async def answer_open_calls(self, text: str = INTERRUPTED) -> tuple[ToolCall, ...]:
        """Give every call without a result one that says it was stopped; those calls."""
        calls = self.view.unanswered()
        if calls:
            results = (ToolResult(call.id, text, is_error=True) for call in calls)
            await self.append(*(tool_result(result, stop_reason="interrupted") for result in results))
        return calls

    async def _append(self, entries: Sequence[AnyEntry]) -> int:
        async with self._lock:
            now = self._clock()
            stamped: list[AnyEntry] = []
            for entry in entries:
                stamped.append(self.view.log.stamp(entry, now, after=stamped[-1:]))
            await self._store.append(stamped)
            for entry in stamped:
                self.view.apply(entry)
                self.trace.record_entry(entry)
            return len(self.view.log)
