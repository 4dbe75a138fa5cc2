"""The tool `call_tool`, with which a model calls deferred tools.

The rest of the program sees the inner call: that is what permission is asked for, what is shown and what runs.
"""

import json
from typing import Final

import msgspec

from tui_agent.conversation.blocks import ToolCall, ToolDefinition

CALL_TOOL: Final = "call_tool"
"""The tool's name."""


def inner_call(call: ToolCall) -> ToolCall:
    """The call inside a call of `call_tool`, with the outer call's id; any other call unchanged."""
    if call.name != CALL_TOOL or call.malformed:
        return call
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or given["name"] in ("", CALL_TOOL):
        return call
    arguments = given.get("arguments", {})
    # Some models pass the object as a JSON string.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return msgspec.structs.replace(call, name=given["name"], arguments=text)


def full_description(definition: ToolDefinition) -> str:
    """A deferred tool's definition as text, for the result of a tool search."""
    return f"{definition.name}\n{definition.description}\nArguments: {definition.schema}"
