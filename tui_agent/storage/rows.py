"""Decodes the rows of a log, and links them. Where rows are damaged or gone, entries stand in for them, so that the
others still fit.

Each row has a checksum of its own. A lost entry is a `Lost`; if the entry after it shows that the head moved there, it
is that move. Each entry's link covers its bytes and the link before it; the first, the session's id. The log's database
notes the newest link with every append, and each event of the trace has that of its entry. So nothing that was written
can be changed, removed or reordered without writing everything after it anew, in both.
"""

import zlib
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from tui_agent.conversation.entries import AnyEntry, HeadMoved, Lost, UnknownEntry, decode, encode
from tui_agent.storage.database import Value
from tui_agent.system.lenient import decoded
from tui_agent.text import counted

EntryRow: TypeAlias = tuple[Value, ...]
"""The number of an entry, the checksum of its bytes, and its bytes."""


HEAD_KEY: Final = "head"
"""Where the log's database notes its newest link, among its facts."""


class Link(msgspec.Struct, frozen=True):
    """The chain at entry number `seq` (0: before the first); `hash` in hex."""

    seq: int
    hash: str

    def following(self, body: bytes) -> "Link":
        """The next link, for an entry that is encoded as `body`."""
        return Link(self.seq + 1, sha256(self.hash.encode() + body).hexdigest())


def beginning(session: str) -> Link:
    return Link(0, sha256(f"tui-agent session {session}".encode("utf-8", "surrogatepass")).hexdigest())


def as_text(link: Link) -> str:
    return msgspec.json.encode(link).decode()


def row_of(entry: AnyEntry) -> tuple[int, int, bytes]:
    body = encode(entry)
    return entry.seq, zlib.crc32(body), body


class RowReader:
    """Takes the rows of a log in order, from the one after number `after` on.

    `seq` is the number of the newest entry so far, `seen` that of the newest row. `lost` are the numbers of those that
    could not be read, `damage` says why (empty: all could). `newer` names the first entry that only a newer version can
    read; none follows it.
    """

    def __init__(self, after: int = 0) -> None:
        self.seq = self.seen = after
        self.lost: list[int] = []
        self.damage = ""
        self.newer = ""
        self._head = after
        self._begun = not after

    def take(self, row: EntryRow) -> list[AnyEntry]:
        """The entry of the next row, after those that stand in for what is missing before it; none if it is damaged."""
        seq, crc, body = row
        if self.newer or not isinstance(seq, int) or seq <= self.seq:
            return []
        self.seen = seq
        if not isinstance(body, bytes) or zlib.crc32(body) != crc:
            return self._damaged(f"the checksum of entry {seq} is wrong")
        try:
            entry = decode(body)
        except UnknownEntry as error:
            # Its checksum is right, so it is not damaged: a newer version wrote it.
            header = decoded(body, _Header)
            self.newer = f"entry {seq} is {f'of kind {header.entry!r}' if header else error}"
            return []
        if not self._begun:
            self._head, self._begun = (entry.parent if seq == self.seq + 1 else self.seq), True
        follows = entry.parent == self._head if seq == self.seq + 1 else entry.parent < seq
        if entry.seq != seq or not follows or (isinstance(entry, HeadMoved) and not 0 <= entry.to < seq):
            return self._damaged(f"entry {seq} does not follow the one before it")
        before = self.stand_ins(seq - 1, entry.parent, entry.time)
        self.seq, self._head = seq, entry.to if isinstance(entry, HeadMoved) else seq
        return [*before, entry]

    def stand_ins(self, last: int, head: int | None = None, time: float = 0.0) -> list[AnyEntry]:
        """What stands in for the missing entries up to number `last`; `head` is the number the conversation goes on
        from, if it is known.
        """
        found: list[AnyEntry] = []
        for seq in range(self.seq + 1, last + 1):
            if seq == last and head not in (None, seq):
                found.append(HeadMoved(seq=seq, parent=self._head, time=time, to=head or 0))
                self._head = head or 0
            else:
                found.append(Lost(seq=seq, parent=self._head, time=time))
                self._head = seq
        if found:
            self.lost += (entry.seq for entry in found)
            self.damage = self.damage or f"{_numbers([entry.seq for entry in found])} missing"
            self.seq = last
        return found

    def salvage(self) -> str:
        """What is lost, in a sentence; empty if nothing is."""
        if not self.lost:
            return ""
        kept = self.seq - len(self.lost)
        return (
            f"Of its {counted(self.seq, 'entry', 'entries')}, {_numbers(self.lost)} lost; the other {kept:,} are there"
        )

    def _damaged(self, why: str) -> list[AnyEntry]:
        self.damage = self.damage or why
        return []


def _numbers(numbers: Sequence[int]) -> str:
    """These numbers, as the subject of a sentence: ``entry 3 is``, ``entries 3 to 5 and 9 are``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    shown = [" to ".join(map(str, run)) for run in runs[:_RUNS_SHOWN]]
    shown += [f"{len(runs) - _RUNS_SHOWN} more places"] if len(runs) > _RUNS_SHOWN else []
    listed = " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else shown[0]
    return f"entry {listed} is" if len(numbers) == 1 else f"entries {listed} are"


_RUNS_SHOWN = 5


class _Header(msgspec.Struct):
    entry: str
