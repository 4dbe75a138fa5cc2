"""Unified diffs as painted lines: line numbers, a sign, a tint, and the changed words of a changed line."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final

import msgspec
from msgspec import structs
from rich.segment import Segment
from rich.style import Style

from tui_agent.regex import regex
from tui_agent.tui.painting.code import highlight, language_of
from tui_agent.tui.painting.lines import GUTTER, Line, Run, cut, make_line, pieces, wrap
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.sections import TEXT_LINES, Section
from tui_agent.visible import TAB, visible_line

_HUNK = regex(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_FILE = regex(r"^\+\+\+ (.*)$", re.MULTILINE)
_WORD = regex(r"\w+|\s+|.")

_HEADER: Final = 10_000
"""The file's name is within this many characters from the start of a diff."""
_BEFORE_ROWS: Final = 3
"""Lines of a diff before its first row: two with file names, one hunk header."""

NOTE: Final = "\\"
"""The sign of a row that is a note on the file, not one of its lines."""
NO_NEWLINE: Final = "no newline at the end"

MAX_COMPARED: Final = 400
"""Lines up to this many characters are compared word by word; of longer ones, only the stretch from the first to the
last difference is marked."""

MAX_COLOURED: Final = 20_000
"""Stretches of a diff with more characters are not highlighted: that would take long."""

MIN_COMMON_SHARE: Final = 0.4
"""Differences are marked only if at least this share of two lines is equal: if most differs, marks do not help."""


class DiffRow(msgspec.Struct, frozen=True):
    """One line of a diff.

    sign: "+", "-", " ", "@" between hunks, or `NOTE`. number: of the line in the new file; for "-" in the old one.
    other: the line it replaces or is replaced by, if any.
    """

    sign: str
    number: int
    text: str
    other: str | None = None

    @property
    def changed(self) -> tuple[tuple[int, int], ...]:
        return () if self.other is None else _changed_words(self.text, self.other)


def counts(diff: str) -> tuple[int, int]:
    rows = read_diff(diff)
    return sum(row.sign == "+" for row in rows), sum(row.sign == "-" for row in rows)


def visible_diff(diff: str) -> str:
    """A unified diff with the visible form of each line (`tui_agent.visible`), after its sign."""
    return "\n".join(line[:1] + visible_line(line[1:]) for line in diff.split("\n"))


def read_diff(diff: str) -> list[DiffRow]:
    """The rows of a unified diff without file headers. "No newline at the end" is noted only where that changes."""
    rows: list[DiffRow] = []
    unended: list[int] = []
    old = new = 1
    inside = False
    for line in diff.removesuffix("\n").split("\n"):
        if hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[2])
            if inside:
                rows.append(DiffRow("@", 0, ""))
            inside = True
        elif not inside:
            continue
        elif line.startswith("\\"):
            if rows and rows[-1].sign in "+-":
                unended.append(len(rows))
        elif line.startswith("+"):
            rows.append(DiffRow("+", new, line[1:]))
            new += 1
        elif line.startswith("-"):
            rows.append(DiffRow("-", old, line[1:]))
            old += 1
        elif line.startswith(" ") or not line:
            rows.append(DiffRow(" ", new, line[1:]))
            old, new = old + 1, new + 1
        else:
            rows.append(DiffRow(NOTE, 0, line))
    rows = list(_paired(rows))
    if len(unended) == 1:
        rows.insert(unended[0], DiffRow(NOTE, 0, NO_NEWLINE))
    return rows


def file_of(diff: str) -> str:
    """The name of the file that a unified diff changes; empty if the diff does not say."""
    found = _FILE.search(diff[:_HEADER])
    return found[1].strip() if found else ""


def diff_sections(diff: str, *, indent: int = GUTTER) -> list[Section]:
    """A unified diff as sections that are painted as they come into view."""
    rows, file = read_diff(diff), file_of(diff)
    digits = _digits(rows)
    return [
        Section(
            partial(paint_rows, part, file=file, digits=digits, indent=indent),
            sum(len(row.text) for row in part),
            len(part) - 1,
        )
        for part in _parts(rows)
    ]


