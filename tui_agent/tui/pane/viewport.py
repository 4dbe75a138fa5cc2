"""Which painted lines are in view, without a widget: scrolling, anchoring, following the end, and selected text."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from textual.selection import Selection

from tui_agent.tui.painting.lines import Line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.pane.block_painting import BlockPainting, has_gap
from tui_agent.tui.pane.heights import BlockHeights, CardHeights
from tui_agent.tui.pane.transcript import ALL_CARDS, Transcript

KEPT_LINES: Final = 2000
"""Painted lines cached beside those in view, about 2 kB each."""
_NEAR_SCREENS: Final = 3

_BITS: Final = 24
"""Bits for each of the three fields of an encoded position."""
_MASK: Final = (1 << _BITS) - 1


class Position(NamedTuple):
    """A line, by block, section and line in that section: it stays valid when heights elsewhere change."""

    block: int
    section: int
    line: int


class ViewportLine(NamedTuple):
    """One line in view and its position."""

    position: Position
    line: Line


def encode_line(block: int, section: int, line: int) -> int:
    """Encode a position as one number that sorts in line order.

    Textual stores the ends of a selection as (character, line). Line numbers change as estimated heights are
    corrected; this number does not.
    """
    return (block << 2 * _BITS) | (section << _BITS) | line


def decode_line(number: int) -> Position:
    return Position(number >> 2 * _BITS, number >> _BITS & _MASK, number & _MASK)


_START: Final = Position(0, 0, 0)


class _Geometry(msgspec.Struct, frozen=True):
    width: int = 80
    height: int = 24


class Viewport:
    """A window of `height` lines onto a transcript at `width` cells.

    The top line is stored as a `Position`, so that correcting estimated heights above it does not move what is in
    view. While `following`, the window stays at the end. Only blocks in view are painted; painted lines are kept in a
    bounded cache.
    """

    def __init__(self, transcript: Transcript, look: Look) -> None:
        self.transcript = transcript
        self.look = look
        self.following = True
        self.rows: list[ViewportLine] = []
        self._top = _START
        self._size = _Geometry()
        self._heights = CardHeights(transcript)
        self._versions: list[int] = []
        self._paintings: OrderedDict[int, BlockPainting] = OrderedDict()
        self._kept = 0

    @property
    def width(self) -> int:
        return self._size.width

    @property
    def height(self) -> int:
        return self._size.height

    @property
    def heights(self) -> BlockHeights:
        """The height of each block in lines, estimated where it was never painted."""
        return self._heights.now

    @property
    def top_line(self) -> int:
        """The number of the first line in view, counted by the present heights."""
        if not self.transcript.blocks:
            return 0
        block, section, line = self._top
        return self.heights.start_of(block) + self.painting(block).start_of(section) + line

    # Changes of size and look

    def resize(self, width: int, height: int) -> None:
        """Change the size. Blocks out of view keep their heights as estimates, so this costs only what is in view."""
        if width != self._size.width:
            self.repaint()
        self._size = _Geometry(max(1, width), max(1, height))
        self._heights.width = self.width

    def restyle(self, look: Look) -> None:
        """Repaint for another theme or glyph set."""
        self.look = look
        self.repaint()

    def repaint(self) -> None:
        self._paintings.clear()
        self._kept = 0

    # Changes of the transcript

    def update(self, index: int) -> None:
        """Take in that a block was appended or changed, or (`ALL_CARDS`) that all cards were opened or closed."""
        while len(self.heights) < len(self.transcript.blocks):
            self._versions.append(self.transcript.blocks[len(self.heights)].version)
            self._heights.append(len(self.heights))
        if index == ALL_CARDS:
            self._heights.forget_individual()
            return
        if index >= len(self._versions) or self._versions[index] == self.transcript.blocks[index].version:
            return
        block = self.transcript.blocks[index]
        self._versions[index] = block.version
        if (painting := self._paintings.get(block.id)) is not None:
            self._refresh(painting)
        else:
            self._heights.set(index, self._heights.guess(index))
        self._heights.change(index)

    def rebuild(self) -> None:
        """Take in that any block may have changed or been removed, in O(n) blocks."""
        blocks = self.transcript.blocks
        known = {block.id for block in blocks} if len(blocks) < len(self.heights) else None
        if known is not None:
            for block_id in [block_id for block_id in self._paintings if block_id not in known]:
                self._kept -= self._paintings.pop(block_id).painted
        heights: list[int] = []
        for index, block in enumerate(blocks):
            if index < len(self._versions) and self._versions[index] == block.version and known is None:
                heights.append(self.heights[index])
            elif (painting := self._paintings.get(block.id)) is not None:
                self._refresh(painting, measure=False)
                heights.append(painting.height)
            else:
                heights.append(self._heights.guess(index))
        self._heights.replace(heights)
        self._versions = [block.version for block in blocks]
        if self._top.block >= len(blocks):
            self._top, self.following = _START, True

    # Moving

    def settle(self) -> list[ViewportLine]:
        """Paint what is in view and return it, top line first; at most `height` rows."""
        if not self.transcript.blocks:
            self._top, self.following, self.rows = _START, True, []
            return self.rows
        if not self.following:
            self.rows = self._rows_from(self._clamped(self._top))
        if self.following or len(self.rows) < self.height:
            self._top = self._up(self._last(), self.height - 1)
            self.rows = self._rows_from(self._top)
        elif self.rows:
            self._top = self.rows[0].position
        self.following = not self.rows or self.rows[-1].position == self._last()
        self._trim()
        return self.rows

    def move(self, lines: int) -> list[ViewportLine]:
        """Scroll by a number of lines, down if positive, and return the rows in view."""
        if not self.transcript.blocks:
            return self.settle()
        top = self._clamped(self._top)
        self._top = self._down(top, lines) if lines > 0 else self._up(top, -lines)
        self.following = False
        return self.settle()

    def move_to_line(self, line: int) -> list[ViewportLine]:
        """Scroll until this line, counted by the present heights, is at the top."""
        distance = line - self.top_line
        if abs(distance) <= _NEAR_SCREENS * self.height:
            return self.move(distance)
        index, offset = self.heights.find(line)
        if self.transcript.blocks:
            self._top = Position(index, *self.painting(index).find(offset))
        self.following = False
        return self.settle()

    def move_to_start(self) -> list[ViewportLine]:
        self._top, self.following = _START, False
        return self.settle()

    def move_to_end(self) -> list[ViewportLine]:
        self.following = True
        return self.settle()

    def show_block(self, index: int, *, at_row: int = 0) -> list[ViewportLine]:
        """Scroll until the first text line of a block is at row `at_row` of the window."""
        start = self.first_line(index)
        self._top = self._up(start, at_row)
        self.following = False
        return self.settle()

    def show_line(self, position: Position, *, at_row: int = 0) -> list[ViewportLine]:
        """Scroll until a line is at row `at_row` of the window; do nothing if it is in view already."""
        if not any(row.position == position for row in self.settle()):
            self._top = self._up(self._clamped(position), at_row)
            self.following = False
        return self.settle()

    def place(self, position: Position, *, at_row: int) -> list[ViewportLine]:
        """Scroll until a line is at row `at_row` of the window, even if it was in view."""
        self._top = self._up(self._clamped(position), at_row)
        self.following = False
        return self.settle()

    def bring_into_view(self, index: int) -> list[ViewportLine]:
        """Scroll as little as needed to show a block, or its beginning if it does not fit."""
        places = [number for number, row in enumerate(self.rows) if row.position.block == index]
        first = self.first_line(index)
        if any(row.position == first for row in self.rows):
            below = self._lines_below_view(index) if places and places[-1] == len(self.rows) - 1 else 0
            hidden = min(below, next(number for number, row in enumerate(self.rows) if row.position == first))
            return self.move(hidden) if hidden else self.rows
        if places or index < (self.rows[0].position.block if self.rows else 0):
            return self.show_block(index)
        tall = self._measured(index) >= self.height
        return self.show_block(index) if tall else self.show_block(index, at_row=self.height - self._measured(index))

    def row_of(self, index: int) -> int | None:
        """The window row of a block's first text line; None if it is not in view."""
        first = self.first_line(index)
        return next((number for number, row in enumerate(self.rows) if row.position == first), None)

    def first_line(self, index: int) -> Position:
        """A block's first line after the blank one above it."""
        painting = self.painting(index)
        for section in range(painting.gap, len(painting.heights)):
            if self.section_lines(index, section):
                return Position(index, section, 0)
        return Position(index, 0, 0)

    def painting(self, index: int) -> BlockPainting:
        """The painting of a block, made when there is none."""
        block = self.transcript.blocks[index]
        painting = self._paintings.get(block.id)
        if painting is None:
            before = self.transcript.blocks[index - 1] if index else None
            painting = self._paintings[block.id] = BlockPainting(block, before, self.width, self.look)
            self._heights.set(index, painting.height)
        else:
            self._paintings.move_to_end(block.id)
            if painting.version != block.version:
                self._refresh(painting)
        return painting

    # Walking over lines

    def _rows_from(self, top: Position) -> list[ViewportLine]:
        rows: list[ViewportLine] = []
        index, section, line = top
        while index < len(self.transcript.blocks):
            painting = self.painting(index)
            while section < len(painting.heights):
                lines = self.section_lines(index, section)
                for number in range(line, len(lines)):
                    rows.append(ViewportLine(Position(index, section, number), lines[number]))
                    if len(rows) == self.height:
                        return rows
                section, line = section + 1, 0
            index, section = index + 1, 0
        return rows

    def _down(self, start: Position, count: int) -> Position:
        index, section, line = start
        last = start
        while index < len(self.transcript.blocks):
            painting = self.painting(index)
            while section < len(painting.heights):
                height = len(self.section_lines(index, section))
                if line + count < height:
                    return Position(index, section, line + count)
                if height:
                    last = Position(index, section, height - 1)
                    count -= height - line
                section, line = section + 1, 0
            index, section = index + 1, 0
        return last

    def _up(self, start: Position, count: int) -> Position:
        index, section, line = start
        first = start
        while True:
            if count <= line:
                return Position(index, section, line - count)
            if line:
                first = Position(index, section, 0)
            count -= line
            section -= 1
            while section < 0:
                index -= 1
                if index < 0:
                    return first
                section = len(self.painting(index).heights) - 1
            line = len(self.section_lines(index, section))

    def _last(self) -> Position:
        for index in range(len(self.transcript.blocks) - 1, -1, -1):
            for section in range(len(self.painting(index).heights) - 1, -1, -1):
                if lines := self.section_lines(index, section):
                    return Position(index, section, len(lines) - 1)
        return _START

    def _clamped(self, position: Position) -> Position:
        index, section, line = position
        painting = self.painting(index)
        if section >= len(painting.heights):
            section, line = max(0, len(painting.heights) - 1), 0
        if section < len(painting.heights):
            line = min(line, max(0, len(self.section_lines(index, section)) - 1))
        return Position(index, section, line)

    def section_lines(self, index: int, section: int) -> list[Line]:
        """The painted lines of a section; its height is exact from then on."""
        painting = self.painting(index)
        before = painting.painted
        lines = painting.lines(section)
        if painting.painted != before:
            self._kept += painting.painted - before
            self._heights.set(index, painting.height)
        return lines

    def _measured(self, index: int) -> int:
        """The exact height of a block, or any height of at least the window's if it is taller than that."""
        height = 0
        for section in range(len(self.painting(index).heights)):
            height += len(self.section_lines(index, section))
            if height >= self.height:
                break
        return height

    def _lines_below_view(self, index: int) -> int:
        last = self.rows[-1].position
        painting = self.painting(index)
        below = len(self.section_lines(index, last.section)) - 1 - last.line
        for section in range(last.section + 1, len(painting.heights)):
            if below >= self.height:
                break
            below += len(self.section_lines(index, section))
        return below

    # The cache of paintings

    def _refresh(self, painting: BlockPainting, *, measure: bool = True) -> None:
        before = painting.painted
        painting.refresh()
        self._kept += painting.painted - before
        if measure:
            self._heights.set(painting.block.index, painting.height)

    def _trim(self) -> None:
        """Drop the least recently used paintings; those in view were used last."""
        limit = KEPT_LINES + 2 * self.height
        while self._kept > limit and len(self._paintings) > 1:
            _, painting = self._paintings.popitem(last=False)
            self._kept -= painting.painted
        if self._kept > limit:
            only = next(iter(self._paintings.values()))
            self._kept -= only.painted
            only.forget()


