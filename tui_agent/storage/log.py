"""The log on disk: all entries, some facts about the session (`meta`), and totals for lists. It has one writer.

With every append it notes the newest link of the chain of its entries. The trace beside it follows it.
"""

import asyncio
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, Recorded, model_call, typed_in
from tui_agent.conversation.log import Entries, Log, is_said
from tui_agent.storage.database import (
    Database,
    Row,
    Schema,
    Step,
    Value,
    damaged_connection,
    explain_sqlite_error,
    open_database,
    quarantine,
    reading,
)
from tui_agent.storage.errors import Damaged, ReadOnly, StorageError, explained
from tui_agent.storage.rows import HEAD_KEY, Link, RowReader, as_text, beginning, row_of
from tui_agent.storage.session_lock import SessionLock
from tui_agent.storage.store import check_numbers
from tui_agent.storage.trace import Trace
from tui_agent.system.durable import make_private_folder, sync_folder, to_completion, uncancelled
from tui_agent.system.lenient import decoded

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
_MOST_SKIPPED = 10_000
"""Entries in a row that are tried one by one behind a damaged place, where it is not known how many there were."""
_META: Final = "SELECT key, value FROM meta"
_INSERT: Final = "INSERT INTO entries VALUES (?, ?, ?)"
_NEXT_ENTRIES: Final = "SELECT seq, crc, body FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"
_COUNT: Final = (
    "UPDATE totals SET messages = messages + ?, cost_usd = cost_usd + ?, updated = max(updated, ?), "
    "model = ifnull(?, model)"
)


