"""What processes that work on one batch share: which tasks are done, what was spent, and which provider is limited.

A small database beside the results. Each method is one transaction, and may be called from any process or thread.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from tui_agent.system.programs import is_running

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS done (task TEXT PRIMARY KEY, result TEXT NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS calls (id INTEGER PRIMARY KEY, process INTEGER NOT NULL, usd REAL NOT NULL,
    over INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE IF NOT EXISTS ceiling (one INTEGER PRIMARY KEY, usd REAL) STRICT;
CREATE TABLE IF NOT EXISTS limits (provider TEXT PRIMARY KEY, until REAL NOT NULL) STRICT;
"""
WAITING_S: Final = 60.0
"""Seconds that a transaction waits for another process."""

Refusal = Literal["wait", "never"]


class Money(msgspec.Struct, frozen=True):
    """What was spent, what calls under way may come to, and what all may cost (None: there is no ceiling), in USD."""

    spent: float
    reserved: float
    ceiling: float | None


class Ledger:
    """The ledger in one file, made if it is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._changing() as database:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                database.execute(statement)

    def set_ceiling(self, usd: float | None) -> None:
        """Say what all calls may cost together, in USD; None: there is no ceiling."""
        with self._changing() as database:
            database.execute("INSERT OR REPLACE INTO ceiling VALUES (1, ?)", (usd,))

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=WAITING_S, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            yield database
            database.execute("COMMIT")

    def reserve(self, least: float, most: float) -> int | Refusal:
        """Set money aside for a call that costs at least `least` and at most `most`; returns its number.

        ``wait``: another call under way has to end first. ``never``: it would pass the limit. A call that is alone is
        made while there is room for its least, so the limit is passed by no more than one call.
        """
        with self._changing() as database:
            # A call of a process that was killed may have been paid in full.
            for (process,) in database.execute("SELECT DISTINCT process FROM calls WHERE over = 0").fetchall():
                if not is_running(process):
                    database.execute("UPDATE calls SET over = 1 WHERE over = 0 AND process = ?", (process,))
            money = self._money(database)
            if money.ceiling is not None and money.spent + least >= money.ceiling:
                return "never"
            if money.ceiling is not None and money.reserved and money.spent + money.reserved + most > money.ceiling:
                return "wait"
            row = database.execute("INSERT INTO calls (process, usd) VALUES (?, ?)", (os.getpid(), most))
            return int(row.lastrowid or 0)

    def settle(self, call: int, usd: float) -> None:
        with self._changing() as database:
            database.execute("UPDATE calls SET usd = ?, over = 1 WHERE id = ?", (usd, call))

    def money(self) -> Money:
        """What was spent so far, and what is set aside."""
        with self._changing() as database:
            return self._money(database)

    @staticmethod
    def _money(database: sqlite3.Connection) -> Money:
        sums = dict(database.execute("SELECT over, sum(usd) FROM calls GROUP BY over").fetchall())
        row = database.execute("SELECT usd FROM ceiling").fetchone()
        return Money(sums.get(1, 0.0), sums.get(0, 0.0), row[0] if row else None)

    def limit(self, provider: str, until: float) -> None:
        """Note that a provider takes no calls until then, in seconds since the epoch."""
        with self._changing() as database:
            database.execute(
                "INSERT INTO limits VALUES (?, ?) ON CONFLICT DO UPDATE SET until = max(until, excluded.until)",
                (provider, until),
            )

    def limited_s(self, provider: str) -> float:
        with self._changing() as database:
            row = database.execute("SELECT until FROM limits WHERE provider = ?", (provider,)).fetchone()
        return max(0.0, row[0] - time.time()) if row else 0.0

    def finish(self, task: str, result: str) -> None:
        """Keep the result of a task, as JSON text."""
        with self._changing() as database:
            database.execute("INSERT OR REPLACE INTO done VALUES (?, ?)", (task, result))

    def results(self) -> Mapping[str, str]:
        """The results of the tasks that are done, by task."""
        with self._changing() as database:
            return dict(database.execute("SELECT task, result FROM done").fetchall())
