"""What an editor lends: its files with unsaved changes, which are read and changed there, and its terminals.

An editor runs what it shows in a terminal itself, outside the sandbox and the permission gate. So it is given a viewer
of a command's output instead of the command, which runs where it always does.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from acp.exceptions import RequestError
from acp.helpers import tool_terminal_ref, update_tool_call
from acp.interfaces import Client
from acp.schema import ToolCallProgress

from tui_agent.acp import viewer
from tui_agent.agent import events
from tui_agent.system.durable import write_file
from tui_agent.system.regular import read_at_most
from tui_agent.text import error_text
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.files.encodings import decode
from tui_agent.tools.shell.output import raw_file

ANSWERING_S: Final = 5.0
"""Seconds to wait for the editor's text of a file, after which the file on disk is used; for a terminal to open, and to
show the rest of an output.
"""
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


_FAILED = (RequestError, TimeoutError, ConnectionError, ValueError, OSError)


class Terminals:
    """The terminals of one session. `raw`: the folder where the output of commands is."""

    def __init__(self, client: Client, session: str, raw: Path) -> None:
        self._client = client
        self._session = session
        self._raw = raw
        self._open: dict[str, tuple[str, Path]] = {}
        self._works = True

    async def running(self, event: events.ToolProgress) -> ToolCallProgress | None:
        """What to tell of a running call the first time it has printed something; None: it has no terminal."""
        if not self._works or event.call_id in self._open:
            return None
        output = await asyncio.to_thread(raw_file, self._raw, event.call_id)
        if output is None:
            return None
        # -I: nothing of the folder at hand or of the environment is loaded.
        arguments = ["-I", str(viewer.__file__), str(output), str(os.getpid())]
        opening = self._client.create_terminal(session_id=self._session, command=sys.executable, args=arguments)
        try:
            terminal = (await asyncio.wait_for(opening, ANSWERING_S)).terminal_id
        except _FAILED:
            self._works = False  # its output is shown as text from here on
            return None
        self._open[event.call_id] = (terminal, output)
        return update_tool_call(event.call_id, status="in_progress", content=[tool_terminal_ref(terminal)])

    def shows(self, call_id: str) -> bool:
        """Whether this call has a terminal."""
        return call_id in self._open

    async def ended(self, event: events.ToolFinished, update: ToolCallProgress) -> ToolCallProgress:
        """What to tell of a call that has ended: its terminal stays in place of its text."""
        terminal, output = self._open.pop(event.call_id)
        marker = output.with_suffix(viewer.ENDED)
        code = event.outcome.exit_code
        failed = int(event.status != "ok")
        with suppress(*_FAILED):
            # Whole at once: the viewer may look at any moment, and an empty one would say that the command failed.
            await asyncio.to_thread(write_file, marker, str(failed if code is None else code % 256).encode())
            waiting = self._client.wait_for_terminal_exit(session_id=self._session, terminal_id=terminal)
            await asyncio.wait_for(waiting, ANSWERING_S)
        with suppress(*_FAILED):
            # It shows what it has shown from then on.
            await self._client.release_terminal(session_id=self._session, terminal_id=terminal)
            await asyncio.to_thread(marker.unlink, missing_ok=True)
        return update.model_copy(update={"content": [tool_terminal_ref(terminal)]})
