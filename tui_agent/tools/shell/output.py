"""A command's output: its raw bytes in a private file, and the result that the model gets."""

import os
import tempfile
from pathlib import Path

from msgspec.structs import replace

from tui_agent.conversation.entries import Outcome
from tui_agent.regex import regex
from tui_agent.text import counted
from tui_agent.tools.base import ToolOutput
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.shell.processes import Ended
from tui_agent.tools.shell.terminal import Terminal

_UNSAFE = regex(r"[^A-Za-z0-9_-]+")
_NAME_CHARACTERS = 60
_SUFFIX = ".log"


def raw_file(folder: Path, call_id: str) -> Path | None:
    """The file with the output of a call of this id, if there is one below `folder`."""
    return next(iter(folder.glob(f"{_prefix(call_id)}*{_SUFFIX}")), None)


def _prefix(call_id: str) -> str:
    return _UNSAFE.sub("_", call_id)[:_NAME_CHARACTERS] + "-"


class RawStream:
    """A file below `folder` with the first `limit` bytes of a command's output.

    It is named after the call, and created with the first byte. If it cannot be written, `failure` says why and nothing
    more is stored; the command's result does not depend on it.
    """

    def __init__(self, folder: Path, call_id: str, *, limit: int) -> None:
        self._folder = folder
        self._prefix = _prefix(call_id)
        self._limit = limit
        self._file = -1
        self._size = 0
        self._closed = False
        self.path: Path | None = None
        self.failure = ""

    @property
    def description(self) -> str:
        """Where the raw output is, to end a sentence with."""
        if self.path is None:
            return "the raw output was not stored"
        path = shown(str(self.path))
        if self.failure or self._size >= self._limit:
            return f"the first {self._size:,} bytes of the raw output are in {path}"
        return f"the raw output is in {path}"

    def open(self) -> None:
        """Create the file now, before anything is written."""
        if self.path or self.failure:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file, name = tempfile.mkstemp(prefix=self._prefix, suffix=_SUFFIX, dir=self._folder)
            self.path = Path(name)
        except OSError as error:
            self.failure = error.strerror or str(error)

    def write(self, data: bytes) -> None:
        """Store `data`, up to the limit. Raises nothing."""
        if self._closed or self.failure or self._size >= self._limit:
            return
        self.open()
        left = memoryview(data)[: self._limit - self._size]
        try:
            while left and self._file >= 0:
                written = os.write(self._file, left)
                self._size += written
                left = left[written:]
        except OSError as error:
            self.failure = error.strerror or str(error)

    def tail(self, most: int, lines: int) -> str:
        """The last lines of what is stored, at most `most` bytes; empty if nothing is."""
        if self.path is None:
            return ""
        try:
            with self.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
                return "\n".join(file.read(most).decode(errors="replace").splitlines()[-lines:])
        except OSError as error:
            return f"[the output cannot be read: {error.strerror}]"

    def close(self) -> None:
        """Close the file; later writes are ignored."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._closed = True


def answer(
    terminal: Terminal,
    raw: RawStream,
    notes: list[str],
    outcome: Outcome,
    *,
    is_error: bool,
    nothing: str = "[no output]",
) -> ToolOutput:
    """The result for the model: the terminal's text (or `nothing`), then the notes. The first note is also the summary.

    This may take 0.3 s for a very long stream: call it off the event loop.
    """
    output = terminal.text().rstrip("\n")
    printed = terminal.dropped_lines + output.count("\n") + 1
    if terminal.dropped_bytes:
        lines = counted(terminal.dropped_lines, "line")
        lost = f"[{terminal.dropped_bytes:,} bytes ({lines}) of earlier output are not shown"
        output = f"{lost}; {raw.description}]\n{output}"
    if raw.failure:
        notes = [*notes, f"[the raw output could not be stored: {raw.failure}]"]
    noted = "\n".join(notes)
    if terminal.dropped_bytes:
        outcome = replace(outcome, line_count=printed + noted.count("\n") + 1)
    return ToolOutput(
        stream=True,
        text=f"{output or nothing}\n{noted}",
        is_error=is_error,
        summary=notes[0].strip("[]"),
        outcome=replace(outcome, notes=noted.count("\n") + 1 + (not output and not outcome.timed_out)),
    )


def what_still_runs(ended: Ended, process: int) -> str:
    """A note about processes that a command left running, and what to do instead. `process`: the id to stop them by."""
    held = " and can no longer write to its output" if ended.left_open else ""
    listed = ", ".join(map(str, ended.left[:10]))
    return (
        f"[a process it started is still running{held}: {listed}; stop_command(process={process}) ends it. Use "
        "`background` for what should go on]"
    )
