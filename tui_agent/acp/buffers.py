"""Files with unsaved changes in the editor: they are read and changed there."""

import asyncio
from pathlib import Path
from typing import Final

from acp.exceptions import RequestError
from acp.interfaces import Client

from tui_agent.system.regular import read_at_most
from tui_agent.text import error_text
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.files.encodings import decode

ANSWERING_S: Final = 5.0
"""Seconds to wait for the editor's text of a file; after that, the file on disk is used."""
SAVING_S: Final = 30.0
MAX_BYTES: Final = 5_000_000
"""Bytes of the largest file that the editor is asked about."""


class EditorBuffers:
    """The open files of a client that can read and write text files. Set `session` to the session's id before use."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.session = ""

    async def unsaved(self, path: Path) -> str | None:
        """The editor's text of a file with unsaved changes; None for any other."""
        disk = await asyncio.to_thread(_on_disk, path)
        if disk is None or not self.session:
            return None
        try:
            asking = self._client.read_text_file(session_id=self.session, path=str(path))
            held = (await asyncio.wait_for(asking, ANSWERING_S)).content
        except (RequestError, TimeoutError, ConnectionError, ValueError):
            return None  # it does not have the file, or does not answer
        return None if _plain(held) == _plain(disk) else held

    async def save(self, path: Path, text: str) -> None:
        """Replace the editor's text of a file, and save it."""
        try:
            writing = self._client.write_text_file(session_id=self.session, path=str(path), content=text)
            await asyncio.wait_for(writing, SAVING_S)
        except (RequestError, TimeoutError, ConnectionError, ValueError) as error:
            raise ToolFailure(
                f"The editor holds changes of {path.name} that are not saved, and did not take this one: "
                f"{error_text(error, 200)}.",
                "Nothing was changed. Ask the user to save the file, then try again.",
            ) from error


def _on_disk(path: Path) -> str | None:
    """The file's text on disk; empty if there is no file, None if the editor need not be asked about it."""
    if not path.exists():
        return ""
    try:
        with open_file(path) as stream:
            data = read_at_most(stream, MAX_BYTES + 1)
        return decode(data)[0] if len(data) <= MAX_BYTES else None
    except (ToolFailure, OSError, ValueError):
        return None


def _plain(text: str) -> str:
    """The text with the line endings that editors use."""
    return text.replace("\r\n", "\n")
