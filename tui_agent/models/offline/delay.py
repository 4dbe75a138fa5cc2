"""How long the offline model waits between the pieces of an answer. Imports nothing heavy: it is set before the first
paint.
"""

import os
from typing import Final

DELAY_VARIABLE: Final = "TUI_AGENT_OFFLINE_DELAY_S"
SHOWN_DELAY_S: Final = 0.012
"""Seconds between pieces where somebody watches them come."""


def configured_delay() -> float:
    """Seconds, at most one; 0 where nothing usable is set."""
    try:
        return min(1.0, max(0.0, float(os.environ.get(DELAY_VARIABLE, "0"))))
    except ValueError:
        return 0.0
