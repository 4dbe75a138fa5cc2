"""Something the user should know: what happened, what was kept, what to do next."""

from enum import StrEnum
from functools import partial
from typing import Final

from rich.style import Style
from typing_extensions import override

from tui_agent.text import clean, one_line
from tui_agent.tui.cards.base import Block
from tui_agent.tui.painting.lines import GUTTER, Line, Run, wrap
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, draw_hint, muted, text_sections

_TEXT_INDENT: Final = GUTTER + 2


class Level(StrEnum):
    """How urgent a notice is; the welcome has its own look."""

    WELCOME = "welcome"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class NoticeBlock(Block, eq=False, kw_only=True):
    """What happened (`title`), what was kept (`text`), what to do next (`hint`). `lead`: a line of the welcome between
    the first two, in the accent.
    """

    level: Level
    title: str
    text: str = ""
    hint: str = ""
    lead: str = ""

    @property
    @override
    def plain_text(self) -> str:
        return "\n".join(part for part in (self.title, self.lead, self.text, self.hint) if part)

    @override
    def sections(self) -> list[Section]:
        sections = [Section(partial(_draw_title, self), len(self.title))]
        if self.lead:
            sections.append(Section(partial(_draw_lead, self.lead), len(self.lead)))
        if self.text:
            sections += text_sections(self.text, muted, indent=_TEXT_INDENT, columns=True)
        if self.hint:
            sections.append(Section(partial(draw_hint, self.hint, _TEXT_INDENT), len(self.hint)))
        return sections

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        return 1 + bool(self.lead) + (self.text.count("\n") + 1 if self.text else 0) + bool(self.hint)


def notice(level: Level, title: str, text: str = "", hint: str = "", *, id: int, index: int) -> NoticeBlock:  # noqa: A002 (the name it has in a block)
    """A notice with its texts cleaned; `id`, `index`: see `Block`."""
    cleaned = clean(text).rstrip("\n")
    return NoticeBlock(id=id, index=index, level=level, title=one_line(title), text=cleaned, hint=one_line(hint))


def _draw_title(block: NoticeBlock, width: int, look: Look) -> list[Line]:
    palette = look.palette
    sign, style = _sign(block.level, look)
    gutter = Run(" " * GUTTER, palette.base)
    title = {Level.INFO: palette.base, Level.WELCOME: palette.strong}.get(block.level, style)
    return wrap(
        [Run(block.title, title)], width, first=(gutter, Run(f"{sign} ", style)), rest=(gutter, Run("  ", palette.base))
    )


def _draw_lead(lead: str, width: int, look: Look) -> list[Line]:
    indent = (Run(" " * _TEXT_INDENT, look.palette.base),)
    return wrap([Run(lead, look.palette.accent)], width, first=indent, rest=indent)


def _sign(level: Level, look: Look) -> tuple[str, Style]:
    palette, glyphs = look.palette, look.glyphs
    return {
        Level.WELCOME: (glyphs.bar, palette.accent),
        Level.INFO: (glyphs.info, palette.accent),
        Level.WARNING: (glyphs.warning, palette.warning),
        Level.ERROR: (glyphs.failure, palette.error),
    }[level]
