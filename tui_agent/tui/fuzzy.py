"""Fuzzy matching for commands, pickers and files.

Contiguous matches rank before scattered letters, the start of a name before its middle, and short names before long
ones. The higher the score, the better the match.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

SCATTERED: Final = 25.0
"""Scores above this are contiguous matches; those of scattered letters are lower."""


def score(text: str, wanted: str, name_at: int = 0) -> float | None:
    """The score of `wanted` in `text`, both in lower case; None if `text` lacks its characters in this order.

    `name_at`: where the name starts in the text, such as a path: matches in the name rank before those ahead of it.
    """
    cost = len(text) / 1000 + text.count("/", 0, -1) / 10
    if not wanted:
        return -cost
    if (place := text.find(wanted, name_at)) >= 0:
        return 40 + 10 * (place == name_at) + 5 * (len(text.rstrip("/")) - name_at == len(wanted)) - cost
    if (place := text.find(wanted)) >= 0:
        return 30 + 5 * (place == 0 or text[place - 1] in "/_-. ") - cost
    for start, bonus in ((name_at, 20), (0, 10)):
        spread = _spread(text, wanted, start)
        if spread is not None:
            return bonus - spread / 10 - cost
    return None


def best(candidates: Iterable[T], typed: str, names: Callable[[T], Iterable[str]]) -> tuple[T, ...]:
    """The candidates with a name that matches, best first; scattered letters only if nothing matches contiguously."""
    wanted = typed.lower()
    if not wanted:
        return tuple(candidates)
    return ranked(
        (max(fits), candidate)
        for candidate in candidates
        if (fits := [found for name in names(candidate) if (found := score(name.lower(), wanted)) is not None])
    )


def ranked(scored: Iterable[tuple[float, T]]) -> tuple[T, ...]:
    """Sort by score, best first and stably; keep scattered matches only if there is no contiguous one."""
    found = sorted(scored, key=lambda each: -each[0])
    whole = [candidate for well, candidate in found if well > SCATTERED]
    return tuple(whole or (candidate for _, candidate in found))


def _spread(text: str, wanted: str, start: int) -> int | None:
    """How many characters lie between the wanted ones; None if they are not all there."""
    place = start - 1
    first = -1
    for character in wanted:
        place = text.find(character, place + 1)
        if place < 0:
            return None
        if first < 0:
            first = place
    return place - first + 1 - len(wanted)


def holds(text: str, asked: Iterable[str]) -> bool:
    """Whether a text contains every word (in lower case): the filter for lists that are not sorted by score."""
    return all(word in text for word in asked)
