"""The offline model; here only its delay between the pieces of an answer, which is set before the first paint."""

import os
from typing import Final

DELAY_VARIABLE: Final = "TUI_AGENT_OFFLINE_DELAY_S"
SHOWN_DELAY_S: Final = 0.012
"""Seconds between pieces on a screen, so that they are seen to stream."""


def configured_delay() -> float:
    """The delay in the variable, in seconds, at most 1; 0 if it is not set or invalid."""
    try:
        return min(1.0, max(0.0, float(os.environ.get(DELAY_VARIABLE, "0"))))
    except ValueError:
        return 0.0
