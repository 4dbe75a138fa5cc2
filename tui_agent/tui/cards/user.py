"""A message of the user's, beside a bar. A long one shows only its beginning and end until it is opened."""

from functools import partial
from typing import Final

from msgspec import structs
from typing_extensions import override

from tui_agent.text import counted
from tui_agent.tui.cards.base import Card
from tui_agent.tui.cards.prose import fenced_code
from tui_agent.tui.painting.lines import Line, Run, wrap
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, estimate_lines, pieces

LONG_LINES: Final = 16
LONG_CHARACTERS: Final = 2_000
"""A text that exceeds either is folded."""
HEAD_LINES: Final = 6
HEAD_CHARACTERS: Final = 600
TAIL_LINES: Final = 4
"""The end is shown because that is where the question about a pasted text usually is."""
TAIL_CHARACTERS: Final = 400


class UserBlock(Card, eq=False, kw_only=True):
    """A message of the user's.

    seq: its number; 0: unknown. lines: its number of lines, if `text` leaves out some of its middle; else 0.
    """

    text: str
    seq: int = 0
    lines: int = 0

    @property
    @override
    def can_open(self) -> bool:
        return len(self.text) > LONG_CHARACTERS or self.text.count("\n") >= LONG_LINES

    @property
    @override
    def message(self) -> int:
        return self.seq

    @property
    @override
    def said(self) -> str:
        return self.text

    @property
    @override
    def plain_text(self) -> str:
        return self.text

    @property
    @override
    def code(self) -> list[str]:
        return fenced_code(self.text)

    @override
    def sections(self) -> list[Section]:
        if not self.can_open:
            return _sections(self.text)
        if not self.collapsed:
            return _sections(self.text, closes=True)
        head, tail, left = self._ends()
        count = Section(partial(_draw_count, left))
        return [*_sections(head), count, *_sections(tail)]

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if collapsed and self.can_open:
            head, tail, _ = self._ends()
            return 1 + sum(estimate_lines(len(part), part.count("\n"), width) for part in (head, tail))
        return estimate_lines(len(self.text), self.text.count("\n"), width)

    def _ends(self) -> tuple[str, str, str]:
        """The beginning, the end, and a count of what is left out between them."""
        lines = self.text.removesuffix("\n").split("\n")
        head = "\n".join(lines[:HEAD_LINES])[:HEAD_CHARACTERS]
        tail = "\n".join(lines[max(HEAD_LINES, len(lines) - TAIL_LINES) :])[-TAIL_CHARACTERS:]
        tail = tail or self.text[len(head) :][-TAIL_CHARACTERS:]
        between = (self.lines or len(lines)) - head.count("\n") - tail.count("\n") - 2
        left = len(self.text) - len(head) - len(tail)
        return head, tail, f"+{counted(between, 'line')}" if between > 0 else f"+{counted(left, 'character')}"


def _sections(text: str, *, closes: bool = False) -> list[Section]:
    """Sections of a user's text. `closes`: a click on the first line folds the block."""
    return [
        Section(partial(_draw, lines, joined, closes and not place), sum(len(line) for line in lines), len(lines) - 1)
        for place, (lines, joined) in enumerate(pieces(text))
    ]


def _draw(lines: list[str], joined: bool, closes: bool, width: int, look: Look) -> list[Line]:
    palette = look.palette
    bar = (Run(look.glyphs.bar, palette.accent), Run(" ", palette.base))
    painted = [drawn for line in lines for drawn in wrap([Run(line, palette.user)], width, first=bar, rest=bar)]
    if joined:
        painted[-1] = structs.replace(painted[-1], ending="")
    if closes:
        painted[0] = structs.replace(painted[0], header=True)
    return painted


def _draw_count(left: str, width: int, look: Look) -> list[Line]:
    palette = look.palette
    bar = (Run(look.glyphs.bar, palette.accent), Run(" ", palette.base))
    lines = wrap([Run(f"{look.glyphs.ellipsis} {left}", palette.muted)], width, first=bar, rest=bar)
    return [structs.replace(line, header=True) for line in lines]
