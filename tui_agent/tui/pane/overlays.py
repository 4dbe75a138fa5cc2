"""Overlays on painted lines of the conversation: drawn each time a line is shown, never cached with it."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui_agent.tui.painting.lines import GUTTER, fit
from tui_agent.tui.painting.palette import Look

_FAR: Final = 1 << 30


def with_cursor(segments: Sequence[Segment], sign: str, style: Style) -> list[Segment]:
    """A line with the block cursor in its first cell."""
    first, *others = segments
    cursor = Segment(sign, style)
    return [cursor, Segment(first.text[1:], first.style), *others] if first.text[1:] else [cursor, *others]


def with_spinner(segments: Sequence[Segment], sign: str, picture: str) -> list[Segment]:
    """A card's header with its running sign replaced by a spinner frame of the same width."""
    drawn = list(segments)
    for place, segment in enumerate(drawn[:3]):
        if segment.text.startswith(sign):
            drawn[place] = Segment(picture + segment.text[len(sign) :], segment.style)
            break
    return drawn


def with_label(strip: Strip, label: str, style: Style, *, right: bool) -> Strip:
    """A line with a label over its left or its right end."""
    width, cells = strip.cell_length, cell_len(label)
    if cells > width:
        return strip
    drawn = Strip([Segment(label, style)], cells)
    if right:
        return Strip.join([strip.crop(0, width - cells), drawn])
    return Strip.join([drawn, strip.crop(cells, width)])


def with_hint(strip: Strip, hint: str, look: Look) -> Strip:
    """A blank line with a hint at its end of what a key would do."""
    palette = look.palette
    start = Strip([Segment(" " * GUTTER, palette.base), Segment(f"{look.glyphs.arrow} ", palette.accent)])
    room = max(1, strip.cell_length - start.cell_length - 1)
    hint_strip = Strip([Segment(fit(hint, room, look.glyphs.ellipsis), palette.muted)])
    drawn = Strip.join([start, hint_strip]).crop(0, strip.cell_length)
    return Strip.join([drawn, strip.crop(drawn.cell_length, strip.cell_length)])


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
