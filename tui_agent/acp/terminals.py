"""Commands in a client's terminals: the terminal shows what the command prints, which runs where it always does.

A client runs what it shows in a terminal itself, outside the sandbox and the permission gate. So it is given a viewer
of the output instead of the command.
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
from tui_agent.tools.shell.output import raw_file

ANSWERING_S: Final = 5.0
"""How long the client may take to open a terminal, and its terminal to show the rest of an output."""
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
