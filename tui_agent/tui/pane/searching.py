"""Searching in the pane: the words being typed, and the line where they are found next."""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from textual import events

from tui_agent.tui.app.theme import Glyphs
from tui_agent.tui.pane.decorating import holds
from tui_agent.tui.pane.transcript import can_open, plain_text
from tui_agent.tui.pane.viewport import Position, Viewport

MAX_WORDS: Final = 200


class Typed(Enum):
    """What a key did to the words."""

    CHANGED = "changed"
    DONE = "done"
    LEFT = "left"


class Search:
    """What is searched for. `typing`: keys go into the words; `at`: the line found last."""

    def __init__(self) -> None:
        self.words = ""
        self.typing = False
        self.missing = False
        self.at: Position | None = None
        self._from: Position | None = None

    def begin(self, at: Position | None) -> None:
        """Take words from the keyboard; the search begins at this line."""
        self.typing, self.words, self.missing = True, "", False
        self.at, self._from = None, at

    def leave(self) -> None:
        """Search for nothing."""
        self.typing, self.words, self.missing, self.at = False, "", False, None

    def take(self, event: events.Key) -> Typed:
        """One key while the words are typed."""
        if event.key == "escape" or (event.key == "backspace" and not self.words):
            self.leave()
            return Typed.LEFT
        if event.key == "enter":
            self.typing = False
            if not self.words:
                self.leave()
            return Typed.DONE
        if event.key == "backspace":
            self.words = self.words[:-1]
        elif event.character is not None and event.is_printable and len(self.words) < MAX_WORDS:
            self.words += event.character
        return Typed.CHANGED

    def first(self, viewport: Viewport) -> Position | None:
        """Where the words are found from where the search began, towards the end, then from the start."""
        return self._seek(viewport, self._from or Position(0, 0, 0), forward=True, inclusive=True)

    def next(self, viewport: Viewport, *, forward: bool) -> Position | None:
        """The next line with the words, going round at the ends."""
        start = self.at or self._from or Position(0, 0, 0)
        return self._seek(viewport, start, forward=forward, inclusive=self.at is None)

    def label(self, glyphs: Glyphs) -> str:
        """What stands in the last line while there is a search."""
        if self.typing:
            told = "  nothing found" if self.missing else "  Enter keeps, Esc closes" if self.words else ""
            return f"  /{self.words}{glyphs.quote}{told} "
        return f"  /{self.words}  {'nothing found' if self.missing else 'n next, N previous'} "

    def _seek(self, viewport: Viewport, start: Position, *, forward: bool, inclusive: bool) -> Position | None:
        found = None
        if self.words:
            found = next(_places(viewport, self.words, start, forward=forward, inclusive=inclusive), None)
        self.missing = bool(self.words) and found is None
        self.at = found
        return found


def _places(viewport: Viewport, words: str, start: Position, *, forward: bool, inclusive: bool) -> Iterator[Position]:
    """The lines with the words, from one on and round to it again. Cards that hold them are opened on the way."""
    count = len(viewport.transcript)
    for step in range(count + 1):
        index = (start.block + (step if forward else -step)) % count
        if not holds(plain_text(viewport.transcript.blocks[index]), words):
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
    if can_open(block) and block.collapsed:
        viewport.transcript.toggle(block)
        viewport.update(index)
    painting = viewport.painting(index)
    found = [
        Position(index, section, number)
        for section in range(len(painting.heights))
        for number, line in enumerate(viewport.section_lines(index, section))
        if holds(line.text[line.gutter :], words)
    ]
    # Words that a line break parts are shown by the block's first line.
    return found or [viewport.first_line(index)]
