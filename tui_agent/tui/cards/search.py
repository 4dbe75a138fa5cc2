"""The card of a search in files: the first hits with file and line, and the number of further ones."""

import re
from itertools import islice
from typing import Final, NamedTuple

from typing_extensions import override

from tui_agent.text import counted
from tui_agent.tui.cards.tool import BODY_INDENT, PREVIEW_LINES, ToolBlock, ToolState
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look

_HIT: Final = re.compile(r"^(\d+): ?(.*)$", re.MULTILINE)
"""A line with a match, in the output of the `grep` tool: it follows a line with the name of its file."""
_NOT_A_NAME: Final = re.compile(r"\d+[:-]|--$|\[")
"""Matches the start of any line that is not a file's name: a match, a context line, a gap, a note."""


class _Hits(NamedTuple):
    first: list[tuple[str, str]]
    """Pairs of a place, ``file:number``, and the text of the line."""
    more: int


class SearchBlock(ToolBlock, eq=False, kw_only=True):
    """A search. Its result has each file's name on a line, followed by the lines found in it."""

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
        # One hit beyond the preview is shown: "+1 more" would take as much room.
        first = list(islice(found, PREVIEW_LINES + 1))
        more = sum(1 for _ in found)
        if more:
            first, more = first[:PREVIEW_LINES], more + 1
        return _Hits([(f"{self._file_of(hit.start())}:{hit[1]}", hit[2].strip()) for hit in first], more)

    def _file_of(self, place: int) -> str:
        """The name of a hit's file: the nearest line above it that is a file's name."""
        for line in reversed(self.result[:place].splitlines()):
            if line and not _NOT_A_NAME.match(line):
                return line
        return ""
