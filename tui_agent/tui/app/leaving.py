"""Leaving the program: Ctrl+C pressed twice, signals, and an exit that nothing still running can prevent."""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from math import inf
from queue import SimpleQueue
from threading import Event, Thread, Timer
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Final

from tui_agent.arguments import ExitCode
from tui_agent.printing import in_a_line

if TYPE_CHECKING:
    from tui_agent.tui.host import Host

AGAIN_S: Final = 1.0
"""Seconds within which a second Ctrl+C quits."""
PATIENCE_S: Final = 0.5
"""Seconds for the session to close cleanly once the user insists. Everything said is on disk by then."""
LAST_WAY_OUT_S: Final = 0.2
"""Seconds for the process to end by itself after that."""
SIGNAL_GRACE_S: Final = 4.0
"""Seconds for the session to close after a signal: less than service managers wait before they kill a process."""
ANSWER_S: Final = 0.5
"""An event loop that does not respond within this many seconds is taken to be stuck."""
LOOKS: Final = 10
"""Into how many waits `ANSWER_S` is divided."""
GIVE_BACK_S: Final = 1.0
"""A terminal that accepts no output for this many seconds is given up; even a busy machine's accepts some in that time.
"""
INSISTING: Final = "break"
"""The id of the action that quits when its key, by default Ctrl+C, is pressed twice."""


class DoublePress:
    """Detects a key that is pressed twice in a row, with no other key between."""

    def __init__(self) -> None:
        self._at: float | None = None

    def pressed(self) -> bool:
        """Note a press; True if it is the second in a row."""
        now = monotonic()
        again = self._at is not None and now - self._at < AGAIN_S
        self._at = None if again else now
        return again

    def disarm(self) -> bool:
        """Note another key; True if the key had been pressed before."""
        was, self._at = self._at is not None, None
        return was


class StuckLoopGuard:
    """Ends the program if its event loop is stuck, as when the terminal accepts no output."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
        self.loop = loop
        self._end = end
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._twice = DoublePress()
        Thread(target=self._watch, name="guard", daemon=True).start()

    def read(self, *, insists: bool) -> None:
        """Note a key as it is read; `insists`: it is Ctrl+C. A stuck event loop would never see the second one."""
        if not insists:
            self._twice.disarm()
        elif self._twice.pressed():
            self.ask()

    def ask(self) -> None:
        """End the program unless the event loop responds. Callable from any thread and from signal handlers."""
        self._asked.put(None)

    def _watch(self) -> None:
        while True:
            self._asked.get()
            answered = Event()
            # A closed loop raises, and never responds.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(answered.set)
            # Several short waits: if the whole process was suspended, only one of them is used up by that.
            if not any(answered.wait(ANSWER_S / LOOKS) for _ in range(LOOKS)):
                self._end()


class AppExit:
    """Ends one app, for whatever reason. `close`: closes the session cleanly."""

    def __init__(self, app: "Host", close: Callable[[], Coroutine[None, None, None]]) -> None:
        self._app = app
        self._close = close
        self._by: float | None = None
        self._signalled = False
        self._guard: StuckLoopGuard | None = None
        self.hurried = False
        """Whether the user did not wait for the session to close."""
        self.start_next: tuple[str, ...] = ()
        """The arguments with which the program is to be started next; empty: it ends."""
        self.last_words: Callable[[], None] = lambda: None
        """Prints, once the terminal is restored, why the program ended and how to continue."""

    def begin(self, patience: float | None = None) -> None:
        """Close the session and exit, within `patience` seconds even if something is still running; None: no limit."""
        by = inf if patience is None else monotonic() + patience
        if self._by is None or by < self._by:
            self._by = by
            self._app.run_worker(self._leave(by), name="leave", exclusive=True, group="leave")

    def watch(self) -> None:
        """Start the guard that ends the program even if its event loop is stuck."""
        if not self._app.is_headless:
            self._guard = StuckLoopGuard(asyncio.get_running_loop(), self._end)
        if self._signalled:
            self.begin(SIGNAL_GRACE_S)

    def key_read(self, key: str) -> None:
        """Note a key as soon as it is read, in the input thread."""
        if self._guard is not None:
            self._guard.read(insists=key in self._app.keymap.keys(INSISTING))

    def end_on_signal(self) -> None:
        """End cleanly, with every running command, after the terminal was closed or the process was told to end.

        Called by the signal handler.
        """
        self._signalled = True
        if self._guard is not None:
            self._guard.ask()
            with suppress(RuntimeError):
                self._guard.loop.call_soon_threadsafe(self.begin, SIGNAL_GRACE_S)

    def say_last_words(self) -> None:
        """Print the last words, once, even if several paths lead to the end."""
        say, self.last_words = self.last_words, lambda: None
        say()

    def _follow_breaks(self) -> None:
        """Handle Ctrl+C as a signal from now on, since it must not interrupt restoring the terminal."""

        def stop(_number: int, _frame: FrameType | None) -> None:
            # A handler rather than SIG_IGN: Python reports an error for a pending signal without a handler.
            signal.signal(signal.SIGINT, lambda _number, _frame: None)
            self._end_soon()

        if not self._app.is_headless:
            signal.signal(signal.SIGINT, stop)

    async def _leave(self, by: float) -> None:
        app = self._app
        app.status.show(hint="closing")
        # Save the draft first: the process may be killed before the end.
        app.keep_draft()
        try:
            async with asyncio.timeout(None if by == inf else max(0.0, by - monotonic())):
                await asyncio.shield(asyncio.ensure_future(self._close()))
        except TimeoutError:
            self.hurried = True
        except Exception as error:
            app.crash = app.crash or f"the session was not closed in order ({in_a_line(error)})"
        self._follow_breaks()
        app.exit(return_code=self._code)
        if by != inf and not app.is_headless:
            # A thread that is still reading pictures would keep the process alive.
            self._end_soon()

    @property
    def _code(self) -> int:
        if self._app.crash:
            return ExitCode.FAILED
        return ExitCode.INTERRUPTED if self._signalled else ExitCode.DONE

    def _end_soon(self) -> None:
        """End the process in a moment, even if a thread is still running."""
        last = Timer(LAST_WAY_OUT_S, self._end)
        last.daemon = True
        last.start()

    def _end(self) -> None:
        """End the process, after restoring the terminal if that is not done yet and the terminal accepts output."""
        # Restored, the terminal turns every further Ctrl+C into a signal, which is no reason for this end.
        code = self._code
        giving = Thread(target=self._give_terminal_back, name="give back", daemon=True)
        giving.start()
        giving.join(GIVE_BACK_S)
        while giving.is_alive() and self._app.terminal_took_within(GIVE_BACK_S):
            giving.join(GIVE_BACK_S)
        os._exit(code)

    def _give_terminal_back(self) -> None:
        self._app.keep_draft()
        self._app.release_terminal()
        self.say_last_words()
