"""Parts of the app that depend on private names of Textual, which may change without notice. With a version of Textual
that it does not know, or that lacks such a name, each part falls back on Textual's own behaviour.

Leaving: errors end with one line instead of a traceback. Styles: parsed once for each theme. Layout: an unchanged
scrollbar is not painted again. Text areas: inserting a text as if it had been typed.
"""

from collections.abc import Container
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import textual
from textual import events
from textual.app import App
from textual.cache import LRUCache
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.theme import Theme
from textual.worker import WorkerFailed
from typing_extensions import override

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.widgets import TextArea

WHEEL: Final = (events.MouseScrollUp, events.MouseScrollDown, events.MouseScrollLeft, events.MouseScrollRight)
WHEEL_AHEAD: Final = 50
"""Steps of the mouse wheel that may wait for the app; more are dropped."""
THEMES_KEPT: Final = 4
"""How many themes' parsed styles are cached, for stepping through themes."""
SOURCES_KEPT: Final = 200
"""How many style sheets are cached for each theme, including those of widgets."""


KNOWN: Final = (8, 2)
"""The version of Textual, major and minor, that this code is written for."""


def is_known(version: str = "") -> bool:
    """Whether this version of Textual, by default the installed one, is `KNOWN`."""
    numbers = (version or _installed_version()).split(".")[:2]
    return numbers == [str(number) for number in KNOWN]


def _can_use(owner: object, *private: str) -> bool:
    """Whether these private attributes of an object of Textual's are there, and are known to mean what they did."""
    return is_known() and all(hasattr(owner, name) for name in private)


@cache
def _installed_version() -> str:
    """Textual's version, from the name of its ``.dist-info`` folder.

    Falls back on Textual's own attribute, which imports `importlib.metadata`: a tenth of the time to the first paint.
    """
    noted = list(Path(textual.__file__).parents[1].glob("textual-[0-9]*.dist-info"))
    return noted[0].stem.removeprefix("textual-") if len(noted) == 1 else textual.__version__


def version_warning(version: str = "") -> str:
    """A warning on what does not work as well with an unknown version; empty for the known one."""
    if is_known(version):
        return ""
    version, known = version or _installed_version(), ".".join(map(str, KNOWN))
    return (
        f"This is Textual {version}, and {known} is known: large pastes may be slow, an undo in "
        f"the prompt may take more than one step. `pip install 'textual=={known}.*'` brings the known one."
    )


class TerminalApp(App[object]):
    """An app that exits cleanly after an error, and that can write to the terminal directly."""

    _mixed: tuple[Theme, dict[str, str]] | None = None
    """The cached CSS variables of a theme."""
    alt_keys: Container[str] = ()
    """The Alt keys that are bound in this app."""
    resized = False
    """Whether the terminal's size changed and the screen was not updated yet."""

    def __init__(self, *, driver_class: "type[Driver] | None" = None) -> None:
        super().__init__(driver_class=driver_class)
        # Each is counted by one thread alone.
        self._wheel_read = self._wheel_taken = 0
        if _can_use(self.stylesheet, "_parse_cache", "_variables"):
            self.stylesheet = KeepingStylesheet(self.get_css_variables())
        _free_painted_lines()

    @override
    def get_css_variables(self) -> dict[str, str]:
        # Textual calls this several times in a row, and computes all colours of the theme each time.
        theme = self.current_theme
        if self._mixed is None or self._mixed[0] is not theme:
            self._mixed = theme, super().get_css_variables()
        return self._mixed[1]

    def begin_with_theme(self, name: str) -> None:
        """Set the initial theme before any style is parsed."""
        self.theme = name
        self.stylesheet.set_variables(self.get_css_variables())

    def broken(self, error: Exception) -> int:
        """Record an error that makes the screen unusable; returns the exit code."""
        raise NotImplementedError

    def write_control(self, sequence: str) -> None:
        """Send a control sequence to the terminal."""
        driver = getattr(self, "_driver", None)
        if driver is not None and not self.is_headless:
            driver.write(sequence)

    def key_read(self, key: str) -> None:
        """Called for each key as soon as it is read, in the input thread, ahead of its event."""

    def takes_wheel(self) -> bool:
        """Whether another step of the mouse wheel may come, in the thread that reads: keys would have to wait behind
        thousands of them.
        """
        if self._wheel_read - self._wheel_taken >= WHEEL_AHEAD:
            return False
        self._wheel_read += 1
        return True

    @override
    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, WHEEL) and not event.is_forwarded:
            self._wheel_taken += 1
        await super().on_event(event)

    def not_stopped(self) -> None:
        """Called when the program was told to stop but has no shell to return to."""

    def terminal_took_within(self, seconds: float) -> bool:
        """Whether the terminal has accepted output within the last `seconds`; False if unknown."""
        took = getattr(getattr(self, "_driver", None), "took_within", None)
        return took is not None and bool(took(seconds))

    def release_terminal(self) -> None:
        """Restore the terminal, however the app ends. Restores its settings first, since it may accept no output."""
        driver = getattr(self, "_driver", None)
        if driver is not None:
            restore_settings(driver)
            driver.stop_application_mode()
            driver.close()

    @override
    def _check_resize(self) -> None:
        seen = getattr(self, "_resize_event", None)
        super()._check_resize()
        if self.resized and seen is not None and self._resize_event is None:
            self.resized = False
            if self.screen.size == seen.size:
                # The size is the same again, so there is no layout; but while it was smaller, the terminal lost
                # what did not fit.
                self.screen.refresh()

    @override
    def _handle_exception(self, error: Exception) -> None:
        if isinstance(error, WorkerFailed) and isinstance(error.error, Exception):
            # This one has the traceback.
            error = error.error
        code = self.broken(error)
        if not _can_use(self, "_exception", "_exception_event", "_return_code", "_close_messages_no_wait"):
            self.exit(return_code=code)
            return
        if self._exception is None:
            self._exception = error
            self._exception_event.set()
        self._return_code = code
        self._close_messages_no_wait()