class Follower:
    """Collects a transcript's changes and applies them to a viewport in one go; calls `when_changed` on each change."""

    def __init__(self, viewport: Viewport, when_changed: Callable[[], None] | None = None) -> None:
        self.viewport = viewport
        self.when_changed = when_changed
        self._changed: set[int] = set()
        self._rebuild = True
        viewport.transcript.listen(self._on_change)

    def take_in(self) -> Viewport:
        """Apply the collected changes; returns the viewport."""
        if self._rebuild:
            self.viewport.rebuild()
        else:
            for index in sorted(self._changed):
                self.viewport.update(index)
        self._rebuild = False
        self._changed.clear()
        return self.viewport

    def _on_change(self, index: int | None) -> None:
        if index is None:
            self._rebuild = True
        else:
            self._changed.add(index)
        if self.when_changed is not None:
            self.when_changed()


def selected_text(viewport: Viewport, selection: Selection) -> str:
    """The selected text without decoration, with wrapped lines joined again.

    A prose block or open card that is selected whole yields its source; partly selected ones yield what is seen.
    """
    blocks = viewport.transcript.blocks
    if not blocks:
        return ""
    first = decode_line(selection.start.y) if selection.start else Position(0, 0, 0)
    last = decode_line(selection.end.y) if selection.end else Position(len(blocks) - 1, _MASK, _MASK)
    text = ""
    for index in range(first.block, min(last.block, len(blocks) - 1) + 1):
        block = blocks[index]
        whole = first.block < index < last.block or (first.block == index and _is_whole(selection, first, last))
        if whole and not block.collapsed:
            part = block.plain_text.strip("\n")
        else:
            part = _painted_text(viewport, index, selection).strip("\n")
        if part and text:
            text += "\n\n" if has_gap(blocks[index - 1], block) else "\n"
        text += part
    return text


def _is_whole(selection: Selection, first: Position, last: Position) -> bool:
    starts = selection.start is None or (first.section == first.line == 0 and selection.start.x == 0)
    return starts and (last.block > first.block or (last.section, last.line) == (_MASK, _MASK))


def _painted_text(viewport: Viewport, index: int, selection: Selection) -> str:
    text = ""
    painting = viewport.painting(index)
    for section in range(len(painting.heights)):
        for number, line in enumerate(viewport.section_lines(index, section)):
            span = selection.get_span(encode_line(index, section, number))
            if span is None:
                continue
            end = None if span[1] == -1 else max(span[1], line.gutter)
            taken = line.text[max(span[0], line.gutter) : end]
            ends_here = end is not None and end < len(line.text)
            text += taken if ends_here or line.ending == "" else taken.rstrip() + line.ending
    return text
