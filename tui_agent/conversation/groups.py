"""Where a cut may fall: between groups. An assistant's message, its calls and their results are one group."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType

from tui_agent.conversation.entries import Kind, Role
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import Category, Size
from tui_agent.conversation.states import Mark, MessageState, Segment, marks_of, segments_of

_NO_RESULTS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that stay or leave together, from entry `first` to entry `last`.

    `sizes` is how large it is what the next request says of them; `open`: a call still lacks its result; `results` are
    the numbers of the results by their calls' ids. All of this is as it was when the group was made; `segments` are
    read when they are asked for. Of a group that is kept for longer, `marks` tell whether the request still says the
    same.
    """

    first: int
    last: int
    role: Role
    kind: Kind
    pinned: bool
    open: bool
    time: float
    sizes: Mapping[Category, Size]
    results: Mapping[str, int]
    _marks: bytes
    _state: MessageState = field(compare=False, repr=False)
    _log: Log = field(compare=False, repr=False)
    _active: AbstractSet[int] = field(compare=False, repr=False)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What tells what the next request says of them from what it says of others."""
        return tuple(marks_of(self._marks))

    @property
    def segments(self) -> tuple[Segment, ...]:
        """What the next request says of them."""
        return segments_of(self._state, self._log, self._active)

    @property
    def starts_turn(self) -> bool:
        """Whether it is the user's own word, with which a turn begins."""
        return self.role == "user" and self.kind == ""


def group_of(state: MessageState, log: Log, active: AbstractSet[int]) -> Group:
    """The group a rendered state holds; `active` are the context decisions that count."""
    return Group(
        state.seq,
        state.last,
        state.role,
        state.kind,
        state.pinned,
        len(state.results) < len(state.calls),
        state.time,
        state.sizes,
        {call_id: result.seq for call_id, result in state.results.items()} if state.results else _NO_RESULTS,
        state.marks,
        state,
        log,
        active,
    )
