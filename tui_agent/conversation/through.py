"""Calls that go through another tool: what `call_tool` was asked for is what is asked about, shown and done."""

import json
from typing import Final

import msgspec

from tui_agent.conversation.blocks import ToolCall, ToolDefinition

CALL_TOOL: Final = "call_tool"
"""The tool through which a model calls those that it was not told of when the conversation began."""


def meant(call: ToolCall) -> ToolCall:
    """The call that a call of `call_tool` stands for, with its own id; every other call as it is."""
    if call.name != CALL_TOOL or call.malformed:
        return call
    try:
        given = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or given["name"] in ("", CALL_TOOL):
        return call
    arguments = given.get("arguments", {})
    # Some models write the object as a text.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return msgspec.structs.replace(call, name=given["name"], arguments=text)


def described(definition: ToolDefinition) -> str:
    """A tool as a model reads it that was not told of it from the beginning."""
    return f"{definition.name}\n{definition.description}\nArguments: {definition.schema}"
