"""The log: entries in the order they were appended, and where the conversation stands in them.

A long log is held as it is written, but for its newest entries: JSON, compressed in blocks of a few entries, which are
read again when one of them is looked at. At 5,000 turns that takes a tenth of the memory.
"""

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from threading import local
from time import monotonic, sleep
from typing import Final, TypeVar, overload

import msgspec
from typing_extensions import override

from tui_agent.conversation.entries import AnyEntry, HeadMoved, decode, encode

AnEntry = TypeVar("AnEntry", bound=AnyEntry)
Another = TypeVar("Another", bound=AnyEntry)

BLOCK: Final = 16
"""Entries that are compressed together: reading one of them takes a tenth of a millisecond."""
HELD: Final = 128
"""The newest entries, which are held as they are."""
_READ: Final = 8
"""Blocks that were read last and are held as well."""
_FASTEST: Final = 1
_HANDOVER_S: Final = 0.0005
_A_MOMENT_S: Final = 1e-6
_reading: Final = local()


class Log:
    """A growing sequence of entries. It never changes one; the first one's number is 1."""

    def __init__(self, entries: Iterable[AnyEntry] = ()) -> None:
        self._blocks: list[list[AnyEntry] | bytes] = []
        self._packed = 0
        self._kinds: list[type[AnyEntry]] = []
        self._parents = array("Q")
        self._head = 0
        for entry in entries:
            self.append(entry)

    @classmethod
    def of(cls, entries: Iterable[AnyEntry]) -> "Log":
        """A log of these entries that grows by itself; all those of another log are not read for it."""
        return entries.whole_log() or cls(entries) if isinstance(entries, Entries) else cls(entries)

    @property
    def head(self) -> int:
        """The sequence number the next entry has as its parent; 0 before the first."""
        return self._head

    def stamp(self, entry: AnEntry, time: float, *, after: Sequence[AnyEntry] = ()) -> AnEntry:
        """`entry` with the number, parent and time it gets when it is appended next (or next but `after`)."""
        head, seq = self._head, len(self)
        for earlier in after:
            head, seq = _head_after(earlier), earlier.seq
        return msgspec.structs.replace(entry, seq=seq + 1, parent=head, time=time)

    def append(self, entry: AnyEntry) -> None:
        """Take a stamped entry in. Raises `ValueError` where its number or parent is not the next one's."""
        if entry.seq != len(self) + 1 or entry.parent != self._head:
            raise ValueError(
                f"entry {entry.seq} (parent {entry.parent}) cannot follow entry {len(self)}, head {self._head}"
            )
        if isinstance(entry, HeadMoved) and not 0 <= entry.to <= len(self):
            raise ValueError(f"the head cannot move to entry {entry.to}: the log ends at {len(self)}")
        newest = self._blocks[-1] if len(self) % BLOCK else None
        if isinstance(newest, list):
            newest.append(entry)
        else:
            self._blocks.append([entry])
        self._kinds.append(type(entry))
        self._parents.append(entry.parent)
        self._head = _head_after(entry)

    def pack(self, held: int = HELD) -> None:
        """Compress what came before the newest entries; 40 ms for 10,000. May be done in a thread while others read."""
        for index in range(self._packed, (len(self) - held) // BLOCK):
            block = self._blocks[index]
            if isinstance(block, list):
                self._blocks[index] = zlib.compress(b"\n".join(map(encode, block)), _FASTEST)
            self._packed = index + 1

    def copy(self) -> "Log":
        """Another log with the same entries that grows by itself."""
        other = Log()
        other._blocks = [block if isinstance(block, bytes) else list(block) for block in self._blocks]
        other._packed, other._head = self._packed, self._head
        other._kinds, other._parents = self._kinds[:], self._parents[:]
        return other

    def entries(self) -> "Entries":
        """All entries there are now, oldest first."""
        return Entries(self, range(1, len(self) + 1))

    def path(self, head: int | None = None) -> "Entries":
        """The conversation that ends at `head` (by default the log's): its entries, oldest first."""
        seq = self._head if head is None else head
        numbers = array("Q")
        while seq:
            numbers.append(seq)
            seq = self._parents[seq - 1]
        numbers.reverse()
        return Entries(self, numbers)

    def kind(self, seq: int) -> type[AnyEntry]:
        """Of which kind an entry is; it is not read for it."""
        return self._kinds[seq - 1]

    def fork_point(self, one: int, other: int) -> int:
        """The newest entry that the conversations ending at `one` and at `other` share; 0 when none."""
        while one != other:
            if one > other:
                one = self._parents[one - 1]
            else:
                other = self._parents[other - 1]
        return one

    def __getitem__(self, seq: int) -> AnyEntry:
        if not 1 <= seq <= len(self):
            raise IndexError(f"the log has no entry {seq}")
        return self._read((seq - 1) // BLOCK)[(seq - 1) % BLOCK]

    def __iter__(self) -> Iterator[AnyEntry]:
        for index in range(len(self._blocks)):
            yield from self._read(index)

    def __len__(self) -> int:
        return len(self._parents)

    def _read(self, index: int) -> Sequence[AnyEntry]:
        block = self._blocks[index]
        return _unpacked(block) if isinstance(block, bytes) else block


class Entries(Sequence[AnyEntry]):
    """Entries of a log, each of which is read when it is looked at. `numbers` are theirs, ascending."""

    __slots__ = ("_log", "numbers")

    def __init__(self, log: Log, numbers: Sequence[int]) -> None:
        self._log = log
        self.numbers = numbers

    def after(self, seq: int) -> "Entries":
        """Those that came after entry `seq`."""
        return self[bisect_right(self.numbers, seq) :]

    @overload
    def of(self, kind: type[AnEntry]) -> Iterator[AnEntry]: ...

    @overload
    def of(self, kind: type[AnEntry], other: type[Another]) -> Iterator[AnEntry | Another]: ...

    def of(self, kind: type[AnEntry], other: type[Another] | None = None) -> Iterator[AnyEntry]:
        """Those of one kind or two; the others are not read for it."""
        wanted = (kind, other)
        for number in self.numbers:
            if self._log.kind(number) in wanted:
                yield self._log[number]

    def whole_log(self) -> Log | None:
        """A copy of the log, where these are all of its entries."""
        return self._log.copy() if len(self.numbers) == len(self._log) else None

    @override
    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> AnyEntry: ...

    @overload
    def __getitem__(self, index: slice) -> "Entries": ...

    @override
    def __getitem__(self, index: int | slice) -> "AnyEntry | Entries":
        if isinstance(index, slice):
            return Entries(self._log, self.numbers[index])
        return self._log[self.numbers[index]]

    @override
    def __iter__(self) -> Iterator[AnyEntry]:
        return map(self._log.__getitem__, self.numbers)


@lru_cache(_READ)
def _unpacked(block: bytes) -> tuple[AnyEntry, ...]:
    entries = tuple(map(decode, zlib.decompress(block).split(b"\n")))
    _hand_over()
    return entries


def _hand_over() -> None:
    """Let a thread that waits for this one go on, some times in a millisecond.

    Unpacking lets go of the interpreter's lock for moments too short to be taken, and each time a thread that waits for
    it begins its wait anew: one that reads all of a log would hold up the event loop for a tenth of a second.
    """
    now = monotonic()
    if now - getattr(_reading, "handed_over", 0.0) > _HANDOVER_S:
        sleep(_A_MOMENT_S)
        _reading.handed_over = monotonic()


def _head_after(entry: AnyEntry) -> int:
    return entry.to if isinstance(entry, HeadMoved) else entry.seq
