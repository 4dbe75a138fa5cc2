"""What uses parts of Textual that it may change without notice. With a version it does not know each falls back on what
Textual itself does.

Reading the terminal: large pastes in one piece, an Esc before other keys as one, and bytes that are no text without an
end to the program. Leaving: with a line instead of a traceback. Styles: read once a theme. Layout: no scrollbar painted
that stays as it is. Writing: a text as if typed.
"""

import os
import re
import selectors
import signal
import sys
from asyncio import get_running_loop
from codecs import getincrementaldecoder
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import cache, lru_cache
from io import TextIOWrapper
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import IO, TYPE_CHECKING, Final

import textual
from textual import constants, events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.cache import LRUCache
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.theme import Theme
from typing_extensions import override

from tui_agent.tui.terminal.attention import RESTORE_TITLE, SAVE_TITLE

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.widgets import TextArea

PASTE_START: Final = "\x1b[200~"
PASTE_END: Final = "\x1b[201~"
_KEPT: Final = len(PASTE_START) - 1
ESC: Final = "\x1b"
_ESCAPED: Final = re.compile(r"\x1b(?=([^\[O]))")
"""An Esc with something behind it that begins no sequence."""
READ_BYTES: Final = 65_536
PAINT_NOW: Final = "\x1b[?2026l"
"""The end of a picture of which the end was left out."""
WRITTEN_S: Final = 0.7
"""Seconds for which a terminal may take nothing of what it is given at the end."""
PIECE: Final = 16_384
"""Characters that are written at once: so much a slow terminal takes in well under `WRITTEN_S`."""
ESCAPE_S: Final = 0.04
"""Seconds after which an Esc with nothing behind it is one: a terminal sends the bytes of another key at once, and what
the key does is to be seen within 100 ms. `ESCDELAY`, in milliseconds, counts for more: a slow line may need longer.
"""
LOOK_S: Final = 0.1
"""Seconds for which the terminal is waited for before somebody looks whether the app still reads."""
THEMES_KEPT: Final = 4
"""Themes whose styles are kept: as many as are looked at in turn."""
SOURCES_KEPT: Final = 200
"""Style sheets, a widget's own among them, that are kept of a theme."""


KNOWN: Final = (8, 2)
"""The version whose parts these are: major and minor."""


def is_known(version: str = "") -> bool:
    """Whether this version of Textual, by default the one that is installed, is `KNOWN`."""
    numbers = (version or _installed_version()).split(".")[:2]
    return numbers == [str(number) for number in KNOWN]


@cache
def _installed_version() -> str:
    """The version in the name of what pip notes beside the package; else as Textual says, whose asking for it loads
    `importlib.metadata`: a tenth of the first paint.
    """
    noted = list(Path(textual.__file__).parents[1].glob("textual-[0-9]*.dist-info"))
    return noted[0].stem.removeprefix("textual-") if len(noted) == 1 else textual.__version__


def version_warning(version: str = "") -> str:
    """What is less good with an unknown version; empty with the known one."""
    if is_known(version):
        return ""
    version, known = version or _installed_version(), ".".join(map(str, KNOWN))
    return (
        f"This is Textual {version}, and {known} is known: large pastes may be slow, an undo in "
        f"the prompt may take more than one step. `pip install 'textual=={known}.*'` brings the known one."
    )


