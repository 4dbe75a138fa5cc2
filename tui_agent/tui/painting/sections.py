"""Sections: the pieces of a block that are painted one by one, when they come into view."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct, structs
from rich.style import Style

from tui_agent.regex import regex
from tui_agent.tui.painting.lines import GUTTER, Line, Run, blank_line, wrap
from tui_agent.tui.painting.palette import Look

TEXT_LINES: Final = 60
"""Source lines of one section of plain text."""
TEXT_CHARACTERS: Final = 4000
"""Characters of one section; a longer line is cut into several."""

FIRST_COLUMN: Final = regex(r" *\S+(?: \S+)* {2,}(?=\S)| +(?=\S)", re.ASCII)
"""Matches a first column with the blanks after it, or else the indent of a line."""

Draw = Callable[[int, Look], list[Line]]


class Section(Struct, eq=False):
    """A piece that can be painted at a width, with the size of its text, from which its height is estimated.

    characters, breaks: how many characters and line breaks its text has.
    """

    draw: Draw
    characters: int = 0
    breaks: int = 0

    def estimate(self, width: int) -> int:
        return estimate_lines(self.characters, self.breaks, width)


def estimate_lines(characters: int, breaks: int, width: int) -> int:
    lines = breaks + 1
    return max(lines, lines // 2 + characters // max(1, width))


def blank_section() -> Section:
    return Section(lambda _width, look: [blank_line(look.palette.base)])


def text_sections(
    text: str, style: Callable[[Look], Style], *, indent: int = GUTTER, columns: bool = False
) -> list[Section]:
    """Plain text, without markup, wrapped and indented by `indent` cells.

    columns: if a line has two columns separated by two spaces, its wrapped part continues in the second column; if it
    is indented, at its indent.
    """
    return [
        Section(
            partial(_draw_text, lines, style, indent, joined, columns),
            sum(len(line) for line in lines),
            max(0, len(lines) - 1),
        )
        for lines, joined in pieces(text)
    ]


def pieces(text: str) -> list[tuple[list[str], bool]]:
    """`text` in groups of lines of bounded size, and whether each group ends in the middle of a line."""
    found: list[tuple[list[str], bool]] = []
    group: list[str] = []
    size = 0
    for line in text.removesuffix("\n").split("\n"):
        while len(line) > TEXT_CHARACTERS:
            if group:
                found.append((group, False))
                group, size = [], 0
            found.append(([line[:TEXT_CHARACTERS]], True))
            line = line[TEXT_CHARACTERS:]
        group.append(line)
        size += len(line)
        if len(group) >= TEXT_LINES or size > TEXT_CHARACTERS:
            found.append((group, False))
            group, size = [], 0
    if group:
        found.append((group, False))
    return found


def muted(look: Look) -> Style:
    """The style of text that is secondary but meant to be read."""
    return look.palette.muted


def faint(look: Look) -> Style:
    """The style of the least important text."""
    return look.palette.faint


def draw_hint(hint: str, indent: int, width: int, look: Look) -> list[Line]:
    """A hint on what to do next, after an arrow."""
    palette = look.palette
    margin = Run(" " * indent, palette.base)
    arrow = Run(f"{look.glyphs.arrow} ", palette.accent)
    return wrap([Run(hint, palette.base)], width, first=(margin, arrow), rest=(margin, Run("  ", palette.base)))


def _draw_text(
    lines: Sequence[str],
    style: Callable[[Look], Style],
    indent: int,
    joined: bool,
    columns: bool,
    width: int,
    look: Look,
) -> list[Line]:
    ink, base = style(look), look.palette.base
    first = (Run(" " * indent, base),)
    painted: list[Line] = []
    for line in lines:
        column = FIRST_COLUMN.match(line) if columns else None
        hang = column.end() if column and column.end() <= (width - indent) // 2 else 0
        painted += (
            _hanging(line, hang, ink, first, width) if hang else wrap([Run(line, ink)], width, first=first, rest=first)
        )
    if joined:
        painted[-1] = structs.replace(painted[-1], ending="")
    return painted


def _hanging(line: str, hang: int, ink: Style, margin: tuple[Run, ...], width: int) -> list[Line]:
    """Wrap a line with a hanging indent of `hang` characters."""
    rest = (*margin, Run(" " * hang, ink))
    first, *others = wrap([Run(line[hang:], ink)], width, first=(*margin, Run(line[:hang], ink)), rest=rest)
    return [structs.replace(first, gutter=sum(len(run.text) for run in margin)), *others]
