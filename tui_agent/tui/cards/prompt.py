"""What the user asked, beside a bar."""

from functools import partial

from typing_extensions import override

from tui_agent.tui.cards.lines import Line, Run, wrap
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.cards.prose import MarkdownBlock
from tui_agent.tui.cards.sections import Section, pieces


class UserBlock(MarkdownBlock, eq=False, kw_only=True):
    """What the user asked; `seq` is the number of that message, 0 where it is not known."""

    text: str
    seq: int = 0

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

    @override
    def sections(self) -> list[Section]:
        return [
            Section(partial(_draw, lines, joined), sum(len(line) for line in lines), len(lines) - 1)
            for lines, joined in pieces(self.text)
        ]


def _draw(lines: list[str], joined: bool, width: int, look: Look) -> list[Line]:
    palette = look.palette
    bar = (Run(look.glyphs.bar, palette.accent), Run(" ", palette.base))
    painted = [drawn for line in lines for drawn in wrap([Run(line, palette.user)], width, first=bar, rest=bar)]
    if joined:
        painted[-1] = painted[-1]._replace(ending="")
    return painted
