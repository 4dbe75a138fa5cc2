"""The bases of the package's own tools, and of those around another one."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from typing_extensions import override

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.tools.base import Access, Effect, Preview, Tool, ToolContext, ToolOutput, WorkspaceView, as_text
from tui_agent.tools.gate.workspace import access_to
from tui_agent.tools.schema import Signature


class Described:
    """A tool without its `run`. The signature and docstring of `_do` are what the model reads.

    It touches nothing, unless `access` says what; people see its arguments, unless `preview` says more.
    """

    name: ClassVar[str]
    effect: Effect = "none"
    _do: Callable[..., object]
    """Its positional-only parameters are given by the program."""

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


class BuiltIn(Described):
    """A tool whose `_do` is what it does, given the call's `ToolContext`."""

    _do: Callable[..., Awaitable[ToolOutput]]

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await self._signature.call(self._do, arguments, context)


class OfPath(Described):
    """A tool that reads or changes what its argument `path` leads to, as its effect says."""

    @override
    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return (access_to(workspace, str(self._signature.parse(arguments)["path"]), self.effect),)


class Wrapping:
    """A tool around another, whose `run` does more; all else is the other's."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self.definition, self.effect = tool.definition, tool.effect
        self.access, self.preview = tool.access, tool.preview
