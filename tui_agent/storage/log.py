"""The log on disk: all entries, some facts about the session (`meta`), and totals for lists. It has one writer."""

import asyncio
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import (
    AnyEntry,
    Delivered,
    Message,
    ModelSwitched,
    TraceHead,
    UnattributedCall,
    UnknownEntry,
    decode,
    encode,
    model_call,
)
from tui_agent.conversation.log import Entries, Log
from tui_agent.durable import in_thread, make_private_folder, sync_folder, to_completion
from tui_agent.storage.database import (
    Database,
    Schema,
    Step,
    Value,
    damaged_connection,
    open_database,
    reading,
    set_aside,
)
from tui_agent.storage.errors import Damaged, ReadOnly, StorageError, explained
from tui_agent.storage.session_lock import SessionLock
from tui_agent.storage.store import check_numbers
from tui_agent.text import as_typed, counted

LOG_NAME: Final = "checkpoints.sqlite"
TITLE_LENGTH: Final = 80
ACCOUNTING: Final = "2"
"""Which sum the costs in `totals` are: this one is that of `conversation.entries.model_call`. The one before it, of
sessions that note none, left out the calls that are no message."""

SCHEMA: Final = Schema(
    application_id=0x54414331,
    version=1,
    script="""
        CREATE TABLE entries (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, body BLOB NOT NULL);
        CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
        CREATE TABLE totals (
            one INTEGER PRIMARY KEY CHECK (one = 1), messages INTEGER NOT NULL, cost_usd REAL NOT NULL,
            updated REAL NOT NULL, model TEXT NOT NULL
        );
        INSERT INTO totals VALUES (1, 0, 0, 0, '');
        INSERT INTO meta VALUES ('accounting', '2')
    """,
)

_ACCOUNTING_KEY: Final = "accounting"
_READ_CHUNK = 500
_META: Final = "SELECT key, value FROM meta"
_NEXT_ENTRIES: Final = "SELECT seq, crc, body FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"


