"""Opens sqlite databases, checks that they are ours and intact, and makes their writes durable.

All databases use WAL mode with ``synchronous=FULL``, so committed transactions survive a killed process and a power
loss (sqlite.org/pragma.html#pragma_synchronous). The application id marks a file as ours; the user version is the
version of its schema.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

import aiosqlite
import msgspec

from tui_agent.storage.errors import FULL_HINT, PERMISSION_HINT, Damaged, DiskFull, ReadOnly, StorageError, explained
from tui_agent.system.durable import PRIVATE_FILE, to_completion, uncancelled

BUSY_TIMEOUT_S = 5.0

_HEADER_SIZE = 100
_FETCHED: Final = 64
"""Rows that aiosqlite fetches at once where it iterates over them."""
_CACHE_KIB: Final = 256
"""Pages that sqlite caches of a database it writes: what was appended is hardly read again."""

Value: TypeAlias = str | bytes | int | float | None
Row: TypeAlias = tuple[Value, ...]
Step: TypeAlias = tuple[str, Sequence[Sequence[Value]]]
"""A statement of a transaction, with the parameters of each execution."""
Result = TypeVar("Result")


class Schema(msgspec.Struct, frozen=True):
    """The schema of a database: `script` creates it, and `version` grows with every change."""

    application_id: int
    version: int
    script: str


class DatabaseState(msgspec.Struct, frozen=True):
    """What was found at the path of a database."""

    state: Literal["absent", "ours", "older", "newer", "foreign", "damaged"]
    reason: str = ""


class _Opened(NamedTuple):
    connection: sqlite3.Connection
    read_only: str = ""
    damage: str = ""
    quarantined: Path | None = None


class Database:
    """An open database, whose statements run one after another in its own thread.

    `read_only` says why it cannot be written (empty: it can). `damage` says why only part of it can be read (empty: all
    can). `quarantined` is the new path of a file that was in its place and was renamed.
    """

    def __init__(self, opened: _Opened, connection: aiosqlite.Connection, path: Path) -> None:
        self.path = path
        _, self.read_only, self.damage, self.quarantined = opened
        self._connection = connection
        self._turn = asyncio.Lock()
        self._closed = False

    async def read(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """All rows of a query. Raises `StorageError`."""
        async with self._turn:
            with explained_database(self.path):
                return [tuple(row) for row in await self._connection.execute_fetchall(sql, parameters)]

    async def read_with(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """What `work` returns, which reads what was written so far, in a thread with a connection of its own.

        Raises `StorageError` for errors of sqlite and the disk.
        """

        def done() -> Result:
            with explained_database(self.path):
                reader = damaged_connection(self.path) if self.damage else read_connection(self.path)
                with closing(reader):
                    return work(reader)

        return await asyncio.to_thread(done)

    @uncancelled
    async def write(self, steps: Sequence[Step]) -> None:
        """Run `steps` as one transaction: committed if this returns, rolled back if it raises `StorageError`.

        If cancelled, it first completes or rolls back the transaction.
        """
        if self.read_only:
            raise ReadOnly(self.read_only)
        if self._closed:
            raise StorageError(f"{self.path} is already closed; nothing was written.")
        async with self._turn:
            with explained_database(self.path):
                try:
                    await self._connection.execute("BEGIN IMMEDIATE")
                    for sql, parameters in steps:
                        await self._connection.executemany(sql, parameters)
                    await self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        await self._connection.execute("ROLLBACK")
                    raise

    @uncancelled
    async def close(self) -> None:
        """Wait for running statements, then close. May be called again."""
        if not self._closed:
            self._closed = True
            async with self._turn:
                with explained_database(self.path):
                    await self._connection.close()


async def open_database(
    path: Path, schema: Schema, *, read_only: bool = False, salvage: bool = False, vfs: str = ""
) -> Database:
    """Open the database at `path`; create it if there is none.

    A file that is damaged, not ours or of an earlier version is renamed, never overwritten (`quarantined`). One
    of a newer version is opened read-only. With `read_only`, nothing is created, renamed or written. With `salvage`, a
    damaged file stays in place and is opened to read what is left of it (`Database.damage`). `vfs` is the name of a
    sqlite VFS. Raises `StorageError`, also if the file system does not support WAL.
    """
    opened: list[_Opened] = []

    def connect() -> sqlite3.Connection:
        with explained_database(path):
            opened.append(_opened(path, schema, read_only=read_only, salvage=salvage, vfs=vfs))
        return opened[0].connection

    connection = aiosqlite.Connection(connect, _FETCHED)
    # A connection that was not closed must not keep the process alive; uncommitted writes were never acknowledged.
    connection._thread.daemon = True
    try:
        await connection
    except BaseException:
        # Its thread was told to end; what it says of that must find the event loop still there.
        await to_completion(asyncio.to_thread(connection._thread.join))
        for each in opened:
            each.connection.close()
        raise
    return Database(opened[0], connection, path)


def _opened(path: Path, schema: Schema, *, read_only: bool, salvage: bool, vfs: str) -> _Opened:
    found = inspect(path, schema)
    if read_only and found.state in {"absent", "foreign", "damaged"}:
        raise Damaged(found.reason or f"{path} does not exist.")
    if read_only or found.state == "newer":
        return _Opened(read_connection(path), found.reason or f"{path} is open for reading only.")
    if found.state == "damaged" and salvage and _has_header(path):
        return _Opened(damaged_connection(path), found.reason, found.reason)
    quarantined: Path | None = None
    if found.state in {"foreign", "damaged", "older"}:
        quarantined = quarantine(path, "earlier" if found.state == "older" else "damaged")
    if found.state != "ours":
        path.touch(mode=PRIVATE_FILE)
    connection = _connect(path, "mode=rw" + (f"&vfs={vfs}" if vfs else ""))
    try:
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        if mode != "wal":
            raise StorageError(  # noqa: TRY301
                f"The file system of {path.parent} cannot hold a session: sqlite's WAL mode does not work on it "
                f"(it offers {mode!r}). Nothing was written.",
                "Set TUI_AGENT_HOME to a folder on a local disk.",
            )
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        if found.state != "ours":
            # One transaction, which also marks the file as ours.
            connection.executescript(
                f"BEGIN IMMEDIATE; PRAGMA application_id={schema.application_id}; {schema.script}; "
                f"PRAGMA user_version={schema.version}; COMMIT;"
            )
    except BaseException:
        connection.close()
        raise
    return _Opened(connection, quarantined=quarantined)


def inspect(path: Path, schema: Schema) -> DatabaseState:
    """Find out what is at `path` without changing it. Raises `StorageError` if that fails."""
    found = _found_without_opening(path)
    if found is not None:
        return found
    try:
        with closing(read_connection(path)) as connection:
            return _found(connection, path, schema)
    except sqlite3.Error as error:
        explanation = explain_sqlite_error(error, path)
        if isinstance(explanation, Damaged):
            return DatabaseState("damaged", explanation.message)
        raise explanation from error


@contextmanager
def reading(path: Path, schema: Schema) -> Iterator[sqlite3.Connection]:
    """A read-only connection to the database at `path`, which another process may be writing to.

    Raises `Damaged` if there is no database or it is not ours; sqlite's errors inside become `StorageError`.
    """
    with explained_database(path):
        found = _found_without_opening(path)
        if found is None:
            with closing(read_connection(path)) as connection:
                found = _found(connection, path, schema)
                if found.state in {"ours", "older", "newer"}:
                    yield connection
                    return
        raise Damaged(found.reason or f"{path} does not exist.")


def schema_problems(connection: sqlite3.Connection, schema: Schema) -> Iterator[str]:
    """The differences between a database and its schema, in a few words each. Raises sqlite3.Error."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        fresh.executescript(schema.script)
        wanted = _objects(fresh)
    found = _objects(connection)
    for name in sorted(wanted.keys() | found.keys()):
        (kind, sql), (now, text) = wanted.get(name, ("", "")), found.get(name, ("", ""))
        if not now:
            yield f"the {_SPOKEN.get(kind, kind)} {name} was removed"
        elif not kind:
            yield f"there is a {_SPOKEN.get(now, now)} {name} that was not made with the file"
        elif now != kind:
            yield f"{name} is a {_SPOKEN.get(now, now)} and not the {_SPOKEN.get(kind, kind)} that was made"
        elif sql != text:
            yield f"the {_SPOKEN.get(kind, kind)} {name} is not the one that was made"


