"""The model's reasoning: one quiet line, the whole text when opened."""

from collections.abc import Callable
from functools import partial

from typing_extensions import override

from tui_agent.text import compact_count
from tui_agent.tui.cards.base import Card, StreamedText
from tui_agent.tui.cards.prose import ProseSections, fenced_code
from tui_agent.tui.painting.lines import GUTTER, Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, estimate_lines
from tui_agent.tui.wording import duration


class ReasoningBlock(Card, eq=False, kw_only=True):
    """The model's reasoning; `seconds` and `tokens` are set once it is complete."""

    content: StreamedText
    streaming: bool = False
    seconds: float | None = None
    tokens: int | None = None

    @property
    @override
    def plain_text(self) -> str:
        """The reasoning so far; some providers send none."""
        return str(self.content)

    @property
    @override
    def can_open(self) -> bool:
        return bool(self.plain_text)

    @property
    @override
    def code(self) -> list[str]:
        return fenced_code(self.plain_text)

    @override
    def sections(self) -> list[Section]:
        return self._divided(ProseSections(quiet=True))

    @override
    def divider(self) -> Callable[[], list[Section]]:
        growing = ProseSections(quiet=True)
        return lambda: self._divided(growing)

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        return 1 + (0 if collapsed else estimate_lines(len(self.plain_text), self.plain_text.count("\n"), width))

    def _divided(self, growing: ProseSections) -> list[Section]:
        header = Section(partial(_draw_header, self))
        return [header] if self.collapsed else [header, *growing.update(self.plain_text)]


def _draw_header(block: ReasoningBlock, width: int, look: Look) -> list[Line]:
    palette, glyphs = look.palette, look.glyphs
    parts = [f"Thinking{glyphs.ellipsis}" if block.streaming else "Thought"]
    if block.seconds is not None and block.seconds >= 1:
        parts[0] = f"Thought for {duration(block.seconds)}"
    if block.tokens and not block.collapsed:
        parts.append(f"{compact_count(block.tokens)} tokens")
    sign = (glyphs.closed if block.collapsed else glyphs.opened) if block.can_open else glyphs.dot
    label = fit(f" {glyphs.dot} ".join(parts), max(1, width - GUTTER - 2), glyphs.ellipsis)
    gutter = Run(" " * GUTTER, palette.base)
    return [make_line([gutter, Run(f"{sign} ", palette.faint), Run(label, palette.faint)], header=True)]
