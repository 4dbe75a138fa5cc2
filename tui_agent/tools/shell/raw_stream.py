"""The raw bytes of one command's output in a private file, up to a limit."""

import os
import re
import tempfile
from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARACTERS = 60


class RawStream:
    """A file below `folder`, named after the call, made at the first byte. At most `limit` bytes are stored.

    A file that cannot be written is given up and `failure` says why: the command's result does not depend on it.
    """

    def __init__(self, folder: Path, call_id: str, *, limit: int) -> None:
        self._folder = folder
        self._prefix = _UNSAFE.sub("_", call_id)[:_NAME_CHARACTERS] + "-"
        self._limit = limit
        self._file = -1
        self._size = 0
        self._closed = False
        self.path: Path | None = None
        self.failure = ""

    @property
    def description(self) -> str:
        """Where the raw output is, for a notice."""
        if self.path is None:
            return "the raw output was not stored"
        part = (
            f"the first {self._limit:,} bytes of the raw output are"
            if self._size >= self._limit
            else "the raw output is"
        )
        return f"{part} in {self.path}"

    def open(self) -> None:
        """Make the file now, though nothing was written yet."""
        if self.path or self.failure:
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file, name = tempfile.mkstemp(prefix=self._prefix, suffix=".log", dir=self._folder)
            self.path = Path(name)
        except OSError as error:
            self.failure = error.strerror or str(error)

    def write(self, data: bytes) -> None:
        if self._closed or self.failure or self._size >= self._limit:
            return
        self.open()
        room = memoryview(data)[: self._limit - self._size]
        try:
            while room and self._file >= 0:
                written = os.write(self._file, room)
                self._size += written
                room = room[written:]
        except OSError as error:
            self.failure = error.strerror or str(error)

    def close(self) -> None:
        """No more is written after this."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._closed = True

    def sync(self) -> None:
        """Make sure that the file is on the disk. May take a while: call it off the event loop."""
        if self.path is None:
            return
        try:
            file = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            self.failure = error.strerror or str(error)
