"""Builds the index of `recall` from a log and the files of its session.

It has two full-text tables. One of trigrams finds exact quotes; one of words ranks texts that only contain the query's
words, including words of one or two characters, which are too short for trigrams.
"""

import json
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import (
    AnyEntry,
    Artifact,
    Checkpointed,
    Delivered,
    Digested,
    Message,
    Queued,
    Summarized,
    Withdrawn,
    delivered,
    encode,
)
from tui_agent.storage.artifacts import RAW_FOLDER, Artifacts
from tui_agent.storage.errors import Damaged

Role: TypeAlias = Literal[
    "user",
    "assistant",
    "reasoning",
    "tool_call",
    "tool_result",
    "raw_output",
    "notice",
    "summary",
    "checkpoint",
    "digest",
    "history",
]

RECALL_TOOL: Final = "recall"
"""Not indexed: its calls and results only repeat other texts, and would be found instead of them."""

STRIDE: Final = 1_800
OVERLAP: Final = 200
"""A text is stored in chunks. Each starts `STRIDE` characters after the one before and extends `OVERLAP` characters
into the next, so that a match of up to that length is entirely in the chunk where it starts."""
RAW_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of a command's raw output are indexed, from its start; the end is in the result itself."""
HISTORY_BYTES: Final = 256 * 1024 * 1024

SCRIPT: Final = """
    CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, crc INTEGER NOT NULL);
    INSERT INTO state VALUES (1, 0, 0);
    CREATE TABLE passages (
        id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, time REAL NOT NULL, role TEXT NOT NULL, tool TEXT NOT NULL,
        call TEXT NOT NULL, path TEXT NOT NULL, precedence INTEGER NOT NULL, length INTEGER NOT NULL
    );
    CREATE INDEX passages_by_seq ON passages (seq);
    CREATE INDEX passages_by_path ON passages (path) WHERE path <> '';
    CREATE TABLE chunks (
        id INTEGER PRIMARY KEY, passage INTEGER NOT NULL, start INTEGER NOT NULL, line INTEGER NOT NULL,
        offset INTEGER NOT NULL, owned INTEGER NOT NULL, text TEXT NOT NULL
    );
    CREATE INDEX chunks_by_place ON chunks (passage, start);
    CREATE TABLE growing (
        passage INTEGER PRIMARY KEY, path TEXT NOT NULL, bound INTEGER NOT NULL, size INTEGER NOT NULL,
        tail INTEGER NOT NULL
    );
    CREATE VIRTUAL TABLE grams USING fts5(
        text, content='', detail=none, columnsize=0, tokenize='trigram case_sensitive 1'
    );
    CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize='unicode61')
"""
"""`chunks`: `start` counts characters of the passage, `line` (from 1) and `offset` (from 0) say the same as a reader of
files counts, and a hit that begins in the first `owned` characters is this chunk's. `growing`: files by bytes read so
far and by where the last chunk begins."""

_BATCH_CHARACTERS = 2_000_000
# The full-text tables cannot delete a chunk, so its row stays and its number is never reused.
_DROP = "UPDATE chunks SET passage = 0, text = ''"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_STEM_LENGTH = 60
_SUMMARY_LENGTH = 160
_NESTED = 32


class Precedence:
    """Which text of an entry to show if several match: the one with the lowest value."""

    FILE: Final = 0
    TEXT: Final = 1
    JSON: Final = 2
    RAW: Final = 3
    HISTORY: Final = 4