class LogStore:
    """The log of one session, open for its only writer. Call `load` before the first `append`.

    `read_only` says why nothing can be added (empty: it can). `notices` are sentences the user should see. `last_seq`
    is the number of the newest entry once the log is loaded.
    """

    def __init__(self, folder: Path, database: Database, lock: "SessionLock | None") -> None:
        self.folder = folder
        self.notices: list[str] = []
        self.last_seq = 0
        self._database = database
        self._lock = lock
        self._trace: Trace | None = None
        self._link = beginning(folder.name)
        self.read_only = "" if database.damage else database.read_only
        self._loaded = False
        if self.read_only and lock is not None:
            self.notices.append(self.read_only)
        if database.quarantined is not None:
            self.notices.append(
                f"{database.path.name} was damaged or not a session's. It was kept as {database.quarantined.name}; "
                "this session starts anew."
            )

    @classmethod
    async def open(cls, folder: Path, *, read_only: bool = False) -> "LogStore":
        """Open the session in `folder` for this process alone, or (`read_only`) beside another one.

        Of a file that sqlite no longer opens, what can still be read is saved first (see `load`). Raises `SessionBusy`
        when another process writes to it, and `StorageError`. If cancelled meanwhile, it leaves nothing open.
        """
        opened: list[LogStore] = []

        async def whole() -> None:
            opened.append(await cls._open(folder, read_only))

        try:
            await to_completion(whole())
        except BaseException:
            for store in opened:
                await store.close()
            raise
        return opened[0]

    async def __aenter__(self) -> "LogStore":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @classmethod
    async def _open(cls, folder: Path, read_only: bool) -> "LogStore":
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

    async def load(self) -> Entries:
        """Every entry, oldest first; of a long log each is read from what is held of it when it is looked at.

        Entries that are damaged or missing are replaced by ones that stand in for them, and the damaged file is set
        aside. Where the log has kinds of entries this version does not know, what comes before them, read-only.
        `notices` says so. Raises `StorageError`.
        """
        loaded = await self._database.read_with(lambda connection: _read_log(connection, self._database))
        entries, noted, changed = loaded.log.entries(), loaded.noted, False
        if noted is None and next(entries.of(Recorded), None) is not None:
            # No earlier version wrote such entries: the link was removed.
            noted = Link(0, "")
        if loaded.newer:
            self.read_only = (
                f"This session was written by a newer version of tui-agent ({loaded.newer}). It is open for reading "
                f"only, up to entry {len(entries)}."
            )
            self.notices.append(self.read_only)
        elif loaded.damage:
            loaded = await self._salvage(loaded)
        elif noted is not None and noted != loaded.links[-1]:
            changed = True
            self.notices.append(
                "The log of this session was changed by another program: it is not what was written. "
                f"`tui-agent trace {self.folder.name} --verify` says more."
            )
        self.last_seq = len(entries)
        # Going on from what was noted keeps the difference to what was changed: `verify` goes on to say it.
        self._link = Link(self.last_seq, noted.hash) if noted is not None and changed else loaded.links[-1]
        if not self.read_only and not self._loaded:
            await self._renew(entries, chained=noted is not None)
            await self._open_trace(loaded.links, changed=changed)
        self._loaded = True
        return entries

    @uncancelled
    async def append(self, entries: Sequence[AnyEntry]) -> None:
        """Add stamped entries in one transaction: on disk when this returns, none of them when it raises.

        A cancellation meanwhile is raised when one of the two is certain; `last_seq` says which. Raises
        `StorageError`, and `ValueError` for numbers that do not follow the last one.
        """
        if self.read_only:
            raise ReadOnly(self.read_only)
        if not self._loaded:
            await self.load()
        check_numbers(entries, self.last_seq)
        if not entries:
            return
        rows, link = list(map(row_of, entries)), self._link
        for _, _, body in rows:
            link = link.following(body)
        noted = _meta_step({HEAD_KEY: as_text(link)})
        await self._database.write([(_INSERT, rows), noted, *_bookkeeping(entries)])
        self.last_seq, self._link = entries[-1].seq, link
        if self._trace is not None:
            self._trace.follow()

    async def meta(self) -> dict[str, str]:
        """The facts about the session: title, cwd, … Raises `StorageError`."""
        return _texts(await self._database.read(_META))

    async def set_meta(self, values: Mapping[str, str]) -> None:
        """Save these facts, durably. Raises `StorageError`."""
        if self.read_only:
            raise ReadOnly(self.read_only)
        await self._database.write([_meta_step(values)])

    @uncancelled
    async def close(self) -> None:
        try:
            if self._trace is not None:
                await self._trace.close()
            await self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _renew(self, entries: Sequence[AnyEntry], *, chained: bool) -> None:
        """Add what a session from an earlier version lacks: its totals, which were summed differently, and the chain's
        newest link.
        """
        steps: list[Step] = [] if chained else [_meta_step({HEAD_KEY: as_text(self._link)})]
        if (await self.meta()).get(_ACCOUNTING_KEY) != ACCOUNTING:
            steps += [
                ("UPDATE totals SET cost_usd = ?", [(_cost(entries),)]),
                _meta_step({_ACCOUNTING_KEY: ACCOUNTING}),
            ]
        # Without room for it the next start tries again.
        with suppress(StorageError):
            if steps:
                await self._database.write(steps)

    async def _open_trace(self, links: Sequence[Link], *, changed: bool) -> None:
        """Follow the log by its trace; where it cannot be opened, the log has what it would say."""

        async def rows(after: int, limit: int) -> list[Row]:
            return await self._database.read(_NEXT_ENTRIES, (after, limit))

        try:
            self._trace, said = await Trace.open(self.folder, links, rows, changed=changed)
        except StorageError as error:
            said = f"The trace of this session is not written: {error.message} The log has all that it would say."
        self.notices += [said] if said else []
        if self._trace is not None:
            self._trace.follow()

    async def _salvage(self, loaded: "_Loaded") -> "_Loaded":
        """Write the entries to a new file, and keep the damaged one."""
        damage, entries = loaded.damage.rstrip("."), loaded.log.entries()
        salvage = loaded.salvage or "All its entries are there"
        if self.read_only:
            self.notices.append(f"The log of this session is damaged ({damage}). {salvage}.")
            return loaded
        path = self._database.path
        meta: dict[str, str] = {}
        with suppress(StorageError):
            meta = _texts(await self._database.read(_META))
        with suppress(StorageError):
            await self._database.close()
        rows = [row_of(entry) for entry in entries]
        links = [beginning(self.folder.name)]
        for _, _, body in rows:
            links.append(links[-1].following(body))
        # Complete the new file before the old one is moved; after a crash in between, `_finish_salvage` finishes.
        rebuilt = _rebuilt(path)
        with explained(path):
            await asyncio.to_thread(rebuilt.unlink, missing_ok=True)
        database = await open_database(rebuilt, SCHEMA)
        try:
            steps = [(_INSERT, rows), *_bookkeeping(entries)] if entries else []
            noted = {_ACCOUNTING_KEY: ACCOUNTING, HEAD_KEY: as_text(links[-1])}
            await database.write([*steps, _meta_step({**meta, **noted})])
        finally:
            await database.close()
        with explained(path):
            kept = await asyncio.to_thread(quarantine, path)
            await asyncio.to_thread(_finish_salvage, path)
        self._database = await open_database(path, SCHEMA)
        self.notices.append(
            f"The log of this session was damaged ({damage}). {salvage}. The damaged file was kept as {kept.name}."
        )
        return structs.replace(loaded, links=links)


def _read_log(connection: sqlite3.Connection, database: Database) -> "_Loaded":
    """Read the log in chunks: all rows and all entries at once would take twice the memory."""
    path, damage, noted, last = database.path, database.damage, None, 0
    try:
        noted = decoded(_texts(connection.execute(_META)).get(HEAD_KEY, ""), Link)
        connection.execute("SELECT * FROM totals").fetchall()
    except sqlite3.Error as error:
        damage = damage or _damage(error, path)
    with suppress(sqlite3.Error):
        (last,) = connection.execute("SELECT max(seq) FROM entries").fetchone()
    last = last or (noted.seq if noted is not None else 0)
    reader, log, links = RowReader(), Log(), [beginning(path.parent.name)]
    at, size, skipped = 0, _READ_CHUNK, 0
    while not reader.newer:
        try:
            rows = connection.execute(_NEXT_ENTRIES, (at, size)).fetchall()
        except sqlite3.Error as error:
            damage, size = damage or _damage(error, path), size // 2
            if not size:
                # Not even the next row can be read: try the one after it.
                at, size, skipped = at + 1, 1, skipped + 1
                if at >= last if last else skipped > _MOST_SKIPPED:
                    break
            continue
        for row in rows:
            for entry in reader.take(row):
                log.append(entry)
            if isinstance(row[2], bytes):
                links.append(links[-1].following(row[2]))
        log.pack()
        if len(rows) < size:
            break
        at, size, skipped = max(at + 1, reader.seen), min(2 * size, _READ_CHUNK), 0
    if not reader.newer:
        for entry in reader.stand_ins(reader.seen if noted is None else noted.seq):
            log.append(entry)
    return _Loaded(log, links, noted, damage or reader.damage, reader.salvage(), reader.newer)


