"""One block laid out for a width: its sections, their heights, and the lines of the painted ones."""

from collections.abc import Sequence

from tui_agent.tui.cards.base import Block
from tui_agent.tui.painting.lines import Line, crop
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, blank_section


class BlockPainting:
    """Caches the painted lines of one block at one width and look; `refresh` brings it up to the block's version.

    Heights are estimates until a section is painted. Unchanged sections keep their lines. The first changed section,
    usually the open end of a streaming answer, is painted again, but every line that comes out equal stays the same
    object, so the screen reuses the strip it has cached for it.
    """

    __slots__ = (
        "_before",
        "_content",
        "_gap",
        "_lines",
        "_sections",
        "block",
        "height",
        "heights",
        "look",
        "painted",
        "version",
        "width",
    )

    def __init__(self, block: Block, before: Block | None, width: int, look: Look) -> None:
        self.block = block
        self.width = width
        self.look = look
        self.version = -1
        self.height = 0
        self.painted = 0
        self.heights: list[int] = []
        self._gap = blank_section() if has_gap(before, block) else None
        self._content = block.divider()
        self._sections: list[Section] = []
        self._lines: list[list[Line] | None] = []
        self._before: tuple[int, list[Line]] = 0, []
        self.refresh()

    def refresh(self) -> None:
        """Bring sections and heights up to the block's current version."""
        if self.version == self.block.version:
            return
        self.version = self.block.version
        kept = dict(zip(map(id, self._sections), zip(self._lines, self.heights, strict=True), strict=True))
        # Keep the old sections alive until the new ones exist, or Python may reuse their ids.
        old, self._sections = self._sections, self._divide()
        found = [kept.get(id(section)) for section in self._sections]
        changed = next((place for place, entry in enumerate(found) if entry is None), len(found))
        if changed < len(old) and (before := self._lines[changed]):
            self._before = changed, before
        del old
        self._lines = [entry[0] if entry else None for entry in found]
        self.heights = [
            entry[1] if entry else section.estimate(self.width)
            for entry, section in zip(found, self._sections, strict=True)
        ]
        self.height = sum(self.heights)
        self.painted = sum(len(lines) for lines in self._lines if lines)

    def lines(self, section: int) -> list[Line]:
        """The lines of a section, painted on first use; its height is exact from then on."""
        lines = self._lines[section]
        if lines is None:
            lines = [crop(line, self.width) for line in self._sections[section].draw(self.width, self.look)]
            place, before = self._before
            if place == section:
                lines = [*map(_same, lines, before), *lines[len(before) :]]
            self._lines[section] = lines
            self.height += len(lines) - self.heights[section]
            self.heights[section] = len(lines)
            self.painted += len(lines)
        return lines

    def forget(self) -> None:
        """Drop the painted lines to free memory; keep the heights."""
        self._lines = [None] * len(self._sections)
        self.painted = 0

    @property
    def gap(self) -> int:
        """How many leading sections are the blank line above the block: 0 or 1."""
        return 1 if self._gap else 0

    def start_of(self, section: int) -> int:
        """The line number in the block at which a section starts."""
        return sum(self.heights[:section])

    def find(self, line: int) -> tuple[int, int]:
        """The section that contains a line of the block, and the line's number within that section."""
        for section, height in enumerate(self.heights):
            if line < height:
                return section, max(0, line)
            line -= height
        last = len(self.heights) - 1
        return max(0, last), max(0, self.heights[last] - 1) if self.heights else 0

    def _divide(self) -> list[Section]:
        gap = [self._gap] if self._gap else []
        return gap + self._content()


def all_lines(blocks: Sequence[Block], width: int, look: Look) -> list[Line]:
    """Every line of some blocks, as if the first were the top of a transcript."""
    before = (None, *blocks)
    paintings = [BlockPainting(block, above, width, look) for above, block in zip(before, blocks, strict=False)]
    return [line for each in paintings for section in range(len(each.heights)) for line in each.lines(section)]


def _same(line: Line, before: Line) -> Line:
    return before if line == before else line


def has_gap(before: Block | None, block: Block) -> bool:
    """Whether a blank line separates a block from the one before."""
    return before is not None and not block.follows(before)


def estimate_height(block: Block, before: Block | None, width: int, *, collapsed: bool) -> int:
    """Estimated height in lines of a block that was never painted, including the blank line above it."""
    return has_gap(before, block) + block.estimate(width, collapsed=collapsed)
