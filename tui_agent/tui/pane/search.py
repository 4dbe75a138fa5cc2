"""Search in the conversation: the words being typed, the current hit, and the number of hits."""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import pairwise
from time import monotonic
from typing import Final

from rich.segment import Segment
from rich.style import Style
from textual import events

from tui_agent.tui.painting.glyphs import Glyphs
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.viewport import Position, Viewport

MAX_WORDS: Final = 200
SLICE_S: Final = 0.004
"""Seconds spent counting hits before keys are handled."""


class Typed(Enum):
    """What a key did to the search words."""

    CHANGED = "changed"
    DONE = "done"
    LEFT = "left"


class PaneSearch:
    """The state of a search. `typing`: keys edit the words; `at`: the line of the current hit."""

    def __init__(self) -> None:
        self.words = ""
        self.typing = False
        self.missing = False
        self.at: Position | None = None
        self._from: Position | None = None
        self._hits = _Hits("")
        self._number = 0

    @property
    def active(self) -> bool:
        """Whether a search is shown; it takes the last line of the pane."""
        return self.typing or bool(self.words)

    def begin(self, at: Position | None) -> None:
        """Start taking words from the keyboard; the search starts at this line."""
        self.leave()
        self.typing, self._from = True, at

    def leave(self) -> None:
        self.typing, self.words, self.missing, self.at = False, "", False, None
        self._hits = _Hits("")

    def forget_places(self) -> None:
        """Drop positions after the transcript was replaced: the same lines have other positions now."""
        self.at = self._from = None
        self._hits = _Hits(self.words)

    def take(self, event: events.Key) -> Typed:
        """Handle one key while the words are typed."""
        if event.key == "escape" or (event.key == "backspace" and not self.words):
            self.leave()
            return Typed.LEFT
        if event.key == "enter":
            self.typing = False
            return Typed.DONE if self.words else Typed.LEFT
        if event.key == "backspace":
            self.words = self.words[:-1]
        elif event.character is not None and event.is_printable and len(self.words) < MAX_WORDS:
            self.words += event.character
        return Typed.CHANGED

    def first(self, viewport: Viewport) -> Position | None:
        """The first hit from where the search began to the end, then from the top."""
        self._hits = _Hits(self.words)
        return self._seek(viewport, self._from or Position(0, 0, 0), forward=True, inclusive=True)

    def next(self, viewport: Viewport, *, forward: bool) -> Position | None:
        """The next or previous line with a hit, wrapping around at the ends."""
        start = self.at or self._from or Position(0, 0, 0)
        return self._seek(viewport, start, forward=forward, inclusive=self.at is None)

    def count(self, transcript: Transcript) -> bool:
        """Count hits for `SLICE_S`; True if blocks are left to count."""
        return bool(self.words) and not self.missing and self._hits.count(transcript)

    def label(self, glyphs: Glyphs) -> str:
        cursor = glyphs.quote if self.typing else ""
        parts = ["nothing found"] if self.missing else [self._where(glyphs)] if self.words else []
        if self.words:
            parts.append("Enter keeps, Esc closes" if self.typing else "n next, N previous, Esc closes")
        return f"  /{self.words}{cursor}  {f' {glyphs.dot} '.join(part for part in parts if part)} "

    def _where(self, glyphs: Glyphs) -> str:
        if self.at is None:
            return ""
        if not self._hits.counted > self.at.block:
            return glyphs.ellipsis
        number = min(self._hits.before(self.at.block) + self._number, self._hits.total)
        return f"{number:,} of {self._hits.total:,}{'' if self._hits.whole else '+'}"

    def _seek(self, viewport: Viewport, start: Position, *, forward: bool, inclusive: bool) -> Position | None:
        found = None
        if self.words:
            found = next(_places(viewport, self.words, start, forward=forward, inclusive=inclusive), None)
        self.missing = bool(self.words) and found is None
        self.at = found
        self._number = _number_in_block(viewport, found, self.words) if found is not None else 0
        return found


