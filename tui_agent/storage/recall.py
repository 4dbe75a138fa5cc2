"""The index of `recall`: full-text search over everything the model saw or wrote in a session.

It is built from the log and the session's files at the first search, and stored in its own file next to them. It is
only a cache: if it is missing, damaged or of another log, it is rebuilt. A quote is looked for in every text, which
takes some 4 ms a megabyte; an index of letters would take six times as long to build as that of words. Where nothing
quotes the query, sqlite's full-text search ranks the texts by its words.
"""

import asyncio
import json
import re
import sqlite3
import threading
import zlib
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

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
    delivered,
    encode,
)
from tui_agent.durable import PRIVATE_FILE
from tui_agent.storage.artifacts import RAW_FOLDER, Artifacts
from tui_agent.storage.database import BUSY_TIMEOUT_S, Schema, explained_database, inspect
from tui_agent.storage.errors import Damaged
from tui_agent.text import call_summary

MatchKind: TypeAlias = Literal["exact", "all_words", "some_words"]

RECALL_NAME: Final = "recall.sqlite"
RECALL_TOOL: Final = "recall"
"""Not indexed: its calls and results only repeat other texts, and would be found instead of them."""
RAW_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of a command's raw output are indexed, from its start; the end is in the result itself."""
STRIDE: Final = 1_800
OVERLAP: Final = 200
"""Words are looked for in chunks of the texts, each `STRIDE` characters after the one before, and so much longer."""

SCHEMA: Final = Schema(
    application_id=0x54415231,
    version=2,
    script="""
        CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, crc INTEGER NOT NULL);
        INSERT INTO state VALUES (1, 0, 0);
        CREATE TABLE passages (
            id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, time REAL NOT NULL, role TEXT NOT NULL, tool TEXT NOT NULL,
            call TEXT NOT NULL, path TEXT NOT NULL, rank INTEGER NOT NULL, size INTEGER NOT NULL, text TEXT NOT NULL
        );
        CREATE INDEX passages_by_path ON passages (path) WHERE path <> '';
        CREATE TABLE calls (
            id TEXT PRIMARY KEY, stem TEXT NOT NULL, tool TEXT NOT NULL, call TEXT NOT NULL, answer INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX calls_by_stem ON calls (stem);
        CREATE TABLE chunks (id INTEGER PRIMARY KEY, passage INTEGER NOT NULL, start INTEGER NOT NULL);
        CREATE VIRTUAL TABLE words USING fts5(text, content='', tokenize='unicode61')
    """,
)
"""`state`: up to which entry of which log it is. `size`: the bytes that were read of a growing file. `calls`: the calls
made so far, with the prefix of the names of their raw files and the number of the answer."""

BEFORE = 200
AFTER = 500
LONGEST = 2_000
"""An excerpt shows this many characters before and after the match, and of a longer match this many."""

_WITH_WORDS = """
    SELECT chunks.passage, chunks.start, passages.seq, passages.rank
    FROM words CROSS JOIN chunks ON chunks.id = words.rowid JOIN passages ON passages.id = chunks.passage
    WHERE words MATCH ? ORDER BY bm25(words) LIMIT ?
"""
_POOL = 4
_SHORTEST_PREFIX = 3
_MOST_WORDS = 32
_WORD_LENGTH = 64
_WORD = re.compile(r"[^\W_]\w*")
_QUOTES = ('""', "''", "``", "“”", "„“", "«»")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_STEM_LENGTH = 60
_NESTED = 32
_BATCH_CHARACTERS = 2_000_000
_CACHE_KIB = 16 * 1024
_REBUILT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})