def _damage(error: sqlite3.Error, path: Path) -> str:
    """What is damaged, in a sentence; raises an error that says nothing about damage."""
    explanation = explain_sqlite_error(error, path)
    if not isinstance(explanation, Damaged):
        raise error
    return explanation.message


def log_file(folder: Path) -> Path:
    """The path of the log of the session in `folder`, even if a crash interrupted its salvage."""
    path = folder / LOG_NAME
    return path if path.exists() or not _rebuilt(path).exists() else _rebuilt(path)


class LogSummary(msgspec.Struct, frozen=True):
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
        entries = (entry for row in rows for entry in RowReader(int(row[0] or 1) - 1).take(row))
        return structs.replace(summary, cost_usd=_cost(entries))


def read_damaged_summary(path: Path) -> LogSummary:
    """The summary of a damaged log; what cannot be read is empty or 0."""
    summary = LogSummary({}, 0, 0.0, 0.0, "")
    with suppress(sqlite3.Error, OSError, msgspec.ValidationError), closing(damaged_connection(path)) as connection:
        summary = structs.replace(summary, meta=_texts(connection.execute(_META)))
        row = connection.execute("SELECT messages, cost_usd, updated, model FROM totals").fetchone()
        summary = LogSummary(summary.meta, *msgspec.convert(row, tuple[int, float, float, str]))
    return summary


def read_entries(path: Path, *, after: int = 0) -> Iterator[AnyEntry]:
    """The entries after number `after` of the log at `path`, oldest first; another process may have it open.

    Others stand in for damaged ones. Stops before an entry of an unknown kind. Raises `StorageError`.
    """
    reader = RowReader(after)
    with reading(path, SCHEMA) as connection:
        for row in connection.execute("SELECT seq, crc, body FROM entries WHERE seq > ? ORDER BY seq", (after,)):
            yield from reader.take(row)


def read_newest(path: Path, count: int) -> list[AnyEntry]:
    """The last `count` entries of the log at `path`, oldest first, as `read_entries` gives them.

    Costs O(`count`). Raises `StorageError`.
    """
    with reading(path, SCHEMA) as connection:
        (last,) = connection.execute("SELECT max(seq) FROM entries").fetchone()
    return list(read_entries(path, after=max(0, (last or 0) - count)))


def _texts(rows: Iterable[Sequence[Value]]) -> dict[str, str]:
    """The rows of `meta` as texts; a damaged file may contain other types."""
    return {key: value for key, value in rows if isinstance(key, str) and isinstance(value, str)}


def _rebuilt(path: Path) -> Path:
    return path.with_name(f"{path.name}.rebuilt")


def _finish_salvage(path: Path) -> None:
    with explained(path):
        if not path.exists() and _rebuilt(path).exists():
            _rebuilt(path).replace(path)
            sync_folder(path.parent)


def _bookkeeping(entries: Sequence[AnyEntry]) -> list[Step]:
    updated = max((entry.time for entry in entries if not isinstance(entry, Recorded)), default=0.0)
    models = [entry.model for entry in entries if isinstance(entry, Message | ModelSwitched) and entry.model]
    totals = (sum(map(is_said, entries)), _cost(entries), updated, models[-1] if models else None)
    steps: list[Step] = [(_COUNT, [totals])]
    if title := _title(entries):
        steps.append(("INSERT OR IGNORE INTO meta VALUES ('title', ?)", [(title,)]))
    return steps


def _cost(entries: Iterable[AnyEntry]) -> float:
    """The cost in USD of the calls in these entries, without those of unknown price."""
    return sum(call.cost_usd or 0.0 for entry in entries if (call := model_call(entry)) is not None)


def _meta_step(values: Mapping[str, str]) -> Step:
    return "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", list(values.items())


def _title(entries: Iterable[AnyEntry]) -> str:
    for entry in entries:
        if isinstance(entry, Message) and (said := typed_in(entry)):
            title = " ".join(said.split()[:TITLE_LENGTH])
            if title:
                return title if len(title) <= TITLE_LENGTH else f"{title[: TITLE_LENGTH - 1]}…"
    return ""


class _Loaded(msgspec.Struct, frozen=True):
    """What was read: the log, its links by entry number, and the link that was noted with its newest entry.

    `damage` says why not all could be read (empty: all could), `salvage` what of it. `newer` names the entry of a newer
    version that ends it.
    """

    log: Log
    links: list[Link]
    noted: Link | None
    damage: str
    salvage: str
    newer: str
