"""The lines of a terminal: the scrollback, then the rows that the cursor can reach.

Lines that scroll out of reach become plain text, of which the last `limit` characters are kept. A row is a string until
a part that is not plain ASCII is overwritten, or cells are moved; from then on it is a list of cells. A tab fills the
columns up to the next tab stop, and stays a tab until it is overwritten, so that a file printed by a command is
reproduced exactly.

Appending plain text costs no more than copying it. All other costs are counted in `Screen.work`, so that the caller can
stop in time; they depend only on the text and the operations.
"""

import re
import unicodedata
from collections import deque
from itertools import repeat
from typing import Final, TypeAlias

Line: TypeAlias = str | list[str]
"""A row as text, or as cells: a character with its combining marks, then "" for each further column that it fills."""

TAB: Final = 8
"""Columns from one tab stop to the next."""
WIDEST: Final = 16_384
"""The most columns of a row that can be overwritten. The last row may be wider while text is appended: when the cursor
leaves its end, what does not fit becomes a line of its own. Other rows are cut; the cursor cannot reach longer lines.
"""
OPERATION: Final = 150
"""The work that one operation counts as."""

_NOT_ONE_CELL = re.compile("[^ -~\u00a1-\u00ac\u00ae-\u02ff\u2500-\u25f0\u2800-\u28ff]")
"""Matches a character that may fill no column, or more than one."""
_NO_CELL = frozenset({"Mn", "Me", "Cf"})
_BREAK_OR_TAB = re.compile("[\n\t]")
_CELL_CHARACTERS = 64  # of one cell: a flood of combining marks must not grow it without limit
_PER_CHARACTER = 2
_PER_CELL = 20