Result = TypeVar("Result")


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that was found.

    `excerpt` is its text, character by character, with the match at `offset`; `place` says where it stands, and `read`
    is the call that shows it in its file (empty: it lies in no file). `hidden`: the model no longer sees it. `call` is
    the argument line of the tool call it belongs to, `time` is in seconds since the epoch. `role`: ``user``,
    ``assistant``, ``reasoning``, ``tool_call``, ``tool_result``, ``raw_output``, ``notice``, ``summary``,
    ``checkpoint`` or ``digest``.
    """

    seq: int
    time: float
    role: str
    tool: str
    call: str
    match: MatchKind
    hidden: bool
    excerpt: str
    offset: int
    place: str
    read: str


class Recalled(msgspec.Struct, frozen=True):
    """The best hits, and the number of those that quote the query or contain all its words."""

    hits: tuple[Hit, ...]
    total: int


class _Stopped(Exception):
    """The search was cancelled."""


class RecallIndex:
    """The index of a session and its files. Works in threads, and keeps no file open between calls."""

    def __init__(self, artifacts: Artifacts) -> None:
        self.path = artifacts.folder / RECALL_NAME
        self._artifacts = artifacts
        self._checked = False
        self._turn = asyncio.Lock()
        # A call that was cancelled leaves its thread to end by itself.
        self._in_use = threading.Lock()

    async def search(
        self,
        entries: Sequence[AnyEntry],
        query: str,
        limit: int,
        *,
        hidden: Collection[int] | None = None,
        elsewhere: Collection[int] = (),
    ) -> Recalled:
        """The best hits for any text in `entries`, the whole log, oldest first, and in the session's files: what quotes
        it exactly, else what has its words.

        With `hidden`, the numbers of the entries that left the view, hits in those and in files come first; without
        it, no hit is marked. `elsewhere` are the numbers of the entries that are on another branch of the conversation.
        What is new is indexed first; a cancelled call keeps its work so far. Raises `StorageError`.
        """
        unseen = _Unseen(None if hidden is None else frozenset(hidden), frozenset(elsewhere))
        stopped = threading.Event()

        def check() -> None:
            if stopped.is_set():
                raise _Stopped

        def work(connection: sqlite3.Connection) -> Recalled:
            _update(connection, entries, self._artifacts, check)
            return _search(connection, self._artifacts.folder, query, limit, unseen)

        async with self._turn:
            try:
                return await asyncio.to_thread(self._run, work, check)
            except asyncio.CancelledError:
                stopped.set()
                raise

    def _run(self, work: Callable[[sqlite3.Connection], Result], check: Callable[[], None]) -> Result:
        with self._in_use, explained_database(self.path):
            check()
            try:
                with self._opened() as connection:
                    return work(connection)
            except Damaged:
                pass
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF not in _REBUILT:
                    raise
            self._remove()
            with self._opened() as connection:
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
            # A power loss may lose data, which is then indexed again, but must not corrupt the file.
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            if state == "absent":
                connection.executescript(SCHEMA.creation)
            elif not self._checked and connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise Damaged(f"{self.path} is damaged.")
            self._checked = True
            yield connection
        finally:
            connection.close()

    def _remove(self) -> None:
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(f"{RECALL_NAME}{ending}").unlink(missing_ok=True)


# Indexing


class Rank(IntEnum):
    """Which text of an entry to show if several match: the one with the lowest value."""

    FILE = 0
    TEXT = 1
    RAW = 2


class _Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A text to index, with its entry, time, author or origin (`role`), tool call, and file in the session."""

    seq: int
    time: float
    role: str
    text: str
    tool: str = ""
    call: str = ""
    path: str = ""
    rank: Rank = Rank.TEXT


def _update(
    connection: sqlite3.Connection, entries: Sequence[AnyEntry], artifacts: Artifacts, check: Callable[[], None]
) -> None:
    """Index what is new, in transactions of limited size; `check` may raise between two entries to stop.

    Raises Damaged for an index of another log, sqlite3.Error and OSError.
    """
    last, crc = connection.execute("SELECT seq, crc FROM state").fetchone()
    if last and (last > len(entries) or zlib.crc32(encode(entries[last - 1])) != crc):
        raise Damaged("The index belongs to another log.")
    characters = 0
    for entry in entries[last:]:
        check()
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        for passage in _passages_of(connection, entry, entries, artifacts):
            _add(connection, passage)
            characters += len(passage.text)
        if characters > _BATCH_CHARACTERS or entry.seq == len(entries):
            connection.execute("UPDATE state SET seq = ?, crc = ?", (entry.seq, zlib.crc32(encode(entry))))
            connection.execute("COMMIT")
            characters = 0
    _follow_raw_output(connection, entries, artifacts, check)


