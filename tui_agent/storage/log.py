"""The log on disk: every entry, as it was appended, and a few facts about the session."""

import asyncio
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import (
    AnyEntry,
    Checkpointed,
    Message,
    ModelSwitched,
    Summarized,
    UnknownEntry,
    decode,
    encode,
)
from tui_agent.conversation.log import Log
from tui_agent.durable import make_private_folder, sync_folder
from tui_agent.storage.database import Database, Schema, Step, Value, open_database, set_aside
from tui_agent.storage.errors import Damaged, ReadOnly, StorageError, explained
from tui_agent.storage.lock import SessionLock

LOG_NAME: Final = "checkpoints.sqlite"
TITLE_LENGTH = 80

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
        INSERT INTO totals VALUES (1, 0, 0, 0, '')
    """,
)

_READ_CHUNK = 500
_NEXT_ENTRIES: Final = "SELECT seq, crc, body FROM entries WHERE seq > ? ORDER BY seq LIMIT ?"


class _Loaded(NamedTuple):
    """What could be read: the valid beginning of the log, and why it ends there where it is not all of it."""

    entries: list[AnyEntry]
    damage: str = ""
    newer: str = ""


class LogStore:
    """The log of one session, and the only writer to it. `load` it before the first `append`.

    `read_only` says why nothing can be added (empty: it can). `notices` are sentences the user should see.
    """

    def __init__(self, folder: Path, database: Database, lock: SessionLock | None) -> None:
        self.folder = folder
        self.notices: list[str] = []
        self.last_seq = 0
        self._database = database
        self._lock = lock
        self._read_only = database.read_only
        self._loaded = False
        if database.read_only and lock is not None:
            self.notices.append(database.read_only)
        if database.set_aside is not None:
            self.notices.append(
                f"{database.path.name} was damaged or not a session's. It was kept as {database.set_aside.name}; "
                "this session starts anew."
            )

    @classmethod
    async def open(cls, folder: Path, *, read_only: bool = False) -> "LogStore":
        """Open the session in `folder` for this process alone, or (`read_only`) beside another one.

        Raises `SessionBusy` when another process writes to it, and `StorageError`.
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
            return cls(folder, await open_database(path, SCHEMA), lock)
        except BaseException:
            lock.release()
            raise

    @property
    def read_only(self) -> str:
        return self._read_only

    async def load(self) -> list[AnyEntry]:
        """Every entry, oldest first.

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
        self.last_seq = len(loaded.entries)
        self._loaded = True
        return loaded.entries

    async def append(self, entries: Sequence[AnyEntry]) -> None:
        """Add stamped entries in one transaction: on disk when this returns, none of them when it raises.

        A cancellation meanwhile is held back until one of the two is certain, and is raised at the caller's next await.
        Raises `StorageError`, and `ValueError` for numbers that do not follow the last one.
        """
        if self._read_only:
            raise ReadOnly(self._read_only)
        if not self._loaded:
            await self.load()
        if [entry.seq for entry in entries] != list(range(self.last_seq + 1, self.last_seq + 1 + len(entries))):
            raise ValueError(f"entries {[entry.seq for entry in entries]} cannot follow entry {self.last_seq}")
        if not entries:
            return
        await self._database.write([_insertion(entries), *_bookkeeping(entries)])
        self.last_seq = entries[-1].seq

    async def meta(self) -> dict[str, str]:
        """What is noted about the session: title, cwd, created, … Raises `StorageError`."""
        return {str(key): str(value) for key, value in await self._database.read("SELECT key, value FROM meta")}

    async def set_meta(self, values: Mapping[str, str]) -> None:
        """Note these facts, durably. Raises `StorageError`."""
        if self._read_only:
            raise ReadOnly(self._read_only)
        await self._database.write([_meta_step(values)])

    async def close(self) -> None:
        """Close the files and give the session free for others."""
        try:
            await self._database.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    async def _read_log(self) -> _Loaded:
        """The log, read in pieces: all of its bytes beside all of its entries would take twice the memory."""
        reading, size, damage = _Reading(), _READ_CHUNK, ""
        while size and not reading.ended:
            try:
                rows = await self._database.read(_NEXT_ENTRIES, (len(reading.log), size))
            except Damaged as error:
                damage = damage or error.message
                size //= 2
                continue
            await asyncio.to_thread(reading.take, rows)
            if len(rows) < size:
                break
        damage = damage or await self._damage_beside_the_log()
        loaded = reading.loaded
        return loaded if loaded.damage or not damage else loaded._replace(damage=damage)

    async def _damage_beside_the_log(self) -> str:
        """Why what is noted about the session cannot be read; empty where it can."""
        try:
            await self.meta()
            await self._database.read("SELECT * FROM totals")
        except Damaged as error:
            return error.message
        return ""

    async def _salvage(self, loaded: _Loaded) -> None:
        count = len(loaded.entries)
        if self._read_only:
            self.notices.append(f"The log of this session is damaged ({loaded.damage}); {count} entries could be read.")
            return
        path = self._database.path
        try:
            meta = await self.meta()
        except StorageError:
            meta = {}
        await self._database.close()
        # The new file is complete before the old one moves, and `_finish_salvage` ends what a crash in between left.
        rebuilt = _rebuilt(path)
        with explained(path):
            await asyncio.to_thread(rebuilt.unlink, missing_ok=True)
        database = await open_database(rebuilt, SCHEMA)
        try:
            steps = [_insertion(loaded.entries), *_bookkeeping(loaded.entries)] if loaded.entries else []
            await database.write([*steps, _meta_step(meta)])
        finally:
            await database.close()
        with explained(path):
            aside = await asyncio.to_thread(set_aside, path)
            await asyncio.to_thread(_finish_salvage, path)
        self._database = await open_database(path, SCHEMA)
        self.notices.append(
            f"The log of this session was damaged ({loaded.damage}). The {count} entries before the damage were saved; "
            f"the damaged file was kept as {aside.name}."
        )


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
    messages = sum(isinstance(entry, Message) and not entry.kind for entry in entries)
    costs = (entry.cost_usd or 0.0 for entry in entries if isinstance(entry, Message | Summarized | Checkpointed))
    models = [entry.model for entry in entries if isinstance(entry, Message | ModelSwitched) and entry.model]
    steps: list[Step] = [
        (
            "UPDATE totals SET messages = messages + ?, cost_usd = cost_usd + ?, updated = ?, model = ifnull(?, model)",
            [(messages, sum(costs), entries[-1].time, models[-1] if models else None)],
        )
    ]
    title = _title(entries)
    if title:
        steps.append(("INSERT OR IGNORE INTO meta VALUES ('title', ?)", [(title,)]))
    return steps


def _meta_step(values: Mapping[str, str]) -> Step:
    return "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", list(values.items())


def _title(entries: Iterable[AnyEntry]) -> str:
    for entry in entries:
        if isinstance(entry, Message) and entry.role == "user" and not entry.kind:
            words = " ".join(block.text for block in entry.blocks if isinstance(block, Text)).split()
            title = " ".join(words[:TITLE_LENGTH])
            if title:
                return title if len(title) <= TITLE_LENGTH else f"{title[: TITLE_LENGTH - 1]}…"
    return ""


class _Reading:
    """Decodes the rows of a log, in order, as far as they are valid; `ended`: no further one can be."""

    def __init__(self) -> None:
        self.log = Log()
        self.ended = False
        self._damage = ""
        self._newer = ""

    @property
    def loaded(self) -> _Loaded:
        """What was read so far."""
        return _Loaded(list(self.log), self._damage, self._newer)

    def take(self, rows: Iterable[tuple[Value, ...]]) -> None:
        """Decode the next rows."""
        for seq, crc, body in rows:
            here = f"at entry {len(self.log) + 1}"
            if seq != len(self.log) + 1:
                self._damage = f"{here}: it is missing"
            elif not isinstance(body, bytes) or zlib.crc32(body) != crc:
                self._damage = f"{here}: its checksum is wrong"
            else:
                try:
                    self.log.append(decode(body))
                    continue
                except UnknownEntry as error:
                    # Its checksum is right, so it was written so: by a version that knows more than this one.
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
