"""A step of the context engine: a rule across the column that says what left the context."""

from functools import partial
from typing import Final

from rich.cells import cell_len
from typing_extensions import override

from tui_agent.text import compact_count
from tui_agent.tui.cards.base import Card
from tui_agent.tui.painting.lines import GUTTER, Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, draw_hint, estimate_lines, muted, text_sections

_TEXT_INDENT: Final = GUTTER + 2


class BoundaryBlock(Card, eq=False, kw_only=True):
    """A step of the context engine: tokens before and after it, what it saved, and why it was taken.

    seq: the entry to undo; if `restores`, the result to show whole again instead; 0: it cannot be undone.
    text: shown when it is opened, such as a summary.
    """

    kind: str
    seq: int = 0
    restores: bool = False
    undone: bool = False
    before: int | None = None
    after: int | None = None
    saved: str = ""
    reason: str = ""
    text: str = ""

    @property
    @override
    def can_open(self) -> bool:
        return bool(self.text)

    @property
    @override
    def plain_text(self) -> str:
        return "\n".join(part for part in (self.label(), self.text) if part)

    def label(self, *, arrow: str = "→", dot: str = "·") -> str:
        """The step on one line: what was done, tokens before and after, what it saved, why."""
        parts = [self.kind]
        if self.before is not None and self.after is not None and self.before != self.after:
            parts.append(f"{compact_count(self.before)} {arrow} {compact_count(self.after)} tokens")
        if self.undone:
            parts.append("undone")
        elif self.saved:
            parts.append(self.saved)
        if self.reason:
            parts.append(self.reason)
        return f" {dot} ".join(parts)

    @override
    def sections(self) -> list[Section]:
        sections = [Section(partial(_draw_rule, self))]
        if self.text and not self.collapsed:
            sections += text_sections(self.text, muted, indent=_TEXT_INDENT)
            if self.seq and not self.undone:
                hint = "u shows it whole again" if self.restores else "u undoes this step"
                sections.append(Section(partial(draw_hint, hint, _TEXT_INDENT), len(hint)))
        return sections

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        return 1 + (0 if collapsed else estimate_lines(len(self.text), self.text.count("\n"), width))


def _draw_rule(block: BoundaryBlock, width: int, look: Look) -> list[Line]:
    palette, glyphs = look.palette, look.glyphs
    sign = f"{glyphs.closed if block.collapsed else glyphs.opened} " if block.can_open else ""
    caption = sign + block.label(arrow=glyphs.arrow, dot=glyphs.dot)
    room = max(1, width - GUTTER - 5)
    if cell_len(caption) > room:
        caption = caption.replace(" tokens", "", 1)
    label = fit(caption, room, glyphs.ellipsis)
    start = [Run(" " * GUTTER, palette.base), Run(glyphs.rule * 2 + " ", palette.faint)]
    rest = max(0, width - GUTTER - 4 - cell_len(label))
    runs = [*start, Run(label, palette.muted), Run(" " + glyphs.rule * rest, palette.faint)]
    return [make_line(runs, gutter=GUTTER + 3, header=True)]
