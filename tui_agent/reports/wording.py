"""Formatting of times, durations and counts in reports, and escaping untrusted text for HTML."""

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


def short_number(number: float) -> str:
    """A count with up to three digits: ``512``, ``8.4k``, ``120k``, ``1.2M``."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * size:
            shown = number / size
            return f"{shown:.0f}{unit}" if shown >= 99.95 else f"{shown:.1f}".removesuffix(".0") + unit
    return f"{number:.0f}"


def safe(text: str) -> str:
    """Untrusted text escaped for HTML, without control and direction characters."""
    return escape(clean(text))
