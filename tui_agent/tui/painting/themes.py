"""The themes: the shipped ones, the user's own, and the choice of the initial one."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from textual.app import App
from textual.theme import Theme

from tui_agent.text import one_line
from tui_agent.tui.painting.user_themes import load_user_themes

Returned = TypeVar("Returned")

DEFAULT_DARK: Final = "dusk"
DEFAULT_LIGHT: Final = "paper"
ALIASES: Final = {"dark": DEFAULT_DARK, "light": DEFAULT_LIGHT}
"""Aliases for themes in the settings."""
ANSI: Final = "terminal"
"""The theme that uses the terminal's own sixteen colours."""


def _theme(name: str, colors: str, *, dark: bool = True, text_alpha: float = 0.95) -> Theme:
    """A theme of the colours in the columns of the table below."""
    primary, secondary, accent, warning, error, success, *others = colors.split()
    foreground, background, surface, panel, border, scrollbar = others
    return Theme(
        name=name,
        primary=primary,
        secondary=secondary,
        accent=accent,
        warning=warning,
        error=error,
        success=success,
        foreground=foreground,
        background=background,
        surface=surface,
        panel=panel,
        dark=dark,
        text_alpha=text_alpha,
        variables={"border-blurred": border, "scrollbar": scrollbar, "scrollbar-background": background},
    )


THEMES: Final = (
    # primary secondary accent warning error success, foreground background surface panel, border scrollbar
    _theme(
        "dusk",
        "#8aa4c8 #7f9a94 #e0a458 #d9b44a #d9776c #8fb573  #d6d3cd #1b1c20 #212328 #292b31  #34363d #34363d",
    ),
    _theme(
        "harbour",
        "#82aaff #89ddff #5cc8c2 #f2c879 #f07f8c #9bd08a  #dfe5ee #0e141b #141c25 #1c2631  #26323f #26323f",
    ),
    _theme(
        "paper",
        "#2f5d8c #4d6f68 #b0561e #8a6100 #b3352c #4a7423  #2e2c29 #f7f4ee #efebe2 #e6e1d6  #d8d2c5 #d0cabc",
        dark=False,
    ),
    _theme(
        "mist",
        "#2457a6 #3b6b77 #0f7a74 #8a5f00 #b42941 #2c7a3f  #1f2730 #fbfcfd #f1f4f7 #e5eaef  #d3dae1 #c9d1d9",
        dark=False,
    ),
    _theme(
        "contrast",
        "#8fd0ff #7fffd4 #ffd500 #ffb000 #ff8080 #7cff7c  #ffffff #000000 #0a0a0a #303030  #9a9a9a #9a9a9a",
        text_alpha=1.0,
    ),
    Theme(
        name=ANSI,
        ansi=True,
        # Whether it is dark or light is not known: of the sixteen, these can be read on black and on white, also where
        # bold text is shown in the bright colour.
        primary="ansi_bright_blue",
        secondary="ansi_default",
        accent="ansi_magenta",
        warning="ansi_red",
        error="ansi_bright_red",
        success="ansi_green",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        dark=True,
        variables={
            "ansi-background": "ansi_black",
            "ansi-foreground": "ansi_white",
            "border-blurred": "ansi_bright_black",
            "scrollbar": "ansi_bright_black",
            "scrollbar-background": "ansi_default",
            "block-cursor-foreground": "ansi_bright_white",
            "block-cursor-background": "ansi_blue",
            "input-cursor-background": "ansi_blue",
            "input-cursor-foreground": "ansi_bright_white",
            "input-cursor-text-style": "none",
            "input-selection-background": "ansi_blue",
            "input-selection-foreground": "ansi_bright_white",
            "screen-selection-background": "ansi_blue",
            "screen-selection-foreground": "ansi_bright_white",
        },
    ),
)

KINDS: Final = {
    theme.name: "the terminal's own colours"
    if theme.name == ANSI
    else "dark, high contrast"
    if theme.name == "contrast"
    else "dark"
    if theme.dark
    else "light"
    for theme in THEMES
}
"""A few words on each theme, for the picker."""


def register_themes(app: App[Returned]) -> None:
    for theme in THEMES:
        app.register_theme(theme)


class Appearance(msgspec.Struct, frozen=True):
    """The names of all themes, the name of the initial one, and messages for the user about unusable ones."""

    names: tuple[str, ...]
    theme: str
    problems: tuple[str, ...]


def theme_of_terminal(environ: Mapping[str, str]) -> str:
    """`light` where the terminal names a light background in `COLORFGBG`, as rxvt and Konsole do: `0;15` is black on
    white, and 7 is light, too. Else `dark`.
    """
    return "light" if environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def appearance(app: App[Returned], wanted: str, home: Path) -> Appearance:
    """Register the shipped and the user's themes with the app, and find the one that the settings name."""
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
