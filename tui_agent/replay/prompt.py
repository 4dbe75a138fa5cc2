"""What a policy would send: pieces in order, their running sizes, and what can be read or found through them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tui_agent.replay.script import Said

PieceKind: TypeAlias = Literal["fixed", "user", "answer", "result", "cleared", "preview", "summary"]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A part of a prompt. `facts` can be read in it; the text of each of `leads` can be fetched through it."""

    kind: PieceKind
    tokens: int
    facts: frozenset[int] = frozenset()
    leads: tuple[Said, ...] = ()
    said: Said | None = None
    text: str = ""


class Prompt:
    """The pieces of the next request. `unchanged` is how many of its first pieces the last request had too.

    `edge` is a place in it (a number of pieces) where the policy marks the end of a prefix for the cache; 0: none.
    """

    def __init__(self, fixed: Piece) -> None:
        self.pieces: list[Piece] = [fixed]
        self.unchanged = 0
        self.sent = 0
        self.sent_tokens = 0
        self.edge = 0
        self._ends = [fixed.tokens]
        self._held: dict[int, int] = {}
        self._reachable: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.pieces)

    @property
    def tokens(self) -> int:
        """The size of the whole prompt."""
        return self._ends[-1]

    @property
    def fixed(self) -> int:
        return self._ends[0]

    def size(self, count: int) -> int:
        """The size of the first `count` pieces."""
        return self._ends[count - 1] if count else 0

    def append(self, piece: Piece) -> None:
        """Add a piece at the end."""
        self.pieces.append(piece)
        self._ends.append(self._ends[-1] + piece.tokens)
        self._count(piece, 1)

    def splice(self, start: int, stop: int, pieces: Sequence[Piece]) -> None:
        """Replace the pieces from `start` up to `stop`."""
        for piece in self.pieces[start:stop]:
            self._count(piece, -1)
        for piece in pieces:
            self._count(piece, 1)
        self.pieces[start:stop] = pieces
        self._resize(start)

    def replace(self, changes: dict[int, Piece]) -> None:
        """Put other pieces in the places of these."""
        for index, piece in changes.items():
            self._count(self.pieces[index], -1)
            self.pieces[index] = piece
            self._count(piece, 1)
        if changes:
            self._resize(min(changes))

    def mark_sent(self) -> None:
        """The request with all this was made."""
        self.unchanged = self.sent = len(self.pieces)
        self.sent_tokens = self.tokens

    def holds(self, fact: int) -> bool:
        """Whether a mention can be read in the prompt."""
        return fact in self._held

    def leads_to(self, said: Said) -> bool:
        """Whether something in the prompt says where the piece can be found."""
        return said.index in self._reachable

    def _resize(self, start: int) -> None:
        self.unchanged = min(self.unchanged, start)
        del self._ends[start:]
        total = self._ends[-1] if self._ends else 0
        for piece in self.pieces[start:]:
            total += piece.tokens
            self._ends.append(total)

    def _count(self, piece: Piece, change: int) -> None:
        _tally(self._held, piece.facts, change)
        _tally(self._reachable, (said.index for said in piece.leads), change)


def _tally(counts: dict[int, int], keys: Iterable[int], change: int) -> None:
    for key in keys:
        count = counts.get(key, 0) + change
        if count:
            counts[key] = count
        else:
            del counts[key]
