"""What a question is about, as lines of a list: all of it, in its visible form (`tui_agent.visible`).

The lines of one text or diff are only numbers until one of them is painted, so that a megabyte stays cheap.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from msgspec import structs
from rich.cells import cell_len
from rich.segment import Segment
from typing_extensions import override

from tui_agent.tools.base import PermissionQuestion
from tui_agent.tui.cards.prose import ProseSections
from tui_agent.tui.dialogs.row_list import ListRow, Rows
from tui_agent.tui.painting.diffs import DiffLines, visible_diff
from tui_agent.tui.painting.lines import GUTTER, Line, Run, make_line, pieces
from tui_agent.tui.painting.palette import NO_LOOK, Look
from tui_agent.visible import CONTINUED, visible, visible_line

Kind: TypeAlias = Literal["command", "text", "rule", "head"]
"""What a text is."""

MAX_TITLE: Final = 300
"""A title with more characters is repeated in full above the preview."""


class Part(Protocol):
    """A piece of a preview."""

    def breaks(self, width: int) -> Iterator[tuple[int, int, int]]:
        """The lines of this width: each as the number of a line of the part, and a start and end in it."""
        ...

    def text(self, number: int, start: int, end: int) -> str: ...

    def draw(self, number: int, start: int, end: int, width: int, look: Look) -> Line: ...


class Prose:
    """A text that is read and not run, as Markdown."""

    def __init__(self, text: str) -> None:
        self._sections = ProseSections().update(visible(text))
        self._painted: tuple[int, Look, list[Line]] = 0, NO_LOOK, []

    def breaks(self, width: int) -> Iterator[tuple[int, int, int]]:
        return ((number, 0, 0) for number in range(len(self._lines(width, NO_LOOK))))

    def text(self, number: int, start: int, end: int) -> str:
        return self._painted[2][number].text.rstrip()

    def draw(self, number: int, start: int, end: int, width: int, look: Look) -> Line:
        return self._lines(width, look)[number]

    def _lines(self, width: int, look: Look) -> list[Line]:
        if self._painted[:2] != (width, look):
            painted = [line for each in self._sections for line in each.draw(width + GUTTER, look)]
            self._painted = width, look, [_without_gutter(line) for line in painted]
        return self._painted[2]


def _without_gutter(line: Line) -> Line:
    first, *others = line.segments
    gutter = min(GUTTER, len(first.text))
    segments = (Segment(first.text[gutter:], first.style), *others)
    return structs.replace(line, segments=segments, width=line.width - gutter, gutter=max(0, line.gutter - gutter))


class PreviewPart:
    """A text of a kind; each line is indented by `indent` cells. Where a line is wrapped, that is marked."""

    def __init__(self, text: str, kind: Kind, indent: int = 0) -> None:
        self._lines = visible(text).split("\n")
        self._kind = kind
        self._indent = indent

    def breaks(self, width: int) -> Iterator[tuple[int, int, int]]:
        room = max(1, width - self._indent)
        less = max(1, room - len(CONTINUED))
        for number, line in enumerate(self._lines):
            if len(line) <= room and (line.isascii() or cell_len(line) <= room):
                yield number, 0, len(line)
                continue
            # All lines are as short as those that are marked, so that a cut is where it seems to be.
            for start, end in pieces(line, less):
                yield number, start, end

    def text(self, number: int, start: int, end: int) -> str:
        return f"{' ' * self._indent}{CONTINUED if start else ''}{self._lines[number][start:end]}"

    def draw(self, number: int, start: int, end: int, width: int, look: Look) -> Line:
        palette = look.palette
        styles = {"command": palette.base, "rule": palette.strong, "head": palette.accent}
        before = " " * self._indent + (CONTINUED if start else "")
        shown = Run(self._lines[number][start:end] or " ", styles.get(self._kind, palette.muted))
        ending = "\n" if end == len(self._lines[number]) else ""
        return make_line([Run(before, palette.faint), shown], gutter=len(before), ending=ending)


class Lines(Rows):
    """The lines of all parts at one width."""

    def __init__(self, parts: Sequence[Part] = (), width: int = 1) -> None:
        super().__init__()
        self._parts = parts
        self._places = [array("I", (n for place in part.breaks(width) for n in place)) for part in parts]
        self._starts = [0]
        for places in self._places:
            self._starts.append(self._starts[-1] + len(places) // 3)

    @override
    def __len__(self) -> int:
        return self._starts[-1]

    @override
    def element(self, place: int) -> ListRow:
        part, at = self._at(place)
        return ListRow(lambda width, look: part.draw(*at, width, look))

    @override
    def place_of(self, key: object) -> int | None:
        return None

    def text(self, place: int) -> str:
        part, at = self._at(place)
        return part.text(*at)

    def _at(self, place: int) -> tuple[Part, tuple[int, int, int]]:
        number = bisect_right(self._starts, place) - 1
        first = 3 * (place - self._starts[number])
        number_in_part, start, end = self._places[number][first : first + 3]
        return self._parts[number], (number_in_part, start, end)


def parts_of(question: PermissionQuestion, *, from_change: bool) -> list[Part]:
    """What the question is about. `from_change`: start a diff near its first change, since room is short."""
    preview = question.preview
    reading = question.kind != "call"
    parts: list[Part] = []
    if not reading and len(title := visible_line(preview.title)) > MAX_TITLE:
        parts.append(PreviewPart(title, "head"))
    if preview.command:
        parts.append(PreviewPart(preview.command, "command"))
    if preview.diff:
        parts.append(DiffLines(visible_diff(preview.diff), from_change=from_change))
    if preview.text or not (preview.command or preview.diff):
        text = preview.text or question.arguments
        parts.append(Prose(text) if reading else PreviewPart(text, "text"))
    for change in preview.changes:
        parts += [PreviewPart(f"\n{change.title}", "head"), DiffLines(visible_diff(change.diff))]
    return parts


def rule_parts(rules: Sequence[str]) -> list[Part]:
    """The rules that "always" would add, where they have no room with their answer."""
    if not rules:
        return []
    return [
        PreviewPart("\n2 and 3 would allow:", "text"),
        *(PreviewPart(rule, "rule", 2) for rule in rules),
    ]
