"""What is typed before the app reads the terminal: it waits there, unseen, as keys."""

import sys
from contextlib import suppress
from typing import Any

_INPUT, _LOCAL = 0, 3
"""Places of the input and the local flags in what `termios.tcgetattr` gives."""


class EarlyKeys:
    """Takes the keys of a terminal from when it is made, until they are given back or the app takes them over."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None
        self.lines = 0
        """Bytes that were typed before: the terminal had lines then, and put a line feed for each Enter."""
        if sys.platform == "win32" or not sys.stdin.isatty():
            return
        import termios

        terminal = sys.stdin.fileno()
        with suppress(termios.error, OSError):
            before, meanwhile = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
            # Ctrl+C and Ctrl+Z too: as signals they would overtake what was typed before them, and drop it.
            meanwhile[_INPUT] &= ~(termios.ICRNL | termios.IXON)
            meanwhile[_LOCAL] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
            termios.tcsetattr(terminal, termios.TCSANOW, meanwhile)
            self._before = before
            self.lines = _waiting(terminal)

    def taken_over(self) -> list[Any] | None:
        """The settings that the terminal had before, once: whoever gets them will bring them back."""
        before, self._before = self._before, None
        return before

    def give_back(self) -> None:
        """Bring these settings back, where nobody has taken them over."""
        if (before := self.taken_over()) is not None:
            import termios

            with suppress(termios.error):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, before)

    def read(self, data: bytes) -> bytes:
        """What is read first, as it was typed: a line ended with Enter. Of several nobody knows who has ended them, and
        a paste is not to be sent line by line.
        """
        lines, self.lines = data[: self.lines], 0
        return (lines.replace(b"\n", b"\r") if lines.count(b"\n") == 1 else lines) + data[len(lines) :]


def _waiting(terminal: int) -> int:
    """Bytes that the terminal has for who reads it."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(terminal, termios.FIONREAD, bytes(4)), sys.byteorder)
