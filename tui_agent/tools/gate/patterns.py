"""The patterns of rules: ``*`` matches any text, ``?`` one character, a backslash makes the next character literal.

Patterns are untrusted. They are matched piece by piece, each at its first match, so that the time is at most
proportional to the product of the pattern's and the text's lengths.
"""

import re
from functools import lru_cache

_WILD = re.compile(r"(?<!\\)(?:\\\\)*[*?]")
_PART = re.compile(r"\\.|\*+|\?|[^\\*?]+|\\", re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` matches all of `text`."""
    return _compiled(pattern).match(text) is not None


def words(text: str) -> frozenset[str]:
    """The words of a text, for tables."""
    return frozenset(text.split())


def is_wild(pattern: str) -> bool:
    """Whether the pattern can match more than one text."""
    return _WILD.search(pattern) is not None


def escaped(text: str) -> str:
    """The pattern that matches `text` alone."""
    return re.sub(r"([\\*?])", r"\\\1", text)


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    pieces = [""]
    for part in _PART.findall(pattern):
        if part.startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += "." if part == "?" else re.escape(part[1:] if part.startswith("\\") and part[1:] else part)
    first, *others = pieces
    if not others:
        return re.compile(rf"{first}\Z", re.DOTALL)
    *between, last = others
    # Atomic: what follows the first match of a piece includes what follows any later one.
    middle = "".join(f"(?>.*?{piece})" for piece in between)
    return re.compile(rf"{first}{middle}.*{last}\Z", re.DOTALL)