class Passage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A text to index, with its entry, time, author, tool call, and file in the session."""

    seq: int
    time: float
    role: Role
    text: str
    tool: str = ""
    call: str = ""
    path: str = ""
    precedence: int = Precedence.TEXT


class Call(NamedTuple):
    """A tool call: its entry, its tool, its arguments on one short line."""

    seq: int
    tool: str
    arguments: str


_NO_CALL = Call(0, "", "")


def passages_of(entry: AnyEntry, calls: dict[str, Call]) -> Iterator[Passage]:
    """What `entry` itself holds; `calls` are the calls made so far, those in it included.

    What was never meant for a model (`agent_visible` false) is left out, and the pieces of a reply that its message
    supersedes.
    """
    match entry:
        case Message() if entry.agent_visible:
            for block in entry.blocks:
                yield from _block(entry, block, calls)
        case Queued():
            for block in entry.blocks:
                yield from _block(delivered(entry, entry), block, calls)
        case Digested():
            yield Passage(seq=entry.seq, time=entry.time, role="digest", text=entry.text)
        case Summarized() | Checkpointed():
            yield Passage(seq=entry.seq, time=entry.time, role=entry.compaction, text=entry.text)
        case _:
            pass


def artifacts_of(entry: AnyEntry, calls: dict[str, Call]) -> Iterator[tuple[Artifact, Passage]]:
    """The file with the full text of a result, and its passage, still without the text."""
    if isinstance(entry, Message) and entry.artifact is not None and entry.agent_visible:
        passage = _file_of(entry, entry.artifact.path, calls)
        if passage.tool != RECALL_TOOL:
            yield entry.artifact, passage


def raw_output_of(answer: Message, path: str, calls: dict[str, Call]) -> Passage:
    """The raw output of the command that `answer` answers, still without its text."""
    passage = _file_of(answer, path, calls)
    return msgspec.structs.replace(passage, role="raw_output", precedence=Precedence.RAW)


def call_of(message: Message, block: ToolCall) -> Call:
    """The call a block of `message` makes."""
    return Call(message.seq, block.name, _one_line(block.arguments))


def _file_of(message: Message, path: str, calls: dict[str, Call]) -> Passage:
    made = (calls.get(block.call_id) for block in message.blocks if isinstance(block, ToolResult))
    call = next(made, None) or _NO_CALL
    return Passage(
        seq=message.seq,
        time=message.time,
        role="tool_result" if message.kind in ("tool_result", "user_shell") else message.role,
        text="",
        tool=call.tool,
        call=call.arguments,
        path=path,
        precedence=Precedence.FILE,
    )


def _block(message: Message, block: Block, calls: dict[str, Call]) -> Iterator[Passage]:
    match block:
        case Text():
            role: Role = "notice" if message.kind else message.role
            yield Passage(seq=message.seq, time=message.time, role=role, text=block.text)
        case Reasoning():
            yield Passage(seq=message.seq, time=message.time, role="reasoning", text=block.text)
        case ToolCall():
            call = call_of(message, block)
            if call.tool != RECALL_TOOL:
                yield from _call(message, block, call)
        case ToolResult():
            made = calls.get(block.call_id, _NO_CALL)
            if made.tool != RECALL_TOOL:
                yield Passage(
                    seq=message.seq,
                    time=message.time,
                    role="tool_result",
                    text=block.text,
                    tool=made.tool,
                    call=made.arguments,
                )
        case _:
            pass


def _call(message: Message, block: ToolCall, call: Call) -> Iterator[Passage]:
    written = block.malformed or block.arguments
    texts = [] if block.malformed else [text for text in _strings(block.arguments) if text not in written]
    for text, precedence in (
        *((text, Precedence.TEXT) for text in texts),
        (f"{block.name}({written})", Precedence.JSON),
    ):
        yield Passage(
            seq=message.seq,
            time=message.time,
            role="tool_call",
            text=text,
            tool=call.tool,
            call=call.arguments,
            precedence=precedence,
        )


def _strings(arguments: str) -> list[str]:
    """The string values in a JSON text, as they are meant: quoted with escapes they could not be found by quoting."""
    try:
        pending: list[tuple[object, int]] = [(msgspec.json.decode(arguments.encode()), 0)]
    except (msgspec.DecodeError, RecursionError):
        return []
    found: list[str] = []
    while pending:
        value, depth = pending.pop()
        if isinstance(value, str):
            found.append(valid_text(value))
        elif isinstance(value, dict | list) and depth < _NESTED:
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            pending.extend((item, depth + 1) for item in inner)
    return found


def _one_line(arguments: str) -> str:
    """`path="a.py", limit=20`, cut to a length that fits a line."""
    try:
        decoded = msgspec.json.decode(arguments.encode())
    except (msgspec.DecodeError, RecursionError):
        decoded = None
    text = arguments
    if isinstance(decoded, dict):
        text = ", ".join(f"{key}={_value(value)}" for key, value in decoded.items())
    text = re.sub(r"\s+", " ", valid_text(text))
    return text if len(text) <= _SUMMARY_LENGTH else f"{text[: _SUMMARY_LENGTH - 1]}…"


def _value(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value[:_SUMMARY_LENGTH], ensure_ascii=False)
    return valid_text(msgspec.json.encode(value).decode())


class Given(msgspec.Struct, frozen=True):
    """The input of the index: the whole log, oldest first, and the session's files."""

    entries: Sequence[AnyEntry]
    artifacts: Artifacts


