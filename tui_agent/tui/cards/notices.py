"""Prompts, notices and context boundaries."""

from functools import partial

from rich.cells import cell_len
from rich.style import Style

from tui_agent.tui.cards.blocks import BoundaryBlock, Level, NoticeBlock, UserBlock
from tui_agent.tui.cards.lines import GUTTER, Line, Run, fit, make_line, wrap
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.cards.sections import Section, pieces, text_sections
from tui_agent.tui.pane.transcript import boundary_label, can_open

_TEXT_INDENT = GUTTER + 2


def user_sections(block: UserBlock) -> list[Section]:
    """What the user asked, beside a bar."""
    return [
        Section(partial(_draw_user, lines, joined), sum(len(line) for line in lines), len(lines) - 1)
        for lines, joined in pieces(block.text)
    ]


def notice_sections(block: NoticeBlock) -> list[Section]:
    """What happened, what was kept, what to do next."""
    sections = [Section(partial(_draw_title, block), len(block.title))]
    if block.text:
        sections += text_sections(block.text, _muted, indent=_TEXT_INDENT, columns=True)
    if block.hint:
        sections.append(Section(partial(_draw_hint, block), len(block.hint)))
    return sections


def boundary_sections(block: BoundaryBlock) -> list[Section]:
    """A rule across the column that says what left the context."""
    sections = [Section(partial(_draw_rule, block))]
    if block.text and not block.collapsed:
        sections += text_sections(block.text, _muted, indent=_TEXT_INDENT)
        if block.seq and not block.undone:
            hint = "u shows it whole again" if block.restores else "u undoes this step"
            sections.append(Section(partial(_draw_hint_text, hint), len(hint)))
    return sections


def _draw_user(lines: list[str], joined: bool, width: int, look: Look) -> list[Line]:
    palette = look.palette
    bar = (Run(look.glyphs.bar, palette.accent), Run(" ", palette.base))
    painted = [drawn for line in lines for drawn in wrap([Run(line, palette.user)], width, first=bar, rest=bar)]
    if joined:
        painted[-1] = painted[-1]._replace(ending="")
    return painted


def _draw_title(block: NoticeBlock, width: int, look: Look) -> list[Line]:
    palette, glyphs = look.palette, look.glyphs
    sign, style = {
        Level.INFO: (glyphs.info, palette.accent),
        Level.WARNING: (glyphs.warning, palette.warning),
        Level.ERROR: (glyphs.failure, palette.error),
    }[block.level]
    gutter = Run(" " * GUTTER, palette.base)
    title = palette.base if block.level is Level.INFO else style
    return wrap(
        [Run(block.title, title)], width, first=(gutter, Run(f"{sign} ", style)), rest=(gutter, Run("  ", palette.base))
    )


def _draw_hint(block: NoticeBlock, width: int, look: Look) -> list[Line]:
    return _draw_hint_text(block.hint, width, look)


def _draw_hint_text(hint: str, width: int, look: Look) -> list[Line]:
    palette = look.palette
    margin = Run(" " * _TEXT_INDENT, palette.base)
    arrow = Run(f"{look.glyphs.arrow} ", palette.accent)
    return wrap([Run(hint, palette.base)], width, first=(margin, arrow), rest=(margin, Run("  ", palette.base)))


def _draw_rule(block: BoundaryBlock, width: int, look: Look) -> list[Line]:
    palette, glyphs = look.palette, look.glyphs
    sign = f"{glyphs.closed if block.collapsed else glyphs.opened} " if can_open(block) else ""
    label = fit(
        sign + boundary_label(block, arrow=glyphs.arrow, dot=glyphs.dot), max(1, width - GUTTER - 6), glyphs.ellipsis
    )
    start = [Run(" " * GUTTER, palette.base), Run(glyphs.rule * 2 + " ", palette.faint)]
    rest = max(0, width - GUTTER - 4 - cell_len(label))
    runs = [*start, Run(label, palette.muted), Run(" " + glyphs.rule * rest, palette.faint)]
    return [make_line(runs, gutter=GUTTER + 3, header=True)]


def _muted(look: Look) -> Style:
    return look.palette.muted
