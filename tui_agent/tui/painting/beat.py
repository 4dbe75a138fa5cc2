"""The common clock of animations: spinners and growing answers change in the same beat, so one repaint serves all."""

from time import monotonic
from typing import Final

from tui_agent.tui.painting.glyphs import Glyphs

BEAT_S: Final = 0.08
"""Seconds between beats; a growing answer is painted at most once a beat."""
SPIN_BEATS: Final = 2
"""Beats between two frames of a spinner."""
SPIN_S: Final = SPIN_BEATS * BEAT_S


def until_beat(beats: int = 1) -> float:
    """Seconds until the next beat, or until the next multiple of `beats`; always more than 0."""
    length = beats * BEAT_S
    return max(0.001, length - monotonic() % length)


def spinner(glyphs: Glyphs, now: float) -> str:
    """The frame of the spinner at a time on the monotonic clock."""
    return glyphs.spinner[int(now / SPIN_S) % len(glyphs.spinner)]
