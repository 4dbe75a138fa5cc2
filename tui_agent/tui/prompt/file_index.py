"""Searches the files and folders of a project, for completion after ``@``."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from heapq import nlargest
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from tui_agent.text import comparable
from tui_agent.tools.base import ToolFailure
from tui_agent.tui.fuzzy import score

MAX_PATHS: Final = 200_000
"""The most files of a project that are listed."""

FRESH_S: Final = 5.0
"""Seconds for which a listing counts as fresh; a search after that starts a new one."""

MAX_FOUND: Final = 50
_SLICE: Final = 2_000
"""Paths scored before other tasks get a turn: about 1 ms."""


class IndexedPath(msgspec.Struct, frozen=True):
    """A path relative to the project, with a trailing slash for folders, and the same without case and accents."""

    path: str
    compared: str


class FileIndex:
    """Lists a folder with ``rg``, which respects ``.gitignore``, and searches the list.

    The first search makes the first listing; a stale listing is used until the next one is complete.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: list[IndexedPath] = []
        self._listed_at = float("-inf")
        self._listing: asyncio.Task[None] | None = None
        self._narrowed: tuple[str, list[IndexedPath]] = ("", [])

    async def search(self, typed: str) -> list[str]:
        """The paths that contain the characters of `typed` in order, best first, at most `MAX_FOUND`."""
        if self._listing is None and monotonic() - self._listed_at > FRESH_S:
            self._listing = asyncio.create_task(self._list(), name="files")
        if self._listing is not None and not self._entries:
            await asyncio.shield(self._listing)
        wanted = comparable(typed)
        before, narrowed = self._narrowed
        candidates = narrowed if before and wanted.startswith(before) else self._entries
        entries = self._entries
        matching: list[tuple[float, IndexedPath]] = []
        for piece in _slices(candidates):
            matching += [(well, entry) for entry in piece if (well := _score(entry, wanted)) is not None]
            await asyncio.sleep(0)
        if entries is self._entries:
            self._narrowed = (wanted, [entry for _, entry in matching])
        # A folder that is written already would only be completed to itself.
        found = nlargest(MAX_FOUND + 1, matching, key=lambda found: found[0])
        return [entry.path for _, entry in found if not (entry.path == typed and typed.endswith("/"))][:MAX_FOUND]

    async def close(self) -> None:
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait({self._listing})

    async def _list(self) -> None:
        try:
            files = await _files(self._folder)
            self._entries = await asyncio.to_thread(_entries, files)
            self._narrowed = ("", [])
        except (OSError, ToolFailure):
            # Without a listing there are no completions, but the user can still type the path.
            self._entries = []
        finally:
            self._listed_at = monotonic()
            self._listing = None


async def _files(folder: Path) -> list[str]:
    from tui_agent.tools.ripgrep import search

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


def _entries(files: Iterable[str]) -> list[IndexedPath]:
    """The files whose paths can be written in a prompt, with their folders, sorted by path."""
    paths: set[str] = set()
    for file in files:
        if not file.isprintable():
            continue
        paths.add(file)
        place = file.rfind("/")
        while place > 0 and (folder := file[: place + 1]) not in paths:
            paths.add(folder)
            place = file.rfind("/", 0, place)
    return [IndexedPath(path, comparable(path)) for path in sorted(paths)]


def _slices(entries: list[IndexedPath]) -> Iterator[list[IndexedPath]]:
    for start in range(0, len(entries), _SLICE):
        yield entries[start : start + _SLICE]


def _score(entry: IndexedPath, wanted: str) -> float | None:
    """The fuzzy score of a path: a match in the name ranks before one in its folders."""
    return score(entry.compared, wanted, entry.compared.rfind("/", 0, -1) + 1)
