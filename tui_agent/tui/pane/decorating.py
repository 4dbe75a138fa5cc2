"""What is drawn over painted lines of the conversation at the moment they are shown, and never kept."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tui_agent.tui.cards.lines import GUTTER, fit
from tui_agent.tui.cards.palette import Look

SPINNER: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINNER_ASCII: Final = "-\\|/"
SPIN_S: Final = 0.12
"""Seconds between two pictures of the spinner."""


def with_cursor(segments: Sequence[Segment], sign: str, style: Style) -> list[Segment]:
    """The block cursor in the first cell of a line."""
    first, *others = segments
    cursor = Segment(sign, style)
    return [cursor, Segment(first.text[1:], first.style), *others] if first.text[1:] else [cursor, *others]


def with_spinner(segments: Sequence[Segment], sign: str, picture: str) -> list[Segment]:
    """The running sign of a card replaced by a picture of the spinner, as wide as it."""
    drawn = list(segments)
    for place, segment in enumerate(drawn[:3]):
        if segment.text.startswith(sign):
            drawn[place] = Segment(picture + segment.text[len(sign) :], segment.style)
            break
    return drawn


def with_words(segments: Sequence[Segment], gutter: int, words: str, style: Style) -> Sequence[Segment]:
    """A line with every place marked where `words` occur, letter case ignored; decoration is never marked."""
    text = "".join(segment.text for segment in segments)
    found = [match.span() for match in _pattern(words).finditer(text, gutter)]
    if not found:
        return segments
    edges = {edge for span in found for edge in span}
    marked: list[Segment] = []
    start = 0
    for piece, own, _ in segments:
        cuts = sorted({0, len(piece), *(edge - start for edge in edges if 0 < edge - start < len(piece))})
        for left, right in pairwise(cuts):
            inside = any(begin <= start + left < end for begin, end in found)
            marked.append(Segment(piece[left:right], (own or Style.null()) + style if inside else own))
        start += len(piece)
    return marked


def holds(text: str, words: str) -> bool:
    """Whether `words` occur, letter case ignored."""
    return _pattern(words).search(text) is not None


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
    """A blank line with a hint of what a key would do."""
    palette = look.palette
    start = Strip([Segment(" " * GUTTER, palette.base), Segment(f"{look.glyphs.arrow} ", palette.accent)])
    room = max(1, strip.cell_length - start.cell_length - 1)
    told = Strip([Segment(fit(hint, room, look.glyphs.ellipsis), palette.muted)])
    drawn = Strip.join([start, told]).crop(0, strip.cell_length)
    return Strip.join([drawn, strip.crop(drawn.cell_length, strip.cell_length)])


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(re.escape(words), re.IGNORECASE)
