"""The bases of the package's own tools, and of those around another one."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.tools.base import Access, Effect, Preview, Tool, ToolContext, ToolOutput, WorkspaceView, as_text
from tui_agent.tools.schema import Signature


class BuiltIn:
    """A tool whose `_do` is what it does. Its signature and docstring are what the model reads.

    It touches nothing, unless `access` says what; people see its arguments, unless `preview` says more.
    """

    name: ClassVar[str]
    effect: Effect = "none"
    _do: Callable[..., Awaitable[ToolOutput]]
    """Its first parameter, which is positional-only, is the call's `ToolContext`."""

    def __init__(self) -> None:
        self._signature = Signature.of(self._do, self.name)

    @property
    def definition(self) -> ToolDefinition:
        return self._signature.definition

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        self._signature.parse(arguments)
        return ()

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview(f"Call {self.name}", text=as_text(self._signature.parse(arguments)))

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await self._signature.call(self._do, arguments, context)


class Wrapping:
    """A tool around another, whose `run` does more; all else is the other's."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.definition, self.effect = tool.definition, tool.effect
        self.access, self.preview = tool.access, tool.preview