class SteadyScrollView(ScrollView):
    """A scroll view that ignores layouts which do not change it.

    Textual repaints the scrollbar, and so everything beside it, at every layout.
    """

    _laid_out: tuple[Size, ...] = ()

    @override
    def _size_updated(self, size: Size, virtual_size: Size, container_size: Size, layout: bool = True) -> bool:
        sizes = (size, virtual_size, container_size, self.virtual_size)
        if is_known() and sizes == self._laid_out:
            return False
        self._laid_out = sizes
        return super()._size_updated(size, virtual_size, container_size, layout)


def _free_painted_lines() -> None:
    """Cache mixed colours for the class, as Textual means to, and not for each widget: the cache would keep what 1,024
    closed widgets had painted, 0.2 MB a dialog.
    """
    with suppress(ImportError):
        from textual._styles_cache import StylesCache

        mixing = vars(StylesCache).get("get_inner_outer")
        if is_known() and mixing is not None and not isinstance(mixing, classmethod):
            setattr(StylesCache, "get_inner_outer", classmethod(mixing))  # noqa: B010 (mypy: a method is no variable)


class KeepingStylesheet(Stylesheet):
    """A style sheet that caches parsed styles by the theme's variables.

    Textual parses everything again at the start if the theme is not its default, and whenever a style sheet is added or
    the theme changes.
    """

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables=variables)
        self._parse_cache = _read_with(frozenset(variables.items()))

    @override
    def set_variables(self, variables: dict[str, str]) -> None:
        if variables == self._variables:
            return
        # Textual would clear the cache of the theme before: replace it first.
        self._parse_cache = LRUCache(1)
        super().set_variables(variables)
        self._parse_cache = _read_with(frozenset(variables.items()))

    @override
    def reparse(self) -> None:
        self.parse()


@lru_cache(THEMES_KEPT)
def _read_with(variables: frozenset[tuple[str, str]]) -> "LRUCache[tuple[object, ...], list[RuleSet]]":
    """The cache of styles parsed with these variables, by source."""
    return LRUCache(SOURCES_KEPT)


def restore_settings(driver: "Driver") -> None:
    """Restore the terminal settings from before the app."""
    before = getattr(driver, "attrs_before", None) or getattr(driver, "settings_before", None)
    terminal = getattr(driver, "fileno", None)
    if before is not None and isinstance(terminal, int):
        import termios

        with suppress(termios.error):
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def write_as_typed(area: "TextArea", text: str, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Replace the text between two positions, as one undo step like typing."""
    getattr(area, "_replace_via_keyboard", area.replace)(text, start, end)


def delete_as_typed(area: "TextArea", start: tuple[int, int], end: tuple[int, int]) -> None:
    """Delete the text between two positions, as one undo step like a deletion by key."""
    getattr(area, "_delete_via_keyboard", area.delete)(start, end)
