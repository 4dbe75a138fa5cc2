"""The beat in which the screen changes by itself: what changes at about the same time is painted at once."""

from time import monotonic
from typing import Final

BEAT_S: Final = 0.08
"""Seconds from one beat to the next: a growing answer is painted at most once in each."""
SPIN_BEATS: Final = 2
"""Beats for which a spinner stands still."""
SPIN_S: Final = SPIN_BEATS * BEAT_S


def until_beat(beats: int = 1) -> float:
    """Seconds until the next beat, or the next of so many; more than 0."""
    length = beats * BEAT_S
    return max(0.001, length - monotonic() % length)
