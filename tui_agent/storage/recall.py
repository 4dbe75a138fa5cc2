"""`recall`: searches everything the model saw or wrote in a session, and the session's files; and all sessions of a
project: those of this program, and those that other agents kept on this machine.

Each search reads them, some 40 ms a megabyte, so nothing has to be kept in step with the log. A quote is looked for in
every text. Where nothing quotes the query, its words are: the stretches of the texts with the rarest of them come
first. Of the sessions, the newest are read first. Files of others are only read, and left out if they do not name the
project's folder in their first lines.
"""

import asyncio
import json
import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from functools import partial
from hashlib import sha256
from itertools import islice, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import AnyEntry, Artifact, Checkpointed, Digested, Message, Summarized, as_delivered
from tui_agent.conversation.recalled import MatchKind, RecallHit, RecallHits
from tui_agent.storage.artifacts import RAW_FOLDER, Artifacts
from tui_agent.storage.errors import Damaged, StorageError
from tui_agent.storage.log import LogStore
from tui_agent.storage.recordings.reading import FOLDERS, head_of, read_file
from tui_agent.storage.recordings.recording import UnreadableRecording
from tui_agent.storage.recordings.taking_over import PROGRAMS
from tui_agent.storage.sessions import SessionInfo, list_sessions
from tui_agent.system.lenient import strings_in
from tui_agent.text import call_summary, comparable, one_line

RECALL_TOOL: Final = "recall"
"""Not searched: its calls and results only repeat other texts, and would be found instead of them."""
RAW_BYTES: Final = 4 * 1024 * 1024
"""How many bytes of a command's raw output are searched, from its start; the end is in the result itself."""
STRIDE: Final = 1_800
OVERLAP: Final = 200
"""Words are looked for in stretches of the texts, each `STRIDE` characters after the one before, and so much longer."""

BEFORE = 200
AFTER = 500
LONGEST = 2_000
"""An excerpt shows this many characters before and after the match, and of a longer match this many."""

_POOL = 4
_SHORTEST_PREFIX = 3
_MOST_WORDS = 32
_WORD_LENGTH = 64
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Scripts that put no spaces between words: there each two letters are looked for, anywhere."""
_INDIC = r"\u0900-\u0963\u0966-\u0dff"
"""Scripts whose vowel signs are no letters to `re`."""
_WORD = re.compile(
    rf"(?=([{_UNSPACED}]{{2}})).|(?<![{_UNSPACED}])[{_UNSPACED}]|[^\W_{_UNSPACED}](?:[\w{_INDIC}](?<![{_UNSPACED}]))*"
)
_ANYWHERE = re.compile(rf"[{_UNSPACED}]|[\u0590-\u06ff]{{3}}")
"""Hebrew and Arabic write articles and prepositions as one word with what follows."""
_QUOTES = ('""', "''", "``", "“”", "„“", "«»")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_STEM_LENGTH = 60


async def search(
    artifacts: Artifacts,
    entries: Sequence[AnyEntry],
    query: str,
    limit: int,
    *,
    hidden: Collection[int] | None = None,
    elsewhere: Collection[int] = (),
) -> RecallHits:
    """The best hits for any text in `entries`, the whole log, oldest first, and in the session's files: what quotes it
    exactly, else what has its words.

    With `hidden`, the numbers of the entries that left the view, hits in those and in files come first; without it, no
    hit is marked. `elsewhere` are the numbers of the entries that are on another branch of the conversation. Works in a
    thread.
    """
    unseen = _Unseen(None if hidden is None else frozenset(hidden), frozenset(elsewhere))
    stopped = threading.Event()

    def passages() -> Iterator[_Passage]:
        return takewhile(lambda _: not stopped.is_set(), _passages(entries, artifacts))

    try:
        return await asyncio.to_thread(_search, passages, artifacts.folder, valid_text(query), limit, unseen)
    except asyncio.CancelledError:
        stopped.set()
        raise


# What is searched


class TextRank(IntEnum):
    """Which text of an entry to show if several match: the one with the lowest value."""

    FILE = 0
    TEXT = 1
    RAW = 2


class _Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A text to search, with its entry, time, author or origin (`role`), tool call, and file in the session."""

    seq: int
    time: float
    role: str
    text: str
    tool: str = ""
    call: str = ""
    path: str = ""
    rank: TextRank = TextRank.TEXT


_Calls: TypeAlias = dict[str, tuple[str, str]]
"""The tools and argument lines of calls, by their ids."""


