"""The card of a search: the first hits with file and line, or the first pages, and the number of further ones."""

from rich.cells import cell_len
from typing_extensions import override

from tui_agent.conversation.entries import Hit
from tui_agent.text import counted, one_line
from tui_agent.tui.cards.tool import BODY_INDENT, PREVIEW_LINES, ToolBlock
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look


class SearchBlock(ToolBlock, eq=False, kw_only=True):
    """A search. Its `facts` have the first hits; those of earlier versions have none, and the text is shown."""

    TOOLS = frozenset(("grep", "web_search"))

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if collapsed and self.facts.hits:
            return 1 + self.preview_height()
        return ToolBlock.estimate(self, width, collapsed=collapsed)

    @override
    def preview_height(self) -> int:
        hits, more = self._hits()
        return len(hits) + bool(more) or len(self.preview_lines())

    @override
    def draw_preview(self, width: int, look: Look) -> list[Line]:
        (hits, more), palette, ellipsis = self._hits(), look.palette, look.glyphs.ellipsis
        if not hits:
            return ToolBlock.draw_preview(self, width, look)
        margin, room = Run(" " * BODY_INDENT, palette.base), max(1, width - BODY_INDENT)
        drawn: list[list[Run]] = []
        for hit in hits:
            name = one_line(hit.file)
            where = fit(f"{name}:{hit.number}" if hit.number else name, room, ellipsis)
            left = room - cell_len(where) - 2
            shown = f"  {fit(one_line(hit.text), left, ellipsis)}" if left > 2 else ""
            drawn.append([Run(where, palette.muted), Run(shown, palette.faint)])
        if more:
            rest = counted(more, "line" if hits[0].number else "page")
            drawn.append([Run(fit(f"{ellipsis} +{rest}", room, ellipsis), palette.muted)])
        return [make_line([margin, *runs], gutter=BODY_INDENT) for runs in drawn]

    def _hits(self) -> tuple[tuple[Hit, ...], int]:
        """The hits that are shown, and the number of further ones."""
        # One hit beyond the preview is shown: "+1 more" would take as much room.
        first = self.facts.hits[: PREVIEW_LINES + (self.facts.hit_count == PREVIEW_LINES + 1)]
        return first, self.facts.hit_count - len(first)
