"""Unified diffs as painted lines: line numbers, a sign, a tint, and the changed words of a changed line."""

import difflib
import re
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from rich.style import Style

from tui_agent.tui.painting.lines import GUTTER, Line, Run, make_line, wrap
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import TEXT_LINES, Section

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORD_DIFF_CHARACTERS: Final = 400


class Row(NamedTuple):
    """One line of a diff. sign: "+", "-", " " or "@" between hunks. number: in the new file, or the old one for "-".

    changed: the characters that differ from the line it replaces or is replaced by.
    """

    sign: str
    number: int
    text: str
    changed: tuple[int, int] = (0, 0)


def unified_diff(old: str, new: str, *, context: int = 3) -> str:
    """The hunks that turn `old` into `new`; empty when they are the same."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=context, lineterm="")
    return "\n".join(line for number, line in enumerate(lines) if number >= 2)


def counts(diff: str) -> tuple[int, int]:
    """How many lines a unified diff adds and removes."""
    rows = read_diff(diff)
    return sum(row.sign == "+" for row in rows), sum(row.sign == "-" for row in rows)


def read_diff(diff: str) -> list[Row]:
    """The rows of a unified diff; file headers are left out."""
    rows: list[Row] = []
    old = new = 1
    inside = False
    for line in diff.splitlines():
        if hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[2])
            if inside:
                rows.append(Row("@", 0, ""))
            inside = True
        elif not inside or line.startswith("\\"):
            continue
        elif line.startswith("+"):
            rows.append(Row("+", new, line[1:]))
            new += 1
        elif line.startswith("-"):
            rows.append(Row("-", old, line[1:]))
            old += 1
        else:
            rows.append(Row(" ", new, line[1:]))
            old, new = old + 1, new + 1
    return list(_with_changed_words(rows))


def diff_sections(diff: str, *, indent: int = GUTTER) -> list[Section]:
    """A unified diff in sections, to be painted as they come into view."""
    rows = read_diff(diff)
    return [
        Section(partial(paint_rows, part, indent=indent), sum(len(row.text) for row in part), len(part) - 1)
        for part in (rows[start : start + TEXT_LINES] for start in range(0, len(rows), TEXT_LINES))
    ]


def paint_rows(rows: list[Row], width: int, look: Look, *, indent: int = GUTTER) -> list[Line]:
    """Rows of a diff as lines."""
    palette = look.palette
    digits = max((len(str(row.number)) for row in rows), default=1)
    margin = Run(" " * indent, palette.base)
    lines: list[Line] = []
    for row in rows:
        if row.sign == "@":
            lines.append(make_line([margin, Run(look.glyphs.ellipsis, palette.faint)]))
            continue
        style, strong = _styles(row, look)
        number = Run(f"{row.number:>{digits}} ", palette.faint)
        first = (margin, number, Run(f"{row.sign} ", style))
        rest = (margin, Run(" " * (digits + 1), palette.faint), Run("  ", style))
        start, end = row.changed
        runs = [Run(row.text[:start], style), Run(row.text[start:end], strong), Run(row.text[end:], style)]
        lines.extend(wrap(runs, width, first=first, rest=rest))
    return lines


def _styles(row: Row, look: Look) -> tuple[Style, Style]:
    palette = look.palette
    if row.sign == "+":
        return palette.added, palette.added_word
    if row.sign == "-":
        return palette.removed, palette.removed_word
    return palette.muted, palette.muted


def _with_changed_words(rows: list[Row]) -> Iterator[Row]:
    """Mark what differs where as many lines were added as were removed before them."""
    position = 0
    while position < len(rows):
        removed = _stretch(rows, position, "-")
        added = _stretch(rows, position + len(removed), "+")
        if removed and len(removed) == len(added):
            pairs = [_changed(old, new) for old, new in zip(removed, added, strict=True)]
            yield from (old for old, _ in pairs)
            yield from (new for _, new in pairs)
        else:
            yield from removed
            yield from added
        position += len(removed) + len(added)
        if not removed and not added:
            yield rows[position]
            position += 1


def _stretch(rows: list[Row], start: int, sign: str) -> list[Row]:
    end = start
    while end < len(rows) and rows[end].sign == sign:
        end += 1
    return rows[start:end]


def _changed(old: Row, new: Row) -> tuple[Row, Row]:
    shortest = min(len(old.text), len(new.text))
    if shortest > _WORD_DIFF_CHARACTERS:
        return old, new
    head = 0
    while head < shortest and old.text[head] == new.text[head]:
        head += 1
    tail = 0
    while tail < shortest - head and old.text[-1 - tail] == new.text[-1 - tail]:
        tail += 1
    if not head and not tail:
        return old, new
    return (
        old._replace(changed=(head, len(old.text) - tail)),
        new._replace(changed=(head, len(new.text) - tail)),
    )