def _passages(entries: Iterable[AnyEntry], artifacts: Artifacts) -> Iterator[_Passage]:
    """What the entries hold, their files included. What was never meant for a model is left out, as are the pieces of a
    reply that its message supersedes and texts that wait to be delivered.
    """
    calls: _Calls = {}
    answers: dict[str, Message] = {}
    paths: set[str] = set()
    for entry in as_delivered(entries):
        match entry:
            case Message() if entry.agent_visible:
                for block in entry.blocks:
                    yield from _passages_in(entry, block, calls)
                    if isinstance(block, ToolResult):
                        answers[_UNSAFE.sub("_", block.call_id)[:_STEM_LENGTH]] = entry
                if entry.artifact is not None and entry.artifact.path not in paths:
                    passage = _of_file(entry, entry.artifact.path, calls)
                    # Where the file is gone or another, only what the entry itself shows can be found.
                    with suppress(StorageError, ValueError):
                        if passage.tool != RECALL_TOOL:
                            passage = msgspec.structs.replace(passage, text=artifacts.read_now(entry.artifact))
                            paths.add(passage.path)
                            yield passage
            case Digested():
                yield _Passage(seq=entry.seq, time=entry.time, role="digest", text=entry.text)
            case Summarized() | Checkpointed():
                yield _Passage(seq=entry.seq, time=entry.time, role=entry.compaction, text=entry.text)
    # The raw output of commands that were answered; they may go on running.
    names: list[str] = []
    with suppress(OSError):
        names = sorted(path.name for path in (artifacts.folder / RAW_FOLDER).iterdir())
    for name in names:
        if (answer := answers.get(name.rpartition("-")[0])) is not None:
            passage = _of_file(answer, f"{RAW_FOLDER}/{name}", calls)
            with (
                suppress(Damaged, OSError, ValueError),
                artifacts.path_of(Artifact(passage.path, 0, "")).open("rb") as raw,
            ):
                text = raw.read(RAW_BYTES).decode(errors="replace")
                yield msgspec.structs.replace(passage, role="raw_output", rank=TextRank.RAW, text=text)


def _passages_in(message: Message, block: Block, calls: _Calls) -> Iterator[_Passage]:
    """The texts of one block. Notes calls."""
    seq, time = message.seq, message.time
    match block:
        case Text():
            yield _Passage(seq=seq, time=time, role="notice" if message.kind else message.role, text=block.text)
        case Reasoning():
            yield _Passage(seq=seq, time=time, role="reasoning", text=block.text)
        case ToolCall():
            tool, line = calls[block.id] = block.name, call_summary(block.arguments)
            if tool != RECALL_TOOL:
                text = f"{tool}({block.malformed or block.arguments})"
                text = "\n".join(
                    (text, *(each for each in strings_in(block.arguments, names=True) if each not in text))
                )
                yield _Passage(seq=seq, time=time, role="tool_call", text=text, tool=tool, call=line)
        case ToolResult():
            tool, line = calls.get(block.call_id, ("", ""))
            if tool != RECALL_TOOL:
                yield _Passage(seq=seq, time=time, role="tool_result", text=block.text, tool=tool, call=line)


def _of_file(message: Message, path: str, calls: _Calls) -> _Passage:
    """The passage of a file that belongs to a message, still without its text."""
    answered = next((block.call_id for block in message.blocks if isinstance(block, ToolResult)), "")
    tool, call = calls.get(answered, ("", ""))
    role = "tool_result" if answered else message.role
    return _Passage(
        seq=message.seq, time=message.time, role=role, text="", tool=tool, call=call, path=path, rank=TextRank.FILE
    )


# Searching


class _Unseen(msgspec.Struct, frozen=True):
    """The entries the model does not see: those that left its view (None: it is not known which those are), and those
    on another branch of the conversation."""

    hidden: frozenset[int] | None
    elsewhere: frozenset[int]


class _Found(msgspec.Struct, frozen=True):
    """A match that begins at character `start` of passage number `number` and has `length` characters."""

    number: int
    passage: _Passage
    start: int
    length: int
    match: MatchKind


class _Standing(IntEnum):
    """Whether the model sees what was found; what it does not see is shown first."""

    HIDDEN = 0
    ELSEWHERE = 1
    IN_VIEW = 2


