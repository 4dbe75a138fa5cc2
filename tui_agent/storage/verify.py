"""Checking a session's record against its hash chain and its anchor, without changing either."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec

from tui_agent.storage import log
from tui_agent.storage.database import inspect, read_connection
from tui_agent.storage.errors import StorageError, explain_sqlite_error
from tui_agent.storage.trace import ANCHOR_KEY, GENESIS, SCHEMA, TRACE_NAME, TRIGGERS, Anchor, TraceEvent, event_hash

_PROBLEMS_SHOWN = 20


class VerifyReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found: how many events, up to which one the anchor vouches for them, and what is wrong."""

    events: int
    anchored: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(folder: Path) -> VerifyReport:
    """Check the record of the session in `folder`: change, removal, reordering, truncation. Slow: reads all of it.

    Someone who recomputes every hash and the anchor as well is not found out: there is no secret in it.
    """
    problems: list[str] = []
    anchor = _read_anchor(folder, problems)
    events, anchored_hash = _check_chain(folder, anchor, problems)
    if anchor.seq > events:
        problems.append(f"the record ends at event {events}, but {anchor.seq} were written: its end was cut off")
    elif anchor.seq and anchored_hash != anchor.hash:
        problems.append(f"event {anchor.seq} is not the one that was written there")
    if len(problems) > _PROBLEMS_SHOWN:
        problems[_PROBLEMS_SHOWN:] = [f"and {len(problems) - _PROBLEMS_SHOWN} more"]
    return VerifyReport(events, anchor.seq, tuple(problems))


def _read_anchor(folder: Path, problems: list[str]) -> Anchor:
    path = folder / log.LOG_NAME
    try:
        found = inspect(path, log.SCHEMA)
        if found.state not in {"ours", "newer"}:
            problems.append(f"there is no anchor: {found.reason or f'{path} does not exist'}")
            return Anchor()
        with closing(read_connection(path)) as connection:
            row = connection.execute("SELECT value FROM meta WHERE key = ?", (ANCHOR_KEY,)).fetchone()
        return msgspec.json.decode(row[0], type=Anchor) if row else Anchor()
    except StorageError as error:
        problems.append(f"the anchor cannot be read: {error.message}")
    except sqlite3.Error as error:
        problems.append(f"the anchor cannot be read: {explain_sqlite_error(error, path).message}")
    except (msgspec.MsgspecError, TypeError):
        problems.append("the anchor cannot be read: it was changed")
    return Anchor()


def _check_chain(folder: Path, anchor: Anchor, problems: list[str]) -> tuple[int, str]:
    path = folder / TRACE_NAME
    count, previous, anchored_hash = 0, GENESIS, ""
    try:
        found = inspect(path, SCHEMA)
        if found.state == "absent":
            return 0, ""
        if found.state in {"foreign", "damaged"}:
            problems.append(found.reason)
            return 0, ""
        with closing(read_connection(path)) as connection:
            present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
            problems.extend(f"the guard {name} was removed" for name in TRIGGERS if name not in present)
            for row in connection.execute("SELECT seq, time, kind, body, previous, hash FROM events ORDER BY seq"):
                count += 1
                _check_row(row, count, previous, problems)
                previous = str(row[5])
                if row[0] == anchor.seq:
                    anchored_hash = previous
    except StorageError as error:
        problems.append(error.message)
    except sqlite3.Error as error:
        problems.append(explain_sqlite_error(error, path).message)
    return count, anchored_hash


def _check_row(row: tuple[object, ...], count: int, previous: str, problems: list[str]) -> None:
    try:
        seq, time, kind, body, named, digest = msgspec.convert(row, tuple[int, float, str, str, str, str])
    except msgspec.ValidationError as error:
        problems.append(f"event {count} was changed: {error}")
        return
    if seq != count:
        problems.append(f"an event is missing before event {seq}")
    if named != previous:
        problems.append(f"event {seq} does not follow the one before it: removed, inserted or reordered")
    if event_hash(named, TraceEvent(seq, time, kind, body)) != digest:
        problems.append(f"event {seq} was changed")
    elif kind == "trace_gap":
        problems.append(f"event {seq} says that the record before it is not complete: {body}")
