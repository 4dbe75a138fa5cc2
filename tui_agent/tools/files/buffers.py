"""Files as an editor has them that were changed there and are not saved yet."""

from pathlib import Path
from typing import Protocol

from tui_agent.tools.base import ToolContext
from tui_agent.tools.gate.workspace import granted_path


class Buffers(Protocol):
    """The files that an editor has open."""

    async def unsaved(self, path: Path) -> str | None:
        """The text of a file where the editor has another one than the disk; else None. Raises nothing."""
        ...

    async def save(self, path: Path, text: str) -> None:
        """Have the editor take a text for a file, and save it. Raises ToolFailure."""
        ...


async def held_by(buffers: Buffers | None, path: object, context: ToolContext) -> str | None:
    """What an editor holds unsaved of the file that a call names. Raises ToolFailure where the call may not have it."""
    return await buffers.unsaved(granted_path(context, str(path))) if buffers is not None else None
