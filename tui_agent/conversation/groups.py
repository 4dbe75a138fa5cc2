"""Groups, the units of a cut: an assistant's message, its calls and their results stay together."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

import msgspec

from tui_agent.conversation.entries import Kind, Role
from tui_agent.conversation.log import Log
from tui_agent.conversation.sizes import Category, TextSize, total_size
from tui_agent.conversation.states import Fingerprint, MessageState, RequestMessage, segments_of, unpack_fingerprints

_NO_RESULTS: Mapping[str, int] = MappingProxyType({})


class Group(msgspec.Struct, frozen=True, eq=False, gc=False):
    """Entries that a cut keeps or removes together, from entry `first` to entry `last`.

    `sizes` are the sizes of its part of the next request; `open`: a call still lacks its result; `results` are the
    entry numbers of the results by call id. These fields are a snapshot from when the group was made, but `segments`
    reads the current state. Compare `fingerprints` to find out whether the group's part of the request has changed.
    """

    first: int
    last: int
    role: Role
    kind: Kind
    pinned: bool
    open: bool
    time: float
    sizes: Mapping[Category, TextSize]
    results: Mapping[str, int]
    _fingerprints: bytes
    _state: MessageState
    _log: Log
    _active: AbstractSet[int]

    @property
    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """The fingerprints of the group's segments, when the group was made."""
        return tuple(unpack_fingerprints(self._fingerprints))

    @property
    def size(self) -> TextSize:
        """The size of its part of the next request, when the group was made."""
        return total_size(self.sizes.values())

    @property
    def segments(self) -> tuple[RequestMessage, ...]:
        return segments_of(self._state, self._log, self._active)

    @property
    def starts_turn(self) -> bool:
        """Whether it is a message of the user's, which starts a turn."""
        return self.role == "user" and self.kind == ""


def group_of(state: MessageState, log: Log, active: AbstractSet[int]) -> Group:
    """The group of a rendered state; `active` are the numbers of the context decisions in force."""
    return Group(
        state.seq,
        state.last,
        state.role,
        state.kind,
        state.pinned,
        len(state.results) < len(state.calls),
        state.time,
        state.sizes,
        {call_id: result.seq for call_id, result in state.results.items()}
        if state.results and state.role == "assistant"
        else _NO_RESULTS,
        state.fingerprints,
        state,
        log,
        active,
    )
