"""The task list on a card: what is done, what is being done, what is still to do."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tui_agent.tui.cards.blocks import ToolBlock, ToolState
from tui_agent.tui.cards.lines import Line, Run, fit, make_line, wrap
from tui_agent.tui.cards.palette import Look

if TYPE_CHECKING:
    from tui_agent.conversation.todo import TodoItem

PREVIEW_ITEMS: Final = 3
"""Items under a collapsed card."""


def is_todo(block: ToolBlock) -> bool:
    """Whether a card shows a task list; one that was refused shows why."""
    return bool(block.todo) and block.state not in (ToolState.ERROR, ToolState.DENIED, ToolState.INTERRUPTED)


def previewed(items: "Sequence[TodoItem]") -> "Sequence[TodoItem]":
    """The items of a collapsed card: around the first one that is open, else the last ones."""
    first_open = next((place for place, item in enumerate(items) if item.state == "in_progress"), None)
    if first_open is None:
        first_open = next((place for place, item in enumerate(items) if item.state == "pending"), len(items))
    start = max(0, min(first_open - 1, len(items) - PREVIEW_ITEMS))
    return items[start : start + PREVIEW_ITEMS]


def draw_todo(items: "Sequence[TodoItem]", indent: int, whole: bool, width: int, look: Look) -> list[Line]:
    """These items, each with its sign; `whole`: their long texts wrapped instead of cut."""
    palette, glyphs = look.palette, look.glyphs
    forms = {
        "done": (glyphs.checked, palette.faint, palette.faint),
        "in_progress": (glyphs.info, palette.accent, palette.base),
        "pending": (glyphs.unchecked, palette.faint, palette.muted),
    }
    lines: list[Line] = []
    for item in items:
        glyph, sign, ink = forms[item.state]
        start = (Run(" " * indent, palette.base), Run(f"{glyph} ", sign))
        if whole:
            lines += wrap([Run(item.text, ink)], width, first=start, rest=(Run(" " * (indent + 2), palette.base),))
        else:
            text = fit(item.text, max(1, width - indent - 2), glyphs.ellipsis)
            lines.append(make_line([*start, Run(text, ink)], gutter=indent + 2))
    return lines
