"""The trace: the append-only record of a session, for people and scorers. It is never sent to a model.

Most events are derived from the log: `events_of` gives those of an entry, and `seq` in their bodies is its number. What
a killed process had committed to the log but not to the trace is added when the session is next opened. The other
events are permissions, cache misses, alerts, errors, and starts of the program.

The database refuses updates and deletions. Each event's hash covers the hash before it; the first covers the session's
id. The anchor, the number and hash of the newest event, is in the log's database. It is written there before a batch of
events, together with the number and hash of the event before the batch: after a crash, the trace ends at one of these
two, and a trace that ends elsewhere was tampered with. Both databases are synced on commit, so a power loss keeps the
order. Every entry of a model call refers to the event that was the newest at the time.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import (
    AnyEntry,
    Checkpointed,
    ContextEntry,
    Message,
    Partial,
    Summarized,
    TraceHead,
    UnattributedCall,
    model_call,
)
from tui_agent.durable import to_completion
from tui_agent.storage.database import Database, Row, Schema, open_database, reading
from tui_agent.storage.errors import Damaged, StorageError
from tui_agent.storage.log import LogStore
from tui_agent.storage.store import Kind

TRACE_NAME: Final = "trace.sqlite"
ANCHOR_KEY: Final = "trace_anchor"
BINDING_KEY: Final = "trace_session"
DERIVATION_KEY: Final = "trace_derivation"
DERIVATION: Final = 1
"""The version of `events_of`: it grows with every change of what an entry of some kind has for events."""
GENESIS: Final = "0" * 64

BATCH_EVENTS: Final = 64
BATCH_DELAY_S: Final = 0.25
PENDING_BYTES = 64 * 1024 * 1024
"""The most bytes of events that wait in memory while the disk cannot be written. Beyond it, events derived from the log
are dropped, to be read from the log later; others are dropped and counted, and the count is recorded."""

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

_BY_KIND: Final = frozenset({"message", "reasoning", "tool_call", "tool_result", "model_usage"})
"""Kinds of which every event with a `seq` is derived; of the others, those that repeat an entry with its tag."""
_CHUNK_ENTRIES = 200
_SCANNED_EVENTS = 64
_EVENTS_BEFORE: Final = "SELECT seq, time, kind, body FROM events WHERE seq < ? ORDER BY seq DESC LIMIT ?"

Note = TypeVar("Note")


class TraceEvent(msgspec.Struct, frozen=True):
    """An event: its number (from 1), seconds since the epoch, kind, and `body`, the text of a JSON object."""

    seq: int
    time: float
    kind: str
    body: str


class Anchor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest event. While a batch is written it is that of the batch, and `before` is the one before the batch."""

    seq: int = 0
    hash: str = GENESIS
    before: TraceHead | None = None

    def allows(self, head: TraceHead) -> bool:
        """Whether a trace with this anchor may end at `head`."""
        return head in {TraceHead(self.seq, self.hash), self.before}


class Binding(msgspec.Struct, frozen=True):
    """Which session a record belongs to. The events up to number `after` were written by an earlier version; where that
    is none, the first event's hash covers the session's id.
    """

    session: str
    after: int


class Derivation(msgspec.Struct, frozen=True):
    """From where on the trace follows the log: after event number `event` it has the events of every entry from number
    `entry` on, in their order, as `version` of `events_of` gives them. Older events are only held by the chain.
    """

    version: int
    event: int
    entry: int


