"""What every card is: data of one kind, and what the pane needs of it. A card of a new kind is a class in a file here.

A block belongs to one `Transcript`, which alone changes it. All text in a block is clean (see `safe_text`).
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
    """Whether the cards of a transcript stand open; `round` counts how often all of them were opened or closed."""

    open: bool = False
    round: int = 0


class _Data(StructMeta, ABCMeta):
    """A class of data whose methods may be abstract."""


class Block(Struct, metaclass=_Data, eq=False, gc=False, kw_only=True):
    """What every block has, and answers.

    id: stable and unique in its transcript, counted up from 1.
    index: its place in the transcript, from 0.
    changes: counts every change of what it says.
    """

    id: int
    index: int
    changes: int = 0

    @property
    def version(self) -> int:
        """Counts every change of what it shows."""
        return self.changes

    @property
    def collapsed(self) -> bool:
        """Whether it shows its summary only."""
        return False

    @property
    def can_open(self) -> bool:
        """Whether it is a card with something inside."""
        return False

    @property
    def message(self) -> int:
        """The number of the message that the user said here; 0: they said nothing."""
        return 0

    @property
    def said(self) -> str:
        """What the user said here, as they typed it."""
        return ""

    @property
    @abstractmethod
    def plain_text(self) -> str:
        """The whole text, for copying and searching: Markdown source, complete results."""

    @property
    def code(self) -> list[str]:
        """The pieces of code in it, for copying."""
        return []

    @property
    def spins(self) -> bool:
        """Whether its header shows that something goes on."""
        return False

    def follows(self, before: "Block") -> bool:
        """Whether it stands right below another block, without a blank line."""
        return False

    @abstractmethod
    def sections(self) -> list[Section]:
        """What is painted of it now, in pieces that are painted when they come into view."""

    def divider(self) -> Callable[[], list[Section]]:
        """`sections`, for a painting that asks after every change: what did not change is the same object."""
        return self.sections

    @abstractmethod
    def estimate(self, width: int, *, collapsed: bool) -> int:
        """A guess at its height in lines, from the size of its text alone; it was never painted."""


class Card(Block, eq=False, kw_only=True):
    """A block that can be opened. It stands as all cards do, until it is opened or closed by itself.

    folding: shared by all cards of a transcript, so that opening all of them touches none.
    own: where it was opened or closed by itself, in which round, and whether it was closed.
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
        """Open it, or close it."""
        self.own = (self.folding.round, not self.collapsed)


PACKED_FROM: Final = 400
"""Characters from which on a text that is seldom looked at is held compressed: below, little is gained."""
_READ: Final = 8
"""Texts that were read last and are held as they are as well."""
_FASTEST: Final = 1


def packed(text: str) -> str | bytes:
    """Clean text as a card holds it that is seldom opened. Compressing and reading take 10 microseconds for 2,000
    characters.
    """
    return text if len(text) < PACKED_FROM else zlib.compress(text.encode(), _FASTEST)


def unpacked(held: str | bytes) -> str:
    """What `packed` was given."""
    return held if isinstance(held, str) else _decompressed(held)


@lru_cache(_READ)
def _decompressed(held: bytes) -> str:
    return zlib.decompress(held).decode()


class StreamedText:
    """Text that arrives in pieces, cleaned as it comes. Reading it joins the pieces once."""

    __slots__ = ("_cleaner", "_pieces", "_text")

    def __init__(self, text: str = "") -> None:
        self._text = ""
        self._pieces: list[str] | None = None
        self._cleaner: StreamCleaner | None = StreamCleaner()
        if text:
            self.append(text)

    def append(self, piece: str) -> None:
        """Add a piece at the end."""
        if self._cleaner is None:
            self._cleaner = StreamCleaner()
        self._take(self._cleaner.feed(piece))

    def finish(self) -> None:
        """Nothing more will come."""
        if self._cleaner is not None:
            self._take(self._cleaner.finish())
            self._cleaner = None

    def _take(self, cleaned: str) -> None:
        if not self._text:
            # A whole text is the only piece: it is kept as it came, and not held twice.
            self._text = cleaned
        elif cleaned:
            self._pieces = self._pieces or []
            self._pieces.append(cleaned)

    @override
    def __str__(self) -> str:
        if self._pieces:
            self._text, self._pieces = "".join((self._text, *self._pieces)), None
        return self._text
