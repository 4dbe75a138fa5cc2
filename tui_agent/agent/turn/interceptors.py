"""Functions of a host program that are called around tool calls and model calls, in its own process."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.request import ModelRequest
from tui_agent.tools.base import ToolFailure, ToolOutput

T = TypeVar("T")
Maybe: TypeAlias = Awaitable[T | None] | T | None

BeforeTool: TypeAlias = Callable[[ToolCall], Maybe[ToolCall | str]]
"""Called before a call is judged by the permission gate. A text refuses the call, and tells the model why; another
`ToolCall` changes its arguments; None lets it go on."""
AfterTool: TypeAlias = Callable[[ToolCall, ToolOutput], Maybe[ToolOutput]]
"""Called with the result of a call that ran; may return another one."""
BeforeModel: TypeAlias = Callable[[ModelRequest], Maybe[str]]
"""Called before each step with the request as it stands. A text is added to the conversation for the model; an
exception ends the turn."""

CHANGED: Final = "[the program changed the arguments of this call to {arguments}]"


class Interceptors(NamedTuple):
    """The functions of one agent; each may be ``async``."""

    before_tool: BeforeTool | None = None
    after_tool: AfterTool | None = None
    before_model: BeforeModel | None = None

    async def judged(self, call: ToolCall) -> ToolCall:
        """The call as it is to run. Raises `ToolFailure` if it is refused."""
        if self.before_tool is None:
            return call
        said: ToolCall | str | None = await _value(self.before_tool(call))
        if isinstance(said, str):
            raise ToolFailure(said)
        return msgspec.structs.replace(call, arguments=said.arguments) if said is not None else call

    async def seen(self, call: ToolCall, before: ToolCall, output: ToolOutput) -> ToolOutput:
        """The result of `call` for the model, which asked for `before`."""
        if self.after_tool is not None:
            output = await _value(self.after_tool(call, output)) or output
        if call.arguments == before.arguments:
            return output
        changed = CHANGED.format(arguments=call.arguments)
        return msgspec.structs.replace(output, text=f"{output.text}\n{changed}")

    async def told(self, request: ModelRequest) -> str:
        """What to tell the model before it answers."""
        return (await _value(self.before_model(request)) or "") if self.before_model is not None else ""


async def _value(given: Maybe[T]) -> T | None:
    if inspect.isawaitable(given):
        awaited: T | None = await given
        return awaited
    return given
