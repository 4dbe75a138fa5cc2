"""The patterns of rules: ``*`` stands for any text, ``?`` for one character, a backslash takes the next as it is."""

import re
from functools import lru_cache

_WILD = re.compile(r"(?<!\\)(?:\\\\)*[*?]")
_PART = re.compile(r"\\.|\*+|\?|[^\\*?]+|\\", re.DOTALL)


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` stands for the whole of `text`."""
    return _compiled(pattern).fullmatch(text) is not None


def is_wild(pattern: str) -> bool:
    """Whether it stands for more than one text."""
    return _WILD.search(pattern) is not None


def escaped(text: str) -> str:
    """The pattern that stands for `text` alone."""
    return re.sub(r"([\\*?])", r"\\\1", text)


def written_out(pattern: str) -> tuple[str, ...]:
    """The pieces of `pattern` between its ``*`` and ``?``, backslashes removed."""
    pieces = [""]
    for part in _PART.findall(pattern):
        if part.startswith("*") or part == "?":
            pieces.append("")
        else:
            pieces[-1] += part[1:] if part.startswith("\\") and len(part) > 1 else part
    return tuple(pieces)


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile("".join(map(_regular, _PART.findall(pattern))), re.DOTALL)


def _regular(part: str) -> str:
    if part.startswith("*"):
        return ".*"
    if part == "?":
        return "."
    return re.escape(part[1:] if part.startswith("\\") and len(part) > 1 else part)