class Indexer:
    """Brings an open index up to date; remembers the calls of one log between updates."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._answers: dict[str, int] = {}
        self._known = 0

    def update(self, connection: sqlite3.Connection, given: Given, check: Callable[[], None]) -> None:
        """Index what is new, in transactions of limited size; `check` may raise between two entries to stop.

        Raises Damaged for an index of another log, sqlite3.Error and OSError.
        """
        last = self._last(connection, given.entries)
        self._recollect(given.entries[:last])
        batch = _Batch(connection)
        for entry in given.entries[last:]:
            check()
            self._take(connection, batch, given, entry)
            if batch.characters > _BATCH_CHARACTERS:
                batch.commit(entry)
        if batch.open:
            batch.commit(given.entries[-1])
        self._follow(connection, given, check)

    def _last(self, connection: sqlite3.Connection, entries: Sequence[AnyEntry]) -> int:
        seq, crc = connection.execute("SELECT seq, crc FROM state").fetchone()
        if seq and (seq > len(entries) or zlib.crc32(encode(entries[seq - 1])) != crc):
            raise Damaged("The index belongs to another log.")
        return int(seq)

    def _recollect(self, entries: Sequence[AnyEntry]) -> None:
        """The calls of entries that were indexed before, by another process or by this one."""
        for entry in entries[self._known :]:
            self._remember(entry)
        self._known = max(self._known, len(entries))

    def _remember(self, entry: AnyEntry) -> None:
        if isinstance(entry, Message):
            for block in entry.blocks:
                if isinstance(block, ToolCall):
                    self._calls[block.id] = call_of(entry, block)
                elif isinstance(block, ToolResult):
                    self._answers[_stem(block.call_id)] = entry.seq

    def _take(self, connection: sqlite3.Connection, batch: "_Batch", given: Given, entry: AnyEntry) -> None:
        batch.begin()
        self._remember(entry)
        self._known = max(self._known, entry.seq)
        for passage in passages_of(entry, self._calls):
            batch.add(passage)
        for artifact, passage in artifacts_of(entry, self._calls):
            if not batch.has_path(artifact.path):
                text = _saved(given.artifacts, artifact)
                if text is not None:
                    batch.add(msgspec.structs.replace(passage, text=text))
        match entry:
            case Delivered() if 0 < entry.queued < entry.seq:
                batch.flush()
                moved = connection.execute("UPDATE passages SET seq = ? WHERE seq = ?", (entry.seq, entry.queued))
                queued = given.entries[entry.queued - 1]
                if not moved.rowcount and isinstance(queued, Queued):
                    # It was already delivered or withdrawn on another branch.
                    for passage in passages_of(queued, self._calls):
                        batch.add(msgspec.structs.replace(passage, seq=entry.seq))
            case Withdrawn():
                batch.flush()
                _forget(connection, entry.queued)
            case Summarized() | Checkpointed() if entry.path and not batch.has_path(entry.path):
                history = Passage(
                    seq=entry.seq,
                    time=entry.time,
                    role="history",
                    text="",
                    path=entry.path,
                    precedence=Precedence.HISTORY,
                )
                batch.add_growing(history, HISTORY_BYTES)
            case _:
                pass

    def _follow(self, connection: sqlite3.Connection, given: Given, check: Callable[[], None]) -> None:
        """Index what was appended to growing files: raw output of commands, and histories written by compactions."""
        batch = _Batch(connection)
        for name in _names(given.artifacts.folder / RAW_FOLDER):
            path = f"{RAW_FOLDER}/{name}"
            seq = self._answers.get(name.rpartition("-")[0])
            answer = given.entries[seq - 1] if seq is not None else None
            if isinstance(answer, Message) and not batch.has_path(path):
                batch.begin()
                batch.add_growing(raw_output_of(answer, path, self._calls), RAW_BYTES)
        if batch.open:
            batch.commit(None)
        rows = connection.execute("SELECT passage, path, bound, size, tail FROM growing").fetchall()
        for passage, path, bound, size, tail in rows:
            check()
            grown = _grown(given.artifacts, path, bound, size, tail)
            if grown is not None:
                batch.begin()
                batch.grow(passage, grown)
                batch.commit(None)


class _Grown(msgspec.Struct, frozen=True):
    """A file's content from byte `tail` on, and its size; `anew`: what was read before is gone, so index it again."""

    text: str
    size: int
    tail: int
    anew: bool


