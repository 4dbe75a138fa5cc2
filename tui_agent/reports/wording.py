"""Formatting of times and durations in reports, and escaping untrusted text for HTML."""

from datetime import datetime
from html import escape

from tui_agent.text import clean


def time_text(seconds: float, form: str = "%Y-%m-%d %H:%M") -> str:
    """A time (seconds since 1970) in the local time zone, formatted by `strftime`."""
    try:
        return datetime.fromtimestamp(seconds).strftime(form)
    except (ValueError, OverflowError, OSError):
        return "at no known time"


def duration_text(milliseconds: float) -> str:
    """A duration: ``340 ms``, ``4.2 s``, ``3 min 20 s``."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def safe(text: str) -> str:
    """Untrusted text escaped for HTML, without control and direction characters."""
    return escape(clean(text))
