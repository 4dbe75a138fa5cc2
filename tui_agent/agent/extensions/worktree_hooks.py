"""The user's hooks that make and clean up worktrees, before there is a session."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.agent.extensions.hook_files import Event
from tui_agent.agent.extensions.hooks import HookAnswer, Hooks
from tui_agent.worktrees import WorktreeError


class WorktreeHooks:
    """What `session_worktree` asks in place of git; `say` gets what hooks have to tell. Runs an event loop."""

    def __init__(self, hooks: Hooks, folder: Path, say: Callable[[str], None]) -> None:
        self._hooks, self._folder, self._say = hooks, folder, say

    def made(self, name: str) -> Path | None:
        """The folder that a hook has made; None if there is no such hook. Raises `WorktreeError`."""
        said = self._fire("WorktreeCreate", name=name)
        if said.refused:
            raise WorktreeError(f"a hook could not make it: {said.refused}")
        if not said.worktree:
            return None
        place = self._folder / said.worktree
        if ".." in place.parts or not place.is_dir():
            raise WorktreeError(f"the folder that a hook has made cannot be used: {place}")
        return place

    def unwanted(self, folder: Path) -> bool:
        """Whether the user wants the folder removed, of which git cannot say whether anything changed.

        They are asked at the terminal; without one, it stays.
        """
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return False
        self._say(f"Remove the worktree {folder}? [y/N]")
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def removing(self, folder: Path) -> bool:
        """Have hooks clean up; whether the folder is gone."""
        self._fire("WorktreeRemove", worktree_path=str(folder))
        return not folder.exists()

    def _fire(self, event: Event, **fields: str) -> HookAnswer:
        async def fired() -> HookAnswer:
            try:
                return await self._hooks.fire(event, fields, self._tell)
            finally:
                await self._hooks.close()

        return asyncio.run(fired())

    def _tell(self, event: AgentEvent) -> None:
        if isinstance(event, events.Notice):
            self._say(f"{event.title}: {event.text}")
