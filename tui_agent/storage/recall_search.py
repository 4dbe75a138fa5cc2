"""Searching the index: what quotes the query exactly, then what has its words."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.blocks import valid_text
from tui_agent.storage.recall_indexing import OVERLAP, STRIDE
from tui_agent.storage.recall_passages import Precedence, Role
from tui_agent.storage.recall_query import grams_expression, variants, words_expression, words_of, words_pattern

BEFORE = 200
AFTER = 500
LONGEST = 2_000
"""An excerpt shows this many characters before and after the match, and of a longer match this many."""

MatchKind: TypeAlias = Literal["exact", "all_words", "some_words"]

_GRAM = 3
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


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One passage that was found.

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
    """The best hits, and how many there are that quote the query or hold all its words."""

    hits: tuple[Hit, ...]
    total: int


class _Found(NamedTuple):
    """A match that begins at character `start` of a passage and has `length` characters."""

    passage: int
    start: int
    length: int
    seq: int
    precedence: int
    match: MatchKind


def search(
    connection: sqlite3.Connection, folder: Path, query: str, limit: int, hidden: Collection[int] | None
) -> Recalled:
    """The best `limit` hits for `query`. `hidden` are the entries that left the view. Raises sqlite3.Error."""
    query = valid_text(query)
    found: list[tuple[_Found, bool]] = []
    for text in variants(query):
        found = _arranged(_quoting(connection, text), hidden)
        if found:
            break
    # What is in view is known already: it does not keep what was asked for from being found by its words.
    if not found or (hidden is not None and len(found) < limit and not found[0][1]):
        quoted = {one.seq for one, _ in found}
        more = _arranged(_with_words(connection, query, limit), hidden)
        found += [(one, is_hidden) for one, is_hidden in more if one.seq not in quoted]
    best = found[: max(limit, 0)]
    # Almost everything has some of the words: there only the best are hits.
    total = max(sum(one.match != "some_words" for one, _ in found), len(best))
    pattern = words_pattern(words_of(query))
    return Recalled(tuple(_hit(connection, folder, one, pattern, is_hidden) for one, is_hidden in best), total)


def _quoting(connection: sqlite3.Connection, text: str) -> list[_Found]:
    """Where `text` stands, newest first; at most one place per chunk."""
    probe = text[:OVERLAP]
    expression = grams_expression(probe) if len(probe) >= _GRAM else ""
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
    words = words_of(query)
    if not words:
        return []
    rows = connection.execute(_WITH_WORDS, (words_expression(words, "AND"), -1)).fetchall()
    match: MatchKind = "all_words"
    if not rows and len(words) > 1:
        match = "some_words"
        most = max(limit, 1) * _POOL
        rows = connection.execute(_WITH_WORDS, (words_expression(words, "OR"), most)).fetchall()
    return [_Found(passage, start, 0, seq, precedence, match) for passage, start, seq, precedence in rows]


def _arranged(found: Sequence[_Found], hidden: Collection[int] | None) -> list[tuple[_Found, bool]]:
    """Each with whether it is hidden. One text per entry, what left the view first, none twice before all once."""
    best: dict[int, int] = {}
    in_text: set[int] = set()
    for one in found:
        best[one.seq] = min(one.precedence, best.get(one.seq, one.precedence))
        if one.precedence in {Precedence.TEXT, Precedence.JSON}:
            in_text.add(one.seq)
    only_history = all(precedence == Precedence.HISTORY for precedence in best.values())
    gone = frozenset(hidden or ())
    seen: Counter[int] = Counter()
    ranked: list[tuple[bool, int, int, _Found]] = []
    for order, one in enumerate(found):
        if one.precedence != best[one.seq] or (one.precedence == Precedence.HISTORY and not only_history):
            continue
        # What only its file holds was never in view, whatever became of its message.
        is_hidden = hidden is not None and (one.seq in gone or one.seq not in in_text)
        ranked.append((not is_hidden, seen[one.passage], order, one))
        seen[one.passage] += 1
    return [(one, not in_view) for in_view, _, _, one in sorted(ranked, key=lambda item: item[:3])]


def _hit(connection: sqlite3.Connection, folder: Path, found: _Found, pattern: re.Pattern[str], is_hidden: bool) -> Hit:
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
    span = f"characters {begin + cut:,}-{begin + cut + len(excerpt):,} of {length:,}, from line {line:,}"
    return Hit(
        seq=found.seq,
        time=time,
        role=role,
        tool=tool,
        call=call,
        match=found.match,
        hidden=is_hidden,
        excerpt=excerpt,
        offset=start - begin - cut,
        place=f"{span} of {path}" if path else span,
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
    """The characters from `begin` up to `end` of a passage, put together from its chunks."""
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
    """The line (from 1) a character stands in, and its place there (from 0)."""
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
