"""Leaving the program: Ctrl+C pressed twice, and an end that comes whatever still runs."""

import os
from collections.abc import Callable
from threading import Timer
from time import monotonic
from typing import Final

AGAIN_S: Final = 1.0
"""Seconds within which a second Ctrl+C quits."""
PATIENCE_S: Final = 0.5
"""Seconds that the session has to close in order once the user insists. All that was said is on disk by then."""
LAST_WAY_OUT_S: Final = 0.2
"""Seconds that the program then has to end by itself."""


class Twice:
    """Whether a key is pressed twice in a row, with no other key between."""

    def __init__(self) -> None:
        self._at: float | None = None

    def pressed(self) -> bool:
        """It is pressed now; whether that is the second time."""
        now = monotonic()
        again = self._at is not None and now - self._at < AGAIN_S
        self._at = None if again else now
        return again

    def disarm(self) -> bool:
        """Something else came between; whether it was pressed before."""
        was, self._at = self._at is not None, None
        return was


def end_soon(give_back: Callable[[], None], code: int) -> None:
    """End the process in a moment, even where a thread of it does not come to its end.

    `give_back` brings the terminal back to what it was; it is called where the program has not done so itself by then.
    """

    def end() -> None:
        try:
            give_back()
        finally:
            os._exit(code)

    last = Timer(LAST_WAY_OUT_S, end)
    last.daemon = True
    last.start()