class _Batch:
    """Collects rows for the index, written in one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.open = False
        self.characters = 0
        self._connection = connection
        self._passages: list[tuple[object, ...]] = []
        self._chunks: list[tuple[object, ...]] = []
        self._paths: set[str] = set()
        self._next_passage = 0
        self._next_chunk = 0

    def begin(self) -> None:
        if self.open:
            return
        self._connection.execute("BEGIN IMMEDIATE")
        self.open = True
        (self._next_passage,) = self._connection.execute("SELECT ifnull(max(id), 0) + 1 FROM passages").fetchone()
        (self._next_chunk,) = self._connection.execute("SELECT ifnull(max(id), 0) + 1 FROM chunks").fetchone()

    def has_path(self, path: str) -> bool:
        """Whether the file at `path` is in the index already."""
        found = self._connection.execute("SELECT 1 FROM passages WHERE path = ? AND path <> ''", (path,)).fetchone()
        return path in self._paths or found is not None

    def add(self, passage: Passage) -> int:
        """Add a passage with its chunks, and return its number."""
        number = self._next_passage
        self._next_passage += 1
        text = passage.text
        self._passages.append(
            (
                number,
                passage.seq,
                passage.time,
                passage.role,
                valid_text(passage.tool),
                passage.call,
                passage.path,
                passage.precedence,
                len(text),
            )
        )
        self._paths.add(passage.path)
        self._chunk(number, text, 0, 1, 0)
        return number

    def add_growing(self, passage: Passage, bound: int) -> None:
        """A file of which the first `bound` bytes are read as they come."""
        number = self.add(passage)
        self.flush()
        self._connection.execute("INSERT INTO growing VALUES (?, ?, ?, 0, 0)", (number, passage.path, bound))

    def grow(self, passage: int, grown: _Grown) -> None:
        """Extend a passage from the start of its last chunk, or replace it."""
        connection = self._connection
        start, line, offset = 0, 1, 0
        if grown.anew:
            connection.execute(f"{_DROP} WHERE passage = ?", (passage,))
        else:
            row = connection.execute(
                "SELECT id, start, line, offset FROM chunks WHERE passage = ? ORDER BY start DESC LIMIT 1", (passage,)
            ).fetchone()
            if row is not None:
                chunk, start, line, offset = row
                connection.execute(f"{_DROP} WHERE id = ?", (chunk,))
        text = valid_text(grown.text)
        last = self._chunk(passage, text, start, line, offset)
        self.flush()
        connection.execute("UPDATE passages SET length = ? WHERE id = ?", (start + len(text), passage))
        tail = grown.tail + len(grown.text[: last - start].encode("utf-8", "surrogateescape"))
        connection.execute("UPDATE growing SET size = ?, tail = ? WHERE passage = ?", (grown.size, tail, passage))

    def _chunk(self, passage: int, text: str, start: int, line: int, offset: int) -> int:
        """Cut `text`, which stands at `start` of its passage; returns where its last chunk begins."""
        position = 0
        while True:
            last = position + STRIDE + OVERLAP >= len(text)
            piece = text[position : position + STRIDE + OVERLAP]
            if piece:
                owned = len(piece) if last else STRIDE
                self._chunks.append((self._next_chunk, passage, start + position, line, offset, owned, piece))
                self._next_chunk += 1
                self.characters += len(piece)
            if last:
                return start + position
            newlines = piece.count("\n", 0, STRIDE)
            line += newlines
            offset = STRIDE - piece.rindex("\n", 0, STRIDE) - 1 if newlines else offset + STRIDE
            position += STRIDE

    def flush(self) -> None:
        """Pass the rows to sqlite."""
        connection = self._connection
        connection.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", self._passages)
        connection.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", self._chunks)
        # sqlite's trigram tokenizer stops at a NUL.
        texts = [(chunk[0], str(chunk[-1]).replace("\0", "\ufffd")) for chunk in self._chunks]
        connection.executemany("INSERT INTO grams (rowid, text) VALUES (?, ?)", texts)
        connection.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", texts)
        self._passages.clear()
        self._chunks.clear()

    def commit(self, upto: AnyEntry | None) -> None:
        """Commit; `upto` is the last entry that is now indexed, None if there is no new one."""
        self.flush()
        if upto is not None:
            self._connection.execute("UPDATE state SET seq = ?, crc = ?", (upto.seq, zlib.crc32(encode(upto))))
        self._connection.execute("COMMIT")
        self.open = False
        self.characters = 0


def _forget(connection: sqlite3.Connection, seq: int) -> None:
    for (passage,) in connection.execute("SELECT id FROM passages WHERE seq = ?", (seq,)).fetchall():
        connection.execute(f"{_DROP} WHERE passage = ?", (passage,))
    connection.execute("DELETE FROM passages WHERE seq = ?", (seq,))


def _saved(artifacts: Artifacts, artifact: Artifact) -> str | None:
    """The whole text; None where the file is gone or another: then only what the entry itself shows can be found."""
    try:
        data = artifacts.path_of(artifact).read_bytes()
        return data.decode() if sha256(data).hexdigest() == artifact.sha256 else None
    except (Damaged, OSError, ValueError):
        return None


def _grown(artifacts: Artifacts, path: str, bound: int, size: int, tail: int) -> _Grown | None:
    """What there is of a file that was not read yet; None where that is nothing, or the file is gone."""
    try:
        real = artifacts.path_of(Artifact(path, 0, ""))
        now = min(real.stat().st_size, bound)
        if now == size:
            return None
        with real.open("rb") as file:
            begin = 0 if now < size else tail
            file.seek(begin)
            data = file.read(bound - begin)
    except (Damaged, OSError, ValueError):
        return None
    return _Grown(data.decode("utf-8", "surrogateescape"), begin + len(data), begin, now < size)


def _names(folder: Path) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(path.name for path in folder.iterdir())
    return []


def _stem(call_id: str) -> str:
    """The prefix of the names of files with a call's raw output."""
    return _UNSAFE.sub("_", call_id)[:_STEM_LENGTH]
