"""A shell command, the model's or the user's own: what it printed last, while it runs and when it is done."""

import re
from typing import Final, NamedTuple

from typing_extensions import override

from tui_agent.text import counted
from tui_agent.tui.cards.tool import BODY_INDENT, NOTE_PARTS, NOTHING_CAME, PREVIEW_LINES, ToolBlock, ToolState
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look

_SEARCHED: Final = 4_000
"""Characters at the end of an output that are looked at for its preview."""
_MAX_REASON: Final = 60
_FINE: Final = "exit code 0"
_LEFT_RUNNING: Final = "still running in the background"
_OWN: Final = "your shell"
OWN_LINES: Final = 10
"""Lines of a preview of what the user's own command printed: they ran it to read that."""
_LEFT_OUT: Final = " characters left out ...]"
_ALL_LINES: Final = re.compile(
    r"^\[(?:This result is too large to show|Cut at [^:\n]*): ([\d,]+) lines, ", re.MULTILINE
)
"""What a result says of itself that was cut (`tui_agent.context.layers.limits`)."""
_UNSAID: Final = (ToolState.DENIED, ToolState.INTERRUPTED)
"""States that say themselves how it ended."""


class _Newest(NamedTuple):
    lines: list[str]
    above: int
    """Lines before these."""


class CommandBlock(ToolBlock, eq=False, kw_only=True):
    """Its note tells how it ended, with the time, then what it printed last."""

    TOOLS = frozenset(("run_command", _OWN, "command_output"))

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if collapsed and self.state is ToolState.OK and self.size.lines > self._most + 1:
            return 1 + self._most + 1
        return ToolBlock.estimate(self, width, collapsed=collapsed)

    @override
    def word(self) -> str:
        return "in the background" if self._left_running else ToolBlock.word(self)

    @override
    def preview_height(self) -> int:
        newest = self._newest()
        return len(newest.lines) + bool(newest.above)

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        palette, ellipsis = look.palette, look.glyphs.ellipsis
        margin, room = Run(" " * BODY_INDENT, palette.base), max(1, width - BODY_INDENT)
        lines, above = self._newest()
        drawn = [Run(fit(line, room, ellipsis), palette.faint) for line in lines]
        if above:
            count = f"{ellipsis} +{counted(above, 'line')}"
            drawn.insert(0, Run(fit(count, room, ellipsis), palette.muted))
        return [make_line([margin, run], gutter=BODY_INDENT) for run in drawn]

    @override
    def outcome(self, look: Look) -> list[Run]:
        ended = self._ended.partition(", ")[0]
        unsaid = not ended or ended == _FINE or self._left_running or self.state in _UNSAID
        told = [] if unsaid or not self.state.finished else [ended]
        return [
            *(Run(fit(reason, _MAX_REASON, look.glyphs.ellipsis), look.palette.faint) for reason in told),
            *self.figures(look),
        ]

    @property
    def _left_running(self) -> bool:
        return self.state is ToolState.OK and self.note.startswith(_LEFT_RUNNING)

    @property
    def _ended(self) -> str:
        return self.note.split(NOTE_PARTS, 1)[0]

    @property
    def _most(self) -> int:
        """Lines of a preview."""
        return OWN_LINES if self.name == _OWN else PREVIEW_LINES

    def _newest(self) -> _Newest:
        if not self.state.finished:
            return _newest_of(self.tail, self._most, self.above + self.tail.removesuffix("\n").count("\n") + 1)
        if self.state is ToolState.DENIED:
            return _Newest([self.note] if self.note else [], 0)
        if self.state is ToolState.INTERRUPTED and self.result.startswith(NOTHING_CAME):
            return _Newest([], 0)
        return _newest_of(self.result, self._most, _line_count(self.result) or self.size.lines, self._ended)


def _line_count(result: str) -> int:
    """Lines that were printed, where a result is cut and says so; else 0."""
    found = _ALL_LINES.search(result) if _LEFT_OUT in result else None
    return int(found[1].replace(",", "")) if found else 0


def _newest_of(output: str, most: int, count: int = 0, ended: str = "") -> _Newest:
    """The last lines, `most` at most, of an output of at least `count` lines, without the notes behind it, of which the
    first tells how it ended.
    """
    lines = output[-_SEARCHED:].removesuffix("\n").split("\n")
    above = max(0, count - len(lines))
    told = next((place for place in range(len(lines) - 1, -1, -1) if ended and lines[place].strip("[]") == ended), None)
    if told is not None:
        lines = lines[:told]
    while lines and not lines[-1].strip():
        lines.pop()
    newest: list[str] = []
    while lines and len(newest) < most:
        line = lines.pop()
        if line.strip():
            newest.insert(0, line)
    if above + len(lines) == 1 and lines and lines[0].strip():
        # A line that says how many there are would take as much room.
        return _Newest([lines[0], *newest], 0)
    return _Newest(newest, above + len(lines) if any(line.strip() for line in lines) or above else 0)
