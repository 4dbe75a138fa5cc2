"""Searching a conversation for what has left its view."""

from tui_agent.conversation.view import View
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.recall import Recalled, RecallIndex
from tui_agent.tools.base import ToolFailure

IN_VIEW = frozenset(("verbatim", "restored"))
"""States in which the view shows all there is."""


class Recaller:
    """The index over one conversation and its files, brought up to date when it is asked."""

    def __init__(self, view: View, artifacts: Artifacts) -> None:
        self._view = view
        self._artifacts = artifacts
        self._index = RecallIndex(artifacts.folder)

    async def __call__(self, query: str, limit: int) -> Recalled:
        """The best hits for any text, what has left the view first, on other branches too. Raises `ToolFailure`."""
        log = self._view.log
        on_path = {entry.seq for entry in log.path()}
        elsewhere = {entry.seq for entry in log if entry.seq not in on_path}
        hidden = {item.seq for item in self._view.items() if item.state not in IN_VIEW}
        try:
            await self._index.update(list(log), self._artifacts)
            return await self._index.search(query, limit, hidden=hidden, elsewhere=elsewhere)
        except StorageError as error:
            raise ToolFailure(f"{error.message} {error.hint}".strip()) from error
