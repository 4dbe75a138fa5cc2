"""The log: all entries in the order they were appended, and the conversation's head.

Except for the newest entries, a long log stays in memory as compressed JSON, in blocks that are decoded when one of
their entries is read. At 5,000 turns this takes a tenth of the memory of the decoded entries.
"""

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeVar, overload

import msgspec
from typing_extensions import override

from tui_agent.conversation.entries import (
    AnyEntry,
    Delivered,
    HeadMoved,
    Message,
    ModeChanged,
    Queued,
    Usage,
    decode,
    delivered,
    encode,
)

AnEntry = TypeVar("AnEntry", bound=AnyEntry)
Another = TypeVar("Another", bound=AnyEntry)

BLOCK_ENTRIES: Final = 16
"""Entries in a compressed block: decoding one takes 0.1 ms."""
UNPACKED_ENTRIES: Final = 128
"""How many of the newest entries stay decoded."""
_CACHED_BLOCKS: Final = 8
"""How many of the blocks read last stay decoded too."""


class Log:
    """An append-only sequence of entries, numbered from 1."""

    def __init__(self, entries: Iterable[AnyEntry] = ()) -> None:
        self._blocks: list[list[AnyEntry] | bytes] = []
        self._packed = 0
        self._kinds: list[type[AnyEntry]] = []
        self._said = bytearray()
        self.answers, self.answer_tokens = array("Q"), array("Q")
        """The answers whose usage is known, on all branches, oldest first, and the input tokens of their calls."""
        self._parents = array("Q")
        self.head = 0
        """The parent of the next entry; 0 before the first."""
        for entry in entries:
            self.append(entry)

    @classmethod
    def of(cls, entries: Iterable[AnyEntry]) -> "Log":
        """A new log of these entries. If they are all entries of another log, it is copied without decoding them."""
        if isinstance(entries, Entries) and len(entries) == len(entries.log):
            return entries.log.copy()
        return cls(entries)

    def stamp(self, entry: AnEntry, time: float, *, after: Sequence[AnyEntry] = ()) -> AnEntry:
        """`entry` with its header: the number and parent it gets if it is appended now, or after `after`; the time."""
        head, seq = self.head, len(self)
        for earlier in after:
            head, seq = _head_after(earlier), earlier.seq
        return msgspec.structs.replace(entry, seq=seq + 1, parent=head, time=time)

    def append(self, entry: AnyEntry) -> None:
        """Append a stamped entry. Raises `ValueError` if its number or parent is not that of the next entry."""
        if entry.seq != len(self) + 1 or entry.parent != self.head:
            raise ValueError(
                f"entry {entry.seq} (parent {entry.parent}) cannot follow entry {len(self)}, head {self.head}"
            )
        if isinstance(entry, HeadMoved) and not 0 <= entry.to <= len(self):
            raise ValueError(f"the head cannot move to entry {entry.to}: the log ends at {len(self)}")
        newest = self._blocks[-1] if len(self) % BLOCK_ENTRIES else None
        if isinstance(newest, list):
            newest.append(entry)
        else:
            self._blocks.append([entry])
        self._kinds.append(type(entry))
        self._said.append(is_said(entry))
        if (usage := usage_of(entry)) is not None:
            self.answers.append(entry.seq)
            self.answer_tokens.append(max(0, usage.input_tokens))
        self.head = _head_after(entry)
        # Last: the number of parents is the log's length.
        self._parents.append(entry.parent)

    @property
    def is_packed(self) -> bool:
        """Whether `pack` would do nothing."""
        return (len(self) - UNPACKED_ENTRIES) // BLOCK_ENTRIES <= self._packed

    def pack(self, unpacked: int = UNPACKED_ENTRIES) -> None:
        """Compress all but the newest entries: some 5 ms a megabyte. One at a time, in any thread while others read and
        append.
        """
        for index in range(self._packed, (len(self) - unpacked) // BLOCK_ENTRIES):
            block = self._blocks[index]
            if isinstance(block, list):
                self._blocks[index] = zlib.compress(b"\n".join(map(encode, block)), zlib.Z_BEST_SPEED)
            self._packed = index + 1

    def copy(self) -> "Log":
        """An independent copy, whole even in a thread while others append and pack."""
        other, count = Log(), len(self)
        full, newest = divmod(count, BLOCK_ENTRIES)
        other._blocks = [block if isinstance(block, bytes) else list(block) for block in self._blocks[:full]]
        if newest:
            other._blocks.append(list(self._read(full)[:newest]))
        other._packed = min(self._packed, full)
        other._kinds, other._parents, other._said = self._kinds[:count], self._parents[:count], self._said[:count]
        answers = bisect_right(self.answers, count)
        other.answers, other.answer_tokens = self.answers[:answers], self.answer_tokens[:answers]
        other.head = _head_after(self[count]) if count else 0
        return other

    def entries(self) -> "Entries":
        return Entries(self, range(1, len(self) + 1))

    def path(self, head: int | None = None, after: int = 0) -> "Entries":
        """The entries of the conversation that ends at `head` (default: the log's head), oldest first.

        `after`: only those after this entry, which is one of them.
        """
        seq = self.head if head is None else head
        numbers = array("Q")
        while seq > after:
            numbers.append(seq)
            seq = self._parents[seq - 1]
        numbers.reverse()
        return Entries(self, numbers)

    def back(self, head: int | None = None) -> Iterator[AnyEntry]:
        """The entries of the conversation that ends at `head` (default: the log's head), from there back to the first;
        only those asked for are decoded.
        """
        seq = self.head if head is None else head
        while seq:
            yield self[seq]
            seq = self._parents[seq - 1]

    def parent(self, seq: int) -> int:
        """The entry before an entry in its conversation; 0: none."""
        return self._parents[seq - 1]

    def kind(self, seq: int) -> type[AnyEntry]:
        return self._kinds[seq - 1]

    def said(self, head: int) -> list[int]:
        """The messages of the user and the model in the conversation that ends at `head`, oldest first; decodes none.

        What delivers a text that is missing is one of them, though it has no message.
        """
        return [seq for seq in self.path(head).numbers if self._said[seq - 1]]

    def message(self, seq: int) -> Message | None:
        """The message that entry `seq` is, or that it delivers; None if it is another kind of entry."""
        match entry := self[seq]:
            case Message():
                return entry
            case Delivered(queued=number) if 0 < number < seq and isinstance(queued := self[number], Queued):
                return delivered(queued, entry)
            case _:
                return None

    def group_start(self, seq: int) -> int:
        """The first of the entries that came because of message `seq` and stand right before it; `seq` if none does."""
        start = seq
        while (parent := self._parents[start - 1]) and because_of(self[parent]) == seq:
            start = parent
        return start

    def fork_point(self, one: int, other: int) -> int:
        """The newest common entry of the conversations that end at `one` and at `other`; 0 if there is none."""
        while one != other:
            if one > other:
                one = self._parents[one - 1]
            else:
                other = self._parents[other - 1]
        return one

    def __getitem__(self, seq: int) -> AnyEntry:
        if not 1 <= seq <= len(self):
            raise IndexError(f"the log has no entry {seq}")
        return self._read((seq - 1) // BLOCK_ENTRIES)[(seq - 1) % BLOCK_ENTRIES]

    def __iter__(self) -> Iterator[AnyEntry]:
        for index in range(len(self._blocks)):
            yield from self._read(index)

    def __len__(self) -> int:
        return len(self._parents)

    def _read(self, index: int) -> Sequence[AnyEntry]:
        block = self._blocks[index]
        return _unpacked(block) if isinstance(block, bytes) else block


class Entries(Sequence[AnyEntry]):
    """A selection of a log's entries by their `numbers` (ascending), each decoded when it is accessed."""

    __slots__ = ("log", "numbers")

    def __init__(self, log: Log, numbers: Sequence[int]) -> None:
        self.log = log
        self.numbers = numbers

    def after(self, seq: int) -> "Entries":
        return self[bisect_right(self.numbers, seq) :]

    @overload
    def of(self, kind: type[AnEntry]) -> Iterator[AnEntry]: ...

    @overload
    def of(self, kind: type[AnEntry], other: type[Another]) -> Iterator[AnEntry | Another]: ...

    def of(self, kind: type[AnEntry], other: type[Another] | None = None) -> Iterator[AnyEntry]:
        """The entries of one or two types; the others are not decoded."""
        wanted = (kind, other)
        for number in self.numbers:
            if self.log.kind(number) in wanted:
                yield self.log[number]

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
            return Entries(self.log, self.numbers[index])
        return self.log[self.numbers[index]]

    @override
    def __iter__(self) -> Iterator[AnyEntry]:
        return map(self.log.__getitem__, self.numbers)


@lru_cache(_CACHED_BLOCKS)
def _unpacked(block: bytes) -> tuple[AnyEntry, ...]:
    return tuple(map(decode, zlib.decompress(block).split(b"\n")))


def is_said(entry: AnyEntry) -> bool:
    """Whether it is a message of the user or the model, or delivers one."""
    return isinstance(entry, Delivered) or (isinstance(entry, Message) and entry.kind in ("", "user_shell"))


def because_of(entry: AnyEntry) -> int:
    """The number of the user's message that an entry came because of; 0: none."""
    return entry.because if isinstance(entry, Message | ModeChanged) else 0


def usage_of(entry: AnyEntry) -> Usage | None:
    """What the call used that gave this answer, whoever made it; None if that is unknown, or it is no answer."""
    if not isinstance(entry, Message) or entry.role != "assistant":
        return None
    return entry.usage or (entry.elsewhere.usage if entry.elsewhere is not None else None)


def _head_after(entry: AnyEntry) -> int:
    return entry.to if isinstance(entry, HeadMoved) else entry.seq
