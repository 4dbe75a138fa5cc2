"""The terminal's input and output as this app needs them: Textual's driver and parser, with their private parts.

Large pastes are taken in one piece, an Esc before other keys is a key of its own, and invalid bytes do no harm. With a
version of Textual that lacks one of these parts, the import fails and Textual's own driver is used.
"""

import os
import selectors
import signal
import sys
import termios
from asyncio import get_running_loop
from codecs import getincrementaldecoder
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from io import TextIOWrapper
from threading import Lock
from time import monotonic
from typing import Any, Final
from unicodedata import category

from textual import constants, events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import SPECIAL_KEY_TO_CHARACTER, XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.keys import Keys
from textual.message import Message
from typing_extensions import override

from tui_agent.regex import regex
from tui_agent.tui.terminal.attention import RESTORE_TITLE, SAVE_TITLE
from tui_agent.tui.terminal.early_keys import EarlyKeys
from tui_agent.tui.terminal.output import SurvivingFile, WriteMarker
from tui_agent.tui.terminal.sequences import (
    ESC,
    RELEASED,
    REST_S,
    ends_with_mouse,
    for_the_keyboard,
    kind_of_key,
    split_begun,
    without_rest_of_mouse,
)
from tui_agent.tui.terminal.textual_internals import WHEEL, TerminalApp

PASTE_START: Final = "\x1b[200~"
PASTE_END: Final = "\x1b[201~"
_MARK_TAIL: Final = len(PASTE_START) - 1
BREAKS: Final = ("\x03", "\x1b[99;5u")
"""The sequences that terminals send for Ctrl+C."""
_ESCAPED: Final = regex(r"\x1b(?=([^\[O]|[\[O]\Z))")
"""Matches an Esc followed by something that does not continue a sequence."""
TYPED_BEHIND_ESC: Final = "0123456789-=\xa7" + ("" if os.environ.get("TERM") == "linux" else "\t")
"""Keys that Textual would make one key of with an Esc before them: the signs of a Mac's keyboard, and the Shift+Tab
that only the console of Linux sends so. They are Esc and that key.
"""
READ_BYTES: Final = 65_536
PAINT_NOW: Final = "\x1b[?2026l"
"""Ends synchronised output, in case the end of a frame was discarded."""
MODES_AGAIN: Final = "\x1b[?1049h\x1b[?25l\x1b[?1004h\x1b[?2004h\x1b[?7l"
"""The modes that Textual sets: alternate screen, hidden cursor, focus reports, bracketed pastes, no line wrapping."""
KITTY_AGAIN: Final = "\x1b[<u\x1b[>25u"
"""Enables kitty's key protocol as Textual does, popping it first so that it is not pushed twice."""
WRITTEN_S: Final = 0.7
"""Seconds without accepting output after which, at the end, the terminal is given up."""
ESCAPE_S: Final = 0.04
"""Seconds until a lone Esc counts as the Esc key: terminals send the bytes of other keys at once, and a key's effect
must be visible within 100 ms. The environment variable `ESCDELAY`, in milliseconds, overrides it for slow lines.
"""
REPORTS_S: Final = 0.25
"""The same behind a report of the mouse: a machine that is busy cuts a flood of them anywhere."""
LOOK_S: Final = 0.1
"""Seconds to wait for input before checking whether the app still reads."""


