"""The tools `find_tool` and `call_tool`: access to servers' tools that are not among a request's definitions.

Their own definitions never change, so that a request's prefix stays the same.
"""

import json
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from msgspec import Meta
from typing_extensions import override

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.conversation.wire import CALL_TOOL, full_description
from tui_agent.text import one_line
from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.built_in import BuiltIn

if TYPE_CHECKING:
    from tui_agent.tools.mcp.servers import ToolServers

FIND_TOOL: Final = "find_tool"
FOUND_CHARS: Final = 24_000
"""The most characters of definitions that one search returns."""

Most: TypeAlias = Annotated[int, Meta(ge=1, le=10)]


class FindTool(BuiltIn):
    """The tool `find_tool`."""

    name = FIND_TOOL

    def __init__(self, servers: "ToolServers") -> None:
        super().__init__()
        self._servers = servers

    @override
    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        self._signature.parse(arguments)
        return (Access("none", FIND_TOOL),)

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview("Look for tools", text=str(self._signature.parse(arguments)["query"]))

    @override
    async def _do(self, context: ToolContext, /, query: str, limit: Most = 5) -> ToolOutput:
        """Find tools of connected servers by what they do. Gives their names, descriptions and arguments.

        What was found can be called from then on: by its own name where you are offered it, else with call_tool.

        Args:
            query: What the tool should do, in a few words, such as "list open pull requests".
            limit: The most tools to give.
        """
        if self._servers.unknown:
            context.progress("asking the servers what they offer …")
        found = await self._servers.search(query, limit)
        if not found:
            return ToolOutput(self._nothing(), summary="nothing found")
        room = FOUND_CHARS
        texts: list[str] = []
        fitting: list[ToolDefinition] = []
        for tool in found:
            text = full_description(tool.definition)
            if len(text) > room and texts:
                texts.append(f"{tool.definition.name}: look for it by this name to see its arguments")
                continue
            room -= len(text)
            texts.append(text)
            fitting.append(tool.definition)
        count = f"{len(found)} tool{'s' * (len(found) > 1)}"
        return ToolOutput("\n\n".join(texts), summary=count, tools=tuple(fitting), paged=True)

    def _nothing(self) -> str:
        lines = ["No tool fits these words. Try others: what the tool would do, and to what."]
        for status in self._servers.statuses():
            if status.known is not None and status.standing != "off":
                lines.append(f"- {status.name}: {', '.join(tool.name for tool in status.known.tools[:20])}")
            elif status.error:
                lines.append(f"- {status.name}: {one_line(status.error, 300)}")
        return "\n".join(lines)


class CallTool:
    """The tool `call_tool`. Its calls are first replaced by calls of the tool that they name
    (`conversation.wire`), so this only answers calls that name no existing tool.
    """

    effect: Effect = "none"
    definition = ToolDefinition(
        CALL_TOOL,
        "Call a tool that find_tool has found, where you are not offered it by its own name.",
        json.dumps(
            {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": 'Its whole name, such as "mcp__github__list_issues".'},
                    "arguments": {"type": "object", "description": "Its arguments, as its schema says."},
                },
                "required": ["name", "arguments"],
            }
        ),
    )

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return (Access("none", CALL_TOOL),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview("Call a tool", text=arguments)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        raise ToolFailure("The call names no tool.", "Give its `name`, as find_tool told it, and its `arguments`.")