class TerminalApp(App[object]):
    """An app that leaves in order when it breaks, and that can speak to the terminal itself."""

    _mixed: tuple[Theme, dict[str, str]] | None = None
    """A theme with the variables that styles take from it."""
    alt_keys: Container[str] = ()
    """The keys with Alt that mean something here."""
    resized = False
    """Whether the terminal has had another size that the screen does not know of yet."""

    def __init__(self, *, driver_class: "type[Driver] | None" = None) -> None:
        super().__init__(driver_class=driver_class)
        if is_known():
            self.stylesheet = KeepingStylesheet(self.get_css_variables())

    @override
    def get_css_variables(self) -> dict[str, str]:
        # Textual asks several times in a row, and mixes all colours of the theme each time.
        theme = self.current_theme
        if self._mixed is None or self._mixed[0] is not theme:
            self._mixed = theme, super().get_css_variables()
        return self._mixed[1]

    def begin_with_theme(self, name: str) -> None:
        """Have a theme from the first paint on, before any style is read."""
        self.theme = name
        self.stylesheet.set_variables(self.get_css_variables())

    def broken(self, error: Exception) -> int:
        """Keep what is known of an error that leaves the screen unusable; the exit code to leave with."""
        raise NotImplementedError

    def write_control(self, sequence: str) -> None:
        """Send the terminal what is no text."""
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    def key_read(self, key: str) -> None:
        """Hear of a key as soon as it is read, in the thread that reads; its event comes behind it."""

    def terminal_took_within(self, seconds: float) -> bool:
        """Whether the terminal has taken anything for so long; False where that is not known."""
        took = getattr(self._driver, "took_within", None)
        return took is not None and bool(took(seconds))

    def release_terminal(self) -> None:
        """Give the terminal back as it was, however the app ends. First without a word to it: it may take none."""
        if self._driver is not None:
            restore_settings(self._driver)
            self._driver.stop_application_mode()
            self._driver.close()

    @override
    def _check_resize(self) -> None:
        told = self._resize_event
        super()._check_resize()
        if self.resized and told is not None and self._resize_event is None:
            self.resized = False
            if self.screen.size == told.size:
                # Nothing is laid out anew, but for a moment the terminal was smaller, and lost what did not fit.
                self.screen.refresh()

    @override
    def _handle_exception(self, error: Exception) -> None:
        code = self.broken(error)
        if not is_known():
            self.exit(return_code=code)
            return
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        self._return_code = code
        self._close_messages_no_wait()


class SteadyScrollView(ScrollView):
    """A view that a layout leaves alone which changes nothing of it.

    Textual paints the scrollbar at every layout, and so all that stands beside it.
    """

    _laid_out: tuple[Size, ...] = ()

    @override
    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        sizes = (size, virtual_size, container_size, self.virtual_size)
        if is_known() and sizes == self._laid_out:
            return False
        self._laid_out = sizes
        return super()._size_updated(size, virtual_size, container_size, layout)


