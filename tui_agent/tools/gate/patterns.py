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
    first, *others = _compiled(pattern)
    found = first.match(text)
    if found is None:
        return False
    if not others:
        return found.end() == len(text)
    at = found.end()
    *between, last = others
    for piece in between:
        found = piece.search(text, at)
        if found is None:
            return False
        at = found.end()
    # Every piece has a fixed length, so the last one can match only at the end.
    start = len(text) - _length(pattern)
    return start >= at and last.fullmatch(text, start) is not None


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
def _compiled(pattern: str) -> tuple[re.Pattern[str], ...]:
    pieces = [""]
    for part in _PART.findall(pattern):
        if part.startswith("*"):
            pieces.append("")
        else:
            pieces[-1] += _regular(part)
    return tuple(re.compile(piece, re.DOTALL) for piece in pieces)


@lru_cache(maxsize=1_000)
def _length(pattern: str) -> int:
    """The number of characters after the last ``*``."""
    length = 0
    for part in _PART.findall(pattern):
        if part.startswith("*"):
            length = 0
        else:
            length += 1 if part.startswith("\\") or part == "?" else len(part)
    return length


def _regular(part: str) -> str:
    if part == "?":
        return "."
    return re.escape(part[1:] if part.startswith("\\") and len(part) > 1 else part)
