"""The tasks that a server still works on, kept in the session's folder, so that a later run can take one up."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded_file

GOES_ON: Final = (
    "[interrupted: nobody waited any more for the result, but the server goes on with this call as a task. The same "
    "call again, with the same arguments, waits for its result and does not begin anew]"
)


class OpenTasks:
    """The ids of a server's unfinished tasks, by the call that began each. Reads and writes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids: dict[str, str] | None = None
        self._under_way: set[str] = set()

    def find(self, call: str) -> str | None:
        """The task that this call began; None if it has ended, began none, or is being waited for right now."""
        return None if call in self._under_way else self._known().get(call)

    @contextmanager
    def waiting(self, call: str) -> Iterator[None]:
        """While this call waits for its result; another like it begins a task of its own."""
        new = call not in self._under_way
        self._under_way.add(call)
        try:
            yield
        finally:
            if new:
                self._under_way.discard(call)

    def keep(self, call: str, task: str) -> None:
        """Keep the task that a call began. Without a disk, only this process remembers it."""
        self._known()[call] = task
        self._write()

    def forget(self, call: str) -> None:
        """The call's task has ended, or is no longer wanted."""
        if self._known().pop(call, None) is not None:
            self._write()

    def _known(self) -> dict[str, str]:
        if self._ids is None:
            self._ids = decoded_file(self._path, dict[str, str]) or {}
        return self._ids

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            make_private_folder(self._path.parent)
            write_file(self._path, msgspec.json.encode(self._known()))


def call_key(tool: str, arguments: Mapping[str, object]) -> str:
    """What tells a call of a tool from others: the tool and its arguments, in any order."""
    return sha256(json.dumps([tool, arguments], sort_keys=True).encode()).hexdigest()
