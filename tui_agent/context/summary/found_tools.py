"""Tools that were found stay found: what the results said that a summary replaces is said again beside it."""

from typing import Final

from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import Message
from tui_agent.conversation.sizes import size_of_text
from tui_agent.conversation.through import CALL_TOOL, described, meant
from tui_agent.conversation.view import View

HEADING: Final = f"[Tools that were found] They can be called with {CALL_TOOL}, or by their own names where offered:"
MOST_TOKENS: Final = 3_000
"""Estimated tokens of what is said of them; of older ones that do not fit the names are said."""
MOST_NAMES: Final = 40


def found_tools(view: View) -> str:
    """Every tool that was found in the conversation as `view` has it, the one used last first; empty where none was.

    Looks through the whole conversation. The same log gives the same bytes.
    """
    found: dict[str, ToolDefinition] = {}
    for entry in view.log.path():
        if not isinstance(entry, Message):
            continue
        for block in entry.blocks:
            if isinstance(block, ToolResult):
                for definition in block.tools:
                    found.pop(definition.name, None)
                    found[definition.name] = definition
            elif isinstance(block, ToolCall) and (name := meant(block).name) in found:
                found[name] = found.pop(name)
    told = {tool.name for tool in (view.prefix.tools if view.prefix else ()) if not tool.deferred}
    newest_first = [definition for name, definition in reversed(found.items()) if name not in told]
    return _block(newest_first) if newest_first else ""


def _block(definitions: list[ToolDefinition]) -> str:
    lines, names, room = [HEADING], [], MOST_TOKENS
    for definition in definitions:
        text = described(definition)
        room -= estimate(size_of_text(text))
        if room >= 0:
            lines.append(text)
        else:
            names.append(definition.name)
    if names:
        lines.append(f"Found too, look again for their arguments: {', '.join(names[:MOST_NAMES])}")
    return "\n\n".join(lines)