class LogStore:
    """The log of one session, open for its only writer. Call `load` before the first `append`.

    `read_only` says why nothing can be added (empty: it can). `notices` are sentences the user should see. `last_seq`
    is the number of the newest entry once the log is loaded, `trace_head` that of the newest event of the trace that an
    entry names (0: none does).
    """

    def __init__(self, folder: Path, database: Database, lock: "SessionLock | None") -> None:
        self.folder = folder
        self.notices: list[str] = []
        self.last_seq = 0
        self.trace_head = 0
        self._database = database
        self._lock = lock
        self._read_only = "" if database.damage else database.read_only
        self._loaded = False
        if self._read_only and lock is not None:
            self.notices.append(self._read_only)
        if database.set_aside is not None:
            self.notices.append(
                f"{database.path.name} was damaged or not a session's. It was kept as {database.set_aside.name}; "
                "this session starts anew."
            )

    @classmethod
    async def open(cls, folder: Path, *, read_only: bool = False) -> "LogStore":
        """Open the session in `folder` for this process alone, or (`read_only`) beside another one.

        Of a file that sqlite no longer opens, what can still be read is saved first (see `load`). Raises `SessionBusy`
        when another process writes to it, and `StorageError`.
        """
        path = folder / LOG_NAME
        if read_only:
            return cls(folder, await open_database(path, SCHEMA, read_only=True), None)
        with explained(folder):
            await asyncio.to_thread(make_private_folder, folder)
        try:
            lock = await asyncio.to_thread(SessionLock.acquire, folder)
        except ReadOnly as error:
            store = cls(folder, await open_database(path, SCHEMA, read_only=True), None)
            store.notices.append(f"{error.message} The session is open for reading only.")
            return store
        try:
            await asyncio.to_thread(_finish_salvage, path)
            store = cls(folder, await open_database(path, SCHEMA, salvage=True), lock)
            if store._database.damage:
                await store.load()
        except BaseException:
            lock.release()
            raise
        return store

    @property
    def read_only(self) -> str:
        """Why nothing can be appended; empty if it can."""
        return self._read_only

    async def load(self) -> Entries:
        """Every entry, oldest first; of a long log each is read from what is held of it when it is looked at.

        Where the log is damaged, its valid beginning: the damaged file is set aside and the beginning saved anew. Where
        it holds kinds of entries this version does not know, what comes before them, read-only. `notices` says so.
        Raises `StorageError`.
        """
        loaded = await self._read_log()
        if loaded.damage:
            await self._salvage(loaded)
        elif loaded.newer:
            self._read_only = (
                f"This session was written by a newer version of tui-agent ({loaded.newer}). It is open for reading "
                f"only, up to entry {len(loaded.entries)}."
            )
            self.notices.append(self._read_only)
        if not self._read_only and not self._loaded:
            await self._renew_totals(loaded.entries)
        self.last_seq = len(loaded.entries)
        self.trace_head = loaded.trace_head
        self._loaded = True
        return loaded.entries

    async def ensure_loaded(self) -> None:
        """`load`, unless already done. Raises `StorageError`."""
        if not self._loaded:
            await self.load()

    async def entries_after(self, seq: int, limit: int) -> list[AnyEntry]:
        """The next `limit` entries after number `seq`, at most; costs what it gives. Raises `StorageError`."""
        await self.ensure_loaded()
        count = min(limit, max(self.last_seq - seq, 0))
        rows = await self._database.read(_NEXT_ENTRIES, (seq, count))
        if len(rows) < count:
            raise Damaged(f"Entries after number {seq} of {self._database.path} are missing.")
        return await asyncio.to_thread(lambda: [_decoded(row) for row in rows])

    async def append(self, entries: Sequence[AnyEntry]) -> None:
        """Add stamped entries in one transaction: on disk when this returns, none of them when it raises.

        A cancellation meanwhile is raised when one of the two is certain; `last_seq` says which. Raises
        `StorageError`, and `ValueError` for numbers that do not follow the last one.
        """
        if self._read_only:
            raise ReadOnly(self._read_only)
        await self.ensure_loaded()
        check_numbers(entries, self.last_seq)
        if entries:
            await to_completion(self._append(entries))

    async def _append(self, entries: Sequence[AnyEntry]) -> None:
        await self._database.write([_insertion(entries), *_bookkeeping(entries)])
        self.last_seq = entries[-1].seq

    async def meta(self) -> dict[str, str]:
        """The facts about the session: title, cwd, … Raises `StorageError`."""
        return _texts(await self._database.read(_META))

    async def set_meta(self, values: Mapping[str, str]) -> None:
        """Save these facts, durably. Raises `StorageError`."""
        if self._read_only:
            raise ReadOnly(self._read_only)
        await self._database.write([_meta_step(values)])

    async def close(self) -> None:
        """Close the files and release the session's lock."""
        try:
            await self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _read_log(self) -> "_Loaded":
        """Read the log in chunks: all rows and all entries at once would take twice the memory."""
        reading, size, damage = _Reading(), _READ_CHUNK, self._database.damage
        while size and not reading.ended:
            try:
                rows = await self._database.read(_NEXT_ENTRIES, (len(reading.log), size))
            except StorageError as error:
                if not damage and not isinstance(error, Damaged):
                    raise
                damage = damage or error.message
                size //= 2
                continue
            await in_thread(reading.take, rows)
            if len(rows) < size:
                break
        with suppress(StorageError):
            # Frees sqlite's cache of some 2 MB of pages, which will not be read again.
            await self._database.read("PRAGMA shrink_memory")
        damage = damage or await self._damage_beside_the_log()
        loaded = reading.loaded
        return loaded if loaded.damage or not damage else loaded._replace(damage=damage)

    async def _damage_beside_the_log(self) -> str:
        """Why the facts about the session cannot be read; empty if they can."""
        try:
            await self.meta()
            await self._database.read("SELECT * FROM totals")
        except Damaged as error:
            return error.message
        return ""

    async def _renew_totals(self, entries: Sequence[AnyEntry]) -> None:
        """Update the totals of a session from an earlier version, which summed differently."""
        if (await self.meta()).get(_ACCOUNTING_KEY) == ACCOUNTING:
            return
        # Without room for it the list adds up the entries itself, and the next start tries again.
        with suppress(StorageError):
            await self._database.write(
                [("UPDATE totals SET cost_usd = ?", [(_cost(entries),)]), _meta_step({_ACCOUNTING_KEY: ACCOUNTING})]
            )

    async def _salvage(self, loaded: "_Loaded") -> None:
        count = len(loaded.entries)
        if self._read_only:
            read = f"{counted(count, 'entry', 'entries')} could be read"
            self.notices.append(f"The log of this session is damaged ({loaded.damage}); {read}.")
            return
        path = self._database.path
        meta: dict[str, str] = {}
        with suppress(StorageError):
            meta = _texts(await self._database.read(_META))
        with suppress(StorageError):
            await self._database.close()
        # Complete the new file before the old one is moved; after a crash in between, `_finish_salvage` finishes.
        rebuilt = _rebuilt(path)
        with explained(path):
            await asyncio.to_thread(rebuilt.unlink, missing_ok=True)
        database = await open_database(rebuilt, SCHEMA)
        try:
            steps = [_insertion(loaded.entries), *_bookkeeping(loaded.entries)] if loaded.entries else []
            await database.write([*steps, _meta_step({**meta, _ACCOUNTING_KEY: ACCOUNTING})])
        finally:
            await database.close()
        with explained(path):
            kept = await asyncio.to_thread(set_aside, path)
            await asyncio.to_thread(_finish_salvage, path)
        self._database = await open_database(path, SCHEMA)
        saved = f"The {count} entries before the damage were saved"
        if count < 2:
            saved = "The one entry before the damage was saved" if count else "No entry of it could be read"
        self.notices.append(
            f"The log of this session was damaged ({loaded.damage.rstrip('.')}). {saved}; the damaged file was kept "
            f"as {kept.name}."
        )