class InputParser(XTermParser):
    """Parses terminal input, correcting some cases of Textual's parser.

    A bracketed paste is taken in one piece instead of character by character: Textual needs 7 s for 10 MB. A paste
    whose end mark was lost ends with a Ctrl+C that is pressed after input has paused.

    A sequence that arrives in pieces is completed. An Esc followed by other keys is the Esc key, unless it starts a
    sequence or forms an Alt key of `alt_keys`: on a busy machine, keys pressed one after the other arrive together, and
    Textual drops the Esc.

    Answers to other programs' queries are dropped, and so are impossible keys.
    """

    def __init__(self, debug: bool = False, alt_keys: Container[str] = ()) -> None:
        super().__init__(debug)
        self._alt_keys = alt_keys
        self._patience = (
            [constants.ESCAPE_DELAY] * 2 if os.environ.get("ESCDELAY") else [ESCAPE_S, constants.ESCAPE_DELAY]
        )
        self._begun = ""
        self._in_reports = self._escaped = False
        self._pasted: list[str] | None = None
        self._came_at = 0.0

    @override
    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
            return
        before, self._came_at = self._came_at, monotonic()
        if self._pasted is not None and data in BREAKS and self._came_at - before > REST_S:
            paste, self._pasted = _paste_of(self._pasted), None
            yield paste
        if self._escaped:
            data, self._escaped = without_rest_of_mouse(data), False
        data, self._begun = self._begun + data, ""
        while data:
            if self._pasted is not None:
                data, whole = self._collect(self._pasted, data)
                if whole is not None:
                    self._pasted = None
                    yield whole
                continue
            ours, begins, data = data.partition(PASTE_START)
            if begins:
                self._pasted = []
            else:
                ours, self._begun = split_begun(ours)
                self._in_reports = ends_with_mouse(ours)
            yield from self._fed(for_the_keyboard(ours))

    @override
    def tick(self) -> Iterable[Message]:
        """The messages that follow from a pause in the input."""
        if self._begun and not self.waits_for_s:
            begun, self._begun = self._begun, ""
            if begun == ESC:
                self._escaped = True
                yield events.Key("escape", ESC)
            elif len(begun) > 2 or (begun[1] in "[O" and self._with_alt(begun[1]) not in self._alt_keys):
                # The rest of the sequence was lost: do not take its Esc for the key.
                yield from super().feed(begun[1:])
            else:
                yield from self._fed(begun)
        yield from super().tick()

    @property
    def waits_for_s(self) -> float:
        """Seconds until `tick` should be called."""
        if not self._begun:
            return LOOK_S
        patience = REST_S if len(self._begun) > 2 else self._patience[len(self._begun) - 1]
        if self._in_reports:
            patience = max(patience, REPORTS_S)
        return min(LOOK_S, max(0.0, self._came_at + patience - monotonic()))

    def _fed(self, text: str) -> Iterable[Message]:
        """Feed a text to Textual's parser, handling Esc before a character here."""
        done = 0
        for found in _ESCAPED.finditer(text):
            behind = found[1]
            if behind != ESC and behind not in TYPED_BEHIND_ESC and ESC + behind in ANSI_SEQUENCES_KEYS:
                continue
            if found.start() > done:
                yield from super().feed(text[done : found.start()])
            alt = self._with_alt(behind)
            if alt in self._alt_keys:
                yield events.Key(alt, None)
                done = found.end() + len(behind)
            else:
                yield events.Key("escape", ESC)
                done = found.end()
        if done < len(text):
            yield from super().feed(text[done:])

    def _with_alt(self, sign: str) -> str:
        name = next((key.key for key in self._sequence_to_key_events(sign)), "")
        return f"alt+shift+{name.lower()}" if len(name) == 1 and name.isupper() else f"alt+{name}"

    def feed_text(self, text: str) -> Iterable[Message]:
        """Like `feed`, but an empty text does not mean the end of the input."""
        return self.feed(text) if text else ()

    @override
    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if len(sequence) == 1:
            return super()._sequence_to_key_events(sequence, alt)
        sequence, kind = kind_of_key(sequence)
        try:
            keys = list(super()._sequence_to_key_events(sequence, alt))
        except (ValueError, OverflowError):
            # Textual would take any number for a character.
            return [events.Key(Keys.Ignore, None)]
        is_one = kind != RELEASED and all(map(_can_be, keys))
        return keys if is_one or not keys else [events.Key(Keys.Ignore, None)]

    def _collect(self, pasted: list[str], data: str) -> tuple[str, events.Paste | None]:
        """Collect a piece of a paste; returns the input after it, and the paste once it is complete."""
        tail = pasted.pop() if pasted else ""
        joined = tail + data
        end = joined.find(PASTE_END)
        if end < 0:
            pasted += (joined[:-_MARK_TAIL], joined[-_MARK_TAIL:]) if len(joined) > _MARK_TAIL else (joined,)
            return "", None
        pasted.append(joined[:end])
        return joined[end + len(PASTE_END) :], _paste_of(pasted)


def _paste_of(pieces: Iterable[str]) -> events.Paste:
    # Drop null characters, as Textual does: they end strings in some terminals.
    return events.Paste("".join(pieces).replace("\x00", ""))


def _can_be(key: events.Key) -> bool:
    """Whether a key is valid: it has no character, a printable one, or a control character that has a key."""
    sign = key.character
    return sign is None or category(sign) not in ("Cc", "Cs") or sign in SPECIAL_KEY_TO_CHARACTER.values()


