"""Files that the editor has open: what is not saved there is read and changed there."""

import asyncio
from pathlib import Path
from typing import Final

from acp.exceptions import RequestError
from acp.interfaces import Client

from tui_agent.text import error_text
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.files.encodings import decode

ANSWERING_S: Final = 5.0
"""Seconds the editor has to say what it holds of a file; then the disk counts."""
SAVING_S: Final = 30.0
MOST_BYTES: Final = 5_000_000
"""The largest file that the editor is asked about."""


class EditorBuffers:
    """The open files of a client that can read and write text files, for the session whose id `session` is set to."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.session = ""

    async def unsaved(self, path: Path) -> str | None:
        """The text of a file where the editor has another one than the disk; else None."""
        disk = await asyncio.to_thread(_on_disk, path)
        if disk is None or not self.session:
            return None
        try:
            asking = self._client.read_text_file(session_id=self.session, path=str(path))
            held = (await asyncio.wait_for(asking, ANSWERING_S)).content
        except (RequestError, TimeoutError, ConnectionError, ValueError):
            return None  # it does not have the file, or does not say
        return None if _plain(held) == _plain(disk) else held

    async def save(self, path: Path, text: str) -> None:
        """Have the editor take a text for a file, and save it."""
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
    """The text that lies there; empty where nothing does, None where it is none that an editor would be asked about."""
    if not path.exists():
        return ""
    try:
        with open_file(path) as stream:
            data = stream.read(MOST_BYTES + 1)
        return decode(data)[0] if len(data) <= MOST_BYTES else None
    except (ToolFailure, OSError, ValueError):
        return None


def _plain(text: str) -> str:
    """The text with the line ends that editors hold."""
    return text.replace("\r\n", "\n")
