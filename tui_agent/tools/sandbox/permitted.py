"""Changes of guarded files by tools other than commands: the user was asked, so no command's end takes them back."""

import asyncio

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.tools.base import Access, Effect, Preview, Tool, ToolContext, ToolOutput, WorkspaceView
from tui_agent.tools.sandbox.sandbox import Sandbox


class Permitted:
    """A tool as it is, with what it changes among guarded files made known to the sandbox."""

    def __init__(self, tool: Tool, sandbox: Sandbox) -> None:
        self._tool = tool
        self._sandbox = sandbox

    @property
    def definition(self) -> ToolDefinition:
        return self._tool.definition

    @property
    def effect(self) -> Effect:
        return self._tool.effect

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        return self._tool.access(arguments, workspace)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return self._tool.preview(arguments, workspace)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        try:
            return await self._tool.run(arguments, context)
        finally:
            if any(access.effect == "write" for access in context.accesses):
                await asyncio.to_thread(self._sandbox.note_known)
