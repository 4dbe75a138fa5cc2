"""The card of a shell command, the model's or the user's own: its last lines of output, while it runs and after."""

from typing import Final, NamedTuple

from typing_extensions import override

from tui_agent.conversation.entries import USER_SHELL
from tui_agent.text import counted, how_it_ended
from tui_agent.tui.cards.tool import BODY_INDENT, PREVIEW_LINES, ToolBlock, ToolState
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look

_PREVIEW_SEARCH: Final = 4_000
"""Characters at the end of an output that its preview is taken from."""
USER_SHELL_LINES: Final = 10
"""Preview lines of a command of the user's own: they ran it to read its output."""
_STATES_WITH_A_WORD: Final = (ToolState.DENIED, ToolState.INTERRUPTED)
"""States whose own word already says how the command ended."""


class _Newest(NamedTuple):
    lines: list[str]
    above: int
    """How many lines precede these."""


class CommandBlock(ToolBlock, eq=False, kw_only=True):
    """A command. Its `facts` say how it ended."""

    TOOLS = frozenset(("run_command", USER_SHELL, "command_output"))

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if collapsed and self.state is ToolState.OK and self.size.lines > self._max_lines + 1:
            return 1 + self._max_lines + 1
        return ToolBlock.estimate(self, width, collapsed=collapsed)

    @override
    def state_word(self) -> str:
        return "in the background" if self.facts.left_running else ToolBlock.state_word(self)

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
        code = self.facts.exit_code
        if self.state in _STATES_WITH_A_WORD or not (code or self.facts.timed_out):
            return self.figures(look)
        ended = "timed out" if self.facts.timed_out else how_it_ended(code or 0)
        return [Run(ended, look.palette.faint), *self.figures(look)]

    @property
    def _max_lines(self) -> int:
        return USER_SHELL_LINES if self.name == USER_SHELL else PREVIEW_LINES

    def _newest(self) -> _Newest:
        if not self.state.finished:
            return _newest_of(self.tail, self._max_lines, self.above + self.tail.removesuffix("\n").count("\n") + 1)
        if self.state is ToolState.DENIED:
            return _Newest([self.note] if self.note else [], 0)
        return _newest_of(self.result, self._max_lines, self.size.lines, self.facts.notes)


def _newest_of(output: str, most: int, count: int, notes: int = 0) -> _Newest:
    """The last non-blank lines of an output, `most` at most.

    `count`: how many lines it has at least. `notes`: how many of the last ones are the program's, and are left out.
    """
    cut = max(0, len(output) - _PREVIEW_SEARCH)
    lines = output[cut:].removesuffix("\n").split("\n")
    # A line is shown from its start.
    begin = output.rfind("\n", 0, cut) + 1
    lines[0] = output[begin : min(cut, begin + _PREVIEW_SEARCH)] + lines[0]
    above = max(0, count - len(lines))
    lines = lines[: max(0, len(lines) - notes)]
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
