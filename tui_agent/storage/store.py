"""The interface of the store for a log.

Any object with these methods will do. Sessions on disk use `storage.log.LogStore`; the classes in this module store a
conversation in memory, without sqlite.
"""

import asyncio
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Literal, Protocol, TypeAlias
from weakref import finalize

from tui_agent.conversation.blocks import valid_text
from tui_agent.conversation.entries import AnyEntry, Artifact
from tui_agent.conversation.log import Log
from tui_agent.storage.errors import Damaged

Kind: TypeAlias = Literal[
    "session",
    "message",
    "reasoning",
    "model_usage",
    "tool_call",
    "tool_result",
    "permission",
    "context_compaction",
    "context",
    "cache_miss",
    "alert",
    "error",
    "trace_gap",
]
"""The kinds of events in the trace."""


class Store(Protocol):
    """Stores the entries of one log. Its only writer calls `load` before `append`."""

    @property
    def read_only(self) -> str:
        """Why nothing can be appended; empty if it can."""

    @property
    def notices(self) -> Sequence[str]:
        """Sentences for the user on what was damaged, and what was kept of it."""

    async def load(self) -> Sequence[AnyEntry]:
        """Every entry, oldest first. Raises `StorageError`."""

    async def append(self, entries: Sequence[AnyEntry]) -> None:
        """Append stamped entries: all of them if this returns, none if it raises `StorageError`.

        Raises `ValueError` if their numbers do not follow the last one.
        """

    async def close(self) -> None:
        """Release what it holds. Raises `StorageError`."""


class Texts(Protocol):
    """Stores texts that entries refer to: full tool results, summarised turns."""

    @property
    def folder(self) -> Path:
        """The session's folder; tools keep their own files below it."""

    async def save(self, name: str, text: str, *, evicted: bool = False) -> Artifact:
        """Save a text durably, before the entry that refers to it. Raises `StorageError`."""

    async def append_history(self, thread: str, text: str) -> str:
        """Append turns to a history file; returns its path. Raises `StorageError`."""

    async def read(self, artifact: Artifact) -> str:
        """The whole text. Raises `StorageError`."""


class MemoryStore:
    """Stores a log in memory; it may start with the entries of another one."""

    read_only = ""
    notices: Sequence[str] = ()

    def __init__(self, entries: Iterable[AnyEntry] = ()) -> None:
        self._log = Log(entries)

    async def load(self) -> list[AnyEntry]:
        return list(self._log)

    async def append(self, entries: Sequence[AnyEntry]) -> None:
        check_numbers(entries, len(self._log))
        for entry in entries:
            self._log.append(entry)
        if not self._log.is_packed:
            await asyncio.to_thread(self._log.pack)

    async def close(self) -> None:
        """Do nothing: the entries can still be loaded."""


def check_numbers(entries: Sequence[AnyEntry], last: int) -> None:
    """Raise `ValueError` unless the numbers of `entries` continue from `last`, that of the newest stored entry."""
    numbers = [entry.seq for entry in entries]
    if numbers != list(range(last + 1, last + 1 + len(entries))):
        raise ValueError(f"entries {numbers} cannot follow entry {last}")


class MemoryTexts:
    """Stores the texts that entries refer to in memory; see `Texts`."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._scratch: Path | None = None

    @property
    def folder(self) -> Path:
        """A temporary folder for files that tools write themselves; removed with this object."""
        if self._scratch is None:
            self._scratch = Path(mkdtemp(prefix="tui-agent-"))
            finalize(self, rmtree, self._scratch, ignore_errors=True)
        return self._scratch

    async def save(self, name: str, text: str, *, evicted: bool = False) -> Artifact:
        """Save a text; equal texts are saved once, whatever their names."""
        data = await asyncio.to_thread(lambda: valid_text(text).encode())
        path = next((path for path, kept in self._texts.items() if kept == text), f"large_tool_results/{name}")
        self._texts[path] = text
        return Artifact(path, len(data), await asyncio.to_thread(lambda: sha256(data).hexdigest()), evicted)

    async def append_history(self, thread: str, text: str) -> str:
        path = f"conversation_history/{thread}.md"
        self._texts[path] = self._texts.get(path, "") + text
        return path

    async def read(self, artifact: Artifact) -> str:
        """The full text. Raises `StorageError` for one of another process."""
        if artifact.path not in self._texts:
            raise Damaged(f"{artifact.path} was kept in the memory of a process that has ended.")
        return self._texts[artifact.path]
