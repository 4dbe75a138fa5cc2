"""Unified diffs as painted lines: line numbers, a sign, a tint, and the changed words of a changed line."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Final, NamedTuple

from rich.segment import Segment
from rich.style import Style

from tui_agent.text import clean, displayed
from tui_agent.tui.painting.code import highlight, language_of
from tui_agent.tui.painting.lines import GUTTER, Line, Run, breaks, make_line, wrap
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.sections import TEXT_LINES, Section

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_FILE = re.compile(r"^\+\+\+ (.*)$", re.MULTILINE)
_WORD = re.compile(r"\w+|\s+|.")

_HEADER: Final = 10_000
"""Characters at the beginning of a diff among which the name of its file is."""
_BEFORE_ROWS: Final = 3
"""Lines of a diff before its first row: two of names, one that tells where the row is."""

_BREAKS: Final = str.maketrans({"\r": "␍", "\f": "␌", **dict.fromkeys("\v\x1c\x1d\x1e\x85\u2028\u2029", "␤")})
"""What would end a line on the screen and ends none in the file."""

NOTE: Final = "\\"
"""Sign of a row that is no line of the file, but says something of it."""
NO_NEWLINE: Final = "no newline at the end"

MAX_COMPARED: Final = 400
"""Characters of a line whose words are all compared with those of the line it replaces; of longer ones it is told
between which words they differ."""

LEAST_IN_COMMON: Final = 0.4
"""Share of two lines that must be the same for the rest to be marked: where most differs, marks tell nothing."""


class DiffRow(NamedTuple):
    """One line of a diff. sign: "+", "-", " ", "@" between hunks, or `NOTE`. number: in the new file, or the old one
    for "-".

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


def clean_diff(diff: str) -> str:
    """A diff as text that is safe on the screen, each line of it still one."""
    return clean(diff.translate(_BREAKS))


def read_diff(diff: str) -> list[DiffRow]:
    """The rows of a unified diff; file headers are left out. That a file has no newline at its end is told where that
    changes.
    """
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
    """The file that a unified diff is of; empty where it does not tell."""
    found = _FILE.search(diff[:_HEADER])
    return found[1].strip() if found else ""


def diff_sections(diff: str, *, indent: int = GUTTER) -> list[Section]:
    """A unified diff in sections, to be painted as they come into view."""
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
    """A unified diff as lines of a list: broken for a width at once, painted where they are looked at."""

    def __init__(self, diff: str, *, from_change: bool = False, at_most: int | None = None) -> None:
        """`from_change`: what stands more than a line before the first change is left out."""
        rows = read_diff(diff)
        changed = next((place for place, row in enumerate(rows) if row.sign in "+-"), 0)
        self.cut = at_most is not None and len(rows) > at_most
        self.rows = rows[max(0, changed - 1) if from_change else 0 : at_most]
        self._file = file_of(diff)
        self._width = 0
        self._painted: tuple[int, Look, list[Line]] | None = None

    def broken(self, width: int) -> list[tuple[str, Callable[[int, Look], Line]]]:
        """Each line as text, and what paints it."""
        self._width, self._painted = width, None
        digits = _digits(self.rows)
        found: list[tuple[str, Callable[[int, Look], Line]]] = []
        for number, part in enumerate(_parts(self.rows)):
            texts = [text for row in part for text in _broken(row, width, digits)]
            found += [(text, partial(self._line, number, place)) for place, text in enumerate(texts)]
        return found

    def _line(self, part: int, place: int, _width: int, look: Look) -> Line:
        if self._painted is None or self._painted[0] != part or self._painted[1] is not look:
            rows, digits = _parts(self.rows)[part], _digits(self.rows)
            self._painted = part, look, paint_rows(rows, self._width, look, file=self._file, digits=digits, indent=0)
        return self._painted[2][place]


def _broken(row: DiffRow, width: int, digits: int) -> Iterator[str]:
    """The lines that `paint_rows` makes of a row."""
    if row.sign == "@":
        yield "…"
        return
    text = displayed(row.text)
    before = f"{row.number:>{digits}} {row.sign} " if row.sign != NOTE else " " * (digits + 3)
    for start, end, _ in breaks(text, max(1, width - len(before))):
        yield f"{before if not start else ' ' * len(before)}{text[start:end]}"


def _parts(rows: list[DiffRow]) -> list[list[DiffRow]]:
    return [rows[start : start + TEXT_LINES] for start in range(0, len(rows), TEXT_LINES)]


def _digits(rows: Sequence[DiffRow]) -> int:
    return max((len(str(row.number)) for row in rows), default=1)