def trace_head(entry: AnyEntry) -> TraceHead | None:
    """The event of the trace that an entry refers to."""
    return entry.trace if isinstance(entry, Message | UnattributedCall) else None


def log_file(folder: Path) -> Path:
    """The path of the log of the session in `folder`, even if a crash interrupted its salvage."""
    path = folder / LOG_NAME
    return path if path.exists() or not _rebuilt(path).exists() else _rebuilt(path)


class LogSummary(NamedTuple):
    """What a list shows of a log: facts noted about the session, how many messages it has, what its calls cost in USD,
    the time of its newest entry in seconds since the epoch, and the model that answered last."""

    meta: Mapping[str, str]
    messages: int
    cost_usd: float
    updated: float
    model: str


def read_summary(path: Path) -> LogSummary:
    """The summary of the log at `path`, which another process may have open. Raises `StorageError`.

    Costs O(1), except for a session that only an earlier version has written to, whose entries are summed up.
    """
    with reading(path, SCHEMA) as connection:
        meta = _texts(connection.execute(_META))
        totals = connection.execute("SELECT messages, cost_usd, updated, model FROM totals").fetchone()
        summary = LogSummary(meta, *(totals or (0, 0.0, 0.0, "")))
        if meta.get(_ACCOUNTING_KEY) == ACCOUNTING:
            return summary
        # Skips entries without a cost before decoding them.
        rows = connection.execute("SELECT seq, crc, body FROM entries WHERE instr(body, CAST('cost_usd' AS BLOB))")
        return summary._replace(cost_usd=_cost(_valid(rows)))


def read_last(path: Path, count: int) -> list[AnyEntry]:
    """The last `count` entries of the log at `path`, oldest first, without those that cannot be read.

    Costs O(`count`). Raises `StorageError`.
    """
    with reading(path, SCHEMA) as connection:
        rows = connection.execute("SELECT seq, crc, body FROM entries ORDER BY seq DESC LIMIT ?", (count,)).fetchall()
        return list(_valid(reversed(rows)))


def read_damaged_summary(path: Path) -> LogSummary:
    """The summary of a damaged log; what cannot be read is empty or 0."""
    summary = LogSummary({}, 0, 0.0, 0.0, "")
    with suppress(sqlite3.Error, OSError, msgspec.ValidationError), closing(damaged_connection(path)) as connection:
        summary = summary._replace(meta=_texts(connection.execute(_META)))
        row = connection.execute("SELECT messages, cost_usd, updated, model FROM totals").fetchone()
        summary = LogSummary(summary.meta, *msgspec.convert(row, tuple[int, float, float, str]))
    return summary


def read_entries(path: Path, *, after: int = 0) -> Iterator[AnyEntry]:
    """The entries after number `after` of the log at `path`, oldest first; another process may have it open.

    Stops before an entry of an unknown kind. Raises `StorageError`.
    """
    with reading(path, SCHEMA) as connection:
        for row in connection.execute("SELECT seq, crc, body FROM entries WHERE seq > ? ORDER BY seq", (after,)):
            try:
                entry = _decoded(row)
            except UnknownEntry:
                return
            after += 1
            if entry.seq != after:
                raise Damaged(f"Entry {after} of {path} is missing.")
            yield entry


def read_newest(path: Path, count: int) -> list[AnyEntry]:
    """The last `count` entries of the log at `path`, oldest first, beside whoever has it open; of a log with an entry
    of a kind this version does not know those before it. Raises `StorageError`.
    """
    with reading(path, SCHEMA) as connection:
        last = connection.execute("SELECT max(seq) FROM entries").fetchone()[0]
    return list(read_entries(path, after=max(0, (last or 0) - count)))


def _texts(rows: Iterable[Sequence[Value]]) -> dict[str, str]:
    """The rows of `meta` as texts; a damaged file may contain other types."""
    return {key: value for key, value in rows if isinstance(key, str) and isinstance(value, str)}