class KeepingStylesheet(Stylesheet):
    """Textual's style sheet, which keeps what was read with the variables of a theme.

    Textual's own reads all of it again at the start, for a theme of one's own, and whenever a style sheet is added or a
    theme is looked at.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._parse_cache = _read_with(frozenset(variables.items()))

    @override
    def set_variables(self, variables: dict[str, str]) -> None:
        if variables == self._variables:
            return
        # Textual empties what it has.
        self._parse_cache = LRUCache(1)
        super().set_variables(variables)
        self._parse_cache = _read_with(frozenset(variables.items()))

    @override
    def reparse(self) -> None:
        self.parse()


@lru_cache(THEMES_KEPT)
def _read_with(variables: frozenset[tuple[str, str]]) -> "LRUCache[tuple[object, ...], list[RuleSet]]":
    """What was read with these variables, by its source."""
    return LRUCache(SOURCES_KEPT)


class InputParser(XTermParser):
    """Reads what the terminal sends, with two things that Textual's parser does not.

    What is between the marks of a bracketed paste is taken as it is, instead of looking at each character: Textual
    needs 7 s for 10 MB. It still reads a paste whose opening mark came in two pieces.

    An Esc with more behind it is that key, then the others, unless it begins a sequence, or with a key of `alt_keys`
    stands for Alt. On a busy machine keys pressed one after the other arrive together; Textual drops the Esc then.
    """

    def __init__(self, debug: bool = False, alt_keys: Container[str] = ()) -> None:
        super().__init__(debug)
        self._alt_keys = alt_keys
        self._escaped: float | None = None
        self._patience = constants.ESCAPE_DELAY if os.environ.get("ESCDELAY") else ESCAPE_S
        self._pasted: list[str] | None = None
        self._slowly = False
        self._tail = ""

    @override
    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
            return
        if self._escaped is not None:
            data, self._escaped = ESC + data, None
        if self._pasted is None and not self._slowly and data.endswith(ESC):
            data, self._escaped = data[:-1], monotonic()
        while data:
            if self._pasted is not None:
                data, paste = self._collect(self._pasted, data)
                if paste is not None:
                    self._pasted = None
                    yield paste
                continue
            slowly = self._slowly
            ours, data = self._split(data)
            if slowly or self._slowly:
                yield from super().feed(ours)
            else:
                yield from self._fed(ours)

    @override
    def tick(self) -> Iterable[Message]:
        """What is known once nothing more has come for a while."""
        if self._escaped is not None and not self.waits_for_s:
            self._escaped = None
            yield events.Key("escape", ESC)
        yield from super().tick()

    @property
    def waits_for_s(self) -> float:
        """Seconds after which `tick` may know more."""
        return LOOK_S if self._escaped is None else max(0.0, self._escaped + self._patience - monotonic())

    def _fed(self, text: str) -> Iterable[Message]:
        """What Textual's parser makes of a text, in which an Esc before a sign is read here."""
        done = 0
        for found in _ESCAPED.finditer(text):
            behind = found[1]
            if behind != ESC and ESC + behind in ANSI_SEQUENCES_KEYS:
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
        """Like `feed`, for which no text is the end of all."""
        return self.feed(text) if text else ()

    def _split(self, data: str) -> tuple[str, str]:
        """What Textual's parser reads now, and what is left."""
        before = len(self._tail)
        joined = self._tail + data
        mark = PASTE_END if self._slowly else PASTE_START
        place = joined.find(mark)
        if place < 0:
            self._tail = joined[-_KEPT:]
            return data, ""
        self._tail = ""
        if place >= before and not self._slowly:
            self._pasted = []
            return data[: place - before], data[place - before + len(mark) :]
        self._slowly = not self._slowly
        return data[: place + len(mark) - before], data[place + len(mark) - before :]

    def _collect(self, pasted: list[str], data: str) -> tuple[str, events.Paste | None]:
        """What is left after a piece of a paste, and the paste once it is whole."""
        tail = pasted.pop() if pasted else ""
        joined = tail + data
        end = joined.find(PASTE_END)
        if end < 0:
            pasted += (joined[:-_KEPT], joined[-_KEPT:]) if len(joined) > _KEPT else (joined,)
            return "", None
        pasted.append(joined[:end])
        # Textual drops these as well: they end strings in some terminals.
        return joined[end + len(PASTE_END) :], events.Paste("".join(pasted).replace("\x00", ""))