def _passages_of(
    connection: sqlite3.Connection, entry: AnyEntry, entries: Sequence[AnyEntry], artifacts: Artifacts
) -> Iterator[_Passage]:
    """What an entry holds, its file included. What was never meant for a model is left out, as are the pieces of a
    reply that its message supersedes and texts that wait to be delivered.
    """
    match entry:
        case Delivered() if 0 < entry.queued < entry.seq and isinstance(queued := entries[entry.queued - 1], Queued):
            yield from _passages_of(connection, delivered(queued, entry), entries, artifacts)
        case Message() if entry.agent_visible:
            for block in entry.blocks:
                yield from _passages_in(connection, entry, block)
            if entry.artifact is not None:
                path = entry.artifact.path
                known = connection.execute("SELECT 1 FROM passages WHERE path = ?", (path,)).fetchone()
                passage = _passage_of_file(connection, entry, path)
                text = _saved(artifacts, entry.artifact) if not known and passage.tool != RECALL_TOOL else None
                if text is not None:
                    yield msgspec.structs.replace(passage, text=text)
        case Digested():
            yield _Passage(seq=entry.seq, time=entry.time, role="digest", text=entry.text)
        case Summarized() | Checkpointed():
            yield _Passage(seq=entry.seq, time=entry.time, role=entry.compaction, text=entry.text)
        case _:
            pass


def _passages_in(connection: sqlite3.Connection, message: Message, block: Block) -> Iterator[_Passage]:
    """The texts of one block. Notes calls and their answers."""
    seq, time = message.seq, message.time
    match block:
        case Text():
            yield _Passage(seq=seq, time=time, role="notice" if message.kind else message.role, text=block.text)
        case Reasoning():
            yield _Passage(seq=seq, time=time, role="reasoning", text=block.text)
        case ToolCall():
            tool, line = valid_text(block.name), call_summary(block.arguments)
            stem = _UNSAFE.sub("_", block.id)[:_STEM_LENGTH]
            known = (valid_text(block.id), stem, tool, line, 0)
            connection.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?)", known)
            if block.name != RECALL_TOOL:
                text = f"{tool}({block.malformed or block.arguments})"
                text = "\n".join((text, *(each for each in _strings(block.arguments) if each not in text)))
                yield _Passage(seq=seq, time=time, role="tool_call", text=text, tool=tool, call=line)
        case ToolResult():
            tool, line = _call(connection, block.call_id)
            connection.execute("UPDATE calls SET answer = ? WHERE id = ?", (seq, valid_text(block.call_id)))
            if tool != RECALL_TOOL:
                yield _Passage(seq=seq, time=time, role="tool_result", text=block.text, tool=tool, call=line)
        case _:
            pass


def _passage_of_file(connection: sqlite3.Connection, message: Message, path: str) -> _Passage:
    """The passage of a file that belongs to a message, still without its text."""
    answered = next((block.call_id for block in message.blocks if isinstance(block, ToolResult)), "")
    tool, call = _call(connection, answered)
    role = "tool_result" if answered else message.role
    return _Passage(
        seq=message.seq, time=message.time, role=role, text="", tool=tool, call=call, path=path, rank=Rank.FILE
    )


def _call(connection: sqlite3.Connection, call_id: str) -> tuple[str, str]:
    """The tool and the argument line of a call; empty if it is not known."""
    row = connection.execute("SELECT tool, call FROM calls WHERE id = ?", (valid_text(call_id),)).fetchone()
    return row or ("", "")


def _add(connection: sqlite3.Connection, passage: _Passage, size: int = 0) -> None:
    fields = valid_text(passage.tool), passage.call, passage.path, passage.rank, size, valid_text(passage.text)
    number = connection.execute(
        "INSERT INTO passages (seq, time, role, tool, call, path, rank, size, text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (passage.seq, passage.time, passage.role, *fields),
    ).lastrowid
    _add_words(connection, number or 0, passage.text, 0)


def _add_words(connection: sqlite3.Connection, passage: int, text: str, start: int) -> None:
    """Index the words of a passage from character `start` on."""
    while start < len(text):
        chunk = connection.execute("INSERT INTO chunks (passage, start) VALUES (?, ?)", (passage, start)).lastrowid
        piece = valid_text(text[start : start + STRIDE + OVERLAP])
        connection.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (chunk, piece))
        if start + STRIDE + OVERLAP >= len(text):
            break
        start += STRIDE