_SPOKEN: Final = {"trigger": "guard"}


def _objects(connection: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """The kind and the SQL, with white space normalised, of every object in a database, by name."""
    rows = connection.execute("SELECT name, type, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    return {str(name): (str(kind), " ".join(str(sql).split())) for name, kind, sql in rows}


def _found_without_opening(path: Path) -> DatabaseState | None:
    with explained(path):
        if not path.exists() or (path.is_file() and path.stat().st_size == 0):
            return DatabaseState("absent")
    # sqlite treats a file that is too short for a database as empty, and would overwrite it.
    if path.is_file() and not _has_header(path):
        return DatabaseState("damaged", f"{path} is not a database.")
    return None


def _found(connection: sqlite3.Connection, path: Path, schema: Schema) -> DatabaseState:
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id == 0 and version == 0 and tables == 0:
        return DatabaseState("absent")
    if application_id != schema.application_id:
        return DatabaseState("foreign", f"{path} is a database of another program.")
    if version > schema.version:
        return DatabaseState(
            "newer",
            f"{path} was written by a newer version of tui-agent (layout {version}, this version knows "
            f"{schema.version}). It is open for reading only.",
        )
    if version < schema.version:
        return DatabaseState("older", f"{path} was written by an earlier version.")
    return DatabaseState("ours")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?{mode}"
    # A `Database` is closed by whatever thread is there when it was not closed before.
    return sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)


def read_connection(path: Path) -> sqlite3.Connection:
    """A read-only connection. Raises sqlite3.Error."""
    connection = _connect(path, "mode=ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except sqlite3.Error as error:
        connection.close()
        # In a read-only folder only the -shm file cannot be made; without a WAL, it is not needed.
        code = error.sqlite_errorcode & 0xFF
        if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY} and path.is_file() and not _wal(path).exists():
            return _connect(path, "immutable=1")
        raise
    return connection


def damaged_connection(path: Path) -> sqlite3.Connection:
    """A connection to read what is left of a damaged file. Raises sqlite3.Error, also while reading."""
    # With immutable=1, sqlite creates no side files next to the damaged one.
    connection = _connect(path, "mode=ro" if _wal(path).exists() else "mode=ro&immutable=1")
    # Without this, sqlite refuses a file that is shorter than its header says.
    connection.execute("PRAGMA writable_schema=ON")
    return connection


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _has_header(path: Path) -> bool:
    with explained(path), path.open("rb") as file:
        header = file.read(_HEADER_SIZE)
    return len(header) == _HEADER_SIZE and header.startswith(b"SQLite format 3\0")


def quarantine(path: Path, why: str = "damaged") -> Path:
    """Rename a database with its side files to ``….<why>-<time>``, and return the new path. Raises OSError."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    target = path.with_name(f"{path.name}.{why}-{stamp}")
    count = 1
    while target.exists():
        count += 1
        target = path.with_name(f"{path.name}.{why}-{stamp}-{count}")
    for ending in ("-wal", "-shm"):
        companion = path.with_name(path.name + ending)
        if companion.exists():
            companion.rename(target.with_name(target.name + ending))
    path.rename(target)
    return target


def explain_sqlite_error(error: sqlite3.Error, path: Path) -> StorageError:
    """The `StorageError` for an error of the database at `path` (result codes: sqlite.org/rescode.html)."""
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return DiskFull(f"There is no space left to write {path}. Everything saved before is intact.", FULL_HINT)
    if extended == sqlite3.SQLITE_IOERR_WRITE:
        # sqlite says no more: a quota, the largest size of a file, or an error of the disk.
        explanation = f"{path} cannot be written: there is no space left for you, or the disk reports an error."
        return DiskFull(f"{explanation} Everything saved before is intact.", FULL_HINT)
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return ReadOnly(f"{path} may not be written.", PERMISSION_HINT)
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Damaged(f"{path} is damaged ({error}).")
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StorageError(
            f"{path} is in use by another program. Nothing was lost.", "Close the program that has it open."
        )
    return StorageError(f"{path} cannot be used: {error}. Everything saved before is intact.", PERMISSION_HINT)


@contextmanager
def explained_database(path: Path) -> Iterator[None]:
    """A context that turns errors of sqlite and the operating system into `StorageError`."""
    with explained(path):
        try:
            yield
        except sqlite3.Error as error:
            raise explain_sqlite_error(error, path) from error
