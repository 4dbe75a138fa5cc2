"""The log: entries in the order they were appended, and where the conversation stands in them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from tui_agent.conversation.entries import AnyEntry, HeadMoved

AnEntry = TypeVar("AnEntry", bound=AnyEntry)


class Log:
    """A growing sequence of entries. It never changes one; entry number `n` is at index ``n - 1``."""

    def __init__(self, entries: Iterable[AnyEntry] = ()) -> None:
        self._entries: list[AnyEntry] = []
        self._head = 0
        for entry in entries:
            self.append(entry)

    @property
    def head(self) -> int:
        """The sequence number the next entry has as its parent; 0 before the first."""
        return self._head

    def stamp(self, entry: AnEntry, time: float, *, after: Sequence[AnyEntry] = ()) -> AnEntry:
        """`entry` with the number, parent and time it gets when it is appended next (or next but `after`)."""
        head, seq = self._head, len(self._entries)
        for earlier in after:
            head, seq = _head_after(earlier), earlier.seq
        return msgspec.structs.replace(entry, seq=seq + 1, parent=head, time=time)

    def append(self, entry: AnyEntry) -> None:
        """Take a stamped entry in. Raises `ValueError` where its number or parent is not the next one's."""
        if entry.seq != len(self._entries) + 1 or entry.parent != self._head:
            raise ValueError(
                f"entry {entry.seq} (parent {entry.parent}) cannot follow entry {len(self._entries)}, head {self._head}"
            )
        if isinstance(entry, HeadMoved) and not 0 <= entry.to <= len(self._entries):
            raise ValueError(f"the head cannot move to entry {entry.to}: the log ends at {len(self._entries)}")
        self._entries.append(entry)
        self._head = _head_after(entry)

    def copy(self) -> "Log":
        """Another log with the same entries that grows by itself."""
        other = Log()
        other._entries, other._head = list(self._entries), self._head
        return other

    def path(self, head: int | None = None) -> list[AnyEntry]:
        """The conversation that ends at `head` (by default the log's): its entries, oldest first."""
        seq = self._head if head is None else head
        found: list[AnyEntry] = []
        while seq:
            entry = self._entries[seq - 1]
            found.append(entry)
            seq = entry.parent
        found.reverse()
        return found

    def fork_point(self, one: int, other: int) -> int:
        """The newest entry that the conversations ending at `one` and at `other` share; 0 when none."""
        while one != other:
            if one > other:
                one = self._entries[one - 1].parent
            else:
                other = self._entries[other - 1].parent
        return one

    def __getitem__(self, seq: int) -> AnyEntry:
        if not 1 <= seq <= len(self._entries):
            raise IndexError(f"the log has no entry {seq}")
        return self._entries[seq - 1]

    def __iter__(self) -> Iterator[AnyEntry]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _head_after(entry: AnyEntry) -> int:
    return entry.to if isinstance(entry, HeadMoved) else entry.seq
