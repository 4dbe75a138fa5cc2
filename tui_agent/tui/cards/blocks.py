"""Every kind of card there is, and which one a tool's calls have."""

from typing import TypeAlias

from tui_agent.tui.cards import command, search, subtask, todo
from tui_agent.tui.cards.base import Block, Card, Folding, StreamedText
from tui_agent.tui.cards.boundary import BoundaryBlock
from tui_agent.tui.cards.command import CommandBlock
from tui_agent.tui.cards.notice import Level, NoticeBlock
from tui_agent.tui.cards.prompt import UserBlock
from tui_agent.tui.cards.prose import ProseBlock
from tui_agent.tui.cards.reasoning import ReasoningBlock
from tui_agent.tui.cards.search import SearchBlock
from tui_agent.tui.cards.subtask import SubtaskBlock
from tui_agent.tui.cards.todo import TodoBlock
from tui_agent.tui.cards.tool import ResultSize, ToolBlock, ToolState

__all__ = [
    "Block",
    "BoundaryBlock",
    "Card",
    "CommandBlock",
    "Folding",
    "Level",
    "NoticeBlock",
    "ProseBlock",
    "ReasoningBlock",
    "ResultSize",
    "SearchBlock",
    "StreamedText",
    "SubtaskBlock",
    "TodoBlock",
    "ToolBlock",
    "ToolState",
    "UserBlock",
    "block_for",
]

ToolKind: TypeAlias = type[ToolBlock] | type[CommandBlock] | type[SearchBlock] | type[TodoBlock] | type[SubtaskBlock]


def block_for(tool: str) -> ToolKind:
    """The card of a tool's calls."""
    if tool in command.TOOLS:
        return CommandBlock
    if tool in search.TOOLS:
        return SearchBlock
    if tool in todo.TOOLS:
        return TodoBlock
    if tool.startswith(subtask.PREFIX) or tool in subtask.TOOLS:
        return SubtaskBlock
    return ToolBlock
