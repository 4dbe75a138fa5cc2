"""Verifies a session's trace by its hash chain, its anchor and its log, without changing anything."""

import errno
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from typing import TypeVar

import msgspec

from tui_agent.conversation.entries import Message, TraceHead
from tui_agent.conversation.file_changes import kept_contents
from tui_agent.storage.database import reading, schema_problems
from tui_agent.storage.errors import StorageError
from tui_agent.storage.kept_files import kept_path
from tui_agent.storage.log import LOG_NAME, read_entries, trace_head
from tui_agent.storage.log import SCHEMA as LOG_SCHEMA
from tui_agent.storage.session_lock import SessionLock
from tui_agent.storage.sessions import files_folder
from tui_agent.storage.trace import (
    ANCHOR_KEY,
    BINDING_KEY,
    DERIVATION,
    DERIVATION_KEY,
    GENESIS,
    SCHEMA,
    TRACE_NAME,
    Anchor,
    Binding,
    Derivation,
    NewEvent,
    TraceEvent,
    entry_of,
    event_hash,
    events_of,
    genesis,
)

_PROBLEMS_SHOWN = 20
_NOT_BEGUN = -1

Note = TypeVar("Note")


class VerifyReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result: the number of events, how many of them the anchor covers, and the problems found."""

    events: int
    anchored: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems


def verify(folder: Path) -> VerifyReport:
    """Check the trace of the session in `folder` for changed, removed, reordered or added events, for truncation, and
    whether it is this session's. Slow: reads all of it, and every file that the log refers to by SHA-256.

    Every entry of the log must have its events; in a session that an earlier version started, every entry since.
    Someone who recomputes all hashes, the anchor and the log goes undetected, since there is no secret key.
    """
    problems: list[str] = []
    meta = _read_meta(folder, problems)
    log = _Named(folder, problems)
    anchor = _read_note(meta, ANCHOR_KEY, Anchor, problems)
    binding = _read_note(meta, BINDING_KEY, Binding, problems)
    followed = _read_note(meta, DERIVATION_KEY, Derivation, problems)
    details: list[str] = []
    comparison = _Comparison(folder, followed, details) if followed and followed.version == DERIVATION else None
    chain = _check_chain(folder, comparison, details)
    if comparison is not None:
        comparison.end()
    # Who has the session open goes on meanwhile: then its events end no later than the anchor that is read now.
    latest = _read_note(_read_meta(folder, []), ANCHOR_KEY, Anchor, []) or anchor
    problems += _binding_problems(folder, chain, binding, log)
    problems += _anchor_problems(chain, anchor, latest, bound=binding is not None)
    problems += [*details, *log.trace_problems(chain, anchor), *log.file_problems()]
    if len(problems) > _PROBLEMS_SHOWN:
        problems[_PROBLEMS_SHOWN:] = [f"and {len(problems) - _PROBLEMS_SHOWN} more"]
    return VerifyReport(chain.count, min(anchor.seq, chain.count) if anchor else 0, tuple(problems))


class _Chain:
    """The hashes of a trace by event number; number 0 has the hash before the first event."""

    def __init__(self) -> None:
        self.hashes: list[str] = []

    @property
    def count(self) -> int:
        return max(len(self.hashes) - 1, 0)

    @property
    def head(self) -> TraceHead:
        return TraceHead(self.count, self.hashes[-1] if self.hashes else GENESIS)

    def has(self, head: TraceHead) -> bool:
        """Whether this event is in it."""
        return head.seq == 0 or (head.seq <= self.count and self.hashes[head.seq] == head.hash)


def _anchor_problems(chain: _Chain, anchor: Anchor | None, latest: Anchor | None, *, bound: bool) -> Iterator[str]:
    if anchor is None or latest is None:
        if chain.count or bound:
            yield (
                "there is no anchor: it was removed, or an earlier version of the program was killed before it wrote "
                "one (then it is written when the session is opened)"
            )
        return
    least = anchor.before.seq if anchor.before is not None else anchor.seq
    if chain.count < least:
        yield f"the record ends at event {chain.count}, but {least} were written: its end was cut off"
    elif bound and least < chain.count < anchor.seq:
        yield f"the record ends at event {chain.count}, between {least} and {anchor.seq}: its end was cut off"
    elif not chain.has(TraceHead(anchor.seq, anchor.hash)) and chain.count >= anchor.seq:
        yield f"event {anchor.seq} is not the one that was written there"
    elif anchor.before is not None and not chain.has(anchor.before):
        yield f"event {anchor.before.seq} is not the one that was written there"
    if bound and chain.count > latest.seq:
        yield f"events {latest.seq + 1} to {chain.count} come after the last one that was written"


def _binding_problems(folder: Path, chain: _Chain, binding: Binding | None, log: "_Named") -> Iterator[str]:
    if binding is None and log.heads:
        yield "the note which session this is was removed"
    if binding is not None and binding.session != folder.name:
        yield f"these are the databases of session {binding.session}, not of {folder.name}"
    begins = {GENESIS, genesis(folder.name)}
    if binding is not None:
        begins = {GENESIS if binding.after else genesis(folder.name)}
    if chain.hashes and chain.hashes[0] not in begins:
        yield f"the record was not begun in session {folder.name}"


class _Named:
    """What the log refers to: events of the trace, and files by SHA-256."""

    def __init__(self, folder: Path, problems: list[str]) -> None:
        self._folder = files_folder(folder)
        self.heads: list[tuple[int, TraceHead]] = []
        self._files: dict[str, tuple[int, str]] = {}
        try:
            for entry in read_entries(folder / LOG_NAME):
                if head := trace_head(entry):
                    self.heads.append((entry.seq, head))
                if isinstance(entry, Message) and entry.artifact is not None:
                    self._files[entry.artifact.path] = entry.seq, entry.artifact.sha256
                for digest in kept_contents([entry]):
                    self._files.setdefault(kept_path(digest), (entry.seq, digest))
        except StorageError as error:
            problems.append(f"the log cannot be read further: {error.message}")

    def trace_problems(self, chain: _Chain, anchor: Anchor | None) -> Iterator[str]:
        """What the entries of model calls say of the record, and it does not."""
        for seq, head in self.heads:
            if not chain.has(head):
                yield f"entry {seq} of the log names event {head.seq}, which is not the one that was written there"
        newest = max(self.heads, key=lambda each: each[1].seq, default=None)
        if anchor is not None and newest is not None and newest[1].seq > anchor.seq:
            yield f"the anchor names event {anchor.seq} and is older than entry {newest[0]} of the log"

    def file_problems(self) -> Iterator[str]:
        """The problems of files that are gone or have changed."""
        for path, (seq, digest) in self._files.items():
            try:
                if _sha256(self._folder, path) != digest:
                    yield f"the file {path}, which entry {seq} names, is not what was saved: its SHA-256 differs"
            except OSError as error:
                yield f"the file {path}, which entry {seq} names, cannot be read: {error.strerror}"


def _sha256(folder: Path, path: str) -> str:
    """Raises OSError, also for what lies outside of the folder."""
    real = (folder / path).resolve()
    if not real.is_relative_to(folder.resolve()):
        raise OSError(errno.EPERM, "it lies outside of the session")
    with real.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _read_meta(folder: Path, problems: list[str]) -> dict[str, object]:
    try:
        with reading(folder / LOG_NAME, LOG_SCHEMA) as connection:
            problems.extend(f"{LOG_NAME}: {problem}" for problem in schema_problems(connection, LOG_SCHEMA))
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
    """Compares the trace with the log, event by event: every entry must have its events, in order, and no others.

    The log is read from the first event on, never before: of a session that is in use it must not be the older one.
    """

    def __init__(self, folder: Path, followed: Derivation, problems: list[str]) -> None:
        self._folder = folder
        self._after = followed.event
        self._problems = problems
        self._coming = self._read(followed.entry)
        self._entry, self._left = _NOT_BEGUN, list[NewEvent]()

    def take(self, event: TraceEvent) -> None:
        """Compare the trace's next event."""
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
        """Finish after the trace's last event."""
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


def _check_chain(folder: Path, comparison: _Comparison | None, problems: list[str]) -> _Chain:
    path, chain = folder / TRACE_NAME, _Chain()
    if not path.exists():
        return chain
    count, previous = 0, ""
    try:
        with reading(path, SCHEMA) as connection:
            problems.extend(schema_problems(connection, SCHEMA))
            for row in connection.execute("SELECT seq, time, kind, body, previous, hash FROM events ORDER BY seq"):
                count += 1
                if count == 1:
                    previous = str(row[4])
                    chain.hashes.append(previous)
                event = _check_row(row, count, previous, problems)
                if event is not None and comparison is not None:
                    comparison.take(event)
                previous = str(row[5])
                chain.hashes.append(previous)
    except StorageError as error:
        problems.append(error.message)
    return chain


def _check_row(row: tuple[object, ...], count: int, previous: str, problems: list[str]) -> TraceEvent | None:
    """Check a row against the one before it, and return its event; None if it is invalid."""
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
