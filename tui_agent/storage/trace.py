"""The append-only record of a session, for people and scorers; nothing in it is ever fed back to a model.

The database itself refuses changes and removals. Each event's hash covers the one before it, and the newest event's
number and hash, the anchor, are kept in the session's other database. Events are committed first, the anchor after
them: a crash in between leaves a record longer than its anchor, which is in order, while a record that ends before its
anchor or differs there was tampered with. Both are synced on commit, so a power cut keeps that order.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.storage.database import Database, Row, Schema, open_database, read_connection
from tui_agent.storage.errors import Damaged, StorageError, explained
from tui_agent.storage.log import LogStore

TRACE_NAME: Final = "trace.sqlite"
ANCHOR_KEY: Final = "trace_anchor"
GENESIS: Final = "0" * 64

BATCH_EVENTS = 64
BATCH_DELAY_S = 0.25
PENDING_BYTES = 64 * 1024 * 1024
"""What may wait in memory while the disk takes nothing; beyond it events are counted, and the count recorded."""

SCHEMA: Final = Schema(
    application_id=0x54415431,
    version=1,
    script="""
        CREATE TABLE events (
            seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
            previous TEXT NOT NULL, hash TEXT NOT NULL
        );
        CREATE TRIGGER events_no_update BEFORE UPDATE ON events
            BEGIN SELECT RAISE(ABORT, 'the trace only grows: no update'); END;
        CREATE TRIGGER events_no_delete BEFORE DELETE ON events
            BEGIN SELECT RAISE(ABORT, 'the trace only grows: no delete'); END;
        CREATE TRIGGER events_in_order BEFORE INSERT ON events
            WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM events)
            BEGIN SELECT RAISE(ABORT, 'the trace only grows: an event goes to its end'); END
    """,
)
TRIGGERS: Final = ("events_in_order", "events_no_delete", "events_no_update")

Kind: TypeAlias = Literal[
    "session",
    "message",
    "reasoning",
    "model_usage",
    "tool_call",
    "tool_result",
    "permission",
    "context_compaction",
    "context",
    "alert",
    "error",
    "trace_gap",
]


class TraceEvent(msgspec.Struct, frozen=True):
    """One event: its number (from 1), seconds since the epoch, kind, and `body`, the text of a JSON object."""

    seq: int
    time: float
    kind: str
    body: str


class Anchor(msgspec.Struct, frozen=True):
    """The newest event known to be on disk."""

    seq: int = 0
    hash: str = GENESIS


class TraceGap(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of ``trace_gap``: the record before this event is not complete, and why."""

    reason: str
    anchor: Anchor | None = None
    set_aside: str = ""
    lost: int = 0


class _Pending(NamedTuple):
    time: float
    kind: str
    body: str