class DiffLines:
    """A unified diff as lines of a list: where they break is known at once, each is painted when it is shown."""

    def __init__(self, diff: str, *, from_change: bool = False, at_most: int | None = None) -> None:
        """`diff`: from `visible_diff`. `from_change`: start one line before the first change. `at_most`: keep this many
        rows.
        """
        rows = read_diff(diff)
        changed = next((place for place, row in enumerate(rows) if row.sign in "+-"), 0)
        self.cut = at_most is not None and len(rows) > at_most
        self.rows = rows[max(0, changed - 1) if from_change else 0 : at_most]
        self._file = file_of(diff)
        self._digits = _digits(self.rows)
        self._painted: tuple[int, Look, list[list[Run]]] | None = None

    @property
    def margin(self) -> int:
        """Cells before the text of a line: its number and its sign."""
        return self._digits + 3

    def breaks(self, width: int) -> Iterator[tuple[int, int, int]]:
        """The lines of this width, each as the number of its row, and its start and end in the row's text."""
        room = max(1, width - self.margin)
        for number, row in enumerate(self.rows):
            for start, end in pieces(row.text, room):
                yield number, start, end

    def text(self, number: int, start: int, end: int) -> str:
        row = self.rows[number]
        if row.sign == "@":
            return "…"
        first = f"{row.number:>{self._digits}} {row.sign} " if row.sign != NOTE and not start else " " * self.margin
        return first + row.text[start:end]

    def draw(self, number: int, start: int, end: int, width: int, look: Look) -> Line:
        row, place = self.rows[number], number % TEXT_LINES
        if row.sign == "@":
            return make_line([Run(look.glyphs.ellipsis, look.palette.faint)], gutter=1)
        if self._painted is None or self._painted[0] != number - place or self._painted[1] is not look:
            part = self.rows[number - place : number - place + TEXT_LINES]
            self._painted = number - place, look, _inked(part, self._file, look.palette)
        style = _styles(row, look.palette)[0]
        before = [Run(f"{row.number:>{self._digits}} ", look.palette.faint), Run(f"{row.sign} ", style)]
        if row.sign == NOTE or start:
            before = [Run(" " * (self._digits + 1), look.palette.faint), Run("  ", style)]
        runs = cut(self._painted[2][place], start, end)
        ending = "\n" if end == len(row.text) else ""
        return _grounded(make_line([*before, *runs], gutter=self.margin, ending=ending), width, row, style)


def _parts(rows: list[DiffRow]) -> list[list[DiffRow]]:
    return [rows[start : start + TEXT_LINES] for start in range(0, len(rows), TEXT_LINES)]


def _digits(rows: Sequence[DiffRow]) -> int:
    return max((len(str(row.number)) for row in rows), default=1)


def draw_diff_start(diff: str, count: int, width: int, look: Look, *, indent: int = GUTTER) -> list[Line]:
    """The first `count` lines of a diff; the rest is not parsed."""
    beginning = "\n".join(diff.split("\n", count + _BEFORE_ROWS)[: count + _BEFORE_ROWS])
    rows = read_diff(beginning)[:count]
    return paint_rows(rows, width, look, file=file_of(diff), digits=_digits(rows), indent=indent)[:count]


def paint_rows(
    rows: Sequence[DiffRow], width: int, look: Look, *, file: str, digits: int, indent: int = GUTTER
) -> list[Line]:
    """Rows of a file's diff as lines: numbers, signs, syntax colours, and a background on changed lines.

    digits: cells of a line number.
    """
    palette = look.palette
    margin = Run(" " * indent, palette.base)
    lines: list[Line] = []
    for row, runs in zip(rows, _inked(rows, file, palette), strict=True):
        if row.sign == "@":
            lines.append(make_line([margin, Run(look.glyphs.ellipsis, palette.faint)], gutter=indent))
            continue
        style = _styles(row, palette)[0]
        number = Run(f"{row.number:>{digits}} ", palette.faint)
        rest = (margin, Run(" " * (digits + 1), palette.faint), Run("  ", style))
        first = (margin, number, Run(f"{row.sign} ", style)) if row.sign != NOTE else rest
        lines += (_grounded(line, width, row, style) for line in wrap(runs, width, first=first, rest=rest))
    return lines


def _inked(rows: Sequence[DiffRow], file: str, palette: Palette) -> list[list[Run]]:
    """The text of each row in its colours, with what changed in it marked and the signs of tabs faint."""
    coloured = _coloured(rows, file, palette)
    inked: list[list[Run]] = []
    for place, row in enumerate(rows):
        style, strong = _styles(row, palette)
        runs = _marked(coloured.get(place) or [Run(row.text, style)], row.changed, style, strong)
        inked.append(
            list(_faint_tabs(runs, Style(color=palette.faint.color)) if len(row.text) <= MAX_COLOURED else runs)
        )
    return inked


def _faint_tabs(runs: Iterable[Run], faint: Style) -> Iterator[Run]:
    for text, style in runs:
        for place, piece in enumerate(text.split(TAB[0])):
            if place:
                yield Run(TAB[0], style + faint)
            yield Run(piece, style)


def _grounded(line: Line, width: int, row: DiffRow, style: Style) -> Line:
    """Extend a changed line's background to the edge, if it has one."""
    if row.sign not in "+-" or line.width >= width or _has_no_ground(style):
        return line
    return structs.replace(line, segments=(*line.segments, Segment(" " * (width - line.width), style)), width=width)


