"""Keys typed before the app reads the terminal: they wait in the terminal's buffer, without echo."""

import sys
from contextlib import suppress
from typing import Any

_INPUT, _LOCAL = 0, 3
"""Indexes of the input and the local flags in the list from `termios.tcgetattr`."""


class EarlyKeys:
    """Sets the terminal to single keys without echo, from its creation until `give_back` or the app takes over."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None
        self.lines = 0
        """How many waiting bytes were typed before, in line mode, where Enter yields a line feed."""
        if not sys.stdin.isatty():
            return
        import termios

        terminal = sys.stdin.fileno()
        with suppress(termios.error, OSError):
            before, meanwhile = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
            # Read Ctrl+C and Ctrl+Z as keys too: as signals they would discard the input typed before them.
            meanwhile[_INPUT] &= ~(termios.ICRNL | termios.IXON)
            meanwhile[_LOCAL] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
            termios.tcsetattr(terminal, termios.TCSANOW, meanwhile)
            self._before = before
            self.lines = _waiting(terminal)

    def taken_over(self) -> list[Any] | None:
        """The terminal's original settings, for the caller to restore; later calls return None."""
        before, self._before = self._before, None
        return before

    def give_back(self) -> None:
        """Restore the original settings, unless the app has taken over."""
        if (before := self.taken_over()) is not None:
            import termios

            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)

    def read(self, data: bytes) -> bytes:
        """Turn the line feed of a single line typed in line mode back into Enter.

        Several lines stay as they are: they may be a paste, which must not be sent line by line.
        """
        lines, self.lines = data[: self.lines], 0
        return (lines.replace(b"\n", b"\r") if lines.count(b"\n") == 1 else lines) + data[len(lines) :]


def _waiting(terminal: int) -> int:
    """The number of bytes waiting to be read."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)), sys.byteorder)
