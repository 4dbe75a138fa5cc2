"""Where a cut may fall: between groups. An assistant's message, its calls and their results are one group."""

from collections.abc import Mapping
from typing import NamedTuple

from tui_agent.conversation.entries import Kind, Role
from tui_agent.conversation.sizes import Category, Size
from tui_agent.conversation.states import MessageState, Segment


class Group(NamedTuple):
    """Entries that stay or leave together, from entry `first` to entry `last`.

    `segments` is what the next request says of them, `sizes` how large that is; `open`: a call still lacks its result;
    `results` are the numbers of the results by their calls' ids.
    """

    first: int
    last: int
    role: Role
    kind: Kind
    pinned: bool
    open: bool
    time: float
    segments: tuple[Segment, ...]
    sizes: Mapping[Category, Size]
    results: dict[str, int]

    @property
    def starts_turn(self) -> bool:
        """Whether it is the user's own word, with which a turn begins."""
        return self.role == "user" and self.kind == ""


def group_of(state: MessageState) -> Group:
    """The group a state holds."""
    return Group(
        state.seq,
        state.last,
        state.role,
        state.kind,
        state.pinned,
        len(state.results) < len(state.calls),
        state.time,
        state.segments,
        state.sizes,
        {call_id: result.seq for call_id, result in state.results.items()} if state.results else {},
    )
