"""The card of a shell command, the model's or the user's own: its last lines of output, while it runs and after."""

import re
from typing import Final, NamedTuple

from typing_extensions import override

from tui_agent.text import counted
from tui_agent.tui.cards.tool import BODY_INDENT, INTERRUPTED_START, NOTE_PARTS, PREVIEW_LINES, ToolBlock, ToolState
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look

_PREVIEW_SEARCH: Final = 4_000
"""Characters at the end of an output that its preview is taken from."""
_MAX_REASON: Final = 60
_SUCCEEDED: Final = "exit code 0"
_LEFT_RUNNING: Final = "still running in the background"
_USER_SHELL: Final = "your shell"
USER_SHELL_LINES: Final = 10
"""Preview lines of a command of the user's own: they ran it to read its output."""
_CUT_MARK: Final = " characters left out ...]"
_LINES_OF_CUT: Final = re.compile(
    r"^\[(?:This result is too large to show|Cut at [^:\n]*): ([\d,]+) lines, ", re.MULTILINE
)
"""Finds the line count in the note that `tui_agent.context.layers.limits` adds to a cut result."""
_STATES_WITH_A_WORD: Final = (ToolState.DENIED, ToolState.INTERRUPTED)
"""States whose own word already says how the command ended."""


class _Newest(NamedTuple):
    lines: list[str]
    above: int
    """How many lines precede these."""


class CommandBlock(ToolBlock, eq=False, kw_only=True):
    """A command. Its `note` says how it ended and how long it took, then the last line it printed."""

    TOOLS = frozenset(("run_command", _USER_SHELL, "command_output"))

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if collapsed and self.state is ToolState.OK and self.size.lines > self._max_lines + 1:
            return 1 + self._max_lines + 1
        return ToolBlock.estimate(self, width, collapsed=collapsed)

    @override
    def state_word(self) -> str:
        return "in the background" if self._left_running else ToolBlock.state_word(self)

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
        unsaid = not ended or ended == _SUCCEEDED or self._left_running or self.state in _STATES_WITH_A_WORD
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
    def _max_lines(self) -> int:
        """The most lines a preview shows."""
        return USER_SHELL_LINES if self.name == _USER_SHELL else PREVIEW_LINES

    def _newest(self) -> _Newest:
        if not self.state.finished:
            return _newest_of(self.tail, self._max_lines, self.above + self.tail.removesuffix("\n").count("\n") + 1)
        if self.state is ToolState.DENIED:
            return _Newest([self.note] if self.note else [], 0)
        if self.state is ToolState.INTERRUPTED and self.result.startswith(INTERRUPTED_START):
            return _Newest([], 0)
        return _newest_of(self.result, self._max_lines, _line_count(self.result) or self.size.lines, self._ended)


def _line_count(result: str) -> int:
    """How many lines were printed, if the result was cut; else 0."""
    found = _LINES_OF_CUT.search(result) if _CUT_MARK in result else None
    return int(found[1].replace(",", "")) if found else 0


def _newest_of(output: str, most: int, count: int = 0, ended: str = "") -> _Newest:
    """The last non-blank lines of an output, `most` at most.

    `count`: how many lines it has at least. `ended`: the first of the notes that follow the output, which are left out.
    """
    lines = output[-_PREVIEW_SEARCH:].removesuffix("\n").split("\n")
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
        # "+1 line" would take as much room as the line itself.
        return _Newest([lines[0], *newest], 0)
    return _Newest(newest, above + len(lines) if any(line.strip() for line in lines) or above else 0)
