"""Text from a file, a model or a command line, made safe for standard output and standard error."""

import json

_WIDE_SPACES = frozenset("\u00a0\u3000")


def printable(text: str) -> str:
    """One line with control, direction and surrogate characters as JSON escapes, so that JSON stays the same JSON."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _WIDE_SPACES else json.dumps(c)[1:-1] for c in text)