class TraceGap(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of ``trace_gap``: the record before this event is not complete, and why."""

    reason: str
    anchor: Anchor | None = None
    set_aside: str = ""
    lost: int = 0


class NewEvent(NamedTuple):
    """An event that has no number yet; `time` in seconds since the epoch, `body` the text of a JSON object."""

    time: float
    kind: str
    body: str


def genesis(session: str) -> str:
    """The hash before the first event of a session's trace."""
    return sha256(f"tui-agent session {session}".encode("utf-8", "surrogatepass")).hexdigest()


def events_of(entry: AnyEntry) -> list[NewEvent]:
    """The events of an entry: of a message its texts, reasoning, calls, results and usage, of others the entry itself.

    The parts of a streaming reply have none, since its message has them.
    """
    match entry:
        case Message():
            return [_new(entry, kind, body) for kind, body in _of_message(entry)]
        case UnattributedCall():
            return [_new(entry, "model_usage", {"seq": entry.seq, **_used(entry)})]
        case Summarized() | Checkpointed():
            return [_new(entry, "context_compaction", entry)]
        case ContextEntry():
            return [_new(entry, "context", entry)]
        case Partial():
            return []
        case _:
            return [_new(entry, "session", entry)]


def entry_of(event: TraceEvent) -> int:
    """The number of the entry from which an event was derived; 0 if it was not derived."""
    try:
        origin = msgspec.json.decode(event.body, type=_Origin)
    except msgspec.MsgspecError:
        return 0
    return origin.seq if origin.entry or event.kind in _BY_KIND else 0


class _Origin(msgspec.Struct):
    seq: int = 0
    entry: str = ""


def _encoded(body: object) -> str:
    try:
        return msgspec.json.encode(body).decode()
    except UnicodeEncodeError:
        # A lone surrogate, as in the message of an exception.
        return valid_text(json.dumps(msgspec.to_builtins(body), ensure_ascii=False))


def _new(entry: AnyEntry, kind: Kind, body: object) -> NewEvent:
    return NewEvent(entry.time, kind, msgspec.json.encode(body).decode())


def _of_message(message: Message) -> Iterator[tuple[Kind, dict[str, object]]]:
    said: dict[str, object] = {"seq": message.seq, "role": message.role}
    text = "\n\n".join(block.text for block in message.blocks if isinstance(block, Text))
    pictures = sum(isinstance(block, Image) for block in message.blocks)
    if text or pictures:
        seen = {"images": pictures} if pictures else {}
        yield "message", {**said, "kind": message.kind, "text": text, "stop_reason": message.stop_reason, **seen}
    for block in message.blocks:
        match block:
            case Reasoning():
                yield "reasoning", {**said, "text": block.text}
            case ToolCall():
                yield "tool_call", {**said, "id": block.id, "name": block.name, "arguments": block.arguments}
            case ToolResult():
                result = {"call_id": block.call_id, "text": block.text, "is_error": block.is_error}
                kept = {"artifact": message.artifact, "duration_ms": message.duration_ms}
                yield "tool_result", {**said, **result, **kept}
            case _:
                pass
    if message.usage is not None:
        ended = {"stop_reason": message.stop_reason, "duration_ms": message.duration_ms}
        yield "model_usage", {**said, **_used(message), **ended}


def _used(entry: AnyEntry) -> dict[str, object]:
    call = model_call(entry)
    if call is None:
        return {}
    told = {"model": call.model, "cost_usd": call.cost_usd, "purpose": call.purpose}
    return {**told, **msgspec.structs.asdict(call.usage)}


class Trace:
    """The only writer of a session's trace. `record` never blocks or fails; `flush` raises what went wrong.

    For a read-only session, nothing is recorded.
    """

    def __init__(self, database: Database | None, store: LogStore, head: TraceHead, derived: int) -> None:
        self.failure: StorageError | None = None
        self._database = database
        self._store = store
        self.head = head
        self._derived = derived
        """The newest entry whose events are written or pending."""
        self._catching_up = False
        self._pending: list[NewEvent] = []
        self._pending_bytes = 0
        self._lost = 0
        self._turn = asyncio.Lock()
        self._due: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, store: LogStore) -> "Trace":
        """Go on with the record beside `store`'s log, or begin one; what the log has and the record lacks is added.

        Where the record is damaged, missing, or not what its anchor says, that is its next event. Costs what is
        missing. Raises `StorageError`.
        """
        await store.ensure_loaded()
        if store.read_only:
            return cls(None, store, TraceHead(0, GENESIS), 0)
        database = await open_database(store.folder / TRACE_NAME, SCHEMA)
        if database.read_only:
            await database.close()
            return cls(None, store, TraceHead(0, GENESIS), 0)
        try:
            meta = await store.meta()
            anchor = _from_json(meta.get(ANCHOR_KEY), Anchor)
            binding = _from_json(meta.get(BINDING_KEY), Binding)
            newest = await database.read("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1")
            head = TraceHead(int(newest[0][0] or 0), str(newest[0][1])) if newest else _beginning(store, binding)
            bound = binding is not None or bool(store.trace_head)
            anchored = await database.read("SELECT hash FROM events WHERE seq = ?", (anchor.seq if anchor else 0,))
            recorded = await _last_entry(database)
            followed = _from_json(meta.get(DERIVATION_KEY), Derivation)
            derived = min(recorded, store.last_seq)
            if recorded > derived or followed is None or followed.version != DERIVATION or followed.event > head.seq:
                followed = Derivation(DERIVATION, head.seq, derived + 1)
                # If the disk is full, it is done at the next opening.
                with suppress(StorageError):
                    await store.set_meta({DERIVATION_KEY: _as_json(followed)})
            if not bound:
                binding = Binding(store.folder.name, head.seq)
                with suppress(StorageError):
                    await store.set_meta(
                        {BINDING_KEY: _as_json(binding), ANCHOR_KEY: _as_json(Anchor(head.seq, head.hash))}
                    )
        except StorageError:
            await database.close()
            raise
        trace = cls(database, store, head, derived)
        set_aside = database.set_aside.name if database.set_aside else ""
        why = _why_incomplete(anchor, head, bound, anchored == [(anchor.hash,)] if anchor else False)
        if set_aside or why:
            reason = "the file was damaged or foreign" if set_aside else why
            trace.record("trace_gap", TraceGap(reason, anchor, set_aside))
        if recorded > derived:
            reason = f"the log was damaged and goes on after entry {derived}; before, it went on to entry {recorded}"
            trace.record("trace_gap", TraceGap(reason))
        if derived < store.last_seq:
            # If the disk cannot be written, the next flush tries again and raises.
            await to_completion(trace._write_in_background())
        return trace

    def record(self, kind: Kind, body: object) -> None:
        """Add an event of the trace's own. `body` (a struct or a mapping) is encoded now; secrets are the caller's to
        leave out.

        Call it on the event loop.
        """
        if self._database is None:
            return
        event = NewEvent(time.time(), kind, _encoded(body))
        if self._pending_bytes + len(event.body) > PENDING_BYTES:
            self._lost += 1
            return
        self._add([event])

    def record_entry(self, entry: AnyEntry) -> None:
        """Add the events of the entry that was just appended to the log. Call it on the event loop.

        Where the trace is behind, they are read from the log as soon as it can be written again.
        """
        if self._database is None or entry.seq <= self._derived:
            return
        events: list[NewEvent] = []
        if not self._catching_up and entry.seq == self._derived + 1:
            events = events_of(entry)
            if self._pending_bytes + sum(len(event.body) for event in events) > PENDING_BYTES:
                events = []
            else:
                self._derived = entry.seq
        self._add(events)

    async def flush(self) -> None:
        """Write what is pending, then the anchor. Raises `StorageError`; what could not be written stays pending."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._database is not None:
            await to_completion(self._flush(self._database))

    async def _flush(self, database: Database) -> None:
        async with self._turn:
            await self._write(database)
            await self._store.set_meta({ANCHOR_KEY: _as_json(Anchor(self.head.seq, self.head.hash))})
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

    def _add(self, events: Sequence[NewEvent]) -> None:
        full = len(self._pending) // BATCH_EVENTS
        self._pending.extend(events)
        self._pending_bytes += sum(len(event.body) for event in events)
        if len(self._pending) // BATCH_EVENTS > full:
            self._write_soon()
        elif self._due is None:
            self._due = asyncio.get_running_loop().call_later(BATCH_DELAY_S, self._write_soon)

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
        """Write what is pending, then what the log has beyond it."""
        while self._pending or self._lost or self._derived < self._store.last_seq:
            # What is pending is older than what is still to be read from the log.
            if self._pending or self._lost:
                await self._write_pending(database)
            else:
                await self._catch_up(database)

    async def _catch_up(self, database: Database) -> None:
        self._catching_up = True
        try:
            entries = await self._store.entries_after(self._derived, _CHUNK_ENTRIES)
            derived = await asyncio.to_thread(lambda: list(map(events_of, entries)))
            await self._append(database, list(chain.from_iterable(derived)))
            self._derived = entries[-1].seq
        finally:
            self._catching_up = False

    async def _write_pending(self, database: Database) -> None:
        pending, lost = list(self._pending), self._lost
        taken = len(pending)
        if lost:
            gap = msgspec.json.encode(TraceGap("the disk took nothing for too long", lost=lost)).decode()
            pending.append(NewEvent(time.time(), "trace_gap", gap))
        await self._append(database, pending)
        self._lost -= lost
        del self._pending[:taken]
        self._pending_bytes = sum(len(event.body) for event in self._pending)

    async def _append(self, database: Database, events: Sequence[NewEvent]) -> None:
        if events:
            rows, head = await asyncio.to_thread(_numbered, events, self.head)
            await self._store.set_meta({ANCHOR_KEY: _as_json(Anchor(head.seq, head.hash, self.head))})
            await database.write([("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", rows)])
            self.head = head


def _beginning(store: LogStore, binding: Binding | None) -> TraceHead:
    """Where a record without events goes on. One that was begun by an earlier version does not name its session."""
    return TraceHead(0, genesis(store.folder.name) if binding is None or not binding.after else GENESIS)


def _why_incomplete(anchor: Anchor | None, head: TraceHead, bound: bool, is_there: bool) -> str:
    """Why a record is not what its anchor says; empty where it is. `is_there`: it has the event that the anchor names.

    Before it was `bound` to its session an earlier version wrote the events first and the anchor after them.
    """
    if not bound:
        return "it does not hold the event its anchor names" if anchor and anchor.seq and not is_there else ""
    if anchor is None:
        return "its anchor is missing"
    if anchor.allows(head):
        return ""
    if is_there and head.seq > anchor.seq:
        return "it has events after the one its anchor names"
    return "it does not hold the event its anchor names"


def _as_json(note: msgspec.Struct) -> str:
    return msgspec.json.encode(note).decode()


def event_hash(previous: str, event: TraceEvent) -> str:
    """An event's hash, in hex: SHA-256 over the previous one's and the JSON array of everything in the event."""
    told = msgspec.json.encode((previous, event.seq, event.time, event.kind, event.body))
    return sha256(told).hexdigest()


def read_events(folder: Path, *, after: int = 0) -> Iterator[TraceEvent]:
    """The events after number `after` of the session in `folder`, oldest first. Raises `StorageError`."""
    path = folder / TRACE_NAME
    if not path.exists():
        raise StorageError(f"Session {folder.name} has no record ({TRACE_NAME} does not exist).")
    with reading(path, SCHEMA) as connection:
        for row in connection.execute("SELECT seq, time, kind, body FROM events WHERE seq > ? ORDER BY seq", (after,)):
            yield _event(row)


def read_starting_folder(folder: Path) -> str:
    """The working folder in which the session in `folder` was started, from its trace; empty if unknown."""
    path = folder / TRACE_NAME
    with suppress(StorageError), reading(path, SCHEMA) as connection:
        for (body,) in connection.execute("SELECT body FROM events WHERE kind = 'session' ORDER BY seq LIMIT 9"):
            start = _from_json(body if isinstance(body, str) else None, _Start)
            if start is not None and start.cwd:
                return start.cwd
    return ""


class _Start(msgspec.Struct):
    cwd: str = ""


def _from_json(text: str | None, kind: type[Note]) -> Note | None:
    """Parse a JSON value from `meta`; None if it is missing or invalid."""
    with suppress(msgspec.MsgspecError):
        return msgspec.json.decode(text or "", type=kind)
    return None


async def _last_entry(database: Database) -> int:
    """The newest entry that the record tells of; 0 when it tells of none. Looks no further back than it must."""
    before = 2**62
    while rows := await database.read(_EVENTS_BEFORE, (before, _SCANNED_EVENTS)):
        for row in rows:
            with suppress(Damaged):
                found = entry_of(_event(row))
                if found:
                    return found
        before = int(rows[-1][0] or 0)
    return 0


def _event(row: Row) -> TraceEvent:
    try:
        return TraceEvent(*msgspec.convert(row, tuple[int, float, str, str]))
    except msgspec.ValidationError as error:
        raise Damaged(f"The record has an event that cannot be read: {error}.") from error


def _numbered(events: Sequence[NewEvent], head: TraceHead) -> tuple[list[Row], TraceHead]:
    rows: list[Row] = []
    seq, previous = head.seq, head.hash
    for event_time, kind, body in events:
        seq += 1
        digest = event_hash(previous, TraceEvent(seq, event_time, kind, body))
        rows.append((seq, event_time, kind, body, previous, digest))
        previous = digest
    return rows, TraceHead(seq, previous)