def _search(
    passages: Callable[[], Iterable[_Passage]], folder: Path, query: str, limit: int, unseen: _Unseen
) -> RecallHits:
    """The best `limit` hits for `query` in `passages`, which are read once or twice."""
    found = _arranged(_quoting(passages(), _variants(query)), unseen)
    found_words = (match[1] or match[0] for match in _WORD.finditer(comparable(query)))
    words = list(dict.fromkeys(word[:_WORD_LENGTH] for word in found_words))[:_MOST_WORDS]
    # What is in view is known already: it does not keep what was asked for from being found by its words.
    all_in_view = unseen.hidden is not None and all(standing is _Standing.IN_VIEW for _, standing in found)
    if words and (not found or (len(found) < limit and all_in_view)):
        quoted = {one.passage.seq for one, _ in found}
        more = _arranged(_with_words(passages(), words, limit), unseen)
        found += [(one, standing) for one, standing in more if one.passage.seq not in quoted]
    best = found[: max(limit, 0)]
    # Almost everything has some of the words: there only the best are hits.
    total = max(sum(one.match != "some_words" for one, _ in found), len(best))
    pattern = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
    return RecallHits(tuple(_hit(folder, one, pattern, standing) for one, standing in best), total)


def _variants(query: str) -> list[str]:
    """The texts that `query` may mean, most literal first: itself, stripped, without quotes."""
    bare = query.strip()
    quoted = len(bare) > 2 and any(bare[0] == pair[0] and bare[-1] == pair[1] for pair in _QUOTES)
    return [text for text in dict.fromkeys((query, bare, bare[1:-1] if quoted else "")) if text]


def _quoting(passages: Iterable[_Passage], quotes: Sequence[str]) -> list[_Found]:
    """The places that contain the first of the `quotes` that is anywhere, newest first; of those close to each other in
    one text, the first.
    """
    found: dict[str, list[_Found]] = {quote: [] for quote in quotes}
    for number, passage in enumerate(passages):
        for quote, places in found.items():
            start = passage.text.find(quote)
            while start >= 0:
                places.append(_Found(number, passage, start, len(quote), "exact"))
                start = passage.text.find(quote, start + STRIDE)
    best = next(filter(None, found.values()), [])
    return sorted(best, key=lambda one: (-one.passage.seq, one.number))


def _with_words(passages: Iterable[_Passage], words: Sequence[str], limit: int) -> list[_Found]:
    """Stretches with all the words, best first, or else the best ones with some of them; each word also stands for
    longer ones it begins.
    """
    # A short word stands for itself alone.
    ends = ((word, r"(?![^\W_])" if len(word) < _SHORTEST_PREFIX else "") for word in words)
    whole = ((word, rf"(?<![^\W_]){re.escape(word)}{end}") for word, end in ends)
    patterns = [(word, re.compile(re.escape(word) if _ANYWHERE.match(word) else each)) for word, each in whole]
    counts: list[tuple[_Found, list[int]]] = []
    for number, passage in enumerate(passages):
        for start in range(0, max(1, len(passage.text) - OVERLAP), STRIDE):
            stretch = comparable(passage.text[start : start + STRIDE + OVERLAP])
            found = [len(pattern.findall(stretch)) if word in stretch else 0 for word, pattern in patterns]
            if any(found):
                match: MatchKind = "all_words" if all(found) else "some_words"
                counts.append((_Found(number, passage, start, 0, match), found))
    columns = zip(*(found for _, found in counts), strict=True)
    rarity = [math.log1p(len(counts) / max(1, sum(map(bool, column)))) for column in columns]

    def worth(each: tuple[_Found, list[int]]) -> tuple[float, int]:
        one, found = each
        total = sum(weight * count / (count + 1) for weight, count in zip(rarity, found, strict=True))
        return -total, -one.passage.seq

    ranked = [one for one, _ in sorted(counts, key=worth)]
    return [one for one in ranked if one.match == "all_words"] or ranked[: max(limit, 1) * _POOL]


def _arranged(found: Sequence[_Found], unseen: _Unseen) -> list[tuple[_Found, _Standing]]:
    """Sort: what the model does not see first, one text per entry, and every entry once before any twice."""
    best: dict[int, TextRank] = {}
    in_text: set[int] = set()
    for one in found:
        seq, rank = one.passage.seq, one.passage.rank
        best[seq] = min(rank, best.get(seq, rank))
        if rank is TextRank.TEXT:
            in_text.add(seq)
    seen: Counter[int] = Counter()
    ranked: list[tuple[_Standing, int, int, _Found]] = []
    for order, one in enumerate(found):
        seq = one.passage.seq
        if one.passage.rank != best[seq]:
            continue
        standing = _Standing.IN_VIEW
        if seq in unseen.elsewhere:
            standing = _Standing.ELSEWHERE
        # What only its file holds was never in view, whatever became of its message.
        elif unseen.hidden is not None and (seq in unseen.hidden or seq not in in_text):
            standing = _Standing.HIDDEN
        ranked.append((standing, seen[one.number], order, one))
        seen[one.number] += 1
    return [(one, standing) for standing, _, _, one in sorted(ranked, key=lambda item: item[:3])]


