"""All kinds of blocks, and the choice of card for a tool's calls."""

from typing import Final

from tui_agent.tui.cards.base import Block, Card, Folding, StreamedText
from tui_agent.tui.cards.boundary import BoundaryBlock
from tui_agent.tui.cards.command import CommandBlock
from tui_agent.tui.cards.footer import FooterBlock
from tui_agent.tui.cards.notice import Level, NoticeBlock
from tui_agent.tui.cards.prose import ProseBlock, ReasoningBlock
from tui_agent.tui.cards.search import SearchBlock
from tui_agent.tui.cards.subtask import SubtaskBlock
from tui_agent.tui.cards.todo import PlanBlock, TodoBlock
from tui_agent.tui.cards.tool import ResultSize, ToolBlock, ToolState
from tui_agent.tui.cards.user import UserBlock

__all__ = [
    "Block",
    "BoundaryBlock",
    "Card",
    "CommandBlock",
    "Folding",
    "FooterBlock",
    "Level",
    "NoticeBlock",
    "PlanBlock",
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

TOOL_CARDS: Final[tuple[type[ToolBlock], ...]] = (CommandBlock, SearchBlock, TodoBlock, PlanBlock, SubtaskBlock)
"""The cards made for particular tools; every other tool has a `ToolBlock`."""


def block_for(tool: str) -> type[ToolBlock]:
    return next((card for card in TOOL_CARDS if card.is_for(tool)), ToolBlock)