class Screen:
    """Rows and a cursor, in a window of `height` rows. Rows grow to the right without wrapping; cursor movements end
    at `columns`. `limit`: the most characters of the scrollback, and of the last row.

    The result does not depend on how the text was split into pieces.
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
        "_widest",
        "dropped_bytes",
        "dropped_lines",
        "work",
    )

    def __init__(self, *, height: int, columns: int, limit: int) -> None:
        self._height = height
        self._columns = columns
        self._limit = limit
        self._widest = min(WIDEST, limit)
        self._settled: deque[str] = deque()  # each piece ends with a line break
        self._settled_size = 0
        self._visible = 0  # how many of the settled lines are still in the window
        self._rows: list[Line] = [""]
        self._row = 0
        self._column: int | None = None  # None: at the end of the row, wherever that is
        self._parts: list[str] = []  # text appended to the last row but not joined yet
        self._parts_size = 0
        self._saved = (0, 0)
        self.work = 0
        """What was done besides appending, in units of about 10 ns; the caller adds `OPERATION` for each operation."""
        self.dropped_bytes = 0
        """UTF-8 bytes no longer kept."""
        self.dropped_lines = 0
        """Line breaks no longer kept."""

    def text(self) -> str:
        """All lines that are kept, oldest first."""
        self._join()
        self._trim(exactly=True)
        return "".join(self._settled) + "\n".join(map(_text_of, self._rows))

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
        return "".join(reversed(found)) + "\n".join(map(_text_of, self._rows[-lines - (not self._rows[-1]) :]))

    def write(self, text: str) -> None:
        """Write text in which the only control characters are line breaks and tabs."""
        position = 0
        while position < len(text):
            if self._row == len(self._rows) - 1 and (self._column is None or self._column == self._width()):
                self._append(text[position:] if position else text)
                return
            special = _BREAK_OR_TAB.search(text, position)
            end = special.start() if special else len(text)
            if end > position:
                self._overwrite(text[position:end])
                position = end
            elif text[position] == "\n":
                self.work += OPERATION
                self.line_feed()
                position += 1
            else:
                self.work += OPERATION
                self.move_to_column((self._x() // TAB + 1) * TAB)
                position += 1

    def line_feed(self) -> None:
        """To the start of the next row; on the last row a new one begins."""
        if self._row == len(self._rows) - 1:
            self._append("\n")
        else:
            self._row += 1
            self._column = 0

    def carriage_return(self) -> None:
        """To the start of the row."""
        if self._column is None:
            self._leave_end()
        self._column = 0

    def back(self, count: int) -> None:
        """`count` columns to the left."""
        self._column = max(self._x() - count, 0)

    def forward(self, count: int) -> None:
        """`count` columns to the right."""
        self.move_to_column(self._x() + count)

    def move_to_column(self, column: int) -> None:
        """To a column counted from 0."""
        self._column = min(column, max(self._columns - 1, self._x()))

    def up(self, count: int) -> None:
        """`count` rows up, at most to the top of the window."""
        column = self._x()
        if count > self._row:
            self._pull(count - self._row)
        self._row = max(0, self._row - count)
        self._column = column

    def down(self, count: int) -> None:
        """`count` rows down, at most to the bottom of the window."""
        self._go(self._row + count, self._x())

    def move_to(self, row: int, column: int) -> None:
        """To a cell of the window, both counted from 0."""
        if self._column is None:
            self._leave_end()
        self._pull(self._visible)
        self._go(row, min(column, self._columns - 1))

    def move_to_row(self, row: int) -> None:
        """To a row of the window, counted from 0."""
        self.move_to(row, self._x())

    def reverse_line_feed(self) -> None:
        """One row up; at the top of the window an empty row is put in there."""
        if self._row or self._visible:
            self.up(1)
            return
        self._column = self._x()
        self._rows.insert(0, "")
        del self._rows[self._height :]

    def save_cursor(self) -> None:
        """Save the cursor's position."""
        column = self._x()
        self._saved = (self._visible + self._row, column)

    def restore_cursor(self) -> None:
        """Move to the position saved last."""
        self.move_to(*self._saved)

    def erase_in_row(self, mode: int) -> None:
        """Erase: 0: from the cursor to the end of the row, 1: up to and including the cursor, 2: the whole row."""
        self._column = column = self._x()
        row = self._rows[self._row]
        if mode == 2:
            self._rows[self._row] = ""
        elif isinstance(row, str) and self._is_simple(row):
            if mode == 0:
                self._rows[self._row] = row[:column]
            elif mode == 1:
                self._rows[self._row] = " " * min(column + 1, len(row)) + row[column + 1 :]
        elif mode == 0:
            del self._cells_from(column)[column:]
        elif mode == 1:
            cells = self._cells_from(column + 1)
            end = min(column + 1, len(cells))
            cells[:end] = repeat(" ", end)

    def erase_in_window(self, mode: int) -> None:
        """Erase: 0: from the cursor to the end of the window, 1: from its start to the cursor, 2: all of it."""
        self._column = self._x()
        if mode == 0:
            del self._rows[self._row + 1 :]
        elif mode in {1, 2}:
            self._pull(self._visible)
            self._rows[: self._row] = repeat("", self._row)
            if mode == 2:
                del self._rows[self._row + 1 :]
        self.erase_in_row(mode)

    def erase_cells(self, count: int) -> None:
        """Blank `count` cells, the cursor's first."""
        column = self._x()
        cells = self._cells_from(column)
        end = min(column + count, len(cells))
        _split(cells, end)
        if end > column:
            cells[column:end] = repeat(" ", end - column)
        self._column = column

    def delete_cells(self, count: int) -> None:
        """Delete `count` cells from the cursor on; what is right of them moves left."""
        column = self._x()
        cells = self._cells_from(column)
        end = min(column + count, len(cells))
        _split(cells, end)
        del cells[column:end]
        self._column = column

    def insert_cells(self, count: int) -> None:
        """Insert `count` blank cells at the cursor; what is right of it moves right."""
        column = self._x()
        cells = self._cells_from(column)
        if column < len(cells):
            cells[column:column] = repeat(" ", min(count, self._columns))
            del cells[self._widest :]
        self._column = column

    def insert_rows(self, count: int) -> None:
        """Insert `count` empty rows at the cursor; rows pushed out of the window at the bottom are lost."""
        if self._column is None:
            self._leave_end()
        room = self._height - self._visible
        self._rows[self._row : self._row] = repeat("", min(count, room))
        del self._rows[room:]
        self._column = 0

    def delete_rows(self, count: int) -> None:
        """Delete `count` rows from the cursor on."""
        if self._column is None:
            self._leave_end()
        del self._rows[self._row : self._row + count]
        self._rows.extend(repeat("", self._row + 1 - len(self._rows)))
        self._column = 0

    # Appending must leave the same rows, however the text is split into pieces.

    def _append(self, text: str) -> None:
        """Write at the end of the last row."""
        self._column = None
        if isinstance(row := self._rows[-1], list):
            text = self._fill(row, text)
        head, line_break, last = text.rpartition("\n")
        if line_break:
            self._join(exactly=False)
            self._visible = min(self._height - 1, self._visible + len(self._rows) + head.count("\n"))
            self._settle("\n".join([*map(_text_of, self._rows[:-1]), _text_of(self._rows[-1]) + head]) + "\n")
            self._rows = [last]
            self._row = 0
        elif text:
            self._parts.append(text)
            self._parts_size += len(text)
            if self._parts_size > self._limit:
                self._join(exactly=False)

    def _fill(self, cells: list[str], text: str) -> str:
        """Add text to the last row while that is a list of cells; returns the rest once it is not, or the row ends."""
        first, line_break, rest = text.partition("\n")
        while first and len(cells) <= self._widest:
            # The row must turn into text at the same character, however the text is split.
            part = first[: max((self._widest - len(cells)) // TAB, 1)]
            _extend(cells, part)
            self.work += _PER_CELL * len(part)
            first = first[len(part) :]
        if len(cells) > self._widest:
            self._rows[-1] = "".join(cells)
        return first + line_break + rest

    def _join(self, *, exactly: bool = True) -> None:
        if self._parts:
            self._rows[-1] = _text_of(self._rows[-1]) + "".join(self._parts)
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
        """Turn up to `count` settled lines of the window back into rows, as far as the cursor can reach."""
        count = min(count, self._visible)
        if not count:
            return
        pieces: list[str] = []
        found = 0
        while self._settled and found < count:
            piece = self._settled.pop()
            start = len(piece)
            while start > 0 and found < count:
                before = piece.rfind("\n", 0, start - 1) + 1
                if start - before > self._widest:
                    self._visible = count = found
                    break
                start = before
                found += 1
            if start:
                self._settled.append(piece[:start])
            pieces.append(piece[start:])
        lines = "".join(reversed(pieces))
        self._settled_size -= len(lines)
        if len(lines) > self._limit:
            for piece in (*self._settled, lines[: -self._limit]):
                self._drop(piece)
            self._settled.clear()
            self._settled_size = 0
            lines = lines[-self._limit :]
        taken = lines[:-1].split("\n") if lines else []
        self._visible -= count
        self._rows[:0] = taken
        self._row += len(taken)
        self.work += OPERATION * len(taken) + len(lines) // 16

    def _go(self, row: int, column: int) -> None:
        self._row = max(0, min(row, self._height - self._visible - 1))
        self._rows.extend(repeat("", self._row + 1 - len(self._rows)))
        self._column = column

    def _leave_end(self) -> None:
        """Join what was appended to the row, and break the row if it is too wide to be overwritten."""
        self._join()
        row = self._rows[self._row]
        if isinstance(row, list) or self._row < len(self._rows) - 1:
            return
        most = self._widest if self._is_simple(row) else self._widest // TAB
        if len(row) > most:
            lines = [*map(_text_of, self._rows[:-1]), row[: -most // 2]]
            self._visible = min(self._height - 1, self._visible + len(lines))
            self._settle("\n".join(lines) + "\n")
            self._rows = [row[-most // 2 :]]
            self._row = 0

    def _x(self) -> int:
        """The cursor's column, counted from 0."""
        if self._column is None:
            self._leave_end()
            return self._width()
        return self._column

    def _width(self) -> int:
        """The columns that the cursor's row fills."""
        row = self._rows[self._row]
        return len(row) if isinstance(row, list) or self._is_simple(row) else len(self._cells())

    def _is_simple(self, row: str) -> bool:
        """Whether each character of a row of text fills one column; a fast test that may wrongly say no."""
        if row.isascii():
            return "\t" not in row
        return len(row) <= self._columns and _NOT_ONE_CELL.search(row) is None

    def _cells(self) -> list[str]:
        """The cursor's row as cells."""
        row = self._rows[self._row]
        if isinstance(row, list):
            return row
        cells: list[str] = []
        _extend(cells, row[: self._widest])
        self.work += _PER_CELL * len(row)
        self._rows[self._row] = cells
        return cells

    def _cells_from(self, column: int) -> list[str]:
        """The cursor's row as cells, with no wide character across the left edge of `column`."""
        cells = self._cells()
        _split(cells, column)
        self.work += len(cells) // 200
        return cells

    def _overwrite(self, text: str) -> None:
        """Write text without line breaks and tabs at the cursor, over what is there."""
        column = self._x()
        row = self._rows[self._row]
        if isinstance(row, str) and self._is_simple(row) and (text.isascii() or not _NOT_ONE_CELL.search(text)):
            end = column + len(text)
            row = row[:column].ljust(column) + text + row[end:]
            self._rows[self._row] = row if self._row == len(self._rows) - 1 else row[: self._widest]
            self.work += _PER_CHARACTER * len(text)
            self._column = None if end >= len(row) else end
            return
        cells = self._cells()
        cells.extend(repeat(" ", column - len(cells)))
        _split(cells, column)
        written = cells[max(0, column - TAB) : column]  # a combining mark at the start of the text belongs to these
        before = len(written)
        _extend(written, text)
        end = column + len(written) - before
        _split(cells, end)
        cells[column - before : end] = written
        self.work += _PER_CELL * len(text)
        if len(cells) > self._widest:
            if self._row == len(self._rows) - 1:
                self._rows[-1] = "".join(cells)
            else:
                del cells[self._widest :]
        self._column = None if end >= len(cells) else end


def _text_of(row: Line) -> str:
    return row if isinstance(row, str) else "".join(row)


def _extend(cells: list[str], text: str) -> None:
    """Add the cells of `text` to those of the row in front of it."""
    if text.isascii() and "\t" not in text:
        cells.extend(text)
        return
    marks: list[str] = []  # combining marks of the last character, joined all at once: there may be many
    for character in text:
        if character >= "\u00ad" and unicodedata.category(character) in _NO_CELL:
            marks.append(character)
            continue
        if marks:
            _add_marks(cells, marks)
        cells.append(character)
        if character == "\t":
            cells.extend(repeat("", TAB - 1 - (len(cells) - 1) % TAB))
        elif character >= "\u1100" and unicodedata.east_asian_width(character) in "WF":
            cells.append("")
    if marks:
        _add_marks(cells, marks)


def _add_marks(cells: list[str], marks: list[str]) -> None:
    """Add combining marks to the last character; without one, they get a cell of their own."""
    lead = len(cells) - 1
    while lead > 0 and not cells[lead]:
        lead -= 1
    if lead >= 0:
        cells[lead] = (cells[lead] + "".join(marks))[:_CELL_CHARACTERS]
    else:
        cells.append("".join(marks[:_CELL_CHARACTERS]))
    marks.clear()


def _split(cells: list[str], at: int) -> None:
    """Blank the wide character across the left edge of column `at`: half of it will be overwritten."""
    if not 0 < at < len(cells) or cells[at]:
        return
    start = at
    while start > 0 and not cells[start]:
        start -= 1
    end = at
    while end < len(cells) and not cells[end]:
        end += 1
    cells[start:end] = repeat(" ", end - start)
