"""What an agent keeps its conversation in: a store for the log and a sink for the trace.

Any object of these shapes will do. Sessions on disk use `storage.log.LogStore` and `storage.trace.Trace`; the classes
here keep a conversation in memory, and need no sqlite.
"""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, Protocol, TypeAlias

from tui_agent.conversation.blocks import valid_text
from tui_agent.conversation.entries import AnyEntry, Artifact, TraceHead

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
"""What an event of the trace is about."""


class Store(Protocol):
    """Keeps the entries of one log. It has one writer, which loads it before it appends."""

    @property
    def read_only(self) -> str:
        """Why nothing can be added; empty where it can."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """Sentences the user should see: what was damaged, and what was kept of it."""
        ...

    async def load(self) -> Sequence[AnyEntry]:
        """Every entry, oldest first. Raises `StorageError`."""
        ...

    async def append(self, entries: Sequence[AnyEntry]) -> None:
        """Add stamped entries: all of them are kept when this returns, and none when it raises `StorageError`.

        Raises `ValueError` for numbers that do not follow the last one's.
        """
        ...

    async def close(self) -> None:
        """Release what it holds. Raises `StorageError`."""
        ...


class TraceSink(Protocol):
    """Takes the events of a session. Recording never waits and never fails; `flush` says what went wrong."""

    @property
    def head(self) -> TraceHead | None:
        """The newest event that is kept for good; None where none ever is."""
        ...

    def record(self, kind: Kind, body: object) -> None:
        """Add an event of the program's own: a permission, an alert, an error. `body` encodes to a JSON object."""
        ...

    def record_entry(self, entry: AnyEntry) -> None:
        """Add the events of an entry that was just appended to the log."""
        ...

    async def flush(self) -> None:
        """Write what is pending. Raises `StorageError`; what could not be written stays pending."""
        ...

    async def close(self) -> None:
        """Flush, and release what it holds. Raises `StorageError`."""
        ...


class MemoryStore:
    """Keeps a log for as long as the process lives; it may begin with the entries of an earlier one."""

    read_only = ""
    notices: Sequence[str] = ()

    def __init__(self, entries: Iterable[AnyEntry] = ()) -> None:
        self._entries = list(entries)

    async def load(self) -> list[AnyEntry]:
        return list(self._entries)

    async def append(self, entries: Sequence[AnyEntry]) -> None:
        check_numbers(entries, len(self._entries))
        self._entries.extend(entries)

    async def close(self) -> None:
        """Does nothing; the entries can still be loaded."""


class NoTrace:
    """Drops every event."""

    head: TraceHead | None = None

    def record(self, kind: Kind, body: object) -> None: ...

    def record_entry(self, entry: AnyEntry) -> None: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...


def check_numbers(entries: Sequence[AnyEntry], last: int) -> None:
    """Raises `ValueError` unless `entries` are numbered on from `last`, the number of the newest entry kept so far."""
    numbers = [entry.seq for entry in entries]
    if numbers != list(range(last + 1, last + 1 + len(entries))):
        raise ValueError(f"entries {numbers} cannot follow entry {last}")


class MemoryTexts:
    """Texts that entries point at, kept in memory; see `agent.turn.steps.Texts`."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._scratch: TemporaryDirectory[str] | None = None

    @property
    def folder(self) -> Path:
        """A temporary folder for what a tool writes for itself; it goes with this object."""
        if self._scratch is None:
            self._scratch = TemporaryDirectory(prefix="tui-agent-")
        return Path(self._scratch.name)

    async def save(self, name: str, text: str, *, evicted: bool = False) -> Artifact:
        """Keep a text; the same text under any name is kept once."""
        data = valid_text(text).encode()
        path = next((path for path, kept in self._texts.items() if kept == text), f"large_tool_results/{name}")
        self._texts[path] = text
        return Artifact(path, len(data), sha256(data).hexdigest(), evicted)

    async def append_history(self, thread: str, text: str) -> str:
        """Add turns to a history; where it lies."""
        path = f"conversation_history/{thread}.md"
        self._texts[path] = self._texts.get(path, "") + text
        return path

    async def read(self, artifact: Artifact) -> str:
        """The whole text. Raises KeyError."""
        return self._texts[artifact.path]
