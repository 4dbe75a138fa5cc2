"""The index of `recall`: full-text search over everything the model saw or wrote in a session.

It is built from the log and the session's files at the first search, and stored in its own file next to them. It is
only a cache: if it is missing, damaged or of another log, it is rebuilt.
"""

import asyncio
import json
import re
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from tui_agent.conversation.blocks import valid_text
from tui_agent.conversation.entries import AnyEntry
from tui_agent.durable import PRIVATE_FILE
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.database import BUSY_TIMEOUT_S, Schema, explained_database, inspect
from tui_agent.storage.errors import Damaged
from tui_agent.storage.recall_indexing import OVERLAP, SCRIPT, STRIDE, Given, Indexer, Precedence, Role

RECALL_NAME: Final = "recall.sqlite"
SCHEMA: Final = Schema(application_id=0x54415231, version=1, script=SCRIPT)

BEFORE = 200
AFTER = 500
LONGEST = 2_000
"""An excerpt shows this many characters before and after the match, and of a longer match this many."""

MatchKind: TypeAlias = Literal["exact", "all_words", "some_words"]

_POOL = 4
_QUOTING = """
    SELECT chunks.passage, chunks.start, passages.seq, passages.precedence, instr(chunks.text, ?1) - 1 AS position
    FROM chunks JOIN passages ON passages.id = chunks.passage
    WHERE position BETWEEN 0 AND chunks.owned - 1
"""
_QUOTING_AMONG = """
    SELECT chunks.passage, chunks.start, passages.seq, passages.precedence, instr(chunks.text, ?1) - 1 AS position
    FROM grams CROSS JOIN chunks ON chunks.id = grams.rowid JOIN passages ON passages.id = chunks.passage
    WHERE grams MATCH ?2 AND position BETWEEN 0 AND chunks.owned - 1
"""
_WITH_WORDS = """
    SELECT chunks.passage, chunks.start, passages.seq, passages.precedence
    FROM words CROSS JOIN chunks ON chunks.id = words.rowid JOIN passages ON passages.id = chunks.passage
    WHERE words MATCH ? ORDER BY bm25(words) LIMIT ?
"""

_GRAM = 3
_MOST_GRAMS = 24
_MOST_WORDS = 32
_WORD_LENGTH = 64
_WORD = re.compile(r"[^\W_]\w*")
_QUOTES = ('""', "''", "``", "“”", "„“", "«»")

_CACHE_KIB = 16 * 1024
_REBUILT = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR})

