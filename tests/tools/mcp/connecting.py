"""Connections to the protocol server of the tests, and to others."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.tools.support import Call
from tui_agent.settings import ToolServer
from tui_agent.tools.base import ToolOutput
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp.configuration import ConfiguredServer, ServerTimeouts
from tui_agent.tools.mcp.connection import Connection
from tui_agent.tools.mcp.known import KnownServer
from tui_agent.tools.mcp.results import output_of

SERVER = Path(__file__).parents[2] / "servers" / "mcp_stdio.py"


def faulty(*faults: str) -> ToolServer:
    """The tests' own server, with what is wrong with it."""
    return ToolServer(command=sys.executable, args=("-I", "-S", str(SERVER), *faults))


class Talk:
    """A connection, and what it told: the newest list last."""

    def __init__(self, server: ToolServer, folder: Path, limits: ServerTimeouts) -> None:
        self.lists: list[KnownServer] = []
        self.news = asyncio.Event()
        self.log = folder / "test.log"
        configured = ConfiguredServer("test", server, "user", folder)
        self.connection = Connection(configured, limits, self.log, self._take, [folder])

    async def call(self, tool: str, context: Call | None = None, **given: object) -> ToolOutput:
        context = context or Call(Workspace(self.log.parent), (), self.log.parent)
        return output_of(await self.connection.call(tool, given, context))

    async def _take(self, known: KnownServer) -> None:
        self.lists.append(known)
        self.news.set()


PATIENT = ServerTimeouts(start=300.0, call=300.0)


@asynccontextmanager
async def talking(server: ToolServer, folder: Path, limits: ServerTimeouts = PATIENT) -> AsyncIterator[Talk]:
    talk = Talk(server, folder, limits)
    try:
        yield talk
    finally:
        await talk.connection.close()
