"""A step of the context engine: a rule across the column that says what left the context."""

from functools import partial
from typing import Final

from rich.cells import cell_len
from typing_extensions import override

from tui_agent.text import compact_count
from tui_agent.tui.cards.base import Card
from tui_agent.tui.painting.lines import GUTTER, Line, Run, fit, make_line, wrap
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
        return f" {dot} ".join(filter(None, (self.step(arrow, dot), self.outcome, self.reason)))

    def step(self, arrow: str, dot: str) -> str:
        if self.before is None or self.after is None or self.before == self.after:
            return self.kind
        return f"{self.kind} {dot} {compact_count(self.before)} {arrow} {compact_count(self.after)} tokens"

    @property
    def frees(self) -> bool:
        """Whether it made the context smaller, and is in force."""
        return not self.undone and (self.after or 0) < (self.before or 0)

    @property
    def outcome(self) -> str:
        """What came of it: what it saved, unless it was undone."""
        return "undone" if self.undone else self.saved

    @override
    def sections(self) -> list[Section]:
        sections = [Section(partial(_draw_rule, self), len(self.label()))]
        if self.text and not self.collapsed:
            sections += text_sections(self.text, muted, indent=_TEXT_INDENT)
            if self.seq and not self.undone:
                hint = "u shows it whole again" if self.restores else "u undoes this step"
                sections.append(Section(partial(draw_hint, hint, _TEXT_INDENT), len(hint)))
        return sections

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        return (
            1 + bool(self.reason) + (0 if collapsed else estimate_lines(len(self.text), self.text.count("\n"), width))
        )


def _draw_rule(block: BoundaryBlock, width: int, look: Look) -> list[Line]:
    """The rule with the step, what came of it, and why it was taken; below it, what the rule has no room for."""
    palette, glyphs = look.palette, look.glyphs
    sign = f"{glyphs.closed if block.collapsed else glyphs.opened} " if block.can_open else ""
    between, room = f" {glyphs.dot} ", max(1, width - GUTTER - 5)
    step = sign + block.step(glyphs.arrow, glyphs.dot)
    more = [part for part in (block.outcome, block.reason) if part]
    if cell_len(between.join((step, *more))) > room:
        step = step.removesuffix(" tokens")
    label = [Run(fit(step, room, glyphs.ellipsis), palette.muted)]
    left = room - cell_len(step)
    while more and cell_len(between + more[0]) <= left:
        left -= cell_len(between + more[0])
        won = more[0] == block.saved and not block.undone
        label += [Run(between, palette.muted), Run(more.pop(0), palette.accent if won else palette.muted)]
    start = [Run(" " * GUTTER, palette.base), Run(glyphs.rule * 2 + " ", palette.faint)]
    rule = [*start, *label, Run(" " + glyphs.rule * max(0, left + 1), palette.faint)]
    margin = (Run(" " * (GUTTER + 3), palette.base),)
    below = wrap([Run(between.join(more), palette.muted)], width, first=margin, rest=margin) if more else []
    return [make_line(rule, gutter=GUTTER + 3, header=True), *below]
