"""Ids of tool calls that no other call of the conversation has: providers demand it, not every one provides it."""

import msgspec

from tui_agent.conversation.blocks import Block, ToolCall
from tui_agent.conversation.view import View


def with_new_ids(blocks: tuple[Block, ...], view: View) -> tuple[Block, ...]:
    """The blocks of an answer with every call's id unlike any before it."""
    seen: set[str] = set()
    renamed: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolCall):
            number, name = 1, block.id or "call"
            while name in seen or view.call(name) is not None:
                number += 1
                name = f"{block.id or 'call'}-{number}"
            seen.add(name)
            block = block if name == block.id else msgspec.structs.replace(block, id=name)
        renamed.append(block)
    return tuple(renamed)
