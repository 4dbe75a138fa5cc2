"""Selecting painted text with the mouse, and the text that is copied for it.

Textual remembers the ends of a selection as (character, line). Lines of the pane move as heights are corrected, so the
line is a number made of block, section and line in the section, which orders like the lines and stays valid.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual.selection import Selection

from tui_agent.tui.cards.block_painting import has_gap
from tui_agent.tui.cards.blocks import BoundaryBlock, ReasoningBlock, ToolBlock
from tui_agent.tui.pane.transcript import plain_text
from tui_agent.tui.pane.viewport import Position, Viewport

_BITS: Final = 24
_MASK: Final = (1 << _BITS) - 1
_FAR: Final = 1 << 30


def encode_line(block: int, section: int, line: int) -> int:
    """A position as one number, in the order of the lines."""
    return (block << 2 * _BITS) | (section << _BITS) | line


def decode_line(number: int) -> Position:
    """The position that `encode_line` made a number of."""
    return Position(number >> 2 * _BITS, number >> _BITS & _MASK, number & _MASK)


def with_selection(
    drawn: Sequence[Segment], gutter: int, span: tuple[int, int] | None, style: Style
) -> Sequence[Segment]:
    """A line with characters `span` highlighted; the first `gutter` ones are decoration and never are."""
    if span is None:
        return drawn
    start, end = max(span[0], gutter), _FAR if span[1] == -1 else span[1]
    segments: list[Segment] = []
    position = 0
    for segment in drawn:
        text, own, _ = segment
        following = position + len(text)
        cuts = sorted({0, len(text), *(min(max(0, edge - position), len(text)) for edge in (start, end))})
        for left, right in pairwise(cuts):
            chosen = start <= position + left < end
            segments.append(Segment(text[left:right], (own or Style.null()) + style if chosen else own))
        position = following
    return segments


def selected_text(viewport: Viewport, selection: Selection) -> str:
    """The selected text without decoration. Lines that were wrapped are whole again.

    A prose block or an open card that lies wholly inside the selection gives its source; the ends give what is seen.
    """
    blocks = viewport.transcript.blocks
    if not blocks:
        return ""
    first = decode_line(selection.start.y) if selection.start else Position(0, 0, 0)
    last = decode_line(selection.end.y) if selection.end else Position(len(blocks) - 1, _MASK, _MASK)
    text = ""
    for index in range(first.block, min(last.block, len(blocks) - 1) + 1):
        block = blocks[index]
        collapsed = isinstance(block, (ToolBlock, ReasoningBlock, BoundaryBlock)) and block.collapsed
        whole = first.block < index < last.block or (first.block == index and _is_whole(selection, first, last))
        if whole and not collapsed:
            part = plain_text(block).strip("\n")
        else:
            part = _painted_text(viewport, index, selection).strip("\n")
        if part and text:
            text += "\n\n" if has_gap(blocks[index - 1], block) else "\n"
        text += part
    return text


def _is_whole(selection: Selection, first: Position, last: Position) -> bool:
    starts = selection.start is None or (first.section == first.line == 0 and selection.start.x == 0)
    return starts and (last.block > first.block or (last.section, last.line) == (_MASK, _MASK))


def _painted_text(viewport: Viewport, index: int, selection: Selection) -> str:
    text = ""
    painting = viewport.painting(index)
    for section in range(len(painting.heights)):
        for number, line in enumerate(viewport.section_lines(index, section)):
            span = selection.get_span(encode_line(index, section, number))
            if span is None:
                continue
            end = None if span[1] == -1 else max(span[1], line.gutter)
            taken = line.text[max(span[0], line.gutter) : end]
            ends_here = end is not None and end < len(line.text)
            text += taken if ends_here or line.ending == "" else taken.rstrip() + line.ending
    return text
