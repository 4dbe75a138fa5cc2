"""The base classes of all blocks: data of one kind, and what the pane needs to show it. A new kind of card is a class
in a module of this package.

A block belongs to one `Transcript`, and only that changes it. All text in a block is clean (see `safe_text`).
"""

import zlib
from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from msgspec import Struct, StructMeta
from typing_extensions import override

from tui_agent.text import StreamCleaner
from tui_agent.tui.painting.sections import Section


class Folding(Struct):
    """Whether a transcript's cards are open by default. `round` counts how often all of them were opened or closed."""

    open: bool = False
    round: int = 0


class _Data(StructMeta, ABCMeta):
    """The metaclass of structs with abstract methods."""


class Block(Struct, metaclass=_Data, eq=False, gc=False, kw_only=True):
    """One item of the conversation.

    id: stable and unique in its transcript, counted up from 1.
    index: its place in the transcript, from 0.
    changes: counts the changes of its content.
    """

    id: int
    index: int
    changes: int = 0

    @property
    def version(self) -> int:
        """A number that grows with every change of what is shown: content, or open and closed."""
        return self.changes

    @property
    def collapsed(self) -> bool:
        """Whether only its summary is shown."""
        return False

    @property
    def can_open(self) -> bool:
        """Whether it is a card with something to open."""
        return False

    @property
    def message(self) -> int:
        """The number of the user's message that this block shows; 0 if it shows none."""
        return 0

    @property
    def said(self) -> str:
        """The user's message as they typed it; empty if this block shows none."""
        return ""

    @property
    @abstractmethod
    def plain_text(self) -> str:
        """The whole text, for copying and searching: Markdown source, complete results."""

    @property
    def code(self) -> list[str]:
        """Its pieces of code, for copying."""
        return []

    @property
    def spins(self) -> bool:
        return False

    def follows(self, before: "Block") -> bool:
        """Whether it is shown right below the block `before`, without a blank line."""
        return False

    @abstractmethod
    def sections(self) -> list[Section]:
        """What to paint now, in pieces that are painted when they come into view."""

    def divider(self) -> Callable[[], list[Section]]:
        """A function like `sections` that one painting calls after every change: it reuses unchanged sections."""
        return self.sections

    @abstractmethod
    def estimate(self, width: int, *, collapsed: bool) -> int:
        """Estimated height in lines, from the size of the text alone, for a block that was never painted."""


class Card(Block, eq=False, kw_only=True):
    """A block that can be opened. It follows the transcript's default until it is opened or closed individually.

    folding: shared by all cards of a transcript, so that opening all of them changes no card.
    own: its individual state (round in which it was set, collapsed); it lapses when all cards are toggled.
    """

    folding: Folding
    own: tuple[int, bool] | None = None

    @property
    @override
    def version(self) -> int:
        return self.changes + self.folding.round

    @property
    @override
    def collapsed(self) -> bool:
        if self.own is not None and self.own[0] == self.folding.round:
            return self.own[1]
        return not self.folding.open

    def toggle(self) -> None:
        self.own = (self.folding.round, not self.collapsed)


PACKED_FROM: Final = 400
"""Texts of at least this many characters are held compressed; for shorter ones compression gains little."""
_UNPACKED_CACHED: Final = 8
"""How many recently read texts are also held uncompressed."""
_ZLIB_LEVEL: Final = 1


def packed(text: str) -> str | bytes:
    """Clean text in the form a seldom opened card holds it. Packing or unpacking 2,000 characters takes 10 µs."""
    return text if len(text) < PACKED_FROM else zlib.compress(text.encode(), _ZLIB_LEVEL)


def unpacked(held: str | bytes) -> str:
    return held if isinstance(held, str) else _decompressed(held)


@lru_cache(_UNPACKED_CACHED)
def _decompressed(held: bytes) -> str:
    return zlib.decompress(held).decode()


class StreamedText:
    """Text that arrives in pieces and is cleaned as it arrives. `str()` joins the pieces and keeps the result."""

    __slots__ = ("_cleaner", "_pieces", "_text")

    def __init__(self, text: str = "") -> None:
        self._text = ""
        self._pieces: list[str] | None = None
        self._cleaner: StreamCleaner | None = None
        if text:
            self.append(text)

    def append(self, piece: str) -> None:
        if self._cleaner is None:
            self._cleaner = StreamCleaner()
        self._take(self._cleaner.feed(piece))

    def finish(self) -> None:
        """Clean what the cleaner held back: no more pieces follow."""
        if self._cleaner is not None:
            self._take(self._cleaner.finish())
            self._cleaner = None

    def _take(self, cleaned: str) -> None:
        if not self._text:
            # A text that comes whole stays the one string it is.
            self._text = cleaned
        elif cleaned:
            self._pieces = self._pieces or []
            self._pieces.append(cleaned)

    @override
    def __str__(self) -> str:
        if self._pieces:
            self._text, self._pieces = "".join((self._text, *self._pieces)), None
        return self._text