class Trace:
    """The one writer of a session's record. `record` never waits and never fails; `flush` says what went wrong.

    Of a session that cannot be added to nothing is recorded.
    """

    def __init__(self, database: Database | None, store: LogStore, head: Anchor) -> None:
        self.failure: StorageError | None = None
        self._database = database
        self._store = store
        self._head = head
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._lost = 0
        self._turn = asyncio.Lock()
        self._due: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: LogStore) -> "Trace":
        """Go on with the record beside `store`'s log, or begin one.

        Where it is damaged, missing, or not what its anchor says, that is its next event. Raises `StorageError`.
        """
        if store.read_only:
            return cls(None, store, Anchor())
        database = await open_database(store.folder / TRACE_NAME, SCHEMA)
        try:
            anchor = _anchor(await store.meta())
            newest = await database.read("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")
            anchored = await database.read("SELECT hash FROM events WHERE seq = ?", (anchor.seq,))
        except StorageError:
            await database.close()
            raise
        trace = cls(database, store, Anchor(int(newest[0][0] or 0), str(newest[0][1])) if newest else Anchor())
        set_aside = database.set_aside.name if database.set_aside else ""
        if set_aside or (anchor.seq and anchored != [(anchor.hash,)]):
            reason = "the file was damaged or foreign" if set_aside else "it does not hold the event its anchor names"
            trace.record("trace_gap", TraceGap(reason, anchor, set_aside))
        return trace

    def record(self, kind: Kind, body: object) -> None:
        """Add an event. `body` (a struct or a mapping) is encoded now; secrets are the caller's to leave out.

        Call it on the event loop.
        """
        if self._database is None:
            return
        text = msgspec.json.encode(body).decode()
        if self._pending_bytes + len(text) > PENDING_BYTES:
            self._lost += 1
            return
        self._pending.append(_Pending(time.time(), kind, text))
        self._pending_bytes += len(text)
        if len(self._pending) % BATCH_EVENTS == 0:
            self._write_soon()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(BATCH_DELAY_S, self._write_soon)

    async def flush(self) -> None:
        """Write what is pending, then the anchor. Raises `StorageError`; what could not be written stays pending."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._database is None:
            return
        async with self._turn:
            await self._write(self._database)
            await self._store.set_meta({ANCHOR_KEY: msgspec.json.encode(self._head).decode()})
            self.failure = None

    async def close(self) -> None:
        """Flush and close. Raises `StorageError`; the file is closed all the same."""
        try:
            await self.flush()
        finally:
            if self._due is not None:
                self._due.cancel()
            if self._database is not None:
                await self._database.close()

    def _write_soon(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_in_background())

    async def _write_in_background(self) -> None:
        async with self._turn:
            try:
                if self._database is not None:
                    await self._write(self._database)
            except StorageError as error:
                self.failure = error

    async def _write(self, database: Database) -> None:
        pending, lost = list(self._pending), self._lost
        taken = len(pending)
        if lost:
            gap = msgspec.json.encode(TraceGap("the disk took nothing for too long", lost=lost)).decode()
            pending.append(_Pending(time.time(), "trace_gap", gap))
        if not pending:
            return
        rows, head = await asyncio.to_thread(_chain, pending, self._head)
        await database.write([("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)])
        self._head = head
        self._lost -= lost
        del self._pending[:taken]
        self._pending_bytes = sum(len(event.body) for event in self._pending)


def event_hash(previous: str, event: TraceEvent) -> str:
    """An event's hash, in hex: SHA-256 over the previous one's and the JSON array of everything in the event."""
    told = msgspec.json.encode((previous, event.seq, event.time, event.kind, event.body))
    return sha256(told).hexdigest()


def read_events(folder: Path, *, after: int = 0) -> Iterator[TraceEvent]:
    """The events of the session in `folder` with numbers above `after`, oldest first. Raises `StorageError`."""
    path = folder / TRACE_NAME
    if not path.exists():
        raise StorageError(f"Session {folder.name} has no record ({TRACE_NAME} does not exist).")
    with explained(path), closing(read_connection(path)) as connection:
        for row in connection.execute("SELECT seq, time, kind, body FROM events WHERE seq > ? ORDER BY seq", (after,)):
            yield _event(row)


def _event(row: Row) -> TraceEvent:
    try:
        return TraceEvent(*msgspec.convert(row, tuple[int, float, str, str]))
    except msgspec.ValidationError as error:
        raise Damaged(f"The record has an event that is none: {error}.") from error


def _chain(pending: Sequence[_Pending], head: Anchor) -> tuple[list[Row], Anchor]:
    rows: list[Row] = []
    seq, previous = head.seq, head.hash
    for event_time, kind, body in pending:
        seq += 1
        digest = event_hash(previous, TraceEvent(seq, event_time, kind, body))
        rows.append((seq, event_time, kind, body, previous, digest))
        previous = digest
    return rows, Anchor(seq, previous)


def _anchor(meta: dict[str, str]) -> Anchor:
    try:
        return msgspec.json.decode(meta.get(ANCHOR_KEY, "{}"), type=Anchor)
    except msgspec.MsgspecError:
        return Anchor()
