"""`recall` over all sessions of a project: those of this program, and those that other agents kept on this machine.

The newest are read first. Files of others are only read, and left out if they do not name the project's folder in their
first lines.
"""

import asyncio
import json
import os
import time
from contextlib import suppress
from functools import partial
from hashlib import sha256
from operator import itemgetter
from pathlib import Path
from typing import Final

from msgspec import structs

from tui_agent.conversation.recalled import MatchKind, RecallHit, RecallHits
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.errors import StorageError
from tui_agent.storage.log import LogStore
from tui_agent.storage.recall import search
from tui_agent.storage.recordings.compressed import head_of
from tui_agent.storage.recordings.reading import FOLDERS, read_file
from tui_agent.storage.recordings.recording import UnreadableRecording
from tui_agent.storage.recordings.taking_over import PROGRAMS
from tui_agent.storage.sessions import SessionInfo, list_sessions
from tui_agent.text import one_line

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
        store = await LogStore.open(info.folder, read_only=True)
        try:
            entries = await store.load()
        finally:
            await store.close()
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