def draw_diff_start(diff: str, count: int, width: int, look: Look, *, indent: int = GUTTER) -> list[Line]:
    """The first `count` lines of a diff; nothing behind them is read."""
    beginning = "\n".join(diff.split("\n", count + _BEFORE_ROWS)[: count + _BEFORE_ROWS])
    rows = read_diff(beginning)[:count]
    return paint_rows(rows, width, look, file=file_of(diff), digits=_digits(rows), indent=indent)[:count]


def paint_rows(
    rows: Sequence[DiffRow], width: int, look: Look, *, file: str, digits: int, indent: int = GUTTER
) -> list[Line]:
    """Rows of a diff of a file as lines: numbers, signs, the colours of its language, and a ground for what changed.

    digits: cells of a line number.
    """
    palette = look.palette
    margin = Run(" " * indent, palette.base)
    coloured = _coloured(rows, file, palette)
    lines: list[Line] = []
    for place, row in enumerate(rows):
        if row.sign == "@":
            lines.append(make_line([margin, Run(look.glyphs.ellipsis, palette.faint)], gutter=indent))
            continue
        style, strong = _styles(row, palette)
        number = Run(f"{row.number:>{digits}} ", palette.faint)
        rest = (margin, Run(" " * (digits + 1), palette.faint), Run("  ", style))
        first = (margin, number, Run(f"{row.sign} ", style)) if row.sign != NOTE else rest
        runs = list(_marked(coloured.get(place) or [Run(row.text, style)], row.changed, style, strong))
        lines += (_grounded(line, width, row, style) for line in wrap(runs, width, first=first, rest=rest))
    return lines


def _grounded(line: Line, width: int, row: DiffRow, style: Style) -> Line:
    """A changed line has its ground up to the edge, as far as there is a ground."""
    if row.sign not in "+-" or line.width >= width or _has_no_ground(style):
        return line
    return line._replace(segments=(*line.segments, Segment(" " * (width - line.width), style)), width=width)


def _marked(runs: Sequence[Run], changed: Sequence[tuple[int, int]], style: Style, strong: Style) -> Iterator[Run]:
    """These runs on the ground of their line, those characters on a stronger one."""
    edges = sorted({edge for span in changed for edge in span})
    start = 0
    for text, ink in runs:
        cuts = [0, *(edge - start for edge in edges if 0 < edge - start < len(text)), len(text)]
        for left, right in pairwise(cuts):
            inside = any(begin <= start + left < end for begin, end in changed)
            # On the stronger ground the colours of a language would be hard to read.
            yield Run(text[left:right], strong if inside else ink)
        start += len(text)


def _coloured(rows: Sequence[DiffRow], file: str, palette: Palette) -> dict[int, list[Run]]:
    """The rows as source code, each side of the diff read as a whole. Nothing where the language is not known, or where
    the terminal's own colours already tell what was added.
    """
    language = language_of(file)
    if not language or _has_no_ground(palette.added):
        return {}
    found: dict[int, list[Run]] = {}
    for signs in (" -", " +"):
        places = [place for place, row in enumerate(rows) if row.sign in signs]
        lines = highlight("\n".join(rows[place].text for place in places), language, palette)
        if len(lines) == len(places):
            for place, runs in zip(places, lines, strict=True):
                if runs and "".join(run.text for run in runs) == rows[place].text:
                    found[place] = _on_its_ground(runs, rows[place], palette)
    return found


def _on_its_ground(runs: Sequence[Run], row: DiffRow, palette: Palette) -> list[Run]:
    """Highlighted runs on the ground of their row; what has no colour of its own takes the row's."""
    style = _styles(row, palette)[0]
    ground = Style(bgcolor=style.bgcolor)
    return [Run(text, style if ink is palette.code else ink + ground) for text, ink in runs]


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


def _stretch(rows: list[DiffRow], start: int, sign: str) -> list[DiffRow]:
    end = start
    while end < len(rows) and rows[end].sign == sign:
        end += 1
    return rows[start:end]


@lru_cache(maxsize=1_000)
def _changed_words(text: str, other: str) -> tuple[tuple[int, int], ...]:
    """Where whole words of `text` are not those of `other`; nothing where most is not."""
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


def _changed_middle(text: str, other: str) -> tuple[tuple[int, int], ...]:
    """The stretch of `text` from the first word that is not the one of `other` to the last."""
    most = min(len(text), len(other))
    start = next((place for place in range(most) if text[place] != other[place]), most)
    same = next((place for place in range(most - start) if text[-1 - place] != other[-1 - place]), most - start)
    end = len(text) - same
    while start and text[start - 1 : start].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum():
        end += 1
    if len(text) - (end - start) < LEAST_IN_COMMON * max(len(text), len(other)):
        return ()
    return ((start, end),) if start < end else ()
