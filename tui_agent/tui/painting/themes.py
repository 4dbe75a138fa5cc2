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

THEMES: Final = (
    Theme(
        name="dusk",
        primary="#8aa4c8",
        secondary="#7f9a94",
        accent="#e0a458",
        warning="#d9b44a",
        error="#d9776c",
        success="#8fb573",
        foreground="#d6d3cd",
        background="#1b1c20",
        surface="#212328",
        panel="#292b31",
        dark=True,
        variables={"border-blurred": "#34363d", "scrollbar": "#34363d", "scrollbar-background": "#1b1c20"},
    ),
    Theme(
        name="harbour",
        primary="#82aaff",
        secondary="#89ddff",
        accent="#5cc8c2",
        warning="#f2c879",
        error="#f07f8c",
        success="#9bd08a",
        foreground="#dfe5ee",
        background="#0e141b",
        surface="#141c25",
        panel="#1c2631",
        dark=True,
        variables={"border-blurred": "#26323f", "scrollbar": "#26323f", "scrollbar-background": "#0e141b"},
    ),
    Theme(
        name="paper",
        primary="#2f5d8c",
        secondary="#4d6f68",
        accent="#b0561e",
        warning="#8a6100",
        error="#b3352c",
        success="#4a7423",
        foreground="#2e2c29",
        background="#f7f4ee",
        surface="#efebe2",
        panel="#e6e1d6",
        dark=False,
        variables={"border-blurred": "#d8d2c5", "scrollbar": "#d0cabc", "scrollbar-background": "#f7f4ee"},
    ),
    Theme(
        name="mist",
        primary="#2457a6",
        secondary="#3b6b77",
        accent="#0f7a74",
        warning="#8a5f00",
        error="#b42941",
        success="#2c7a3f",
        foreground="#1f2730",
        background="#fbfcfd",
        surface="#f1f4f7",
        panel="#e5eaef",
        dark=False,
        variables={"border-blurred": "#d3dae1", "scrollbar": "#c9d1d9", "scrollbar-background": "#fbfcfd"},
    ),
    Theme(
        name="contrast",
        primary="#8fd0ff",
        secondary="#7fffd4",
        accent="#ffd500",
        warning="#ffb000",
        error="#ff8080",
        success="#7cff7c",
        foreground="#ffffff",
        background="#000000",
        surface="#0a0a0a",
        panel="#303030",
        dark=True,
        text_alpha=1.0,
        variables={"border-blurred": "#9a9a9a", "scrollbar": "#9a9a9a", "scrollbar-background": "#000000"},
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
    """Register the shipped themes with an app."""
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
