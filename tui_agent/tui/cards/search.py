"""A search in files: the first hits, each with its file and line, and how many more there are."""

import re
from itertools import islice
from typing import Final, NamedTuple

from typing_extensions import override

from tui_agent.text import counted
from tui_agent.tui.cards.tool import BODY_INDENT, PREVIEW_LINES, ToolBlock, ToolState
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look

_HIT: Final = re.compile(r"^(\d+): ?(.*)$", re.MULTILINE)
"""A line with a match below the name of its file, as `grep` tells it."""
_OF_A_FILE: Final = re.compile(r"\d+[:-]|--$|\[")
"""How a line begins that is no name of a file: a match, a line around one, a gap, a note."""


class _Hits(NamedTuple):
    first: list[tuple[str, str]]
    """Where it is, and the line."""
    more: int


class SearchBlock(ToolBlock, eq=False, kw_only=True):
    """Its result names each file on a line of its own, then the lines of it."""

    TOOLS = frozenset(("grep",))

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if collapsed and self.state is ToolState.OK and self.size.lines > 2 * PREVIEW_LINES:
            return 1 + PREVIEW_LINES + 1
        return ToolBlock.estimate(self, width, collapsed=collapsed)

    @override
    def preview_height(self) -> int:
        hits = self._hits()
        return len(hits.first) + bool(hits.more) or len(self.preview_lines())

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        hits, palette, ellipsis = self._hits(), look.palette, look.glyphs.ellipsis
        if not hits.first:
            return ToolBlock.draw_preview(self, width, look)
        margin, room = Run(" " * BODY_INDENT, palette.base), max(1, width - BODY_INDENT)
        drawn: list[list[Run]] = []
        for place, line in hits.first:
            where = fit(place, room, ellipsis)
            left = room - len(where) - 2
            shown = f"  {fit(line, left, ellipsis)}" if left > 2 else ""
            drawn.append([Run(where, palette.muted), Run(shown, palette.faint)])
        if hits.more:
            drawn.append([Run(fit(f"{ellipsis} +{counted(hits.more, 'line')}", room, ellipsis), palette.muted)])
        return [make_line([margin, *runs], gutter=BODY_INDENT) for runs in drawn]

    def _hits(self) -> _Hits:
        if self.state is not ToolState.OK:
            return _Hits([], 0)
        found = _HIT.finditer(self.result)
        # A line that says how many there are would take as much room as one more hit.
        first = list(islice(found, PREVIEW_LINES + 1))
        more = sum(1 for _ in found)
        if more:
            first, more = first[:PREVIEW_LINES], more + 1
        return _Hits([(f"{self._file_of(hit.start())}:{hit[1]}", hit[2].strip()) for hit in first], more)

    def _file_of(self, place: int) -> str:
        """The name that stands above a hit: the nearest line that is no line of a file."""
        for line in reversed(self.result[:place].splitlines()):
            if line and not _OF_A_FILE.match(line):
                return line
        return ""
