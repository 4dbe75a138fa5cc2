"""A call that a model of its own works on: where it stands, and its calls nested under it."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from rich.cells import cell_len
from typing_extensions import override

from tui_agent.text import call_summary
from tui_agent.tui.cards.base import Block
from tui_agent.tui.cards.lines import Line, Run, fit, make_line
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.cards.sections import Section, blank_section, faint, muted, text_sections
from tui_agent.tui.cards.tool import NAMES, ToolBlock

PREFIX: Final = "agentic_"
TOOLS: Final = frozenset(("run_agent",))
"""How the names of these tools begin."""
STEPS: Final = 4
"""Calls of a subtask that are shown under its collapsed card."""
_EARLIER: Final = "…"


class SubtaskBlock(ToolBlock, eq=False, kw_only=True):
    """`steps`: where it stands, then what it calls, a line each; kept when it is over."""

    steps: str = ""

    @override
    def told(self) -> tuple[str, ...]:
        call, *others = ToolBlock.told(self)
        return call, self.steps, *others

    @override
    def preview_height(self) -> int:
        return len(self._lines()) if self._runs else ToolBlock.preview_height(self)

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        if not self._runs:
            return ToolBlock.draw_preview(self, width, look)
        return _draw(self._lines(), self.indent, width, look)

    @override
    def opened(self) -> list[Section]:
        if not self.steps.strip():
            return ToolBlock.opened(self)
        lines = self._lines()
        sections = text_sections(arguments, faint, indent=self.indent) if (arguments := self.told_arguments()) else []
        if sections:
            sections.append(blank_section())
        sections.append(Section(partial(_draw, lines, self.indent), breaks=len(lines) - 1))
        if self.result:
            sections += [blank_section(), *text_sections(self.result, muted, indent=self.indent)]
        return sections

    @override
    def outcome(self, look: Look) -> list[Run]:
        # Its figures stand in the first of its steps.
        return self.figures(look) if self.steps.strip() and not self.collapsed else ToolBlock.outcome(self, look)

    @property
    def _runs(self) -> bool:
        return not self.state.finished and bool(self.steps.strip())

    def _lines(self) -> list[str]:
        """The line of figures, then the steps; of a collapsed card the newest."""
        figures, *steps = [line for line in self.steps.split("\n") if line.strip()]
        return [figures, *(steps[-STEPS:] if self.collapsed else steps)]


class Records(Protocol):
    """Who knows what subtasks did; `agent.agent.Agent` is one."""

    async def subtask_progress(self, call_id: str) -> str:
        """What was told last of the subtask that worked for a call; empty where nothing is known."""
        ...


class Cards(Protocol):
    """Where the cards stand; `pane.transcript.Transcript` is one."""

    def when_opened(self, told: Callable[[SubtaskBlock], None]) -> None:
        """Tell `told` of each subtask's card when it is opened, or where it stands open."""
        ...

    def get(self, block_id: int) -> Block | None:
        """The block with an id."""
        ...

    def show_steps(self, block: SubtaskBlock, steps: str) -> None:
        """Show where a subtask stands."""
        ...


class SubtaskSteps:
    """Fills in the steps of cards from an earlier session, read from the subtasks' own records when a card is opened,
    one card at a time.
    """

    def __init__(self, cards: Cards, records: Records) -> None:
        self._cards = cards
        self._records = records
        self._one_at_a_time = asyncio.Lock()
        self._reading: set[asyncio.Task[None]] = set()
        cards.when_opened(self._look_up)

    def _look_up(self, block: SubtaskBlock) -> None:
        if block.state.finished and not block.steps:
            task = asyncio.ensure_future(self._fill(block))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)

    async def _fill(self, block: SubtaskBlock) -> None:
        async with self._one_at_a_time:
            steps = await self._records.subtask_progress(block.call_id)
        if steps and not block.steps and self._cards.get(block.id) is block:
            self._cards.show_steps(block, steps)


def _draw(lines: Sequence[str], indent: int, width: int, look: Look) -> list[Line]:
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
        called = glyphs.ellipsis if step.startswith(_EARLIER) else NAMES.get(name, name)
        called = fit(called, max(1, min(32, room - 3)), glyphs.ellipsis)
        left = room - 3 - cell_len(called)
        runs = [margin, sign, Run(called, palette.muted)]
        if summary and left > 3:
            runs.append(Run(f" {fit(summary, left, glyphs.ellipsis)}", palette.faint))
        drawn.append(make_line(runs, gutter=indent + 2))
    return drawn


def _summary(arguments: str) -> str:
    return call_summary(arguments) if arguments.startswith("{") else arguments
