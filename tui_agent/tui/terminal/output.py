"""What is written to the terminal, which may go, or take nothing for a while."""

import os
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import IO, Final

PIECE: Final = 16_384
"""Characters that are written at once: so much a slow terminal takes in well under a second."""


class Written(str):
    """Stands behind what is written, and is told once that has been."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        super().__init__()
        self.reached = Event()


class Surviving:
    """A terminal's file to which writing does no harm once the terminal is gone: there is nobody left to tell."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._skipped: Written | None = None
        self.gone = False
        self.taken_at = 0.0
        """When the terminal last took something, on the monotonic clock."""

    def skip_to_here(self) -> Written:
        """Leave out what is on the way and not written yet, up to what is returned, which is to be written next."""
        self._skipped = Written()
        return self._skipped

    def write(self, text: str) -> None:
        """Write, or drop what nobody will see."""
        if isinstance(text, Written):
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
        """Bring it to the terminal."""
        if not self.gone:
            self._wait_for_it()
            try:
                self._file.flush()
            except (OSError, ValueError):
                self.gone = True

    def _wait_for_it(self) -> None:
        """Have writing wait for a terminal that is full. Another program may have said otherwise for all that use it:
        those on Node.js do, and a part of a picture would then be lost.
        """
        with suppress(OSError, ValueError):
            if not os.get_blocking(self._file.fileno()):
                os.set_blocking(self._file.fileno(), True)

    def fileno(self) -> int:
        """The number of the file."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()
