"""Cuts a text between two graphemes: a cut inside one would show half a character."""

import unicodedata
from typing import Final

LONGEST_CLUSTER: Final = 32
"""Longer grapheme clusters, in characters, are cut."""

_JOINER: Final = "\u200d"


def quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def head(text: str, characters: int) -> str:
    """The longest start of `text` of at most `characters` that ends between two graphemes."""
    if characters >= len(text):
        return text
    return text[: _break_at_or_before(text, max(0, characters))]


def tail(text: str, characters: int) -> str:
    """The longest end of `text` of at most `characters` that starts between two graphemes."""
    if characters >= len(text):
        return text
    start = len(text) - max(0, characters)
    for place in range(start, min(len(text), start + LONGEST_CLUSTER) + 1):
        if _is_break(text, place):
            return text[place:]
    return text[start:]


def head_bytes(text: str, limit: int) -> str:
    """The longest start of `text` of at most `limit` bytes in UTF-8 that ends between two graphemes."""
    if 4 * len(text) <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    return head(text, len(data[: max(0, limit)].decode(errors="ignore")))


def tail_bytes(text: str, limit: int) -> str:
    """The longest end of `text` of at most `limit` bytes in UTF-8 that starts between two graphemes."""
    if 4 * len(text) <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    return tail(text, len(data[len(data) - max(0, limit) :].decode(errors="ignore")))


def _break_at_or_before(text: str, place: int) -> int:
    for earlier in range(place, max(0, place - LONGEST_CLUSTER), -1):
        if _is_break(text, earlier):
            return earlier
    return place if place > LONGEST_CLUSTER else 0


def _is_break(text: str, place: int) -> bool:
    if place <= 0 or place >= len(text):
        return True
    before, after = text[place - 1], text[place]
    if before.isascii() and after.isascii():
        return not (before == "\r" and after == "\n")
    if before == _JOINER or after == _JOINER or _extends(after):
        return False
    return not (_is_regional(before) and _is_regional(after) and _regionals_before(text, place) % 2)


def _extends(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me", "Mc") or "\U0001f3fb" <= character <= "\U0001f3ff"


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _regionals_before(text: str, place: int) -> int:
    start = place
    while start > max(0, place - LONGEST_CLUSTER) and _is_regional(text[start - 1]):
        start -= 1
    return place - start
