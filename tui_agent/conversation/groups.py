"""Where a cut may fall: between groups. An assistant's message, its calls and their results are one group."""

from typing import NamedTuple

from tui_agent.conversation.entries import Kind, Role
from tui_agent.conversation.sizes import Category, Size
from tui_agent.conversation.slots import Piece, Slot


class Group(NamedTuple):
    """Entries that stay or leave together, from entry `first` to entry `last`.

    `pieces` is what the next request says of them, `sizes` how large that is; `open`: a call still lacks its result.
    """

    first: int
    last: int
    role: Role
    kind: Kind
    pinned: bool
    open: bool
    time: float
    pieces: tuple[Piece, ...]
    sizes: dict[Category, Size]

    @property
    def starts_turn(self) -> bool:
        """Whether it is the user's own word, with which a turn begins."""
        return self.role == "user" and self.kind == ""


def group_of(slot: Slot) -> Group:
    """The group a slot holds."""
    return Group(
        slot.seq,
        slot.last,
        slot.role,
        slot.kind,
        slot.pinned,
        bool(slot.unanswered),
        slot.time,
        slot.pieces,
        dict(slot.sizes),
    )
