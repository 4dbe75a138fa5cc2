"""Checking a session's record against its hash chain, its anchor and its log, without changing any of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from tui_agent.storage.database import reading
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LOG_NAME, SessionLock, read_entries
from tui_agent.storage.log import SCHEMA as LOG_SCHEMA
from tui_agent.storage.trace import (
    ANCHOR_KEY,
    DERIVATION,
    DERIVATION_KEY,
    GENESIS,
    SCHEMA,
    TRACE_NAME,
    TRIGGERS,
    Anchor,
    Derivation,
    NewEvent,
    TraceEvent,
    entry_of,
    event_hash,
    events_of,
)

_PROBLEMS_SHOWN = 20
_NOT_BEGUN = -1

Note = TypeVar("Note")


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

    Every entry of the log must have its events there, as the log has it; of a session that an earlier version began,
    every entry since. Someone who recomputes every hash, the anchor and the log as well is not found out: there is no
    secret in it.
    """
    problems: list[str] = []
    meta = _read_meta(folder, problems)
    anchor = _read_note(meta, ANCHOR_KEY, Anchor, problems) or Anchor()
    followed = _read_note(meta, DERIVATION_KEY, Derivation, problems)
    comparison = _Comparison(folder, followed, problems) if followed and followed.version == DERIVATION else None
    events, anchored_hash = _check_chain(folder, anchor, comparison, problems)
    if anchor.seq > events:
        problems.append(f"the record ends at event {events}, but {anchor.seq} were written: its end was cut off")
    elif anchor.seq and anchored_hash != anchor.hash:
        problems.append(f"event {anchor.seq} is not the one that was written there")
    if comparison is not None:
        comparison.end()
    if len(problems) > _PROBLEMS_SHOWN:
        problems[_PROBLEMS_SHOWN:] = [f"and {len(problems) - _PROBLEMS_SHOWN} more"]
    return VerifyReport(events, anchor.seq, tuple(problems))


def _read_meta(folder: Path, problems: list[str]) -> dict[str, object]:
    try:
        with reading(folder / LOG_NAME, LOG_SCHEMA) as connection:
            return dict(connection.execute("SELECT key, value FROM meta"))
    except StorageError as error:
        problems.append(f"there is no anchor: {error.message}")
        return {}


def _read_note(meta: dict[str, object], key: str, kind: type[Note], problems: list[str]) -> Note | None:
    value = meta.get(key)
    if value is None:
        return None
    try:
        return msgspec.json.decode(str(value), type=kind)
    except msgspec.MsgspecError:
        problems.append(f"{key} cannot be read: it was changed")
        return None


class _Comparison:
    """Holds the record against the log, event by event: every entry has its events, in order, and no others.

    The log is read from the first event on, never before: of a session that is in use it must not be the older one.
    """

    def __init__(self, folder: Path, followed: Derivation, problems: list[str]) -> None:
        self._folder = folder
        self._after = followed.event
        self._problems = problems
        self._coming = self._read(followed.entry)
        self._entry, self._left = _NOT_BEGUN, list[NewEvent]()

    def take(self, event: TraceEvent) -> None:
        """Compare the record's next event."""
        number = entry_of(event) if event.seq > self._after else 0
        if not number:
            return
        self._begin()
        while self._entry and self._entry < number:
            kinds = ", ".join(left.kind for left in self._left)
            self._problems.append(f"entry {self._entry} of the log lacks its events here: {kinds}")
            self._advance()
        if self._entry != number:
            self._problems.append(f"event {event.seq} tells of entry {number}, which is not the log's next one")
            return
        told = NewEvent(event.time, event.kind, event.body)
        if told in self._left:
            place = self._left.index(told)
        else:
            self._problems.append(f"event {event.seq} does not tell what entry {number} of the log says")
            place = next((index for index, left in enumerate(self._left) if left.kind == event.kind), 0)
        if place:
            self._problems.append(f"an event of entry {number} is missing before event {event.seq}")
        del self._left[: place + 1]
        if not self._left:
            self._advance()

    def end(self) -> None:
        """The record has no more events."""
        self._begin()
        first = last = self._entry
        while self._entry:
            last = self._entry
            self._advance()
        # Who has the session open writes the newest events within a moment.
        if first and not SessionLock.is_held(self._folder):
            self._problems.append(
                f"entries {first} to {last} of the log lack events: the end of the record was cut off, or the program "
                "was killed before it wrote them (then they are added when the session is opened)"
            )

    def _begin(self) -> None:
        if self._entry == _NOT_BEGUN:
            self._advance()

    def _advance(self) -> None:
        self._entry, self._left = next(self._coming, (0, []))

    def _read(self, first: int) -> Iterator[tuple[int, list[NewEvent]]]:
        try:
            for entry in read_entries(self._folder / LOG_NAME, after=first - 1):
                events = events_of(entry)
                if events:
                    yield entry.seq, events
        except StorageError as error:
            self._problems.append(f"the log cannot be read further: {error.message}")


def _check_chain(folder: Path, anchor: Anchor, comparison: _Comparison | None, problems: list[str]) -> tuple[int, str]:
    path = folder / TRACE_NAME
    count, previous, anchored_hash = 0, GENESIS, ""
    if not path.exists():
        return 0, ""
    try:
        with reading(path, SCHEMA) as connection:
            present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
            problems.extend(f"the guard {name} was removed" for name in TRIGGERS if name not in present)
            for row in connection.execute("SELECT seq, time, kind, body, previous, hash FROM events ORDER BY seq"):
                count += 1
                event = _check_row(row, count, previous, problems)
                if event is not None and comparison is not None:
                    comparison.take(event)
                previous = str(row[5])
                if row[0] == anchor.seq:
                    anchored_hash = previous
    except StorageError as error:
        problems.append(error.message)
    return count, anchored_hash


def _check_row(row: tuple[object, ...], count: int, previous: str, problems: list[str]) -> TraceEvent | None:
    """Hold a row against the one before it; the event it is, None where it is none."""
    try:
        seq, time, kind, body, named, digest = msgspec.convert(row, tuple[int, float, str, str, str, str])
    except msgspec.ValidationError as error:
        problems.append(f"event {count} was changed: {error}")
        return None
    event = TraceEvent(seq, time, kind, body)
    if seq != count:
        problems.append(f"an event is missing before event {seq}")
    if named != previous:
        problems.append(f"event {seq} does not follow the one before it: removed, inserted or reordered")
    if event_hash(named, event) != digest:
        problems.append(f"event {seq} was changed")
    elif kind == "trace_gap":
        problems.append(f"event {seq} says that the record before it is not complete: {body}")
    return event
