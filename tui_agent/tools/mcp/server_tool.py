"""A server's tool as a `Tool`."""

import json
from typing import Protocol

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView, as_text
from tui_agent.tools.mcp.known import KnownTool, tool_name
from tui_agent.tools.mcp.open_tasks import GOES_ON


class Servers(Protocol):
    """Calls tools by the names of the server and the tool; see `servers.ToolServers`."""

    async def call(self, name: str, tool: str, arguments: dict[str, object], context: ToolContext) -> ToolOutput: ...

    def goes_on(self, name: str, tool: str, arguments: dict[str, object]) -> bool: ...


class ServerTool:
    """A tool of a server. `believed`: trust the server's statement that the tool only reads."""

    def __init__(self, servers: Servers, server: str, known: KnownTool, *, believed: bool) -> None:
        self._servers = servers
        self.server = server
        self.known = known
        self.effect: Effect = "none" if believed and known.reads else "call"
        self.definition = ToolDefinition(tool_name(server, known.name), known.description or known.name, known.schema)

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        """One access for every call, so that rules about the tool apply."""
        _given(arguments)
        return (Access(self.effect, f"{self.server}/{self.known.name}"),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview(f"Call {self.known.name} of the server {self.server}", text=as_text(_given(arguments)))

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await self._servers.call(self.server, self.known.name, _given(arguments), context)

    def left_open(self, arguments: str) -> str:
        """The answer to a call that got none before the program ended. Reads a file."""
        try:
            goes_on = self._servers.goes_on(self.server, self.known.name, _given(arguments))
        except ToolFailure:
            goes_on = False
        return GOES_ON if goes_on else INTERRUPTED


def _given(arguments: str) -> dict[str, object]:
    """Parse the arguments. Raises ToolFailure if they are not a JSON object."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"The arguments are no JSON: {error}.", "Give one JSON object.") from error
    if not isinstance(given, dict):
        raise ToolFailure("The arguments are no JSON object.", "Give one JSON object.")
    return given
