"""Tables as runs: columns are as wide as their text if that fits; otherwise they share the width fairly."""

from collections.abc import Sequence
from typing import Final

import msgspec
from rich.cells import cell_len

from tui_agent.text import displayed
from tui_agent.tui.painting.lines import Line, Run, wrap
from tui_agent.tui.painting.palette import Look

_MIN_COLUMN: Final = 3
_SEPARATOR_CELLS: Final = 3


class Cell(msgspec.Struct, frozen=True):
    """The text of one cell; `right` aligns it to the right."""

    runs: tuple[Run, ...]
    right: bool = False


def paint_table(rows: Sequence[Sequence[Cell]], width: int, look: Look) -> list[list[Run]]:
    """The runs of each line of a table whose first row is its header. Columns that do not fit are left out."""
    palette, glyphs = look.palette, look.glyphs
    count = min(max((len(row) for row in rows), default=0), max(1, (width + _SEPARATOR_CELLS) // (_MIN_COLUMN + 3)))
    if not count:
        return []
    natural = [max(_cells(row[column]) if column < len(row) else 0 for row in rows) for column in range(count)]
    widths = share(natural, width - _SEPARATOR_CELLS * (count - 1))
    painted: list[list[Run]] = []
    for number, row in enumerate(rows):
        painted.extend(_row(row, widths, look))
        if number == 0:
            rule = f"{glyphs.rule}{glyphs.cross}{glyphs.rule}".join(glyphs.rule * size for size in widths)
            painted.append([Run(rule, palette.faint)])
    return painted


def share(natural: Sequence[int], room: int) -> list[int]:
    """Column widths that add up to at most `room`: narrow columns keep their width, wide ones share the rest."""
    widths = [max(1, size) for size in natural]
    while sum(widths) > room:
        widest = max(widths)
        if widest <= 1:
            break
        second = max((size for size in widths if size < widest), default=1)
        columns = [place for place, size in enumerate(widths) if size == widest]
        excess = sum(widths) - room
        cut = min(widest - second, -(-excess // len(columns)))
        for place in columns:
            widths[place] -= cut
    return widths


def _row(row: Sequence[Cell], widths: Sequence[int], look: Look) -> list[list[Run]]:
    base = look.palette.base
    columns: list[list[Line]] = []
    for place, size in enumerate(widths):
        runs = row[place].runs if place < len(row) else ()
        columns.append(wrap(runs or (Run("", base),), size, first=(), rest=()))
    separator = Run(f" {look.glyphs.column} ", look.palette.faint)
    painted: list[list[Run]] = []
    for number in range(max(len(column) for column in columns)):
        line: list[Run] = []
        for place, column in enumerate(columns):
            if place:
                line.append(separator)
            right = place < len(row) and row[place].right
            line.extend(_padded(column[number] if number < len(column) else None, widths[place], look, right=right))
        painted.append(line)
    return painted


def _padded(line: Line | None, width: int, look: Look, *, right: bool) -> list[Run]:
    runs = [Run(segment.text, segment.style or look.palette.base) for segment in line.segments] if line else []
    space = Run(" " * (width - (line.width if line else 0)), look.palette.base)
    return [space, *runs] if right else [*runs, space]


def _cells(cell: Cell) -> int:
    return cell_len(displayed("".join(run.text for run in cell.runs)))
