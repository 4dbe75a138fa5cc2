"""The card of a call that runs a subtask, with a model of its own: its status line, and its calls nested below."""

from functools import partial
from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from typing_extensions import override

from tui_agent.conversation.tool_facts import facts_of
from tui_agent.text import call_summary, clean, counted, one_line
from tui_agent.tui.cards.tool import BODY_INDENT, ToolBlock
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, blank_section, faint, muted, text_sections

if TYPE_CHECKING:
    from tui_agent.tools.base import SubtaskProgress

SUBTASK_PREFIX: Final = "agentic_"
"""Tools whose names start with this run a subtask, as does `run_agent`."""
PREVIEW_CALLS: Final = 4
"""Calls of a subtask shown under its collapsed card."""


class SubtaskBlock(ToolBlock, eq=False, kw_only=True):
    """A call that runs a subtask. `progress`: how that stands, and at last how it stood; None: not known (yet)."""

    TOOLS = frozenset(("run_agent",))

    progress: "SubtaskProgress | None" = None

    @classmethod
    @override
    def is_for(cls, tool: str) -> bool:
        return tool.startswith(SUBTASK_PREFIX) or tool in cls.TOOLS

    @override
    def show_progress(self, text: str, above: int, subtask: "SubtaskProgress | None") -> None:
        self.progress = subtask

    @override
    def text_parts(self) -> tuple[str, ...]:
        call, *others = ToolBlock.text_parts(self)
        return call, clean(self.progress.text) if self.progress else "", *others

    @override
    def preview_height(self) -> int:
        if self.progress is None or self.state.finished:
            return ToolBlock.preview_height(self)
        return 1 + len(self._listed(self.progress))

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        if self.progress is None or self.state.finished:
            return ToolBlock.draw_preview(self, width, look)
        return _draw(self.progress, self._listed(self.progress), width, look)

    @override
    def open_sections(self) -> list[Section]:
        if self.progress is None:
            return ToolBlock.open_sections(self)
        sections = text_sections(arguments, faint, indent=BODY_INDENT) if (arguments := self.other_arguments()) else []
        if sections:
            sections.append(blank_section())
        listed = self._listed(self.progress)
        sections.append(Section(partial(_draw, self.progress, listed), breaks=len(listed)))
        if self.result:
            sections += [blank_section(), *text_sections(self.result, muted, indent=BODY_INDENT)]
        return sections

    @override
    def outcome(self, look: Look) -> list[Run]:
        # The status line already shows the figures.
        return self.figures(look) if self.progress and not self.collapsed else ToolBlock.outcome(self, look)

    def _listed(self, progress: "SubtaskProgress") -> list[tuple[str, str]]:
        """What stands below the status line: a title and a text on each line; of a collapsed card only the newest."""
        listed = [(facts_of(one_line(name)).title, _summary(arguments)) for name, arguments in progress.calls]
        if progress.earlier:
            listed.insert(0, ("", f"{counted(progress.earlier, 'call')} before"))
        if progress.log:
            listed.append(("log", one_line(progress.log)))
        return listed[-PREVIEW_CALLS:] if self.collapsed else listed


def _draw(progress: "SubtaskProgress", listed: list[tuple[str, str]], width: int, look: Look) -> list[Line]:
    """Paint the status line and what stands below it, each cut to one line."""
    palette, glyphs = look.palette, look.glyphs
    margin = Run(" " * BODY_INDENT, palette.base)
    room = max(1, width - BODY_INDENT)
    figures = f" {glyphs.dot} ".join(map(one_line, progress.figures))
    drawn = [make_line([margin, Run(fit(figures, room, glyphs.ellipsis), palette.faint)], gutter=BODY_INDENT)]
    for title, text in listed:
        called = fit(title or glyphs.ellipsis, max(1, min(32, room - 3)), glyphs.ellipsis)
        left = room - 3 - cell_len(called)
        runs = [margin, Run(f"{glyphs.nested} ", palette.faint), Run(called, palette.muted)]
        if text and left > 3:
            runs.append(Run(f" {fit(text, left, glyphs.ellipsis)}", palette.faint))
        drawn.append(make_line(runs, gutter=BODY_INDENT + 2))
    return drawn


def _summary(arguments: str) -> str:
    return call_summary(arguments) if arguments.startswith("{") else one_line(arguments)
