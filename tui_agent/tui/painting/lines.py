"""Painted lines: runs of styled text wrapped to a width, ready to become strips."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs
from rich.cells import cell_len, get_character_cell_size
from rich.segment import Segment
from rich.style import Style

from tui_agent.text import displayed

GUTTER = 2
"""Cells left of every text: one for the bar or the block cursor, one blank."""

MAX_MEASURE = 112
"""The widest column of text, in cells: longer lines are hard to read."""


class Run(NamedTuple):
    """Text without a line break, in one style."""

    text: str
    style: Style


class Line(msgspec.Struct, frozen=True):
    """One painted line.

    gutter: how many characters at the start are decoration, which is neither selected nor copied.
    ending: joins this line to the next in copied text: a line break, a space if the line was wrapped at one, or
    nothing if a word was cut.
    header: a click on it opens or collapses its card.
    """

    segments: tuple[Segment, ...]
    width: int
    gutter: int = GUTTER
    ending: str = "\n"
    header: bool = False

    @property
    def text(self) -> str:
        return "".join(segment.text for segment in self.segments)


def make_line(runs: Iterable[Run], *, gutter: int = GUTTER, ending: str = "\n", header: bool = False) -> Line:
    """A line of the given runs, which must fit."""
    segments = tuple(Segment(text, style) for text, style in runs if text)
    return Line(segments, sum(cell_len(segment.text) for segment in segments), gutter, ending, header)


def blank_line(style: Style) -> Line:
    """An empty line, one cell wide so that the mouse can point at it."""
    return Line((Segment(" ", style),), 1, gutter=1)


def wrap(runs: Sequence[Run], width: int, *, first: Sequence[Run], rest: Sequence[Run]) -> list[Line]:
    """Break runs into lines of at most `width` cells, at spaces where possible.

    `first` precedes the first line, `rest` the others; both are decoration.
    """
    runs = _displayed(runs)
    text = "".join(run.text for run in runs)
    room = max(1, width - sum(cell_len(run.text) for run in first))
    lines: list[Line] = []
    for start, end, ending in breaks(text, room):
        before = rest if lines else first
        lines.append(
            make_line([*before, *cut(runs, start, end)], gutter=sum(len(run.text) for run in before), ending=ending)
        )
    return [crop(line, width) for line in lines]


def _displayed(runs: Sequence[Run]) -> list[Run]:
    """The runs of one line as they are painted; tab stops are counted from its beginning."""
    if not any("\t" in run.text for run in runs):
        return [Run(displayed(text), style) for text, style in runs]
    shown: list[Run] = []
    column = 0
    for text, style in runs:
        shown.append(Run(displayed(text, column), style))
        column += cell_len(shown[-1].text)
    return shown


def breaks(text: str, width: int) -> list[tuple[int, int, str]]:
    """Where to break `text` for lines of `width` cells: (start, end, what joins the line to the next)."""
    if len(text) <= width and (text.isascii() or cell_len(text) <= width):
        return [(0, len(text), "\n")]
    found: list[tuple[int, int, str]] = []
    start = 0
    while True:
        limit = start + width if text.isascii() else _reach(text, start, width)
        if limit >= len(text):
            found.append((start, len(text), "\n"))
            return found
        space = text.rfind(" ", start + 1, limit + 1)
        if space > start and not text[start:space].isspace():
            start_of_next = space + 1
            found.append((start, space, " " if start_of_next < len(text) else "\n"))
            if start_of_next == len(text):
                return found
            start = start_of_next
        else:
            found.append((start, limit, ""))
            start = limit


def pieces(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Where to cut `text`, without line breaks, into lines of at most `width` cells: after spaces where possible.

    No character is left out, so that the lines joined are the text.
    """
    narrow, start = text.isascii(), 0
    while True:
        limit = start + width if narrow else _reach(text, start, width)
        if limit >= len(text):
            yield start, len(text)
            return
        end = text.rfind(" ", start, limit) + 1
        if end <= start or text[start:end].isspace():
            end = limit
        yield start, end
        start = end


def fit(text: str, width: int, ellipsis: str = "…") -> str:
    """`text`, cut to `width` cells with an ellipsis if it is longer."""
    text = displayed(text)
    if cell_len(text) <= width:
        return text
    if width <= cell_len(ellipsis):
        return ellipsis[:width]
    return text[: _reach(text, 0, width - cell_len(ellipsis))].rstrip() + ellipsis


def crop(line: Line, width: int) -> Line:
    if line.width <= width:
        return line
    segments: list[Segment] = []
    left = width
    for segment in line.segments:
        taken = segment if segment.cell_length <= left else Segment(_head(segment.text, left), segment.style)
        segments.append(taken)
        left -= taken.cell_length
        if left <= 0 or taken is not segment:
            break
    return structs.replace(line, segments=tuple(segments), width=width - left)


def _head(text: str, width: int) -> str:
    return text[:width] if text.isascii() else text[: _reach(text, 0, width, at_least=0)]


def _reach(text: str, start: int, width: int, *, at_least: int = 1) -> int:
    """The end of the longest piece of `text` from `start` that fits in `width` cells."""
    cells = 0
    position = start
    while position < len(text):
        size = get_character_cell_size(text[position])
        if size and cells + size > width:
            break
        cells += size
        position += 1
    return max(position, start + at_least)


def cut(runs: Sequence[Run], start: int, end: int) -> list[Run]:
    if len(runs) == 1:
        return [Run(runs[0].text[start:end], runs[0].style)]
    pieces: list[Run] = []
    position = 0
    for text, style in runs:
        if position >= end:
            break
        following = position + len(text)
        if following > start:
            pieces.append(Run(text[max(0, start - position) : end - position], style))
        position = following
    return pieces
