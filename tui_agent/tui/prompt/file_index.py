"""The files and folders of a project, for a person who types a part of a path."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from heapq import nlargest
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

from tui_agent.tools.base import ToolFailure
from tui_agent.tui.fuzzy import score

MAX_PATHS: Final = 200_000
"""Files kept of a project; more are not offered."""

FRESH_S: Final = 5.0
"""Seconds a listing is used before the next search asks for a new one."""

MAX_FOUND: Final = 50
_SLICE: Final = 2_000
"""Paths looked at before the screen gets its turn: about 1 ms."""


class Entry(NamedTuple):
    """A path relative to the folder, a folder's with a slash at its end, and the same in lower case."""

    path: str
    lower: str


class FileIndex:
    """Lists a folder with ``rg``, which leaves out what ``.gitignore`` names, and searches the list.

    Nothing is done before the first search; a listing that is no longer fresh is used until the next one is there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: list[Entry] = []
        self._listed_at = float("-inf")
        self._listing: asyncio.Task[None] | None = None
        self._narrowed: tuple[str, list[Entry]] = ("", [])

    async def search(self, typed: str) -> list[str]:
        """The paths that hold the characters of `typed` in their order, the best first, at most `MAX_FOUND`."""
        await self._list_when_stale()
        wanted = typed.lower()
        before, narrowed = self._narrowed
        candidates = narrowed if before and wanted.startswith(before) else self._entries
        entries = self._entries
        matching: list[tuple[float, Entry]] = []
        for piece in _slices(candidates):
            matching += [(well, entry) for entry in piece if (well := _score(entry, wanted)) is not None]
            await asyncio.sleep(0)
        if entries is self._entries:
            self._narrowed = (wanted, [entry for _, entry in matching])
        return [entry.path for _, entry in nlargest(MAX_FOUND, matching, key=lambda found: found[0])]

    async def close(self) -> None:
        """Stop a listing that runs."""
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait({self._listing})

    async def _list_when_stale(self) -> None:
        if self._listing is None and monotonic() - self._listed_at > FRESH_S:
            self._listing = asyncio.create_task(self._list(), name="files")
        if self._listing is not None and not self._entries:
            await asyncio.shield(self._listing)

    async def _list(self) -> None:
        try:
            files = await _files(self._folder)
            self._entries = await asyncio.to_thread(_entries, files)
            self._narrowed = ("", [])
        except (OSError, ToolFailure):
            # A folder that cannot be listed offers nothing; the path can still be typed.
            self._entries = []
        finally:
            self._listed_at = monotonic()
            self._listing = None


async def _files(folder: Path) -> list[str]:
    from tui_agent.tools.search.ripgrep import search

    options = ("--files", "--null", "--hidden", "--no-require-git", "--glob", "!.git", "--no-messages")
    files: list[str] = []
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        async with search(options, descriptor) as found:
            async for record in found.records(b"\0"):
                files.append(os.fsdecode(record))
                if len(files) >= MAX_PATHS:
                    break
    finally:
        os.close(descriptor)
    return files


def _entries(files: Iterable[str]) -> list[Entry]:
    """The files that can be written in a prompt, and the folders they lie in, in the order of their names."""
    paths: set[str] = set()
    for file in files:
        if not file.isprintable():
            continue
        paths.add(file)
        place = file.rfind("/")
        while place > 0 and (folder := file[: place + 1]) not in paths:
            paths.add(folder)
            place = file.rfind("/", 0, place)
    return [Entry(path, path.lower()) for path in sorted(paths)]


def _slices(entries: list[Entry]) -> Iterator[list[Entry]]:
    for start in range(0, len(entries), _SLICE):
        yield entries[start : start + _SLICE]


def _score(entry: Entry, wanted: str) -> float | None:
    """How well a path fits: the name counts for more than the folders above it."""
    return score(entry.lower, wanted, entry.lower.rfind("/", 0, -1) + 1)