def terminal_driver(give_back: Callable[[], None] = lambda: None) -> "type[Driver] | None":
    """The driver for this platform; None: Textual's own. `give_back` undoes what was done to the terminal before it."""
    if not is_known() or sys.platform == "win32" or constants.DRIVER is not None:
        return None
    import termios

    from textual.drivers.linux_driver import LinuxDriver

    class TerminalDriver(LinuxDriver):
        """Textual's driver with `InputParser`, with bytes that are not UTF-8 replaced, and for a terminal that may go.

        The window has its own title back while the program does not have the terminal.
        """

        _has_terminal = False
        _giving_back = Lock()
        _surviving: Surviving | None = None

        @override
        def start_application_mode(self) -> None:
            if isinstance(self._file, TextIOWrapper):
                # The writer needs no more of a file than this.
                self._surviving = Surviving(self._file)
                self._file = self._surviving  # type: ignore[assignment]
            give_back()
            super().start_application_mode()  # type: ignore[no-untyped-call]
            loop = get_running_loop()
            # Not in the signal's handler: one that comes meanwhile would interrupt it, and the older size be told last.
            signal.signal(signal.SIGWINCH, lambda *_: loop.call_soon_threadsafe(self._tell_size))
            self._has_terminal = True
            if self._writer_thread is not None:
                self.write(SAVE_TITLE)

        def _tell_size(self) -> None:
            if self._in_band_window_resize:
                return
            if isinstance(self._app, TerminalApp):
                self._app.resized = True
            size = Size(*self._get_terminal_size())
            self._app.post_message(events.Resize(size, size))

        @override
        def stop_application_mode(self) -> None:
            # Whoever comes while it is given back waits until it is.
            with self._giving_back:
                if self._has_terminal:
                    self._has_terminal = False
                    self._give_back()

        def _give_back(self) -> None:
            # A slow terminal would get them for seconds after the end, or, killed meanwhile, nothing of what follows.
            if self._surviving is not None:
                self.write(self._surviving.skip_to_here())
            self.write(PAINT_NOW + RESTORE_TITLE)
            # Ctrl+C stays a key until the terminal has all of it: the signal that it is then drops what is on the way.
            before = self.settings_before = self.attrs_before  # which `restore_settings` looks for
            self.attrs_before = None
            super().stop_application_mode()
            written = Written()
            self.write(written)
            while not written.reached.wait(WRITTEN_S) and self.took_within(WRITTEN_S):
                pass
            if before is not None:
                with suppress(termios.error):
                    termios.tcflush(self.fileno, termios.TCIFLUSH)
                    termios.tcsetattr(self.fileno, termios.TCSANOW, before)

        def took_within(self, seconds: float) -> bool:
            """Whether the terminal has taken anything for so long."""
            return self._surviving is not None and monotonic() - self._surviving.taken_at < seconds

        @override
        def run_input_thread(self) -> None:
            parser = InputParser(self._debug, self._app.alt_keys if isinstance(self._app, TerminalApp) else ())
            decode = getincrementaldecoder("utf-8")("replace").decode
            with selectors.SelectSelector() as selector:
                selector.register(self.fileno, selectors.EVENT_READ)
                while not self.exit_event.is_set():
                    if selector.select(parser.waits_for_s):
                        data = _read(self.fileno)
                        if not data:
                            # A terminal that hangs up says so to the group in front only.
                            os.kill(os.getpid(), signal.SIGHUP)
                            return
                        self._process(parser.feed_text(decode(data)))
                    self._process(parser.tick())

        def _process(self, messages: Iterable[Message]) -> None:
            for message in messages:
                if isinstance(message, events.Key) and isinstance(self._app, TerminalApp):
                    self._app.key_read(message.key)
                self.process_message(message)

    return TerminalDriver


class Written(str):
    """Stands behind what is written, and is told once that has been."""

    __slots__ = ("reached",)

    def __init__(self) -> None:
        super().__init__()
        self.reached = Event()


def restore_settings(driver: "Driver") -> None:
    """Bring back the settings that the terminal had before the app."""
    before = getattr(driver, "attrs_before", None) or getattr(driver, "settings_before", None)
    terminal = getattr(driver, "fileno", None)
    if before is not None and isinstance(terminal, int):
        import termios

        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)


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
            try:
                self._file.flush()
            except (OSError, ValueError):
                self.gone = True

    def fileno(self) -> int:
        """The number of the file."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()


def _read(fileno: int) -> bytes:
    """What the terminal sent; nothing when it is gone."""
    try:
        return os.read(fileno, READ_BYTES)
    except OSError:
        return b""


def write_as_typed(area: "TextArea", text: str, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Put a text in place of what is between two places, so that it is undone like something typed."""
    if is_known():
        area._replace_via_keyboard(text, start, end)
    else:
        area.replace(text, start, end)


def delete_as_typed(area: "TextArea", start: tuple[int, int], end: tuple[int, int]) -> None:
    """Take out what is between two places, so that it is undone like something deleted with a key."""
    if is_known():
        area._delete_via_keyboard(start, end)
    else:
        area.delete(start, end)
