"""Verifies a session: its log by the hash chain, its trace by the log, and the files it names. Changes nothing."""

import sqlite3
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import file_digest
from itertools import groupby
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from tui_agent.conversation.entries import AnyEntry, Artifact, Lost, Message, Recorded, UnknownEntry, decode
from tui_agent.conversation.file_changes import kept_contents
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.database import Row, reading, schema_problems
from tui_agent.storage.errors import Damaged, StorageError
from tui_agent.storage.kept_files import kept_path
from tui_agent.storage.log import LOG_NAME
from tui_agent.storage.log import SCHEMA as LOG_SCHEMA
from tui_agent.storage.rows import HEAD_KEY, Link, beginning
from tui_agent.storage.session_lock import SessionLock
from tui_agent.storage.sessions import files_folder
from tui_agent.storage.trace import SCHEMA, TRACE_NAME, rows_of
from tui_agent.system.lenient import decoded

_PROBLEMS_SHOWN: Final = 20
_EVENTS: Final = "SELECT seq, time, kind, body, entry, hash FROM events ORDER BY seq"

EventRow: TypeAlias = tuple[int, float, str, str, int | str, str]
"""Number, time, kind and body of an event, number and hash of its entry."""


class VerifyReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result: the number of the log's entries and of the trace's events, and the problems found."""

    entries: int
    events: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(folder: Path) -> VerifyReport:
    """Check that the log of the session in `folder` is what was written, that the trace says what the log says, and
    that every file is there that the log refers to by SHA-256. Slow: reads all of it.

    Finds what was changed, removed, reordered, added or cut off. Someone who writes every entry, the noted link and the
    trace anew goes undetected, since there is no secret key.
    """
    checked = _Check(folder)
    with ExitStack() as opened:
        # The trace is written after the log: read at an earlier moment it is never ahead of it.
        trace: sqlite3.Connection | None = None
        try:
            if (folder / TRACE_NAME).exists():
                found = opened.enter_context(reading(folder / TRACE_NAME, SCHEMA))
                found.execute("BEGIN")
                if found.execute("PRAGMA user_version").fetchone() == (SCHEMA.version,):
                    trace = found
                    checked.problems += schema_problems(trace, SCHEMA)
                else:
                    checked.problems.append(f"{TRACE_NAME} is of another version of the program than the log")
            log = opened.enter_context(reading(folder / LOG_NAME, LOG_SCHEMA))
            log.execute("BEGIN")
            checked.problems += (f"{LOG_NAME}: {problem}" for problem in schema_problems(log, LOG_SCHEMA))
            checked.check(log, trace)
        except (StorageError, sqlite3.Error) as error:
            checked.problems.append(f"it cannot be read further: {error}")
    checked.check_files()
    problems = checked.problems
    if len(problems) > _PROBLEMS_SHOWN:
        problems[_PROBLEMS_SHOWN:] = [f"and {len(problems) - _PROBLEMS_SHOWN} more"]
    return VerifyReport(checked.entries, checked.events, tuple(problems))


class _Check:
    """The check of one session, and what it has found so far."""

    def __init__(self, folder: Path) -> None:
        self.problems: list[str] = []
        self.entries = self.events = 0
        self._folder = folder
        self._files: dict[str, tuple[int, str]] = {}
        self._missing: list[int] = []
        self._other_hash = False

    def check(self, log: sqlite3.Connection, trace: sqlite3.Connection | None) -> None:
        """Check the log against the link that was noted with its newest entry, and the trace against the log."""
        events = groupby(self._event_rows(trace), key=lambda row: row[4] if isinstance(row[4], int) else 0)
        groups = ((entry, list(rows)) for entry, rows in events)
        none: tuple[int, list[EventRow]] = (sys.maxsize, [])
        entry, rows = next(groups, none)
        link = beginning(self._folder.name)
        for each, link in self._entries(log):
            while entry < link.seq:
                self._events_differ(rows, f"of entry {entry}, which is not the log's next one")
                entry, rows = next(groups, none)
            wanted = [row[1:] for row in rows_of(each, link, 0)]
            if entry == link.seq:
                self._compare(entry, wanted, rows)
                entry, rows = next(groups, none)
            elif wanted:
                self._missing.append(link.seq)
        while rows:
            self._events_differ(rows, "after the log's last entry")
            entry, rows = next(groups, none)
        self._end(link, log.execute("SELECT value FROM meta WHERE key = ?", (HEAD_KEY,)).fetchone())

    def _entries(self, log: sqlite3.Connection) -> Iterator[tuple[AnyEntry, Link]]:
        """The entries with their links; numbers that are missing in between are skipped."""
        link = beginning(self._folder.name)
        for seq, crc, body in log.execute("SELECT seq, crc, body FROM entries ORDER BY seq"):
            if seq != link.seq + 1:
                self.problems.append(f"entry {link.seq + 1} of the log is missing")
                link = Link(int(seq) - 1, link.hash)
            self.entries = seq
            link = link.following(bytes(body))
            if zlib.crc32(body) != crc:
                self.problems.append(f"entry {seq} of the log was damaged: its checksum is wrong")
                continue
            try:
                entry = decode(body)
            except UnknownEntry as error:
                self.problems.append(f"entry {seq} of the log cannot be read: {error}")
                continue
            if isinstance(entry, Lost):
                self.problems.append(f"entry {seq} of the log was lost: the log was damaged")
            elif isinstance(entry, Recorded) and entry.kind == "trace_gap":
                self.problems.append(f"entry {seq} says that the record before it is not complete: {entry.body}")
            if isinstance(entry, Message) and entry.artifact is not None:
                self._files[entry.artifact.path] = seq, entry.artifact.sha256
            for digest in kept_contents([entry]):
                self._files.setdefault(kept_path(digest), (seq, digest))
            yield entry, link

    def _event_rows(self, trace: sqlite3.Connection | None) -> Iterator[EventRow]:
        for row in trace.execute(_EVENTS) if trace is not None else ():
            self.events += 1
            if row[0] != self.events:
                self.problems.append(f"an event is missing before event {row[0]}")
            yield row

    def _events_differ(self, rows: list[EventRow], how: str) -> None:
        named = f"event {rows[0][0]}" if len(rows) == 1 else f"events {rows[0][0]} to {rows[-1][0]}"
        self.problems.append(f"{named} of the trace: {how}")

    def _compare(self, entry: int, wanted: list[Row], found: list[EventRow]) -> None:
        """Compare the events that an entry has in the trace with those it should have."""
        if self._missing:
            self.problems.append(f"{_range(self._missing)} of the log lack their events before event {found[0][0]}")
            self._missing = []
        if len(found) != len(wanted) or not all(map(_says, found, wanted)):
            self._events_differ(found, f"not what entry {entry} of the log says")
        elif [row[-1] for row in found] != [row[-1] for row in wanted] and not self._other_hash:
            self._other_hash = True
            self._events_differ(found, f"another hash than that of entry {entry} of the log")

    def _end(self, link: Link, head: tuple[object] | None) -> None:
        noted = decoded(str(head[0]), Link) if head is not None else None
        said = ""
        if noted is None:
            said = "no valid link is noted with the log's newest entry: a session of an earlier version gets one when "
            said += "it is opened next; from any other it was removed, or it was changed"
        elif noted.seq > link.seq:
            said = f"the log ends at entry {link.seq}, but {noted.seq} were written: its end was cut off"
        elif noted != link:
            said = "the log is not what was written: the chain of its entries does not end in the link that was noted"
        if said:
            self.problems.insert(0, said)
        # Who has the session open writes the newest events within a moment.
        if self._missing and not SessionLock.is_held(self._folder):
            self.problems.append(
                f"{_range(self._missing)} of the log lack events: the end of the trace was cut off, or the program was "
                "killed before it wrote them (then they are added when the session is opened)"
            )

    def check_files(self) -> None:
        """Check the files that the log names for being gone or changed."""
        files = Artifacts(files_folder(self._folder))
        for path, (seq, digest) in self._files.items():
            named = f"the file {path}, which entry {seq} names,"
            try:
                with files.path_of(Artifact(path, 0, digest)).open("rb") as file:
                    if file_digest(file, "sha256").hexdigest() != digest:
                        self.problems.append(f"{named} is not what was saved: its SHA-256 differs")
            except OSError as error:
                self.problems.append(f"{named} cannot be read: {error.strerror}")
            except Damaged:
                self.problems.append(f"{named} cannot be read: it lies outside of the session")


def _says(found: EventRow, wanted: Row) -> bool:
    """Whether an event is the one wanted; an earlier version left out what it did not count yet."""
    if found[1:-1] == wanted[:-1]:
        return True
    body, whole = decoded(found[3], dict[str, object]), msgspec.json.decode(str(wanted[2]), type=dict[str, object])
    known = {name: value for name, value in whole.items() if value or name in (body or ())}
    return (*found[1:3], body, found[4]) == (*wanted[:2], known, wanted[3])


def _range(numbers: list[int]) -> str:
    return f"entry {numbers[0]}" if len(numbers) == 1 else f"entries {numbers[0]} to {numbers[-1]}"
