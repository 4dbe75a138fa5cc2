"""A shell command, the model's or the user's own: what it printed last, while it runs and when it is done."""

from typing import Final, NamedTuple

from typing_extensions import override

from tui_agent.text import counted
from tui_agent.tui.cards.lines import Line, Run, fit, make_line
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.cards.tool import NOTE_PARTS, PREVIEW_LINES, ToolBlock, ToolState

TOOLS: Final = frozenset(("run_command", "your shell", "command_output"))
_SEARCHED: Final = 4_000
"""Characters at the end of an output that are looked at for its preview."""
_MAX_REASON: Final = 60
_FINE: Final = "exit code 0"


class _Newest(NamedTuple):
    lines: list[str]
    above: int
    """Lines before these."""


class CommandBlock(ToolBlock, eq=False, kw_only=True):
    """Its note tells how it ended, with the time, then what it printed last."""

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if collapsed and self.state is ToolState.OK and self.size.lines > PREVIEW_LINES + 1:
            return 1 + PREVIEW_LINES + 1
        return ToolBlock.estimate(self, width, collapsed=collapsed)

    @override
    def preview_height(self) -> int:
        newest = self._newest()
        return len(newest.lines) + bool(newest.above)

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        palette, ellipsis = look.palette, look.glyphs.ellipsis
        margin, room = Run(" " * self.indent, palette.base), max(1, width - self.indent)
        lines, above = self._newest()
        drawn = [Run(fit(line, room, ellipsis), palette.faint) for line in lines]
        if above:
            count = f"{ellipsis} +{counted(above, 'line')}"
            drawn.insert(0, Run(fit(count, room, ellipsis), palette.muted))
        return [make_line([margin, run], gutter=self.indent) for run in drawn]

    @override
    def outcome(self, look: Look) -> list[Run]:
        ended = self._ended.partition(", ")[0]
        told = [] if not self.state.finished or not ended or ended == _FINE else [ended]
        if self.state is ToolState.DENIED:
            told = []
        return [
            *(Run(fit(reason, _MAX_REASON, look.glyphs.ellipsis), look.palette.faint) for reason in told),
            *self.figures(look),
        ]

    @property
    def _ended(self) -> str:
        return self.note.split(NOTE_PARTS, 1)[0]

    def _newest(self) -> _Newest:
        if not self.state.finished:
            return _newest_of(self.tail, self.above + self.tail.removesuffix("\n").count("\n") + 1)
        if self.state is ToolState.DENIED:
            return _Newest([self.note] if self.note else [], 0)
        return _newest_of(self.result, self.size.lines, self._ended)


def _newest_of(output: str, count: int = 0, ended: str = "") -> _Newest:
    """The last lines of an output of at least `count` lines, without the notes behind it, of which the first tells how
    it ended.
    """
    lines = output[-_SEARCHED:].removesuffix("\n").split("\n")
    above = max(0, count - len(lines))
    told = next((place for place in range(len(lines) - 1, -1, -1) if ended and lines[place].strip("[]") == ended), None)
    if told is not None:
        lines = lines[:told]
    while lines and not lines[-1].strip():
        lines.pop()
    newest: list[str] = []
    while lines and len(newest) < PREVIEW_LINES:
        line = lines.pop()
        if line.strip():
            newest.insert(0, line)
    if above + len(lines) == 1 and lines and lines[0].strip():
        # A line that says how many there are would take as much room.
        return _Newest([lines[0], *newest], 0)
    return _Newest(newest, above + len(lines) if any(line.strip() for line in lines) or above else 0)
