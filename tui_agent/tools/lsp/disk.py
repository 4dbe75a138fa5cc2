"""What a language server cannot know of a project's files by itself: what was changed, and which files may use one."""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_folder
from tui_agent.tools.ripgrep import search

MOST: Final = 20_000
"""Files of a project that are watched."""
CREATED, CHANGED, DELETED = 1, 2, 3
"""What happened to a file, as the protocol says it."""

_OF_FOLDERS: Final = frozenset({"__init__", "index", "mod", "lib", "main"})
"""Files that others name by the folder they are in."""
_IMPORTS: Final = r"\b(import|from|require|include|use|mod|export)\b.*\b{}\b"


class Disk:
    """The files below a project's folder that no ignore rule matches."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[Sequence[str], Mapping[Path, tuple[int, int]]] = {}

    async def changes(self, suffixes: Sequence[str]) -> Mapping[Path, int]:
        """What happened to files with these suffixes since the last time; the first time nothing."""
        now = await asyncio.to_thread(_stamps, await self._found("--files", suffixes))
        before = self._seen.get(suffixes, now)
        self._seen[suffixes] = now
        kinds = {path: CHANGED if path in before else CREATED for path in now if now[path] != before.get(path)}
        return kinds | dict.fromkeys(before.keys() - now.keys(), DELETED)

    async def users_of(self, path: Path, suffixes: Sequence[str], limit: int) -> list[Path]:
        """Files that name this one as code names it, the nearest first."""
        name = path.parent.name if path.stem in _OF_FOLDERS or path.suffix == ".go" else path.stem
        found = await self._found("--files-with-matches", suffixes, "--regexp", _IMPORTS.format(re.escape(name)))
        return sorted(found, key=lambda each: (_steps(path, each), each))[:limit]

    async def _found(self, what: str, suffixes: Sequence[str], *words: str) -> list[Path]:
        globs = [word for suffix in suffixes for word in ("--glob", f"*{suffix}")]
        found: list[Path] = []
        try:
            with open_folder(self._root) as folder:
                async with search([what, "--null", *globs, *words, "."], folder) as running:
                    async for name in running.records(b"\0"):
                        found.append(self._root / os.fsdecode(name).removeprefix("./"))
                        if len(found) > MOST:
                            return []  # a project of another size
        except (OSError, ToolFailure):
            return []
        return found


def _steps(path: Path, other: Path) -> int:
    """How many folders lie between two files."""
    shared = sum(1 for mine, its in zip(path.parts, other.parts, strict=False) if mine == its)
    return len(path.parts) + len(other.parts) - 2 * shared


def _stamps(paths: Sequence[Path]) -> Mapping[Path, tuple[int, int]]:
    stamps = {}
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        stamps[path] = found.st_mtime_ns, found.st_size
    return stamps
