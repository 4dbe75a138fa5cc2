"""Search in everything that was said in a conversation, including what has left the view."""

import asyncio
from typing import Final

from tui_agent.conversation.log import Log
from tui_agent.conversation.view import View
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.recall import Recalled, RecallIndex
from tui_agent.tools.base import ToolFailure

IN_VIEW: Final = frozenset(("verbatim", "restored"))
"""States in which the view has the full text."""

_AT_ONCE: Final = 200
"""Items checked before other tasks get a turn: a few milliseconds."""


class Recaller:
    """The search index of one conversation and its files, updated on each search."""

    def __init__(self, view: View, artifacts: Artifacts) -> None:
        self._view = view
        self._index = RecallIndex(artifacts)

    async def __call__(self, query: str, limit: int) -> Recalled:
        """The best hits for any query, also on other branches; what has left the view comes first. Raises
        `ToolFailure`.
        """
        log = self._view.log
        elsewhere = await asyncio.to_thread(_elsewhere, log, log.head, len(log))
        hidden = await self._hidden()
        try:
            return await self._index.search(log.entries(), query, limit, hidden=hidden, elsewhere=elsewhere)
        except StorageError as error:
            raise ToolFailure(f"{error.message} {error.hint}".strip()) from error

    async def _hidden(self) -> set[int]:
        """The entries whose full text is not in the view."""
        hidden: set[int] = set()
        for number, item in enumerate(self._view.outline()):
            if item.state not in IN_VIEW:
                hidden.add(item.seq)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return hidden


def _elsewhere(log: Log, head: int, last: int) -> set[int]:
    """The entries up to number `last` that are not on the branch ending at `head`. The log may grow meanwhile."""
    on_path = set(log.path(head).numbers)
    return {seq for seq in range(1, last + 1) if seq not in on_path}
