"""A tool call's arguments on one line, for its card."""

import json
from typing import Final

from tui_agent.safe_text import one_line

_TELLING: Final = ("command", "pattern", "path", "url", "query", "question", "detail")
"""Arguments that say most, the most telling first."""

_BULKY: Final = frozenset({"content", "old", "new"})
"""Arguments that are shown inside the card only."""

MAX_VALUE: Final = 120


def call_summary(arguments: str) -> str:
    """The most telling arguments of a call given as JSON text; the text itself where it is no JSON object."""
    try:
        values = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return one_line(arguments)
    if not isinstance(values, dict):
        return one_line(arguments)
    parts = [_shown(values[name]) for name in _TELLING if values.get(name) not in (None, "")]
    if len(parts) > 1 and values.get("path") == ".":
        parts.remove(".")
    parts += [f"{name}={_shown(value)}" for name, value in values.items() if name not in {*_TELLING, *_BULKY}]
    return one_line("  ".join(parts))


def _shown(value: object) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), MAX_VALUE)
