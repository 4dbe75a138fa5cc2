"""The line under a finished turn: how long it took, what it cost, how many files it changed."""

from typing_extensions import override

from tui_agent.text import counted, money_text
from tui_agent.tui.cards.base import Block
from tui_agent.tui.painting.lines import GUTTER, Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section
from tui_agent.tui.wording import duration

LONG_S = 10.0
"""Seconds from which on a turn that cost nothing says how long it took."""


class FooterBlock(Block, eq=False, kw_only=True):
    """The figures of one turn."""

    seconds: float
    usd: float
    files: int

    @property
    def parts(self) -> tuple[str, ...]:
        """What there is to say; nothing of a short turn that cost nothing and changed nothing."""
        timed = self.seconds >= (1 if self.usd else LONG_S)
        parts = (
            duration(self.seconds) if timed else "",
            money_text(self.usd) if self.usd else "",
            f"{counted(self.files, 'file')} changed" if self.files else "",
        )
        return tuple(filter(None, parts))

    @property
    @override
    def plain_text(self) -> str:
        return " · ".join(self.parts)

    @override
    def sections(self) -> list[Section]:
        return [Section(self._draw)]

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        return 1

    def _draw(self, width: int, look: Look) -> list[Line]:
        margin = Run(" " * GUTTER, look.palette.base)
        text = fit(f" {look.glyphs.dot} ".join(self.parts), max(1, width - GUTTER), look.glyphs.ellipsis)
        return [make_line([margin, Run(text, look.palette.faint)])]
