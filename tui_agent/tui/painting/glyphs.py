"""The symbols drawn on the screen, an ASCII set for terminals that lack them, and the beat in which they move."""

import os
from time import monotonic
from typing import Final

from msgspec import Struct

BEAT_S: Final = 0.08
"""Seconds between beats; a growing answer is painted at most once a beat. Spinners change in the same beat, so that one
repaint serves all.
"""
SPIN_BEATS: Final = 2
"""Beats between two frames of a spinner."""
SPIN_S: Final = SPIN_BEATS * BEAT_S


class Glyphs(Struct, frozen=True):
    """The symbols of the screen, each one cell wide except the ASCII ellipsis. `spinner`: its frames in order."""

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
    limb: str = "├"
    checked: str = "☑"
    unchecked: str = "☐"
    spinner: str = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


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
    limb="|",
    checked="x",
    unchecked="o",
    spinner="-\\|/",
)


def glyphs_of(app: object) -> Glyphs:
    """The symbols of an app; of one that has none of its own, the usual ones."""
    glyphs = getattr(app, "glyphs", None)
    return glyphs if isinstance(glyphs, Glyphs) else UNICODE


def glyphs_for(encoding: str | None) -> Glyphs:
    """The glyphs that a terminal with this encoding can show.

    The Linux console (`TERM=linux`) has a font of 256 or 512 characters and gets the ASCII set.
    """
    can_encode = (encoding or "").lower().replace("-", "").startswith(("utf8", "utf16", "cp65001"))
    return UNICODE if can_encode and os.environ.get("TERM") != "linux" else ASCII


def until_beat(beats: int = 1) -> float:
    """Seconds until the next beat, or until the next multiple of `beats`; always more than 0."""
    length = beats * BEAT_S
    return max(0.001, length - monotonic() % length)


def spinner(glyphs: Glyphs, now: float) -> str:
    """The frame of the spinner at a time on the monotonic clock."""
    return glyphs.spinner[int(now / SPIN_S) % len(glyphs.spinner)]
