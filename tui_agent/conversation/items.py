"""The items of a conversation, its single messages and tool results, each with its state and sizes."""

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, overload

import msgspec
from typing_extensions import override

from tui_agent.conversation.entries import Summarized
from tui_agent.conversation.fold import Fold
from tui_agent.conversation.sizes import NOTHING, Category, TextSize, total_size
from tui_agent.conversation.states import ItemState, MessageState

T = TypeVar("T")


class LazySequence(Sequence[T]):
    """A sequence of so many elements as `__len__` says; a slice of it is a list."""

    @abstractmethod
    def element(self, place: int) -> T:
        """The element at an index from 0 on that is in range."""

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    @override
    def __getitem__(self, index: int | slice) -> T | list[T]:
        places = range(len(self))[index]
        return self.element(places) if isinstance(places, int) else list(map(self.element, places))


class Item(msgspec.Struct, frozen=True, gc=False):
    """A message or tool result. `group` is the number of the first entry of its group.

    `size` is its size in the next request (0 while a boundary covers it), `full` its size in the log; `name` is the
    tool of a result.
    """

    seq: int
    group: int
    category: Category
    state: ItemState
    pinned: bool
    size: TextSize
    full: TextSize
    time: float
    name: str = ""


class Items(LazySequence[Item]):
    """The items of a rendered fold, oldest first, each made from the current state when it is accessed.

    Their number is fixed on creation, which visits each state once.
    """

    def __init__(self, fold: Fold) -> None:
        self._fold = fold
        self._states = [state for state in fold.states if state.is_listed]
        # A command of the user's own is one item, its result.
        counts = (1 + len(state.results) if state.role == "assistant" else 1 for state in self._states)
        self._starts = list(accumulate(counts, initial=0))

    def place_of(self, seq: int) -> int | None:
        """The index of the item with this number; None if there is none."""
        state = self._fold.state_of(seq)
        if state is None or not state.is_listed:
            return None
        place = bisect_right(self._states, state.seq, key=lambda each: each.seq) - 1
        within = [state.seq, *(result.seq for result in state.results.values())].index(seq)
        found = self._starts[place] + within
        return found if found < self._starts[place + 1] else None

    @override
    def __len__(self) -> int:
        return self._starts[-1]

    @override
    def element(self, place: int) -> Item:
        state = bisect_right(self._starts, place) - 1
        return list(items_of(self._fold, self._states[state]))[place - self._starts[state]]

    @override
    def __iter__(self) -> Iterator[Item]:
        return (item for state in self._states for item in items_of(self._fold, state))


def place_of(items: Sequence[Item], seq: int) -> int | None:
    """The index of the item with this number; None if it is not among `items`."""
    if isinstance(items, Items):
        return items.place_of(seq)
    return next((place for place, item in enumerate(items) if item.seq == seq), None)


def items_of(fold: Fold, state: MessageState) -> Iterator[Item]:
    """The items of one rendered message state: the message and its results."""
    covering = fold.boundaries.get(state.covered_by)
    hidden: ItemState | None = None
    if covering is not None:
        hidden = "summarized" if isinstance(covering, Summarized) else "checkpointed"
    restored = any(seq in fold.active for seq in state.restorations)
    own = total_size(size for category, size in state.sizes.items() if category != "results")
    if state.role == "assistant" or not state.results or state.shortened:
        yield Item(
            state.seq,
            state.seq,
            state.category,
            hidden or ("shortened" if state.shortened else "restored" if restored else "verbatim"),
            state.pinned,
            own,
            state.full,
            state.time,
        )
        if state.role != "assistant":
            return
    for place in state.results.values():
        yield Item(
            place.seq,
            state.seq,
            "results",
            hidden or place.state,
            state.pinned,
            NOTHING if hidden else place.size,
            place.full,
            place.time,
            place.name,
        )
