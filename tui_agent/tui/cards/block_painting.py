"""A block at a width: its sections, their heights, and the lines of those that were painted."""

from functools import partial
from typing import TYPE_CHECKING

from tui_agent.tui.cards.blocks import (
    Block,
    BoundaryBlock,
    NoticeBlock,
    ProseBlock,
    ReasoningBlock,
    ToolBlock,
    ToolState,
    UserBlock,
)
from tui_agent.tui.cards.cards import PREVIEW_LINES, preview_height, reasoning_header, tool_sections
from tui_agent.tui.cards.lines import Line, crop
from tui_agent.tui.cards.notices import boundary_sections, notice_sections, user_sections
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.cards.sections import Section, blank_section, estimate_lines
from tui_agent.tui.cards.todos import is_todo

if TYPE_CHECKING:
    from tui_agent.tui.cards.prose import ProseSections


class BlockPainting:
    """The painted form of one block at one width and look. It follows the block's version when `refresh` is called.

    Heights are guesses until a section is painted. A section that a change of the block left alone keeps its lines.
    """

    __slots__ = (
        "_gap",
        "_lines",
        "_prose",
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
        self._prose: ProseSections | None = None
        self._sections: list[Section] = []
        self._lines: list[list[Line] | None] = []
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

    def _content(self) -> list[Section]:
        block = self.block
        match block:
            case UserBlock():
                return user_sections(block)
            case ProseBlock():
                return self._prose_sections(block.text)
            case ReasoningBlock():
                header = Section(partial(reasoning_header, block))
                if block.collapsed:
                    return [header]
                return [header, *self._prose_sections(block.text, quiet=True)]
            case ToolBlock():
                return tool_sections(block)
            case NoticeBlock():
                return notice_sections(block)
            case BoundaryBlock():
                return boundary_sections(block)
            case _:
                return []

    def _prose_sections(self, text: str, *, quiet: bool = False) -> list[Section]:
        if self._prose is None:
            # Not needed for the first paint.
            from tui_agent.tui.cards.prose import ProseSections

            self._prose = ProseSections(quiet=quiet)
        return self._prose.update(text)


def has_gap(before: Block | None, block: Block) -> bool:
    """Whether a blank line separates a block from the one before: not at the top, and not between two tool calls."""
    if before is None:
        return False
    return not (isinstance(before, ToolBlock) and isinstance(block, ToolBlock))


def estimate_height(block: Block, before: Block | None, width: int, *, collapsed: bool) -> int:
    """A guess at the height of a block that was never painted, from the size of its text alone."""
    gap = int(has_gap(before, block))
    match block:
        case ToolBlock() if is_todo(block):
            return gap + 1 + (preview_height(block) if collapsed else len(block.todo))
        case ToolBlock(state=ToolState.OK, diff="") if block.size.lines:
            # Known sizes: opening all cards of a long conversation looks at no text.
            if collapsed:
                return gap + 1 + min(PREVIEW_LINES, block.size.lines)
            return gap + 1 + estimate_lines(len(block.result), block.size.lines - 1, width)
        case ToolBlock() if collapsed:
            return gap + 1 + preview_height(block)
        case ToolBlock():
            body = block.diff or block.result or block.tail
            return gap + 1 + (estimate_lines(len(body), body.count("\n"), width) if body else 0)
        case ReasoningBlock() | BoundaryBlock() if collapsed:
            return gap + 1
        case ReasoningBlock() | BoundaryBlock():
            return gap + 1 + estimate_lines(len(block.text), block.text.count("\n"), width)
        case UserBlock() | ProseBlock():
            return gap + estimate_lines(len(block.text), block.text.count("\n"), width)
        case NoticeBlock():
            return gap + 1 + (block.text.count("\n") + 1 if block.text else 0) + bool(block.hint)
        case _:
            return gap
