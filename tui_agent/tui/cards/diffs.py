"""Unified diffs as painted lines: line numbers, a sign, a tint, and the changed words of a changed line."""

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final, NamedTuple

from rich.style import Style

from tui_agent.text import displayed
from tui_agent.tui.cards.lines import GUTTER, Line, Run, make_line, wrap
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.cards.sections import TEXT_LINES, Section

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORD = re.compile(r"\w+|\s+|.")

MAX_COMPARED: Final = 400
"""Characters of a line whose words are still compared with those of the line it replaces."""

LEAST_IN_COMMON: Final = 0.4
"""Share of two lines that must be the same for the rest to be marked: where most differs, marks tell nothing."""


class Row(NamedTuple):
    """One line of a diff. sign: "+", "-", " " or "@" between hunks. number: in the new file, or the old one for "-".

    other: the line it replaces or is replaced by, where there is one.
    """

    sign: str
    number: int
    text: str
    other: str | None = None

    @property
    def changed(self) -> tuple[tuple[int, int], ...]:
        """The stretches of characters that differ from the other line."""
        return () if self.other is None else _changed_words(self.text, self.other)


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
    return list(_paired(rows))


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
        runs, place = [], 0
        for start, end in row.changed:
            runs += [Run(row.text[place:start], style), Run(row.text[start:end], strong)]
            place = end
        runs.append(Run(row.text[place:], style))
        lines.extend(wrap(runs, width, first=first, rest=rest))
    return lines


def _styles(row: Row, look: Look) -> tuple[Style, Style]:
    palette = look.palette
    if row.sign == "+":
        return palette.added, palette.added_word
    if row.sign == "-":
        return palette.removed, palette.removed_word
    return palette.muted, palette.muted


def _paired(rows: list[Row]) -> Iterator[Row]:
    """Where as many lines were added as were removed before them, each pair knows of one another."""
    position = 0
    while position < len(rows):
        removed = _stretch(rows, position, "-")
        added = _stretch(rows, position + len(removed), "+")
        if removed and len(removed) == len(added):
            # Tabs are expanded before the line is cut into runs, which would move their stops.
            before, after = ([displayed(row.text) for row in side] for side in (removed, added))
            yield from (row._replace(text=old, other=new) for row, old, new in zip(removed, before, after, strict=True))
            yield from (row._replace(text=new, other=old) for row, old, new in zip(added, before, after, strict=True))
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


@lru_cache(maxsize=1_000)
def _changed_words(text: str, other: str) -> tuple[tuple[int, int], ...]:
    """Where whole words of `text` are not those of `other`; nothing where most is not."""
    if max(len(text), len(other)) > MAX_COMPARED:
        return ()
    words, others = _WORD.findall(text), _WORD.findall(other)
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word))
    same = difflib.SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    in_common = sum(len(word.strip()) for start, _, count in same for word in words[start : start + count])
    most = max(sum(map(len, text.split())), sum(map(len, other.split())))
    if in_common < LEAST_IN_COMMON * most:
        return ()
    changed: list[tuple[int, int]] = []
    place = 0
    for start, _, count in same:
        if start > place:
            before = changed.pop() if changed and not text[changed[-1][1] : starts[place]].strip() else None
            changed.append((before[0] if before else starts[place], starts[start]))
        place = start + count
    return tuple(changed)
