"""The beat in which the screen changes by itself, and the spinner that turns in it: what changes at about the same time
is painted at once.
"""

from time import monotonic
from typing import Final

from tui_agent.tui.painting.glyphs import Glyphs

BEAT_S: Final = 0.08
"""Seconds from one beat to the next: a growing answer is painted at most once in each."""
SPIN_BEATS: Final = 2
"""Beats for which a spinner stands still."""
SPIN_S: Final = SPIN_BEATS * BEAT_S


def until_beat(beats: int = 1) -> float:
    """Seconds until the next beat, or the next of so many; more than 0."""
    length = beats * BEAT_S
    return max(0.001, length - monotonic() % length)


def spinner(glyphs: Glyphs, now: float) -> str:
    """The picture of the spinner at a time on the monotonic clock."""
    return glyphs.spinner[int(now / SPIN_S) % len(glyphs.spinner)]
