"""A block at a width: its sections, their heights, and the lines of those that were painted."""

from collections.abc import Sequence

from tui_agent.tui.cards.base import Block
from tui_agent.tui.painting.lines import Line, crop
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, blank_section


class BlockPainting:
    """The painted form of one block at one width and look. It follows the block's version when `refresh` is called.

    Heights are guesses until a section is painted. A section that a change of the block left alone keeps its lines; of
    the first that changed, which is the open end of an answer that streams, each line that comes out the same is the
    same object, so that nothing is made of it for the screen again.
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
        """Follow the block to its present version."""
        if self.version == self.block.version:
            return
        self.version = self.block.version
        kept = dict(zip(map(id, self._sections), zip(self._lines, self.heights, strict=True), strict=True))
        # The old sections live until the new ones exist, so that an id is not given twice.
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
        """The lines of a section, painted now if they were not; its height is exact from then on."""
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
        """Let the painted lines go; the heights stay."""
        self._lines = [None] * len(self._sections)
        self.painted = 0

    @property
    def gap(self) -> int:
        """How many of the first sections are the blank line before the block."""
        return 1 if self._gap else 0

    def start_of(self, section: int) -> int:
        """The line of the block at which a section starts."""
        return sum(self.heights[:section])

    def find(self, line: int) -> tuple[int, int]:
        """The section that holds a line of the block, and the line's number in it."""
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
    """Every line of some blocks, the first of which has nothing above it."""
    before = (None, *blocks)
    paintings = [BlockPainting(block, above, width, look) for above, block in zip(before, blocks, strict=False)]
    return [line for each in paintings for section in range(len(each.heights)) for line in each.lines(section)]


def _same(line: Line, before: Line) -> Line:
    return before if line == before else line


def has_gap(before: Block | None, block: Block) -> bool:
    """Whether a blank line separates a block from the one before."""
    return before is not None and not block.follows(before)


def estimate_height(block: Block, before: Block | None, width: int, *, collapsed: bool) -> int:
    """A guess at the height of a block that was never painted, with the blank line before it."""
    return has_gap(before, block) + block.estimate(width, collapsed=collapsed)
