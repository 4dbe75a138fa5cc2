"""Which definitions of MCP tools to send with every request, and which to defer until the model finds them.

Definitions are at the very front of every request, so changing the set in mid-session would invalidate the whole cache.
A small set is sent in full; tools of a larger one are looked up when needed, and the front stays the same. When a
summary replaces results that named found tools, these are listed with the summary, so that they stay found.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import ToolCall, ToolDefinition, ToolResult
from tui_agent.conversation.entries import Message
from tui_agent.conversation.sizes import size_of_text, size_of_tools
from tui_agent.conversation.view import View
from tui_agent.conversation.wire import CALL_TOOL, full_description, inner_call

HEADING: Final = f"[Tools that were found] They can be called with {CALL_TOOL}, or by their own names where offered:"
MOST_TOKENS: Final = 3_000
"""The most estimated tokens for their descriptions; older tools that do not fit are listed by name."""
MOST_NAMES: Final = 40


class ArrangedTools(msgspec.Struct, frozen=True):
    """Definitions in order, with the `tokens` of those that are sent, and of those that are `deferred`."""

    definitions: tuple[ToolDefinition, ...]
    tokens: int
    deferred: int


def arranged(offered: Iterable[tuple[ToolDefinition, bool]], limit: int) -> ArrangedTools:
    """Arrange definitions for a request: send all if together they take at most `limit` tokens; otherwise send those
    offered with True, and defer the others.
    """
    given = sorted(offered, key=lambda each: each[0].name)
    everything = tokens_of(definition for definition, _ in given)
    if everything <= limit:
        return ArrangedTools(tuple(definition for definition, _ in given), everything, 0)
    sent = tokens_of(definition for definition, always in given if always)
    definitions = tuple(msgspec.structs.replace(definition, deferred=not always) for definition, always in given)
    return ArrangedTools(definitions, sent, everything - sent)


def tokens_of(definitions: Iterable[ToolDefinition]) -> int:
    return estimate(size_of_tools(msgspec.structs.replace(each, deferred=False) for each in definitions))


def found_tools(view: View) -> str:
    """A listing of every tool found in the conversation, last used first; empty if there is none.

    Reads the whole conversation. The same log gives the same bytes.
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
            elif isinstance(block, ToolCall) and (name := inner_call(block).name) in found:
                found[name] = found.pop(name)
    sent = {tool.name for tool in (view.prefix.tools if view.prefix else ()) if not tool.deferred}
    newest_first = [definition for name, definition in reversed(found.items()) if name not in sent]
    return _block(newest_first) if newest_first else ""


def _block(definitions: list[ToolDefinition]) -> str:
    lines, names, room = [HEADING], [], MOST_TOKENS
    for definition in definitions:
        text = full_description(definition)
        room -= estimate(size_of_text(text))
        if room >= 0:
            lines.append(text)
        else:
            names.append(definition.name)
    if names:
        lines.append(f"Found too, look again for their arguments: {', '.join(names[:MOST_NAMES])}")
    return "\n\n".join(lines)