Result = TypeVar("Result")


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A passage that was found.

    `excerpt` is its text, character by character, with the match at `offset`; `place` says where it stands, and `read`
    is the call that shows it in its file (empty: it lies in no file). `hidden`: the model no longer sees it. `call` is
    the argument line of the tool call it belongs to, `time` is in seconds since the epoch.
    """

    seq: int
    time: float
    role: Role
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
    """The index of the session in `folder`. Works in threads, and keeps no file open between calls."""

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
        """Index what is new in `entries`, the whole log, oldest first, and in the session's files.

        A cancelled update keeps its work so far. Raises `StorageError`.
        """
        self._given = Given(entries, artifacts)
        await self._in_thread(lambda _connection: None)

    async def search(
        self, query: str, limit: int, *, hidden: Collection[int] | None = None, elsewhere: Collection[int] = ()
    ) -> Recalled:
        """The best hits for any text: what quotes it exactly, else what has its words.

        With `hidden`, the numbers of the entries that left the view, hits in those and in files come first; without
        it, no hit is marked. `elsewhere` are the numbers of the entries that are on another branch of the conversation.
        Raises `StorageError`.
        """
        unseen = _Unseen(None if hidden is None else frozenset(hidden), frozenset(elsewhere))
        return await self._in_thread(lambda connection: _search(connection, self._folder, query, limit, unseen))

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
        with self._in_use, explained_database(self.path):
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
            # A power loss may lose data, which is then indexed again, but must not corrupt the file.
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
    precedence: int
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
    # What is in view is known already: it does not keep what was asked for from being found by its words.
    all_in_view = unseen.hidden is not None and all(standing is _Standing.IN_VIEW for _, standing in found)
    if not found or (len(found) < limit and all_in_view):
        quoted = {one.seq for one, _ in found}
        more = _arranged(_with_words(connection, query, limit), unseen)
        found += [(one, standing) for one, standing in more if one.seq not in quoted]
    best = found[: max(limit, 0)]
    # Almost everything has some of the words: there only the best are hits.
    total = max(sum(one.match != "some_words" for one, _ in found), len(best))
    pattern = _words_pattern(_words_of(query))
    return Recalled(tuple(_hit(connection, folder, one, pattern, standing) for one, standing in best), total)


def _quoting(connection: sqlite3.Connection, text: str) -> list[_Found]:
    """The places that contain `text`, newest first; at most one per chunk."""
    probe = text[:OVERLAP]
    expression = _grams_expression(probe) if len(probe) >= _GRAM else ""
    if expression:
        rows = connection.execute(_QUOTING_AMONG, (probe, expression)).fetchall()
    else:
        rows = connection.execute(_QUOTING, (probe,)).fetchall()
    found: list[_Found] = []
    for passage, start, seq, precedence, position in rows:
        if len(text) > len(probe):
            position = _text(connection, passage, start, start + STRIDE + len(text) - 1).find(text)
        if position >= 0:
            found.append(_Found(passage, start + position, len(text), seq, precedence, "exact"))
    return sorted(found, key=lambda one: (-one.seq, one.passage, one.start))


def _with_words(connection: sqlite3.Connection, query: str, limit: int) -> list[_Found]:
    """Chunks with all words of `query`, best first, or else the best ones with some of them."""
    words = _words_of(query)
    if not words:
        return []
    rows = connection.execute(_WITH_WORDS, (_words_expression(words, "AND"), -1)).fetchall()
    match: MatchKind = "all_words"
    if not rows and len(words) > 1:
        match = "some_words"
        most = max(limit, 1) * _POOL
        rows = connection.execute(_WITH_WORDS, (_words_expression(words, "OR"), most)).fetchall()
    return [_Found(passage, start, 0, seq, precedence, match) for passage, start, seq, precedence in rows]


def _arranged(found: Sequence[_Found], unseen: _Unseen) -> list[tuple[_Found, _Standing]]:
    """Sort: what the model does not see first, one text per entry, and every entry once before any twice."""
    best: dict[int, int] = {}
    in_text: set[int] = set()
    for one in found:
        best[one.seq] = min(one.precedence, best.get(one.seq, one.precedence))
        if one.precedence in {Precedence.TEXT, Precedence.JSON}:
            in_text.add(one.seq)
    only_history = all(precedence == Precedence.HISTORY for precedence in best.values())
    seen: Counter[int] = Counter()
    ranked: list[tuple[_Standing, int, int, _Found]] = []
    for order, one in enumerate(found):
        if one.precedence != best[one.seq] or (one.precedence == Precedence.HISTORY and not only_history):
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
    row = connection.execute(
        "SELECT time, role, tool, call, path, length FROM passages WHERE id = ?", (found.passage,)
    ).fetchone()
    time, role, tool, call, path, length = row
    start, shown = found.start, min(found.length, LONGEST)
    if found.match != "exact":
        chunk = _text(connection, found.passage, start, start + STRIDE + OVERLAP)
        first, last = _densest(chunk, pattern)
        start, shown = start + first, last - first
    begin, end = max(start - BEFORE, 0), min(start + shown + AFTER, length)
    text = _text(connection, found.passage, begin, end)
    cut = text.find("\n", 0, start - begin) + 1 if begin else 0
    kept = text.rfind("\n", start - begin + shown) if end < length else -1
    excerpt = text[cut : kept if kept > 0 else len(text)]
    line, offset = _line(connection, found.passage, begin + cut)
    branch = ", on another branch" if standing is _Standing.ELSEWHERE else ""
    span = f"characters {begin + cut:,}-{begin + cut + len(excerpt):,} of {length:,}, from line {line:,}"
    return Hit(
        seq=found.seq,
        time=time,
        role=role,
        tool=tool,
        call=call,
        match=found.match,
        hidden=standing is not _Standing.IN_VIEW,
        excerpt=excerpt,
        offset=start - begin - cut,
        place=f"{span} of {path}{branch}" if path else f"{span}{branch}",
        read=_read(folder / path, line, offset) if path else "",
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


def _text(connection: sqlite3.Connection, passage: int, begin: int, end: int) -> str:
    """The characters from `begin` up to `end` of a passage, joined from its chunks."""
    parts: list[str] = []
    position = begin
    for start, text in connection.execute(
        "SELECT start, text FROM chunks WHERE passage = ? AND start > ? AND start < ? ORDER BY start",
        (passage, begin - STRIDE - OVERLAP, end),
    ):
        part = text[position - start : end - start]
        parts.append(part)
        position += len(part)
    return "".join(parts)


def _line(connection: sqlite3.Connection, passage: int, position: int) -> tuple[int, int]:
    """The line (from 1) and column (from 0) of a character."""
    row = connection.execute(
        "SELECT start, line, offset, text FROM chunks WHERE passage = ? AND start <= ? ORDER BY start DESC LIMIT 1",
        (passage, position),
    ).fetchone()
    start, line, offset, text = row
    before = text[: position - start]
    newlines = before.count("\n")
    return line + newlines, len(before) - before.rindex("\n") - 1 if newlines else offset + len(before)


def _read(path: Path, line: int, offset: int) -> str:
    within = f", chars={offset}" if offset else ""
    return f"read_file(path={json.dumps(str(path), ensure_ascii=False)}, offset={line}{within})"


def _variants(query: str) -> list[str]:
    """The texts that `query` may mean, most literal first: itself, stripped, without quotes."""
    bare = query.strip()
    found = [query, bare]
    if len(bare) > 2 and any(bare[0] == pair[0] and bare[-1] == pair[1] for pair in _QUOTES):
        found.append(bare[1:-1])
    return [text for text in dict.fromkeys(found) if text]


def _grams_expression(text: str) -> str:
    """An FTS expression that every text containing `text` matches, for trigrams without positions; empty: none."""
    grams = list(dict.fromkeys(text[start : start + _GRAM] for start in range(len(text) - _GRAM + 1)))
    # An expression ends at a NUL, whatever is quoted.
    usable = [gram for gram in grams if "\0" not in gram]
    step = max(len(usable) / _MOST_GRAMS, 1)
    chosen = [usable[int(index * step)] for index in range(min(len(usable), _MOST_GRAMS))]
    return " AND ".join(_quoted(gram) for gram in chosen)


def _words_of(query: str) -> list[str]:
    """The distinct words of `query`, each cut to a length it can still be found by; at most the first 32."""
    words = (word[:_WORD_LENGTH] for word in _WORD.findall(query))
    return list({word.casefold(): word for word in words}.values())[:_MOST_WORDS]


def _words_expression(words: Sequence[str], operator: str) -> str:
    """Words joined by ``AND`` or ``OR``; each also stands for longer ones it begins."""
    return f" {operator} ".join(f"{_quoted(word)} *" if len(word) >= _GRAM else _quoted(word) for word in words)


def _words_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """A pattern for the start of any of the words."""
    return re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
