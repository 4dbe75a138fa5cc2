"""Files with unsaved changes in an editor."""

from pathlib import Path
from typing import Protocol

from tui_agent.tools.base import ToolContext
from tui_agent.tools.gate.workspace import granted_path


class Buffers(Protocol):
    """The files that an editor has open."""

    async def unsaved(self, path: Path) -> str | None:
        """The editor's text of a file with unsaved changes; None for any other. Raises nothing."""
        ...

    async def save(self, path: Path, text: str) -> None:
        """Replace the editor's text of a file, and save it. Raises ToolFailure."""
        ...


async def held_by(buffers: Buffers | None, path: object, context: ToolContext) -> str | None:
    """The unsaved text of the file that a call names, or None. Raises ToolFailure if the file was not granted."""
    return await buffers.unsaved(granted_path(context, str(path))) if buffers is not None else None