def _hit(folder: Path, found: _Found, pattern: re.Pattern[str], standing: _Standing) -> RecallHit:
    passage = found.passage
    text, path = passage.text, passage.path
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
    return RecallHit(
        seq=passage.seq,
        time=passage.time,
        role=passage.role,
        tool=passage.tool,
        call=passage.call,
        match=found.match,
        hidden=standing is not _Standing.IN_VIEW,
        excerpt=text[begin:end],
        offset=start - begin,
        place=f"{span} of {path}{branch}" if path else f"{span}{branch}",
        read=f"read_file(path={file}, offset={line}{within})" if path else "",
    )


def _densest(text: str, pattern: re.Pattern[str]) -> tuple[int, int]:
    """The stretch of at most `AFTER` characters with the most different words of the query; the first such."""
    folded = [comparable(character) for character in text]
    at = [place for place, each in enumerate(folded) for _ in each]
    found = pattern.finditer("".join(folded))
    places = [(at[match.start()], at[match.end() - 1] + 1, match[0]) for match in found]
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


MOST_S: Final = 20.0
"""Seconds after which no further session is read; what was left out is said."""
HEAD_BYTES: Final = 32_768
"""How much of another agent's file is searched for the project's folder."""
TITLE_CHARS: Final = 60

_BEST_FIRST: Final[tuple[MatchKind, ...]] = ("exact", "all_words", "some_words")


async def search_everywhere(session: Path, query: str, limit: int) -> RecallHits:
    """The best hits in all other sessions of the project of the session in this folder, what quotes `query` first, then
    the newest. Raises `StorageError`.
    """
    home = session.parents[1]
    infos = await list_sessions(home)
    cwd = next((info.cwd for info in infos if info.folder == session), "")
    ours = [info for info in infos if cwd and info.cwd == cwd and info.messages and info.folder != session]
    theirs = await asyncio.to_thread(_of_others, cwd) if cwd else []
    places = [(info.updated, partial(_in_ours, info)) for info in ours]
    places += [(changed, partial(_in_theirs, path, changed)) for changed, path in theirs]
    hits: list[RecallHit] = []
    searched, until = 0, time.monotonic() + MOST_S
    for _, found_in in sorted(places, key=itemgetter(0), reverse=True):
        if time.monotonic() > until:
            break
        searched += 1
        hits += await found_in(query, limit)
    kind = next((kind for kind in _BEST_FIRST if any(hit.match == kind for hit in hits)), "")
    best = sorted((hit for hit in hits if hit.match == kind), key=lambda hit: -hit.time)
    return RecallHits(tuple(best[:limit]), len(best), searched, len(places) - searched)


async def _in_ours(info: SessionInfo, query: str, limit: int) -> list[RecallHit]:
    try:
        async with await LogStore.open(info.folder, read_only=True) as store:
            entries = await store.load()
    except StorageError:
        return []  # a damaged session is reported where it is opened
    found = await search(Artifacts(info.folder), entries, query, limit)
    name = f"{info.id}, {one_line(info.title, TITLE_CHARS)}" if info.title else info.id
    return [structs.replace(hit, session=name, hidden=True) for hit in found.hits]


async def _in_theirs(path: Path, changed: float, query: str, limit: int) -> list[RecallHit]:
    try:
        recording = await asyncio.to_thread(read_file, path)
    except UnreadableRecording:
        return []
    messages = [structs.replace(message, seq=number) for number, message in enumerate(recording.messages, 1)]
    found = await search(Artifacts(path.parent), messages, query, limit)
    name = f"{PROGRAMS[recording.format]}, {path.name}"
    return [structs.replace(hit, session=name, hidden=True, time=hit.time or changed) for hit in found.hits]


def _of_others(cwd: str) -> list[tuple[float, Path]]:
    """The files in which other agents keep sessions of this folder, and when they changed. Never raises."""
    found: set[Path] = set()
    for pattern in (pattern for each in FOLDERS.values() for pattern in each):
        found.update(Path.home().glob(pattern.removeprefix("~/")))
    # Gemini CLI writes the folder's hash.
    texts = (json.dumps(cwd), json.dumps(cwd, ensure_ascii=False), sha256(os.fsencode(cwd)).hexdigest())
    signs = [os.fsencode(text) for text in texts]
    named: list[tuple[float, Path]] = []
    for path in found:
        with suppress(OSError, UnreadableRecording):
            head = head_of(path, HEAD_BYTES)
            if any(sign in head for sign in signs):
                named.append((path.stat().st_mtime, path))
    return named
