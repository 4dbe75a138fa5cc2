"""Rows that a cursor can reach, emulated by ``pyte``."""

from collections.abc import Iterator
from typing import Final
from unicodedata import combining, normalize

import pyte
from pyte.screens import wcwidth
from typing_extensions import override

MOST_MARKS: Final = 16
"""The most characters of a cell: a flood of combining ones must not grow it without limit."""


class Emulation(pyte.Screen):
    """A screen of `lines` rows. What scrolls out of it at the top is in `scrolled`."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines)
        self.set_mode(pyte.modes.LNM)  # a line feed returns to the first column, as with a terminal's line discipline
        self.scrolled: list[str] = []
        self._stream = pyte.Stream(self)

    def feed(self, text: str) -> None:
        """Emulate text with the control functions that pyte knows."""
        self._stream.feed(text)

    def text(self) -> str:
        """The rows down to the cursor, or to the last one with text if that is further down."""
        last = max((y for y, row in self.buffer.items() if row and self._row(y)), default=0)
        return "\n".join(map(self._row, range(max(last, self.cursor.y) + 1)))

    @override
    def index(self) -> None:
        if self.cursor.y == self.lines - 1:
            self.scrolled.append(self._row(0))
        super().index()

    @override
    def draw(self, data: str) -> None:
        if data.isascii():
            super().draw(data)
            return
        begin = 0
        for at, character in enumerate(data):
            if wcwidth(character) <= 0:  # what fills no cell: at some of it pyte would stop
                super().draw(data[begin:at])
                begin = at + 1
                if combining(character):
                    self._mark(character)
        super().draw(data[begin:])

    def _mark(self, character: str) -> None:
        """Add a combining character to the last cell that was written, of a wide character to its first."""
        row, x = self.buffer[self.cursor.y], self.cursor.x - 1
        if x > 0 and not row[x].data:
            x -= 1
        if x >= 0 and len(row[x].data) < MOST_MARKS:
            row[x] = row[x]._replace(data=normalize("NFC", row[x].data + character))

    # pyte's visit every column of the row, and rows are wide here.

    @override
    def insert_characters(self, count: int | None = None) -> None:
        self._shift(count or 1)

    @override
    def delete_characters(self, count: int | None = None) -> None:
        self._shift(-(count or 1))

    @override
    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        row, here = self.buffer[self.cursor.y], self.cursor.x
        for x in [x for x in row if how == 2 or (x >= here if how == 0 else x <= here)]:
            del row[x]

    def _shift(self, columns: int) -> None:
        row, here = self.buffer[self.cursor.y], self.cursor.x
        behind = {x: row.pop(x) for x in [x for x in row if x >= here]}
        row.update({x + columns: cell for x, cell in behind.items() if here <= x + columns < self.columns})

    @override
    def delete_lines(self, count: int | None = None) -> None:
        for y in range(self.lines):
            self.buffer[y]  # pyte takes rows that were never written for none
        super().delete_lines(count)

    def _row(self, y: int) -> str:
        row = self.buffer[y]
        cells = [row[x].data for x in range(max(row, default=-1) + 1)]
        text = "".join(cells)
        return (text if text.isascii() and len(text) == len(cells) else "".join(self._whole(cells))).rstrip()

    def _whole(self, cells: list[str]) -> Iterator[str]:
        """The cells with a blank for each half of a wide character whose other half was written over."""
        for x, cell in enumerate(cells):
            behind = cells[x + 1] if x + 1 < len(cells) else " "
            if not cell:
                yield "" if x and wcwidth(cells[x - 1][:1]) == 2 else " "
            else:
                yield " " if wcwidth(cell[0]) == 2 and behind and x + 1 < self.columns else cell
