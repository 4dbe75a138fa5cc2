"""The patterns of rules: ``*`` matches any text, ``?`` one character, a backslash makes the next character literal.

Patterns are untrusted. Python matches them piece by piece, each at its first match, so that the time is at most
proportional to the product of the pattern's and the text's lengths.
"""

import re
from fnmatch import translate
from functools import lru_cache

from tui_agent.regex import regex

_WILD = regex(r"(?<!\\)(?:\\\\)*[*?]")
_LITERAL = regex(r"\\(.)|\[", re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` matches all of `text`."""
    return _compiled(pattern).match(text) is not None


@lru_cache(maxsize=100)
def any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """What matches the texts that any of these patterns matches: much faster than one after the other."""
    return re.compile("|".join(map(_expression, patterns)) or "(?!)")


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
    return re.compile(_expression(pattern))


def _expression(pattern: str) -> str:
    return translate(_LITERAL.sub(_in_brackets, pattern))


def _in_brackets(literal: re.Match[str]) -> str:
    """A character as fnmatch's patterns have it literally."""
    character = literal[1] or "["
    return f"[{character}]" if character in "*?[" else character