def _marked(runs: Sequence[Run], changed: Sequence[tuple[int, int]], style: Style, strong: Style) -> Iterator[Run]:
    """The runs of a line in its style, with the `changed` characters in the stronger one."""
    edges = sorted({edge for span in changed for edge in span})
    start = 0
    for text, ink in runs:
        cuts = [0, *(edge - start for edge in edges if 0 < edge - start < len(text)), len(text)]
        for left, right in pairwise(cuts):
            inside = any(begin <= start + left < end for begin, end in changed)
            # Syntax colours would be hard to read on the stronger background.
            yield Run(text[left:right], strong if inside else ink)
        start += len(text)


def _coloured(rows: Sequence[DiffRow], file: str, palette: Palette) -> dict[int, list[Run]]:
    """Highlighted runs of the rows, by index; each side of the diff is lexed as a whole.

    Empty if the language is unknown or there is much text, or if the theme has no backgrounds and colours already mark
    what changed.
    """
    language = language_of(file)
    if sum(len(row.text) for row in rows) > MAX_COLOURED or not language or _has_no_ground(palette.added):
        return {}
    found: dict[int, list[Run]] = {}
    for signs in (" -", " +"):
        places = [place for place, row in enumerate(rows) if row.sign in signs]
        lines = highlight("\n".join(rows[place].text for place in places), language, palette)
        if len(lines) == len(places):
            for place, runs in zip(places, lines, strict=True):
                if runs and "".join(run.text for run in runs) == rows[place].text:
                    style = _styles(rows[place], palette)[0]
                    ground = Style(bgcolor=style.bgcolor)
                    found[place] = [Run(text, style if ink is palette.code else ink + ground) for text, ink in runs]
    return found


def _has_no_ground(style: Style) -> bool:
    return style.bgcolor is None or style.bgcolor.is_default


def _styles(row: DiffRow, palette: Palette) -> tuple[Style, Style]:
    if row.sign == "+":
        return palette.added, palette.added_word
    if row.sign == "-":
        return palette.removed, palette.removed_word
    if row.sign == NOTE:
        return palette.faint, palette.faint
    return palette.muted, palette.muted


def _paired(rows: list[DiffRow]) -> Iterator[DiffRow]:
    """Where lines were replaced by as many others, set `other` of each pair."""
    position = 0
    while position < len(rows):
        removed = _stretch(rows, position, "-")
        added = _stretch(rows, position + len(removed), "+")
        if removed and len(removed) == len(added):
            yield from (structs.replace(row, other=new.text) for row, new in zip(removed, added, strict=True))
            yield from (structs.replace(row, other=old.text) for row, old in zip(added, removed, strict=True))
        else:
            yield from removed
            yield from added
        position += len(removed) + len(added)
        if not removed and not added:
            yield rows[position]
            position += 1


def _stretch(rows: list[DiffRow], start: int, sign: str) -> list[DiffRow]:
    end = start
    while end < len(rows) and rows[end].sign == sign:
        end += 1
    return rows[start:end]


@lru_cache(maxsize=1_000)
def _changed_words(text: str, other: str) -> tuple[tuple[int, int], ...]:
    """The ranges of words in `text` that differ from `other`; empty if most differ."""
    if max(len(text), len(other)) > MAX_COLOURED:
        return ()
    if max(len(text), len(other)) > MAX_COMPARED:
        return _changed_middle(text, other)
    import difflib

    words, others = _WORD.findall(text), _WORD.findall(other)
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word))
    same = difflib.SequenceMatcher(None, words, others, autojunk=False).get_matching_blocks()
    in_common = sum(len(word.strip()) for start, _, count in same for word in words[start : start + count])
    most = max(sum(map(len, text.split())), sum(map(len, other.split())))
    if in_common < MIN_COMMON_SHARE * most:
        return ()
    changed: list[tuple[int, int]] = []
    place = 0
    for start, _, count in same:
        if start > place:
            before = changed.pop() if changed and not text[changed[-1][1] : starts[place]].strip() else None
            changed.append((before[0] if before else starts[place], starts[start]))
        place = start + count
    return tuple(changed)


def _changed_middle(text: str, other: str) -> tuple[tuple[int, int], ...]:
    """The range of `text` from the first word that differs from `other` to the last."""
    most = min(len(text), len(other))
    start = next((place for place in range(most) if text[place] != other[place]), most)
    same = next((place for place in range(most - start) if text[-1 - place] != other[-1 - place]), most - start)
    end = len(text) - same
    while start and text[start - 1 : start].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    if len(text) - (end - start) < MIN_COMMON_SHARE * max(len(text), len(other)):
        return ()
    return ((start, end),) if start < end else ()
