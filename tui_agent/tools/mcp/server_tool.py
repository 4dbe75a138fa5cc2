"""A server's tool as a `Tool`."""

import json
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView, as_text
from tui_agent.tools.mcp.known import KnownTool, definition_of

Call: TypeAlias = Callable[[str, str, dict[str, object], ToolContext], Awaitable[ToolOutput]]
"""Calls a tool: takes the server's name, the tool's name and the arguments. Raises ToolFailure."""


class ServerTool:
    """A tool of a server; `call` makes its calls. `believed`: trust the server's statement that the tool only reads."""

    def __init__(self, call: Call, server: str, known: KnownTool, *, believed: bool) -> None:
        self._call = call
        self.server = server
        self.known = known
        self.effect: Effect = "none" if believed and known.reads else "call"
        self.definition = definition_of(server, known, deferred=False)

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        """One access for every call, so that rules about the tool apply."""
        _given(arguments)
        return (Access(self.effect, f"{self.server}/{self.known.name}"),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview(f"Call {self.known.name} of the server {self.server}", text=as_text(_given(arguments)))

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await self._call(self.server, self.known.name, _given(arguments), context)


def _given(arguments: str) -> dict[str, object]:
    """Parse the arguments. Raises ToolFailure if they are not a JSON object."""
    try:
        given = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ToolFailure(f"The arguments are no JSON: {error}.", "Give one JSON object.") from error
    if not isinstance(given, dict):
        raise ToolFailure("The arguments are no JSON object.", "Give one JSON object.")
    return given
