"""Leaving the program: Ctrl+C pressed twice, signals, and an end that comes whatever still runs."""

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
from tui_agent.crash_log import in_a_line

if TYPE_CHECKING:
    from tui_agent.tui.app.base_app import BaseApp

AGAIN_S: Final = 1.0
"""Seconds within which a second Ctrl+C quits."""
PATIENCE_S: Final = 0.5
"""Seconds that the session has to close in order once the user insists. All that was said is on disk by then."""
LAST_WAY_OUT_S: Final = 0.2
"""Seconds that the program then has to end by itself."""
TOLD_S: Final = 4.0
"""Seconds that the session has where a signal ends the program: less than who sends one waits before they kill it."""
ANSWER_S: Final = 0.5
"""Seconds in which the event loop answers, however busy it is."""
LOOKS: Final = 10
"""In which it is waited for."""
GIVE_BACK_S: Final = 1.0
"""Seconds in which a terminal takes some of what gives it back, on a busy machine too; one that nobody reads takes
nothing.
"""
INSISTING: Final = "break"
"""The action of Ctrl+C, or of the key that is given to it."""


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


class Guard:
    """Ends the program where its event loop does not answer any more, as with a terminal that takes nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
        self.loop = loop
        self._end = end
        self._asked: SimpleQueue[None] = SimpleQueue()
        self._twice = Twice()
        Thread(target=self._watch, name="guard", daemon=True).start()

    def read(self, *, insists: bool) -> None:
        """Note a key as it is read, Ctrl+C or another: nobody else may hear of the second Ctrl+C in a row."""
        if not insists:
            self._twice.disarm()
        elif self._twice.pressed():
            self.ask()

    def ask(self) -> None:
        """End it unless the loop answers. For every thread, and for what a signal interrupts."""
        self._asked.put(None)

    def _watch(self) -> None:
        while True:
            self._asked.get()
            answered = Event()
            # Closed, it has done all it will do.
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(answered.set)
            # Look by look: while the whole process stands still, one of them passes, and the loop has the others.
            if not any(answered.wait(ANSWER_S / LOOKS) for _ in range(LOOKS)):
                self._end()


class Leaving:
    """The end of one app, however it comes. `close` closes the session in order."""

    def __init__(self, app: "BaseApp", close: Callable[[], Coroutine[None, None, None]]) -> None:
        self._app = app
        self._close = close
        self._by: float | None = None
        self._told = False
        self._guard: Guard | None = None
        self.hurried = False
        """Whether the user would not wait until the session is closed."""
        self.last_words: Callable[[], None] = lambda: None
        """Says on the terminal, once it is given back, why the program ended and how to go on."""

    def begin(self, patience: float | None = None) -> None:
        """Close the session, then leave; within so many seconds, whatever still runs: what was said is kept."""
        by = inf if patience is None else monotonic() + patience
        if self._by is None or by < self._by:
            self._by = by
            self._app.run_worker(self._leave(by), name="leave", exclusive=True, group="leave")

    def watch(self) -> None:
        """See to it from here on that the program ends, though its event loop may stand still."""
        if not self._app.is_headless:
            self._guard = Guard(asyncio.get_running_loop(), self._end)
        if self._told:
            self.begin(TOLD_S)

    def key_read(self, key: str) -> None:
        """Note a key as soon as it is read, in the thread that reads."""
        if self._guard is not None:
            self._guard.read(insists=key in self._app.keymap.keys(INSISTING))

    def told_to_end(self) -> None:
        """When the terminal is closed or the process is told to end: in order too, with every command that runs. Called
        by the signal's handler.
        """
        self._told = True
        if self._guard is not None:
            self._guard.ask()
            with suppress(RuntimeError):
                self._guard.loop.call_soon_threadsafe(self.begin, TOLD_S)

    def say_last_words(self) -> None:
        """Say them once, whoever comes to the program's end first."""
        say, self.last_words = self.last_words, lambda: None
        say()

    def _follow_breaks(self) -> None:
        """From where the terminal is given back, Ctrl+C is a signal, which must not leave that half done."""

        def told(_number: int, _frame: FrameType | None) -> None:
            # Ignored by a handler: Python complains where one is on its way to a signal that is not handled any more.
            signal.signal(signal.SIGINT, lambda _number, _frame: None)
            self._end_soon()

        if not self._app.is_headless:
            signal.signal(signal.SIGINT, told)

    async def _leave(self, by: float) -> None:
        app = self._app
        app.status.show(hint="closing")
        # Whoever ends the program may not wait for its end.
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
            # A thread that still reads pictures would keep the program from its end.
            self._end_soon()

    @property
    def _code(self) -> int:
        if self._app.crash:
            return ExitCode.FAILED
        return ExitCode.INTERRUPTED if self._told else ExitCode.DONE

    def _end_soon(self) -> None:
        """End the process in a moment, even where a thread of it does not come to its end."""
        last = Timer(LAST_WAY_OUT_S, self._end)
        last.daemon = True
        last.start()

    def _end(self) -> None:
        """End the process. The terminal is given back where that is not done by then, and it takes anything."""
        giving = Thread(target=self._give_terminal_back, name="give back", daemon=True)
        giving.start()
        giving.join(GIVE_BACK_S)
        while giving.is_alive() and self._app.terminal_took_within(GIVE_BACK_S):
            giving.join(GIVE_BACK_S)
        os._exit(self._code)

    def _give_terminal_back(self) -> None:
        self._app.keep_draft()
        self._app.release_terminal()
        self.say_last_words()