def _follow_raw_output(
    connection: sqlite3.Connection, entries: Sequence[AnyEntry], artifacts: Artifacts, check: Callable[[], None]
) -> None:
    """Index what was added to the raw output of commands that were answered; they may go on running."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = sorted(path.name for path in (artifacts.folder / RAW_FOLDER).iterdir())
    for name in names:
        check()
        path, stem = f"{RAW_FOLDER}/{name}", name.rpartition("-")[0]
        known = connection.execute("SELECT id, size FROM passages WHERE path = ?", (path,)).fetchone()
        call = connection.execute("SELECT answer FROM calls WHERE stem = ? AND answer > 0", (stem,)).fetchone()
        answer = entries[call[0] - 1] if call is not None else None
        data = _grown(artifacts, path, known[1] if known is not None else 0) if isinstance(answer, Message) else b""
        if not data or not isinstance(answer, Message):
            continue
        # A character that is not there to its end is left for the next time.
        text = getincrementaldecoder("utf-8")("replace").decode(data)
        connection.execute("BEGIN IMMEDIATE")
        if known is None:
            passage = _passage_of_file(connection, answer, path)
            passage = msgspec.structs.replace(passage, role="raw_output", rank=Rank.RAW, text=text)
            _add(connection, passage, len(data))
        else:
            (earlier,) = connection.execute("SELECT text FROM passages WHERE id = ?", (known[0],)).fetchone()
            grown = (text, len(data), known[0])
            connection.execute("UPDATE passages SET text = ?, size = ? WHERE id = ?", grown)
            _add_words(connection, known[0], text, max(0, len(earlier) - OVERLAP))
        connection.execute("COMMIT")


def _grown(artifacts: Artifacts, path: str, size: int) -> bytes:
    """The indexed part of a raw output; empty if it has not grown beyond `size`, or is gone."""
    with suppress(Damaged, OSError, ValueError):
        real = artifacts.path_of(Artifact(path, 0, ""))
        if min(real.stat().st_size, RAW_BYTES) > size:
            with real.open("rb") as file:
                return file.read(RAW_BYTES)
    return b""


def _saved(artifacts: Artifacts, artifact: Artifact) -> str | None:
    """The whole text; None where the file is gone or another: then only what the entry itself shows can be found."""
    try:
        data = artifacts.path_of(artifact).read_bytes()
        return data.decode() if sha256(data).hexdigest() == artifact.sha256 else None
    except (Damaged, OSError, ValueError):
        return None


def _strings(arguments: str) -> list[str]:
    """The strings in a call's arguments as they are meant: with JSON's escapes they could not be found by quoting."""
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


# Searching


class _Unseen(NamedTuple):
    """The entries the model does not see: those that left its view (None: it is not known which those are), and those
    on another branch of the conversation."""

    hidden: frozenset[int] | None
    elsewhere: frozenset[int]


class _Found(NamedTuple):
    """A match that begins at character `start` of a passage and has `length` characters."""

    passage: int
    start: int
    length: int
    seq: int
    rank: int
    match: MatchKind


class _Standing(IntEnum):
    """Whether the model sees what was found; what it does not see is shown first."""

    HIDDEN = 0
    ELSEWHERE = 1
    IN_VIEW = 2


def _search(connection: sqlite3.Connection, folder: Path, query: str, limit: int, unseen: _Unseen) -> Recalled:
    """The best `limit` hits for `query`. Raises sqlite3.Error."""
    query = valid_text(query)
    found: list[tuple[_Found, _Standing]] = []
    for text in _variants(query):
        found = _arranged(_quoting(connection, text), unseen)
        if found:
            break
    words = list({word.casefold(): word[:_WORD_LENGTH] for word in _WORD.findall(query)}.values())[:_MOST_WORDS]
    # What is in view is known already: it does not keep what was asked for from being found by its words.
    all_in_view = unseen.hidden is not None and all(standing is _Standing.IN_VIEW for _, standing in found)
    if words and (not found or (len(found) < limit and all_in_view)):
        quoted = {one.seq for one, _ in found}
        more = _arranged(_with_words(connection, words, limit), unseen)
        found += [(one, standing) for one, standing in more if one.seq not in quoted]
    best = found[: max(limit, 0)]
    # Almost everything has some of the words: there only the best are hits.
    total = max(sum(one.match != "some_words" for one, _ in found), len(best))
    starts = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pattern = re.compile(starts, re.IGNORECASE)
    return Recalled(tuple(_hit(connection, folder, one, pattern, standing) for one, standing in best), total)


def _variants(query: str) -> list[str]:
    """The texts that `query` may mean, most literal first: itself, stripped, without quotes."""
    bare = query.strip()
    found = [query, bare]
    if len(bare) > 2 and any(bare[0] == pair[0] and bare[-1] == pair[1] for pair in _QUOTES):
        found.append(bare[1:-1])
    return [text for text in dict.fromkeys(found) if text]


def _quoting(connection: sqlite3.Connection, quote: str) -> list[_Found]:
    """The places that contain `quote`, newest first; of those close to each other in one text, the first."""
    found: list[_Found] = []
    for passage, seq, rank, text in connection.execute(
        "SELECT id, seq, rank, text FROM passages WHERE instr(text, ?) ORDER BY seq DESC, id", (quote,)
    ):
        start = text.find(quote)
        while start >= 0:
            found.append(_Found(passage, start, len(quote), seq, rank, "exact"))
            start = text.find(quote, start + STRIDE)
    return found


def _with_words(connection: sqlite3.Connection, words: Sequence[str], limit: int) -> list[_Found]:
    """Chunks with all the words, best first, or else the best ones with some of them; each word also stands for longer
    ones it begins.
    """
    wanted = [f'"{word}" *' if len(word) >= _SHORTEST_PREFIX else f'"{word}"' for word in words]
    match: MatchKind = "all_words"
    rows = connection.execute(_WITH_WORDS, (" AND ".join(wanted), -1)).fetchall()
    if not rows and len(wanted) > 1:
        match = "some_words"
        rows = connection.execute(_WITH_WORDS, (" OR ".join(wanted), max(limit, 1) * _POOL)).fetchall()
    return [_Found(passage, start, 0, seq, rank, match) for passage, start, seq, rank in rows]


def _arranged(found: Sequence[_Found], unseen: _Unseen) -> list[tuple[_Found, _Standing]]:
    """Sort: what the model does not see first, one text per entry, and every entry once before any twice."""
    best: dict[int, int] = {}
    in_text: set[int] = set()
    for one in found:
        best[one.seq] = min(one.rank, best.get(one.seq, one.rank))
        if one.rank == Rank.TEXT:
            in_text.add(one.seq)
    seen: Counter[int] = Counter()
    ranked: list[tuple[_Standing, int, int, _Found]] = []
    for order, one in enumerate(found):
        if one.rank != best[one.seq]:
            continue
        standing = _Standing.IN_VIEW
        if one.seq in unseen.elsewhere:
            standing = _Standing.ELSEWHERE
        # What only its file holds was never in view, whatever became of its message.
        elif unseen.hidden is not None and (one.seq in unseen.hidden or one.seq not in in_text):
            standing = _Standing.HIDDEN
        ranked.append((standing, seen[one.passage], order, one))
        seen[one.passage] += 1
    return [(one, standing) for standing, _, _, one in sorted(ranked, key=lambda item: item[:3])]


def _hit(
    connection: sqlite3.Connection, folder: Path, found: _Found, pattern: re.Pattern[str], standing: _Standing
) -> Hit:
    time, role, tool, call, path, text = connection.execute(
        "SELECT time, role, tool, call, path, text FROM passages WHERE id = ?", (found.passage,)
    ).fetchone()
    start, shown = found.start, min(found.length, LONGEST)
    if found.match != "exact":
        first, last = _densest(text[start : start + STRIDE + OVERLAP], pattern)
        start, shown = start + first, last - first
    begin, end = max(start - BEFORE, 0), min(start + shown + AFTER, len(text))
    if begin:
        begin = text.find("\n", begin, start) + 1 or begin
    if end < len(text):
        kept = text.rfind("\n", start + shown, end)
        end = kept if kept > 0 else end
    line, column = text.count("\n", 0, begin) + 1, begin - (text.rfind("\n", 0, begin) + 1)
    branch = ", on another branch" if standing is _Standing.ELSEWHERE else ""
    span = f"characters {begin:,}-{end:,} of {len(text):,}, from line {line:,}"
    file = json.dumps(str(folder / path), ensure_ascii=False)
    within = f", chars={column}" if column else ""
    return Hit(
        seq=found.seq,
        time=time,
        role=role,
        tool=tool,
        call=call,
        match=found.match,
        hidden=standing is not _Standing.IN_VIEW,
        excerpt=text[begin:end],
        offset=start - begin,
        place=f"{span} of {path}{branch}" if path else f"{span}{branch}",
        read=f"read_file(path={file}, offset={line}{within})" if path else "",
    )


def _densest(text: str, pattern: re.Pattern[str]) -> tuple[int, int]:
    """The stretch of at most `AFTER` characters with the most different words of the query; the first such."""
    places = [(match.start(), match.end(), match[0].casefold()) for match in pattern.finditer(text)]
    best, most = (0, 0), 0
    for number, (first, _, _) in enumerate(places):
        last = 0
        words: set[str] = set()
        for _, end, word in islice(places, number, None):
            if end - first > AFTER:
                break
            last = end
            words.add(word)
        if len(words) > most:
            best, most = (first, last), len(words)
    return best