def _decoded(row: tuple[Value, ...]) -> AnyEntry:
    """Decode a row. Raises `Damaged`, and `UnknownEntry` for an entry of a newer version."""
    seq, crc, body = row
    if not isinstance(body, bytes) or zlib.crc32(body) != crc:
        raise Damaged(f"The checksum of entry {seq!r} is wrong.")
    return decode(body)


def _valid(rows: Iterable[tuple[Value, ...]]) -> Iterator[AnyEntry]:
    for row in rows:
        with suppress(Damaged, UnknownEntry):
            yield _decoded(row)


def _rebuilt(path: Path) -> Path:
    return path.with_name(f"{path.name}.rebuilt")


def _finish_salvage(path: Path) -> None:
    with explained(path):
        if not path.exists() and _rebuilt(path).exists():
            _rebuilt(path).replace(path)
            sync_folder(path.parent)


def _insertion(entries: Sequence[AnyEntry]) -> Step:
    bodies = [(entry.seq, encode(entry)) for entry in entries]
    return "INSERT INTO entries VALUES (?, ?, ?)", [(seq, zlib.crc32(body), body) for seq, body in bodies]


def _bookkeeping(entries: Sequence[AnyEntry]) -> list[Step]:
    messages = sum(isinstance(entry, Delivered) or (isinstance(entry, Message) and not entry.kind) for entry in entries)
    models = [entry.model for entry in entries if isinstance(entry, Message | ModelSwitched) and entry.model]
    steps: list[Step] = [
        (
            "UPDATE totals SET messages = messages + ?, cost_usd = cost_usd + ?, updated = ?, model = ifnull(?, model)",
            [(messages, _cost(entries), entries[-1].time, models[-1] if models else None)],
        )
    ]
    title = _title(entries)
    if title:
        steps.append(("INSERT OR IGNORE INTO meta VALUES ('title', ?)", [(title,)]))
    return steps


def _cost(entries: Iterable[AnyEntry]) -> float:
    """The cost in USD of the calls in these entries, without those of unknown price."""
    return sum(call.cost_usd or 0.0 for entry in entries if (call := model_call(entry)) is not None)


def _meta_step(values: Mapping[str, str]) -> Step:
    return "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", list(values.items())


def _title(entries: Iterable[AnyEntry]) -> str:
    for entry in entries:
        if isinstance(entry, Message) and entry.role == "user" and not entry.kind:
            said = as_typed(" ".join(block.text for block in entry.blocks if isinstance(block, Text)))
            title = " ".join(said.split()[:TITLE_LENGTH])
            if title:
                return title if len(title) <= TITLE_LENGTH else f"{title[: TITLE_LENGTH - 1]}…"
    return ""


class _Loaded(NamedTuple):
    """What could be read: the valid beginning of the log, the newest event of the trace that it names (0: none), and
    why it ends there where it is not all of it.
    """

    entries: Entries
    trace_head: int
    damage: str = ""
    newer: str = ""


class _Reading:
    """Decodes the rows of a log, in order, as far as they are valid; `ended`: no further one can be."""

    def __init__(self) -> None:
        self.log = Log()
        self.ended = False
        self._trace_head = 0
        self._damage = ""
        self._newer = ""

    @property
    def loaded(self) -> _Loaded:
        """The result so far."""
        return _Loaded(self.log.entries(), self._trace_head, self._damage, self._newer)

    def take(self, rows: Iterable[tuple[Value, ...]]) -> None:
        """Decode the next rows."""
        self._decode(rows)
        self.log.pack()

    def _decode(self, rows: Iterable[tuple[Value, ...]]) -> None:
        for seq, crc, body in rows:
            here = f"at entry {len(self.log) + 1}"
            if seq != len(self.log) + 1:
                self._damage = f"{here}: it is missing"
            elif not isinstance(body, bytes) or zlib.crc32(body) != crc:
                self._damage = f"{here}: its checksum is wrong"
            else:
                try:
                    entry = decode(body)
                    self.log.append(entry)
                    head = trace_head(entry)
                    self._trace_head = max(self._trace_head, head.seq if head is not None else 0)
                    continue
                except UnknownEntry as error:
                    # Its checksum is right, so it is not damaged: a newer version wrote it.
                    self._newer = f"entry {seq} is {_kind(body) or error}"
                except ValueError as error:
                    self._damage = f"{here}: {error}"
            self.ended = True
            return


def _kind(body: bytes) -> str:
    try:
        return f"of kind {msgspec.json.decode(body, type=_Header).entry!r}"
    except msgspec.MsgspecError:
        return ""


class _Header(msgspec.Struct):
    entry: str
