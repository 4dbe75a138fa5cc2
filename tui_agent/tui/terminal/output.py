"""Writing to a terminal that may disappear, or block for a while."""

import os
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import IO, Final

PIECE: Final = 16_384
"""Characters written at once: a slow terminal takes them in well under a second."""


class WriteMarker(str):
    """An empty marker in the output queue; `reached` is set once everything before it was written."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        super().__init__()
        self.reached = Event()


class SurvivingFile:
    """A terminal's file that ignores writes once the terminal is gone."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._skipped: WriteMarker | None = None
        self.gone = False
        self.taken_at = 0.0
        """When the terminal last accepted output, on the monotonic clock."""

    def skip_to_here(self) -> WriteMarker:
        """Discard queued output up to the returned marker, which the caller must write next."""
        self._skipped = WriteMarker()
        return self._skipped

    def write(self, text: str) -> None:
        """Write the text, or drop it if the terminal is gone or it is being skipped."""
        if isinstance(text, WriteMarker):
            self._skipped = None if text is self._skipped else self._skipped
            self.flush()
            text.reached.set()
        elif self._skipped is None:
            for start in range(0, len(text), PIECE):
                self._write(text[start : start + PIECE])

    def _write(self, text: str) -> None:
        if not self.gone:
            self._wait_for_it()
            try:
                self._file.write(text)
                if len(text) == PIECE:
                    self._file.flush()
            except (OSError, ValueError):
                self.gone = True
        self.taken_at = monotonic()

    def flush(self) -> None:
        if not self.gone:
            self._wait_for_it()
            try:
                self._file.flush()
            except (OSError, ValueError):
                self.gone = True

    def _wait_for_it(self) -> None:
        """Set the file to blocking mode. Other programs on the same terminal, such as those on Node.js, set it to
        non-blocking for everyone, and parts of a frame would be lost.
        """
        with suppress(OSError, ValueError):
            if not os.get_blocking(self._file.fileno()):
                os.set_blocking(self._file.fileno(), True)

    def fileno(self) -> int:
        return self._file.fileno()

    def isatty(self) -> bool:
        return self._file.isatty()
