"""How well a part of a name fits a name: one measure for commands, pickers and files.

Whole words come before scattered letters, the start of a name before its middle, and short names before long ones.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

T = TypeVar("T")

SCATTERED: Final = 25.0
"""What fits better holds what was typed in one piece."""


def score(text: str, wanted: str, name_at: int = 0) -> float | None:
    """How well `wanted` fits `text`, both in lower case; None: `text` does not hold its characters in this order.

    `name_at`: where in the text the name begins, which counts for more than what stands before it.
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
    """Those of which a name fits what was typed, the best first; scattered letters only where nothing else fits."""
    wanted = typed.lower()
    if not wanted:
        return tuple(candidates)
    return ranked(
        (max(fits), candidate)
        for candidate in candidates
        if (fits := [found for name in names(candidate) if (found := score(name.lower(), wanted)) is not None])
    )


def ranked(scored: Iterable[tuple[float, T]]) -> tuple[T, ...]:
    """The best first, in the given order where they are alike; scattered letters only where nothing else fits."""
    found = sorted(scored, key=lambda each: -each[0])
    whole = [candidate for well, candidate in found if well > SCATTERED]
    return tuple(whole or (candidate for _, candidate in found))


def _spread(text: str, wanted: str, start: int) -> int | None:
    """How many characters lie between those wanted; None: they are not all there."""
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
    """Whether each word, in lower case, stands in a text that keeps its own order in a list, such as what was said."""
    return all(word in text for word in asked)
