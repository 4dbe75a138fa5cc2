"""How the app looks in its terminal: which colours, which symbols, and what the window is called."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from textual.app import App
from textual.filter import LineFilter, Monochrome

from tui_agent.text import one_line
from tui_agent.tui.app.filters import NoColors, PlainSymbols, plain_in, plain_symbols
from tui_agent.tui.app.theme import ALIASES, ASCII, DEFAULT_DARK, THEMES, Glyphs, register_themes
from tui_agent.tui.app.user_themes import load_user_themes

if TYPE_CHECKING:
    from tui_agent.tui.pane.transcript import Transcript

Returned = TypeVar("Returned")


class Appearance(NamedTuple):
    """The themes there are, the name of the one to begin with, and what the user should be told about them."""

    names: tuple[str, ...]
    theme: str
    problems: tuple[str, ...]


def appearance(app: App[Returned], wanted: str, home: Path) -> Appearance:
    """Make the shipped and the user's themes known to the app, and find the one the settings want."""
    register_themes(app)
    shipped = tuple(theme.name for theme in THEMES)
    own = load_user_themes(home, {*shipped, *ALIASES})
    for theme in own.themes:
        app.register_theme(theme)
    names = (*shipped, *(theme.name for theme in own.themes))
    name = ALIASES.get(wanted, wanted)
    if name in names:
        return Appearance(names, name, own.problems)
    unknown = f"ui.theme: there is no theme {one_line(wanted, 40)}; one of {', '.join(names)}"
    return Appearance(names, DEFAULT_DARK, (*own.problems, unknown))


def own_filters(glyphs: Glyphs, encoding: str | None, environ: Mapping[str, str]) -> tuple[LineFilter, ...]:
    """The changes made to each line on its way to the terminal, after Textual's own: `NO_COLOR` and plain symbols.

    https://no-color.org asks for no colour at all, and means a value that is not empty.
    """
    filters: list[LineFilter] = [NoColors()] if environ.get("NO_COLOR") else []
    if glyphs is ASCII:
        is_unicode = (encoding or "").lower().startswith("utf")
        filters.append(PlainSymbols(plain_symbols if is_unicode else plain_in(encoding or "ascii")))
    return tuple(filters)


def without_greys(filters: Sequence[LineFilter]) -> list[LineFilter]:
    """Textual's filters without the greys it shows for any `NO_COLOR`."""
    return [each for each in filters if not isinstance(each, Monochrome)]


def name_of(transcript: "Transcript") -> str:
    """What a conversation is about: its first prompt, on one line."""
    from tui_agent.tui.cards.prompt import UserBlock

    first = next((block.text for block in transcript.blocks if isinstance(block, UserBlock)), "")
    return one_line(first, 60)


def terminal_encoding() -> str | None:
    """How text for the terminal is encoded."""
    return sys.__stderr__.encoding if sys.__stderr__ is not None else None
