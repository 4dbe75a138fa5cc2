"""One line of a terminal: its text, or its cells once something is written over it.

A tab that ends up on a row as part of its text stays a tab (a file shown by a command must come back as it is) and
fills columns.
"""

import re
import unicodedata
from itertools import repeat
from typing import TypeAlias

Row: TypeAlias = str | list[str]
"""A line as its text, or as cells: a character with its combining marks, and "" for each further column it fills."""

TAB = 8
"""Columns from one tab stop to the next."""
NOT_ONE_CELL = re.compile("[^ -~\u00a1-\u00ac\u00ae-\u02ff\u2500-\u25f0\u2800-\u28ff]")
"""A character that may fill no column, or more than one."""

_NO_CELL = frozenset({"Mn", "Me", "Cf"})


def text_of(row: Row) -> str:
    return row if isinstance(row, str) else "".join(row)


def extend(cells: list[str], text: str) -> None:
    """Add the cells of `text` to those of the row in front of it."""
    if text.isascii() and "\t" not in text:
        cells.extend(text)
        return
    for character in text:
        if character == "\t":
            cells.append(character)
            cells.extend(repeat("", TAB - 1 - (len(cells) - 1) % TAB))
        elif character >= "\u00ad" and unicodedata.category(character) in _NO_CELL:
            lead = len(cells) - 1
            while lead > 0 and not cells[lead]:
                lead -= 1
            if lead >= 0:
                cells[lead] += character
            else:
                cells.append(character)
        else:
            cells.append(character)
            if character >= "\u1100" and unicodedata.east_asian_width(character) in "WF":
                cells.append("")


def split(cells: list[str], at: int) -> None:
    """Blank the character that lies across the border in front of column `at`: half of it will be written over."""
    if not 0 < at < len(cells) or cells[at]:
        return
    start = at
    while start > 0 and not cells[start]:
        start -= 1
    end = at
    while end < len(cells) and not cells[end]:
        end += 1
    cells[start:end] = repeat(" ", end - start)
