"""The shipped themes, and the glyphs the screen is drawn with."""

import os
from dataclasses import dataclass
from typing import Final, TypeVar

from textual.app import App
from textual.theme import Theme

Returned = TypeVar("Returned")

DEFAULT_DARK: Final = "dusk"
DEFAULT_LIGHT: Final = "paper"

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
)


def register_themes(app: App[Returned]) -> None:
    """Make the shipped themes known to an app, beside Textual's own."""
    for theme in THEMES:
        app.register_theme(theme)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The symbols of the screen, each one cell wide but for the ellipsis."""

    bar: str = "▌"
    cursor: str = "▎"
    closed: str = "▸"
    opened: str = "▾"
    pending: str = "○"
    asking: str = "?"
    running: str = "◐"
    ok: str = "●"
    error: str = "✗"
    denied: str = "×"
    interrupted: str = "◌"
    info: str = "›"
    warning: str = "▲"
    failure: str = "✗"
    bullet: str = "•"
    quote: str = "│"
    rule: str = "─"
    cross: str = "┼"
    column: str = "│"
    arrow: str = "→"
    dot: str = "·"
    ellipsis: str = "…"
    nested: str = "└"
    checked: str = "☑"
    unchecked: str = "☐"


UNICODE: Final = Glyphs()
ASCII: Final = Glyphs(
    bar="|",
    cursor=">",
    closed="+",
    opened="-",
    pending="o",
    asking="?",
    running="~",
    ok="*",
    error="x",
    denied="x",
    interrupted="!",
    info=">",
    warning="!",
    failure="x",
    bullet="*",
    quote="|",
    rule="-",
    cross="+",
    column="|",
    arrow=">",
    dot="-",
    ellipsis="...",
    nested="`",
    checked="x",
    unchecked="o",
)


def glyphs_for(encoding: str | None) -> Glyphs:
    """The glyphs that a terminal with this encoding can show.

    The Linux console (`TERM=linux`) has a font of 256 or 512 characters and gets the ASCII set.
    """
    can_encode = (encoding or "").lower().replace("-", "").startswith(("utf8", "utf16", "cp65001"))
    return UNICODE if can_encode and os.environ.get("TERM") != "linux" else ASCII
