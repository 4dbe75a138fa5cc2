"""The card of a call that runs a subtask, with a model of its own: its status line, and its calls nested below."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from rich.cells import cell_len
from typing_extensions import override

from tui_agent.text import call_summary
from tui_agent.tool_titles import tool_title
from tui_agent.tui.cards.tool import BODY_INDENT, ToolBlock
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, blank_section, faint, muted, text_sections

SUBTASK_PREFIX: Final = "agentic_"
"""Tools whose names start with this run a subtask, as does `run_agent`."""
PREVIEW_STEPS: Final = 4
"""Calls of a subtask shown under its collapsed card."""
_EARLIER: Final = "…"


class SubtaskBlock(ToolBlock, eq=False, kw_only=True):
    """A call that runs a subtask. `steps`: its status line, then a line for each of its calls; kept once it is done."""

    TOOLS = frozenset(("run_agent",))

    steps: str = ""

    @classmethod
    @override
    def is_for(cls, tool: str) -> bool:
        return tool.startswith(SUBTASK_PREFIX) or tool in cls.TOOLS

    @override
    def show_progress(self, text: str, above: int) -> None:
        self.steps = text

    @override
    def text_parts(self) -> tuple[str, ...]:
        call, *others = ToolBlock.text_parts(self)
        return call, self.steps, *others

    @override
    def preview_height(self) -> int:
        return len(self._lines()) if self._runs else ToolBlock.preview_height(self)

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        if not self._runs:
            return ToolBlock.draw_preview(self, width, look)
        return _draw(self._lines(), BODY_INDENT, width, look)

    @override
    def open_sections(self) -> list[Section]:
        if not self.steps.strip():
            return ToolBlock.open_sections(self)
        lines = self._lines()
        sections = text_sections(arguments, faint, indent=BODY_INDENT) if (arguments := self.other_arguments()) else []
        if sections:
            sections.append(blank_section())
        sections.append(Section(partial(_draw, lines, BODY_INDENT), breaks=len(lines) - 1))
        if self.result:
            sections += [blank_section(), *text_sections(self.result, muted, indent=BODY_INDENT)]
        return sections

    @override
    def outcome(self, look: Look) -> list[Run]:
        # The first line of the steps already shows the figures.
        return self.figures(look) if self.steps.strip() and not self.collapsed else ToolBlock.outcome(self, look)

    @property
    def _runs(self) -> bool:
        return not self.state.finished and bool(self.steps.strip())

    def _lines(self) -> list[str]:
        """The status line, then the calls; of a collapsed card only the newest calls."""
        figures, *steps = [line for line in self.steps.split("\n") if line.strip()]
        return [figures, *(steps[-PREVIEW_STEPS:] if self.collapsed else steps)]


def _draw(lines: Sequence[str], indent: int, width: int, look: Look) -> list[Line]:
    """Paint the status line and the calls, each cut to one line."""
    palette, glyphs = look.palette, look.glyphs
    figures, *steps = lines
    margin = Run(" " * indent, palette.base)
    room = max(1, width - indent)
    told = f" {glyphs.dot} ".join(figures.split(" · "))
    drawn = [make_line([margin, Run(fit(told, room, glyphs.ellipsis), palette.faint)], gutter=indent)]
    for step in steps:
        name, _, arguments = step.partition(" ")
        summary = step.lstrip(f"{_EARLIER} ") if step.startswith(_EARLIER) else _summary(arguments)
        sign = Run(f"{glyphs.nested} ", palette.faint)
        called = glyphs.ellipsis if step.startswith(_EARLIER) else tool_title(name)
        called = fit(called, max(1, min(32, room - 3)), glyphs.ellipsis)
        left = room - 3 - cell_len(called)
        runs = [margin, sign, Run(called, palette.muted)]
        if summary and left > 3:
            runs.append(Run(f" {fit(summary, left, glyphs.ellipsis)}", palette.faint))
        drawn.append(make_line(runs, gutter=indent + 2))
    return drawn


def _summary(arguments: str) -> str:
    return call_summary(arguments) if arguments.startswith("{") else arguments
