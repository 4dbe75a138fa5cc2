"""A subtask: where it stands, and its calls nested under it."""

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len

from tui_agent.text import call_summary
from tui_agent.tui.cards.blocks import ToolBlock
from tui_agent.tui.cards.lines import Line, Run, fit, make_line
from tui_agent.tui.cards.palette import Look

STEPS: Final = 4
"""Calls of a subtask that are shown under its collapsed card."""
_EARLIER: Final = "…"


def is_running_subtask(block: ToolBlock) -> bool:
    """Whether a call is done by a model of its own: its progress is a line of figures, then a line for each call."""
    return not block.state.finished and bool(block.steps.strip())


def subtask_lines(block: ToolBlock) -> list[str]:
    """The line of figures, then the steps; of a collapsed card the newest."""
    figures, *steps = [line for line in block.steps.split("\n") if line.strip()]
    return [figures, *(steps[-STEPS:] if block.collapsed else steps)]


def draw_subtask(lines: Sequence[str], indent: int, width: int, look: Look) -> list[Line]:
    """These lines as they are painted, one line each."""
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
        name = glyphs.ellipsis if step.startswith(_EARLIER) else fit(name, max(1, min(32, room - 3)), glyphs.ellipsis)
        left = room - 3 - cell_len(name)
        runs = [margin, sign, Run(name, palette.muted)]
        if summary and left > 3:
            runs.append(Run(f" {fit(summary, left, glyphs.ellipsis)}", palette.faint))
        drawn.append(make_line(runs, gutter=indent + 2))
    return drawn


def _summary(arguments: str) -> str:
    return call_summary(arguments) if arguments.startswith("{") else arguments
