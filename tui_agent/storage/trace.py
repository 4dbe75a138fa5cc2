"""The trace: the append-only record of a session, for people and scorers. It is never sent to a model.

It says what the log says, entry by entry, split into events: `events_of` gives those of an entry. It is written from
the log, a moment after it, so what a killed process did not write is added when the session is next opened, and a file
that is damaged or missing is written anew. The database refuses updates and deletions.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation import entries
from tui_agent.conversation.blocks import Image, Reasoning, ToolCall, ToolResult, text_in
from tui_agent.storage.database import Database, Row, Schema, open_database, quarantine, reading
from tui_agent.storage.errors import Damaged, StorageError, explained
from tui_agent.storage.rows import Link
from tui_agent.system.durable import uncancelled
from tui_agent.system.lenient import decoded

TRACE_NAME: Final = "trace.sqlite"
BATCH_DELAY_S: Final = 0.25
CHUNK_ENTRIES: Final = 200
"""Entries whose events are written in one transaction."""

SCHEMA: Final = Schema(
    application_id=0x54415431,
    version=2,
    script="""
        CREATE TABLE events (
            seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
            entry INTEGER NOT NULL, hash TEXT NOT NULL
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
"""Its version grows with every change of what `events_of` gives, unless that only adds fields which are empty for what
was there before: a file of an earlier version is written anew.
"""


class TraceEvent(msgspec.Struct, frozen=True):
    """An event: its number (0: none yet), seconds since the epoch, kind, and `body`, the text of a JSON object."""

    seq: int
    time: float
    kind: str
    body: str


def events_of(entry: entries.AnyEntry) -> list[TraceEvent]:
    """The events of an entry: of a message its texts, reasoning, calls, results and usage, of others the entry itself.

    The parts of a streaming reply have none, since its message has them.
    """
    match entry:
        case entries.Message():
            return [TraceEvent(0, entry.time, kind, _encoded(body)) for kind, body in _of_message(entry)]
        case entries.UnattributedCall():
            return [TraceEvent(0, entry.time, "model_usage", _encoded({"seq": entry.seq, **_used(entry)}))]
        case entries.Recorded():
            return [TraceEvent(0, entry.time, entry.kind, entry.body)]
        case entries.Partial():
            return []
        case entries.Summarized() | entries.Checkpointed():
            kind = "context_compaction"
        case entries.ContextEntry():
            kind = "context"
        case _:
            kind = "session"
    return [TraceEvent(0, entry.time, kind, _encoded(entry))]


def rows_of(entry: entries.AnyEntry, link: Link, last: int) -> list[Row]:
    """The rows of an entry's events; `link` is the entry's, `last` the number of the event before them."""
    return [
        (place, event.time, event.kind, event.body, link.seq, link.hash)
        for place, event in enumerate(events_of(entry), last + 1)
    ]


def _encoded(body: object) -> str:
    return msgspec.json.encode(body).decode()


def _of_message(message: entries.Message) -> Iterator[tuple[str, dict[str, object]]]:
    said: dict[str, object] = {"seq": message.seq, "role": message.role}
    text = text_in(message.blocks)
    pictures = sum(isinstance(block, Image) for block in message.blocks)
    if text or pictures:
        seen: dict[str, object] = {"images": pictures} if pictures else {}
        seen |= {"typed": message.typed} if message.typed else {}
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
    if message.usage is not None:
        ended = {"stop_reason": message.stop_reason, "duration_ms": message.duration_ms}
        yield "model_usage", {**said, **_used(message), **ended}


def _used(entry: entries.AnyEntry) -> dict[str, object]:
    call = entries.model_call(entry)
    if call is None:
        return {}
    fields = {"model": call.model, "cost_usd": call.cost_usd, "purpose": call.purpose}
    return {**fields, **msgspec.structs.asdict(call.usage)}


EntryRows = Callable[[int, int], Awaitable[Sequence[Row]]]
"""Reads rows of the log (number, checksum, encoded entry): those after a number, at most so many."""


class Trace:
    """The only writer of a session's trace. It follows a log; `failure` is why it is behind (None: it is not)."""

    def __init__(self, database: Database, rows: EntryRows, at: Link, events: int) -> None:
        self.failure: StorageError | None = None
        self._database = database
        self._rows = rows
        self._at = at
        """The link of the newest entry whose events are written."""
        self._events = events
        self._turn = asyncio.Lock()
        self._due: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, folder: Path, links: Sequence[Link], rows: EntryRows, *, changed: bool = False
    ) -> tuple["Trace", str]:
        """Go on with the trace in `folder`, or begin one; also returns a sentence if one was set aside.

        `links`: the log's, by entry number. A trace that is damaged, or that is not of this log, is set aside: all it
        said is written anew from the log. One of a log that was `changed` stays, as the witness of what it was. Raises
        `StorageError`.
        """
        path, said = folder / TRACE_NAME, ""
        database = await open_database(path, SCHEMA)
        if database.quarantined is not None:
            said = _NEW.format(why="could not be read", kept=database.quarantined.name)
        try:
            try:
                at, events = await _end(database, links, changed=changed)
            except Damaged as error:
                await database.close()
                with explained(path):
                    kept = await asyncio.to_thread(quarantine, path)
                said = _NEW.format(why=error.message, kept=kept.name)
                database = await open_database(path, SCHEMA)
                at, events = links[0], 0
            # What a power loss takes from it is in the log.
            await database.read("PRAGMA synchronous=NORMAL")
        except BaseException:
            await database.close()
            raise
        return cls(database, rows, at, events), said

    def follow(self) -> None:
        """Write what the log has beyond the trace, soon. Call it on the event loop."""
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(BATCH_DELAY_S, self._begin)

    @uncancelled
    async def write(self) -> None:
        """Write what the log has beyond the trace. Raises `StorageError`; then the next call goes on from there."""
        async with self._turn:
            while rows := await self._rows(self._at.seq, CHUNK_ENTRIES):
                events, at = await asyncio.to_thread(_derived, rows, self._at, self._events)
                if events:
                    await self._database.write([("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", events)])
                self._at, self._events = at, self._events + len(events)

    async def close(self) -> None:
        """Write what is missing, and close. What cannot be written is added when the session is next opened."""
        if self._due is not None:
            self._due.cancel()
        with suppress(StorageError):
            await self.write()
        await self._database.close()

    def _begin(self) -> None:
        async def write() -> None:
            try:
                await self.write()
                self.failure = None
            except StorageError as error:
                self.failure = error

        self._due = None
        self._writing = asyncio.get_running_loop().create_task(write())


