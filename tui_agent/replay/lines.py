"""Lines of a file, one at a time, so that a large file never is in memory as a whole."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from tui_agent.replay.recording import UnreadableRecording

Progress: TypeAlias = Callable[[int, int], None]
"""Told the bytes read so far and the bytes there are."""

_REPORT_BYTES = 1 << 20


def read_lines(path: Path, progress: Progress | None = None) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1. Raises `UnreadableRecording`."""
    try:
        with path.open("rb") as file:
            total, done, reported = path.stat().st_size, 0, 0
            for number, line in enumerate(file, 1):
                done += len(line)
                if progress is not None and done - reported >= _REPORT_BYTES:
                    progress(done, total)
                    reported = done
                line = line.strip().removeprefix(b"\xef\xbb\xbf")
                if line:
                    yield number, line
            if progress is not None:
                progress(total, total)
    except OSError as error:
        raise UnreadableRecording(f"{path} cannot be read: {error.strerror or error}.") from error
