"""The lines of a terminal: a scrollback without bound in front, rows the cursor can reach at the end.

Lines that scroll out of reach are kept as plain text, of which only the last `limit` characters stay. Rows are looked
at cell by cell only once something is written over them, so plain output costs what appending text costs.
"""

import re
from collections import deque
from itertools import repeat

from tui_agent.tools.shell.cells import NOT_ONE_CELL, TAB, Row, extend, split, text_of

_BREAK_OR_TAB = re.compile("[\n\t]")


class Screen:
    """Rows and a cursor, in a window of `height` rows. Rows grow to the right without wrapping; cursor moves end at
    `columns`. `limit`: characters of scrollback kept, and the largest width of a row.
    """

    __slots__ = (
        "_column",
        "_columns",
        "_height",
        "_limit",
        "_parts",
        "_parts_size",
        "_row",
        "_rows",
        "_saved",
        "_settled",
        "_settled_size",
        "_visible",
        "dropped_bytes",
        "dropped_lines",
    )

    def __init__(self, *, height: int, columns: int, limit: int) -> None:
        self._height = height
        self._columns = columns
        self._limit = limit
        self._settled: deque[str] = deque()  # each piece ends with a line break
        self._settled_size = 0
        self._visible = 0  # how many of the settled lines are still in the window
        self._rows: list[Row] = [""]
        self._row = 0
        self._column: int | None = None  # None: at the end of the row, wherever that is
        self._parts: list[str] = []  # text appended to the last row and not joined to it yet
        self._parts_size = 0
        self._saved = (0, 0)
        self.dropped_bytes = 0
        """UTF-8 bytes no longer kept."""
        self.dropped_lines = 0
        """Line breaks no longer kept."""

    def text(self) -> str:
        """What is kept of all lines, oldest first."""
        self._join()
        self._trim(exactly=True)
        return "".join(self._settled) + "\n".join(text_of(row) for row in self._rows)

    def tail(self, lines: int) -> str:
        """The last `lines` lines; an empty one at the end does not count."""
        self._join()
        missing = lines - len(self._rows) + (not self._rows[-1])
        found: list[str] = []
        for piece in reversed(self._settled):
            if missing <= 0:
                break
            start = len(piece)
            while missing > 0 and start > 0:
                start = piece.rfind("\n", 0, start - 1) + 1
                missing -= 1
            found.append(piece[start:])
        return "".join(reversed(found)) + "\n".join(map(text_of, self._rows[-lines - (not self._rows[-1]) :]))

    def write(self, text: str) -> None:
        """Write text in which the only control characters are line breaks and tabs."""
        position = 0
        while position < len(text):
            if self._at_end():
                self._append(text[position:])
                return
            special = _BREAK_OR_TAB.search(text, position)
            end = special.start() if special else len(text)
            if end > position:
                self._overwrite(text[position:end])
                position = end
            elif text[position] == "\n":
                self.line_feed()
                position += 1
            else:
                self.move_to_column((self._x() // TAB + 1) * TAB)
                position += 1

    def line_feed(self) -> None:
        """To the start of the next row; on the last row a new one begins."""
        if self._row == len(self._rows) - 1:
            self._append("\n")
        else:
            self._row += 1
            self._place(0)

    def carriage_return(self) -> None:
        self._join()
        self._place(0)

    def back(self, count: int) -> None:
        self._join()
        self._place(max(0, self._x() - count))

    def forward(self, count: int) -> None:
        self._join()
        self.move_to_column(self._x() + count)

    def move_to_column(self, column: int) -> None:
        """To a column counted from 0."""
        self._join()
        self._place(min(column, max(self._columns - 1, self._x())))

    def up(self, count: int) -> None:
        self._join()
        column = self._x()
        if count > self._row:
            self._pull(count - self._row)
        self._row = max(0, self._row - count)
        self._place(column)

    def down(self, count: int) -> None:
        self._join()
        self._go(self._row + count, self._x())

    def move_to(self, row: int, column: int) -> None:
        """To a cell of the window, both counted from 0."""
        self._join()
        self._pull(self._visible)
        self._go(row, min(column, self._columns - 1))

    def move_to_row(self, row: int) -> None:
        self._join()
        self.move_to(row, self._x())

    def reverse_line_feed(self) -> None:
        """One row up; at the top of the window an empty row is put in there."""
        if self._row or self._visible:
            self.up(1)
            return
        self._join()
        column = self._x()
        self._rows.insert(0, "")
        del self._rows[self._height :]
        self._place(column)

    def save_cursor(self) -> None:
        self._join()
        self._saved = (self._visible + self._row, self._x())

    def restore_cursor(self) -> None:
        self.move_to(*self._saved)

    def erase_in_row(self, mode: int) -> None:
        """0: from the cursor to the end of the row, 1: up to and with the cursor, 2: all of it."""
        self._join()
        column = self._x()
        cells = self._cells(self._row)
        if mode == 0:
            split(cells, column)
            del cells[column:]
        elif mode == 1:
            split(cells, column + 1)
            end = min(column + 1, len(cells))
            cells[:end] = repeat(" ", end)
        elif mode == 2:
            cells.clear()
        self._place(column)

    def erase_in_window(self, mode: int) -> None:
        """0: from the cursor to the end of the window, 1: from its start to the cursor, 2: all of it."""
        self._join()
        column = self._x()
        if mode == 0:
            del self._rows[self._row + 1 :]
        elif mode in {1, 2}:
            self._pull(self._visible)
            self._rows[: self._row] = repeat("", self._row)
            if mode == 2:
                del self._rows[self._row + 1 :]
        self._place(column)
        self.erase_in_row(mode)

    def erase_cells(self, count: int) -> None:
        cells, column, end = self._whole_cells(count)
        if end > column:
            cells[column:end] = repeat(" ", end - column)
        self._place(column)

    def delete_cells(self, count: int) -> None:
        cells, column, end = self._whole_cells(count)
        del cells[column:end]
        self._place(column)

    def insert_cells(self, count: int) -> None:
        self._join()
        column = self._x()
        cells = self._cells(self._row)
        split(cells, column)
        if column < len(cells):
            cells[column:column] = repeat(" ", min(count, self._columns))
            del cells[self._limit :]
        self._place(column)

    def insert_rows(self, count: int) -> None:
        self._join()
        room = self._height - self._visible
        self._rows[self._row : self._row] = repeat("", min(count, room))
        del self._rows[room:]
        self._place(0)

    def delete_rows(self, count: int) -> None:
        self._join()
        del self._rows[self._row : self._row + count]
        if self._row >= len(self._rows):
            self._rows.extend(repeat("", self._row + 1 - len(self._rows)))
        self._place(0)

    # Every way of appending must leave the same rows, whatever pieces the text came in.

    def _at_end(self) -> bool:
        return self._column is None and self._row == len(self._rows) - 1

    def _append(self, text: str) -> None:
        if isinstance(row := self._rows[-1], list):
            first, line_break, text = text.partition("\n")
            extend(row, first)
            del row[self._limit :]
            text = line_break + text
        head, line_break, last = text.rpartition("\n")
        if line_break:
            self._join(exactly=False)
            self._visible = min(self._height - 1, self._visible + len(self._rows) + head.count("\n"))
            self._settle("\n".join([*map(text_of, self._rows[:-1]), text_of(self._rows[-1]) + head]) + "\n")
            self._rows = [last]
            self._row = 0
            self._column = None
        elif text:
            self._parts.append(text)
            self._parts_size += len(text)
            if self._parts_size > self._limit:
                self._join(exactly=False)

    def _join(self, *, exactly: bool = True) -> None:
        if self._parts:
            self._rows[-1] = text_of(self._rows[-1]) + "".join(self._parts)
            self._parts.clear()
            self._parts_size = 0
        last = self._rows[-1]
        if isinstance(last, str) and len(last) > (self._limit if exactly else 2 * self._limit):
            self._drop(last[: -self._limit])
            self._rows[-1] = last[-self._limit :]

    def _settle(self, lines: str) -> None:
        self._settled.append(lines)
        self._settled_size += len(lines)
        self._trim(exactly=False)

    def _trim(self, *, exactly: bool) -> None:
        while self._settled and self._settled_size - len(self._settled[0]) >= self._limit:
            piece = self._settled.popleft()
            self._settled_size -= len(piece)
            self._drop(piece)
        excess = self._settled_size - self._limit
        if self._settled and excess > (0 if exactly else self._limit):
            first = self._settled.popleft()
            self._drop(first[:excess])
            self._settled.appendleft(first[excess:])
            self._settled_size -= excess

    def _drop(self, text: str) -> None:
        self.dropped_bytes += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self.dropped_lines += text.count("\n")

    def _pull(self, count: int) -> None:
        """Take up to `count` settled lines of the window back as rows."""
        count = min(count, self._visible)
        if not count:
            return
        self._trim(exactly=True)
        pieces: list[str] = []
        found = 0
        while self._settled and found < count:
            piece = self._settled.pop()
            self._settled_size -= len(piece)
            found += piece.count("\n")
            pieces.append(piece)
        lines = "".join(reversed(pieces))[:-1].split("\n") if pieces else []
        spare = lines[:-count]
        if spare:
            back = "\n".join(spare) + "\n"
            self._settled.append(back)
            self._settled_size += len(back)
        taken = lines[-count:]
        self._visible -= count
        self._rows[:0] = taken
        self._row += len(taken)

    def _go(self, row: int, column: int) -> None:
        self._row = max(0, min(row, self._height - self._visible - 1))
        self._rows.extend(repeat("", self._row + 1 - len(self._rows)))
        self._place(column)

    def _place(self, column: int) -> None:
        self._column = None if column == self._width() else column

    def _x(self) -> int:
        """The cursor's column, counted from 0."""
        return self._width() if self._column is None else self._column

    def _width(self) -> int:
        """The columns the cursor's row fills."""
        row = self._rows[self._row]
        return len(row) if isinstance(row, list) or self._is_simple(row) else len(self._cells(self._row))

    def _is_simple(self, row: str) -> bool:
        return len(row) <= self._columns and NOT_ONE_CELL.search(row) is None

    def _cells(self, index: int) -> list[str]:
        row = self._rows[index]
        if isinstance(row, str):
            cells: list[str] = []
            extend(cells, row)
            self._rows[index] = row = cells
        return row

    def _whole_cells(self, count: int) -> tuple[list[str], int, int]:
        """The row's cells, and from where to where `count` of them are, the cursor's first; none lies across either."""
        self._join()
        column = self._x()
        cells = self._cells(self._row)
        split(cells, column)
        split(cells, column + count)
        return cells, column, min(column + count, len(cells))

    def _overwrite(self, text: str) -> None:
        row = self._rows[self._row]
        column = self._x()
        if isinstance(row, str) and self._is_simple(row) and NOT_ONE_CELL.search(text) is None:
            row = row[:column].ljust(column) + text + row[column + len(text) :]
            self._rows[self._row] = row if self._row == len(self._rows) - 1 else row[: self._limit]
            self._column = None if column + len(text) >= len(row) else column + len(text)
            return
        cells = self._cells(self._row)
        cells.extend(repeat(" ", column - len(cells)))
        split(cells, column)
        written = cells[max(0, column - TAB) : column]  # what a combining mark at the start of the text belongs to
        before = len(written)
        extend(written, text)
        end = column + len(written) - before
        split(cells, end)
        cells[column - before : end] = written
        del cells[self._limit :]
        self._column = None if end >= len(cells) else end