class _Hits:
    """Counts how often the words occur in each block, a time slice at a time."""

    def __init__(self, words: str) -> None:
        self._words = words
        self._sums: list[int] = []
        self.whole = False

    @property
    def counted(self) -> int:
        return len(self._sums)

    @property
    def total(self) -> int:
        return self._sums[-1] if self._sums else 0

    def before(self, index: int) -> int:
        """Hits in all blocks before `index`, which must have been counted."""
        return self._sums[index - 1] if index else 0

    def count(self, transcript: Transcript) -> bool:
        pattern, began = _pattern(self._words), monotonic()
        blocks = transcript.blocks
        while len(self._sums) < len(blocks) and monotonic() - began < SLICE_S:
            text = blocks[len(self._sums)].plain_text
            found = sum(1 for _ in pattern.finditer(text)) if occurs(text, self._words) else 0
            self._sums.append(self.total + found)
        self.whole = len(self._sums) >= len(blocks)
        return not self.whole


def with_words(segments: Sequence[Segment], gutter: int, words: str, style: Style) -> Sequence[Segment]:
    """A line with every occurrence of `words` marked, ignoring case; its first `gutter` characters never are."""
    text = "".join(segment.text for segment in segments)
    found = [match.span() for match in _pattern(words).finditer(text, gutter)]
    if not found:
        return segments
    edges = {edge for span in found for edge in span}
    marked: list[Segment] = []
    start = 0
    for piece, own, _ in segments:
        cuts = sorted({0, len(piece), *(edge - start for edge in edges if 0 < edge - start < len(piece))})
        for left, right in pairwise(cuts):
            inside = any(begin <= start + left < end for begin, end in found)
            marked.append(Segment(piece[left:right], (own or Style.null()) + style if inside else own))
        start += len(piece)
    return marked


def occurs(text: str, words: str) -> bool:
    if text.isascii() and words.isascii():
        return words.lower() in text.lower()
    return _pattern(words).search(text) is not None


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(re.escape(words), re.IGNORECASE)


def _places(viewport: Viewport, words: str, start: Position, *, forward: bool, inclusive: bool) -> Iterator[Position]:
    """Lines with the words, from `start` around to it again. Opens collapsed cards that contain them."""
    count = len(viewport.transcript)
    for step in range(count + 1):
        index = (start.block + (step if forward else -step)) % count
        if not occurs(viewport.transcript.blocks[index].plain_text, words):
            continue
        lines = _lines_in(viewport, index, words)
        for place in lines if forward else reversed(lines):
            if step == 0 and not _beyond(place, start, forward=forward, inclusive=inclusive):
                continue
            yield place


def _beyond(place: Position, start: Position, *, forward: bool, inclusive: bool) -> bool:
    if place == start:
        return inclusive
    return place > start if forward else place < start


def _lines_in(viewport: Viewport, index: int, words: str) -> list[Position]:
    block = viewport.transcript.blocks[index]
    if block.can_open and block.collapsed:
        viewport.transcript.toggle(block)
        viewport.update(index)
    found = [place for place, hits in _painted(viewport, index, words) if hits]
    # A match that is wrapped over two lines is in neither: show the block's first line.
    return found or [viewport.first_line(index)]


def _number_in_block(viewport: Viewport, at: Position, words: str) -> int:
    """The number, from 1, of a line's first hit among the hits of its block."""
    return 1 + sum(hits for place, hits in _painted(viewport, at.block, words) if place < at)


def _painted(viewport: Viewport, index: int, words: str) -> Iterator[tuple[Position, int]]:
    """Each line of a block with its number of hits."""
    pattern = _pattern(words)
    for section in range(len(viewport.painting(index).heights)):
        for number, line in enumerate(viewport.section_lines(index, section)):
            yield Position(index, section, number), sum(1 for _ in pattern.finditer(line.text, line.gutter))