_NEW: Final = "The trace of this session was not what it should be ({why}). It was kept as {kept} and written anew."


async def _end(database: Database, links: Sequence[Link], *, changed: bool) -> tuple[Link, int]:
    """Where a trace ends: the link of the log, and the number of its events. Raises `StorageError`."""
    newest = await database.read("SELECT entry, hash, seq FROM events ORDER BY seq DESC LIMIT 1")
    if not newest:
        return links[0], 0
    entry, digest, events = newest[0]
    if isinstance(entry, int) and isinstance(events, int) and 0 < entry < len(links):
        at = Link(entry, str(digest))
        if changed or at == links[entry]:
            return at, events
    raise Damaged("it is not the trace of this log")


def _derived(rows: Iterable[Row], at: Link, last: int) -> tuple[list[Row], Link]:
    events: list[Row] = []
    for _, _, body in rows:
        if not isinstance(body, bytes):
            raise Damaged("The log has an entry that cannot be read.")
        at = at.following(body)
        events += rows_of(entries.decode(body), at, last + len(events))
    return events, at


def read_events(folder: Path, *, after: int = 0) -> Iterator[TraceEvent]:
    """The events after number `after` of the session in `folder`, oldest first. Raises `StorageError`."""
    path = folder / TRACE_NAME
    if not path.exists():
        raise StorageError(f"Session {folder.name} has no record ({TRACE_NAME} does not exist).")
    with reading(path, SCHEMA) as connection:
        for row in connection.execute("SELECT seq, time, kind, body FROM events WHERE seq > ? ORDER BY seq", (after,)):
            try:
                yield TraceEvent(*msgspec.convert(row, tuple[int, float, str, str]))
            except msgspec.ValidationError as error:
                raise Damaged(f"The record has an event that cannot be read: {error}.") from error


def read_starting_folder(folder: Path) -> str:
    """The working folder in which the session in `folder` was started, from its trace; empty if unknown."""
    path = folder / TRACE_NAME
    with suppress(StorageError), reading(path, SCHEMA) as connection:
        for (body,) in connection.execute("SELECT body FROM events WHERE kind = 'session' ORDER BY seq LIMIT 9"):
            if (start := decoded(body, _Start)) is not None and start.cwd:
                return start.cwd
    return ""


class _Start(msgspec.Struct):
    cwd: str = ""