class TerminalDriver(LinuxDriver):
    """Textual's driver with `InputParser`, replacement of invalid UTF-8, and support for a terminal that
    disappears.

    It restores the window's title whenever the program gives up the terminal. It reads the size from the system
    only: terminals that report it in band would also report every pixel of mouse movement.
    """

    early: EarlyKeys
    """Those that were pressed before it read."""
    _has_terminal = False
    _behind = False
    """Whether the program was continued in the background, without the terminal."""
    _to_stop = False
    _giving_back = Lock()
    _surviving: SurvivingFile | None = None
    _raw: list[Any] | None = None

    @override
    def start_application_mode(self) -> None:
        drawn_on, other = self._file, sys.__stdout__
        if drawn_on is not None and not drawn_on.isatty() and other is not None and other.isatty():
            # Textual draws on the standard error output, which is a file with `2>log`.
            self._file = other
        if isinstance(self._file, TextIOWrapper):
            # The writer thread uses only these methods of a file.
            self._surviving = SurvivingFile(self._file)
            self._file = self._surviving  # type: ignore[assignment]
        thread = self._key_thread
        loop = get_running_loop()
        # Until our handler is set, Textual's could report a size out of order.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})
        try:
            super().start_application_mode()  # type: ignore[no-untyped-call]
            self._behind = self._key_thread is thread
            if self._behind:
                return
            # Not in the signal handler itself: a second signal would interrupt it, and the older size be
            # reported last.
            signal.signal(signal.SIGWINCH, lambda *_: loop.call_soon_threadsafe(self._tell_size))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._has_terminal = True
        self.attrs_before = self.early.taken_over() or self.attrs_before
        with suppress(termios.error):
            self._raw = termios.tcgetattr(self.fileno)
        self.write(SAVE_TITLE)

    def _tell_size(self) -> None:
        if isinstance(self._app, TerminalApp):
            self._app.resized = True
        size = Size(*self._get_terminal_size())
        self._app.post_message(events.Resize(size, size))

    @override
    def _query_in_band_window_resize(self) -> None:
        pass

    @override
    def write(self, data: str) -> None:
        if not self._behind:
            super().write(data)

    @override
    def _sigtstp_application(self, *_: object) -> None:
        # The handler may have interrupted a write, so the event loop gives up the terminal.
        self._to_stop = True
        if not self._auto_restart or not self._on_loop(self._stop):
            os.kill(os.getpid(), signal.SIGSTOP)

    @override
    def _sigcont_application(self, *_: object) -> None:
        self._to_stop = False
        if self._auto_restart:
            self._on_loop(self._continued)

    def _on_loop(self, act: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return False
        return True

    def _stop(self) -> None:
        """Stop the whole process group, as the terminal itself would on Ctrl+Z."""
        if not self._is_to_stop() or not self._has_terminal:
            return
        self.suspend_application_mode()
        if self._is_to_stop():
            handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(0, signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, handler)
        # The system does not stop an orphaned process group, which no shell could continue.
        stayed, self._to_stop = self._is_to_stop(), False
        self._must_signal_resume = True
        self.resume_application_mode()
        if stayed and isinstance(self._app, TerminalApp):
            self._app.not_stopped()

    def _is_to_stop(self) -> bool:
        """Whether it was told to stop and not continued since; a signal handler may change that at any moment."""
        return self._to_stop

    def _continued(self) -> None:
        """Set up the terminal again, since another program may have changed its modes."""
        if self._behind:
            self._must_signal_resume = True
            self.resume_application_mode()
        elif self._has_terminal:
            with suppress(termios.error):
                if self._raw is not None:
                    termios.tcsetattr(self.fileno, termios.TCSANOW, self._raw)
            self.write(MODES_AGAIN + ("" if constants.DISABLE_KITTY_KEY else KITTY_AGAIN))
            self._enable_mouse_support()
            self._app.post_message(self.SignalResume())

    @override
    def stop_application_mode(self) -> None:
        # A second caller waits until the first is done.
        with self._giving_back:
            if self._has_terminal:
                self._has_terminal = False
                self._give_back()

    def _give_back(self) -> None:
        # Discard queued frames: a slow terminal would take seconds for them, and might be killed before it
        # gets the sequences below.
        if self._surviving is not None:
            self.write(self._surviving.skip_to_here())
        self.write(PAINT_NOW + RESTORE_TITLE)
        # Keep Ctrl+C a key until everything is written: as a signal it would discard pending output.
        before = self.settings_before = self.attrs_before  # which `restore_settings` looks for
        self.attrs_before = None
        super().stop_application_mode()
        written = WriteMarker()
        self.write(written)
        while not written.reached.wait(WRITTEN_S) and self.took_within(WRITTEN_S):
            pass
        if before is not None:
            with suppress(termios.error):
                termios.tcflush(self.fileno, termios.TCIFLUSH)
                termios.tcsetattr(self.fileno, termios.TCSANOW, before)

    def took_within(self, seconds: float) -> bool:
        """Whether the terminal has accepted output within the last `seconds`."""
        return self._surviving is not None and monotonic() - self._surviving.taken_at < seconds

    @override
    def run_input_thread(self) -> None:
        parser = InputParser(self._debug, self._app.alt_keys if isinstance(self._app, TerminalApp) else ())
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                # Check again: the process may have been stopped while it waited.
                if selector.select(parser.waits_for_s) or selector.select(0):
                    data = _read(self.fileno)
                    if data is None:
                        continue
                    if not data:
                        # On a hangup the system signals only the foreground process group.
                        os.kill(os.getpid(), signal.SIGHUP)
                        # A signal that comes right before the event loop waits is handled when that wakes up.
                        self._on_loop(lambda: None)
                        return
                    self._process(parser.feed_text(decode(self.early.read(data))))
                self._process(parser.tick())

    def _process(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if isinstance(self._app, TerminalApp):
                if isinstance(message, events.Key):
                    self._app.key_read(message.key)
                elif isinstance(message, WHEEL) and not self._app.takes_wheel():
                    continue
            self.process_message(message)


def _read(fileno: int) -> bytes | None:
    """Read from the terminal; empty if it is gone, None if another program has read the input."""
    try:
        return os.read(fileno, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""
