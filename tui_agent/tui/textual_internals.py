"""What uses parts of Textual that it may change without notice. With a version it does not know each falls back on what
Textual itself does.

Reading the terminal: large pastes in one piece, an Esc before other keys as one, and bytes that are no text without an
end to the program. Leaving: with a line instead of a traceback. Styles: read once a theme. What there is for a place to
write stands in `textual_writing`.
"""

import os
import re
import selectors
import signal
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Container, Iterable
from functools import cache, lru_cache
from io import TextIOWrapper
from pathlib import Path
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
from textual.message import Message
from textual.theme import Theme
from typing_extensions import override

from tui_agent.tui.app.attention import RESTORE_TITLE, SAVE_TITLE

if TYPE_CHECKING:
    from textual.driver import Driver

PASTE_START: Final = "\x1b[200~"
PASTE_END: Final = "\x1b[201~"
_KEPT: Final = len(PASTE_START) - 1
ESC: Final = "\x1b"
_ESCAPED: Final = re.compile(r"\x1b(?=([^\[O]))")
"""An Esc with something behind it that begins no sequence."""
READ_BYTES: Final = 65_536
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

    def release_terminal(self) -> None:
        """Give the terminal back as it was, however the app ends."""
        if self._driver is not None:
            self._driver.stop_application_mode()
            self._driver.close()

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
        if self._escaped is not None and monotonic() - self._escaped >= constants.ESCAPE_DELAY:
            self._escaped = None
            yield events.Key("escape", ESC)
        yield from super().tick()

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
    from textual.drivers.linux_driver import LinuxDriver

    class TerminalDriver(LinuxDriver):
        """Textual's driver with `InputParser`, with bytes that are not UTF-8 replaced, and for a terminal that may go.

        The window has its own title back while the program does not have the terminal.
        """

        _has_terminal = False

        @override
        def start_application_mode(self) -> None:
            if isinstance(self._file, TextIOWrapper):
                # The writer needs no more of a file than this.
                self._file = Surviving(self._file)  # type: ignore[assignment]
            give_back()
            super().start_application_mode()  # type: ignore[no-untyped-call]
            self._has_terminal = True
            if self._writer_thread is not None:
                self.write(SAVE_TITLE)

        @override
        def stop_application_mode(self) -> None:
            if not self._has_terminal:
                return
            self._has_terminal = False
            self.write(RESTORE_TITLE)
            super().stop_application_mode()

        @override
        def run_input_thread(self) -> None:
            parser = InputParser(self._debug, self._app.alt_keys if isinstance(self._app, TerminalApp) else ())
            decode = getincrementaldecoder("utf-8")("replace").decode
            with selectors.SelectSelector() as selector:
                selector.register(self.fileno, selectors.EVENT_READ)
                while not self.exit_event.is_set():
                    if selector.select(0.1):
                        data = _read(self.fileno)
                        if not data:
                            # A terminal that hangs up says so to the group in front only.
                            os.kill(os.getpid(), signal.SIGHUP)
                            return
                        self._process(parser.feed_text(decode(data)))
                    self._process(parser.tick())

        def _process(self, messages: Iterable[Message]) -> None:
            for message in messages:
                self.process_message(message)

    return TerminalDriver


class Surviving:
    """A terminal's file to which writing does no harm once the terminal is gone: there is nobody left to tell."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self.gone = False

    def write(self, text: str) -> None:
        """Write, or drop what nobody will see."""
        if not self.gone:
            try:
                self._file.write(text)
            except (OSError, ValueError):
                self.gone = True

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
