"""The index behind `recall`: full-text search over all that a model once saw or wrote in a session.

It is made from the log and the session's files, at the first search and not before, and lies beside them in a file of
its own. Nothing depends on it: one that is missing, damaged or of another log is made anew.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from tui_agent.conversation.entries import AnyEntry
from tui_agent.durable import PRIVATE_FILE
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.database import BUSY_TIMEOUT_S, Schema, inspect
from tui_agent.storage.errors import Damaged, explained
from tui_agent.storage.recall_indexing import SCRIPT, Given, Indexer
from tui_agent.storage.recall_search import Hit, Recalled, search

__all__ = ["RECALL_NAME", "Hit", "RecallIndex", "Recalled"]

RECALL_NAME: Final = "recall.sqlite"
SCHEMA: Final = Schema(application_id=0x54415231, version=1, script=SCRIPT)

_CACHE_KIB = 16 * 1024
_REBUILT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})

Result = TypeVar("Result")


class _Stopped(Exception):
    """Nobody waits for this any more."""


class RecallIndex:
    """The index of the session in `folder`. It holds no file open between two calls, and works in threads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECALL_NAME
        self._folder = folder
        self._given: Given | None = None
        self._indexer = Indexer()
        self._checked = False
        self._turn = asyncio.Lock()
        # A call that was cancelled leaves its thread to end by itself.
        self._in_use = threading.Lock()

    async def update(self, entries: Sequence[AnyEntry], artifacts: Artifacts) -> None:
        """Take in what is new in `entries`, the whole log, oldest first, and in the files of the session.

        A cancelled update keeps what it has done so far. Raises `StorageError`.
        """
        self._given = Given(tuple(entries), artifacts)
        await self._in_thread(lambda _connection: None)

    async def search(self, query: str, limit: int, *, hidden: Collection[int] | None = None) -> Recalled:
        """The best hits for any text: what quotes it exactly, else what has its words.

        With `hidden`, the numbers of the entries that left the view, hits in those and in files come first; without
        it, no hit is marked. Raises `StorageError`.
        """
        return await self._in_thread(lambda connection: search(connection, self._folder, query, limit, hidden))

    async def _in_thread(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        stopped = threading.Event()

        def check() -> None:
            if stopped.is_set():
                raise _Stopped

        async with self._turn:
            try:
                return await asyncio.to_thread(self._run, work, check)
            except asyncio.CancelledError:
                stopped.set()
                raise

    def _run(self, work: Callable[[sqlite3.Connection], Result], check: Callable[[], None]) -> Result:
        with self._in_use, explained(self.path):
            check()
            try:
                return self._attempt(work, check)
            except Damaged:
                pass
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _REBUILT:
                    raise
            self._remove()
            return self._attempt(work, check)

    def _attempt(self, work: Callable[[sqlite3.Connection], Result], check: Callable[[], None]) -> Result:
        with self._opened() as connection:
            if self._given is not None:
                self._indexer.update(connection, self._given, check)
            return work(connection)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        state = inspect(self.path, SCHEMA).state
        if state not in {"ours", "absent"}:
            raise Damaged(f"{self.path} is no index of this version.")
        if state == "absent":
            self._remove()
            self.path.touch(mode=PRIVATE_FILE)
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            # What a power cut takes away here is made again; only what is left must hold together.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            if state == "absent":
                connection.executescript(
                    f"BEGIN IMMEDIATE; PRAGMA application_id={SCHEMA.application_id}; {SCHEMA.script}; "
                    f"PRAGMA user_version={SCHEMA.version}; COMMIT;"
                )
            elif not self._checked and connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise Damaged(f"{self.path} is damaged.")
            self._checked = True
            yield connection
        finally:
            connection.close()

    def _remove(self) -> None:
        for name in (RECALL_NAME, f"{RECALL_NAME}-wal", f"{RECALL_NAME}-shm"):
            (self._folder / name).unlink(missing_ok=True)
        self._indexer = Indexer()
