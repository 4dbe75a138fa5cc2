"""The user's own words that every compaction keeps: all of them, as long as there is room.

If there is not, pastes are cut first, the longest most; then chatter is dropped, oldest first; demands, decisions,
preferences and facts go last (docs/context.md, "Summaries"). A value that a later statement replaced is struck out, so
that it is never presented as valid.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from tui_agent.context.summary.rendering import PASTE_CHARS, cut
from tui_agent.context.summary.statements import Weight, binding, statements, struck_out, weight_of
from tui_agent.conversation.entries import Words
from tui_agent.conversation.request import WORDS_HEADING
from tui_agent.conversation.sizes import Size, size_of_text

CAPS: Final = (12_000, 6_000, 3_000, PASTE_CHARS)
"""Successive limits, in characters, to which texts are cut before any is left out."""
LAST_CAPS: Final = (600, 300)
READ_CHARS: Final = 24_000
"""Characters of a message that are searched for statements."""
WINDOW_SHARE: Final = 10
"""The words take at most 1/`WINDOW_SHARE` of the window."""


def words_limit(setting: int, window: int) -> int:
    """The most tokens for the words: the setting, but at most a tenth of a known window."""
    return min(setting, window // WINDOW_SHARE) if window else setting


def kept_words(said: Sequence[Words], *, last: int, limit: int, tokens_of: Callable[[Size], int]) -> tuple[Words, ...]:
    """The kept words of the user's messages up to entry `last`, in a block of at most `limit` tokens.

    `said`: all of the user's messages, oldest first, since later ones that are still in view may replace statements.
    """
    words, weights = _standing(_without_repeats(said), last)
    room = _Room(limit, tokens_of)
    cuts = _cuts(weights)
    place = bisect_left(cuts, True, key=lambda cut: room.holds(_cut(words, cut)))
    return tuple(_cut(words, cuts[min(place, len(cuts) - 1)]))


def _standing(said: Sequence[Words], last: int) -> tuple[list[Words], dict[int, Weight]]:
    """What still holds of the messages up to entry `last`, and how much each of them binds, by its entry."""
    read = [each.text[:READ_CHARS] for each in said]
    told = [statements(text) for text in read]
    words, weights = [], {}
    for each, before, its, text in zip(said, read, told, struck_out(read, told), strict=True):
        if each.seq <= last and text:
            left = Words(each.seq, text + each.text[READ_CHARS:])
            words.append(left)
            weights[each.seq] = weight_of(its if text == before else statements(left.text[:READ_CHARS]))
    return words, weights


class _Cut(NamedTuple):
    """A degree of cutting: characters of each text (0: all), the messages to drop, and whether to keep only the binding
    sentences of the others.
    """

    cap: int = 0
    gone: frozenset[int] = frozenset()
    binding: bool = False


def _cuts(weights: Mapping[int, Weight]) -> list[_Cut]:
    """Degrees that keep ever less, down to nothing."""
    found = [_Cut(cap) for cap in (0, *CAPS)]

    def without(weight: Weight) -> None:
        last = found[-1]
        light = [seq for seq, its in weights.items() if its == weight]
        # In about fifty steps, because a long conversation has thousands of messages.
        step = max(1, len(light) // 50)
        for count in range(step, len(light) + step, step):
            found.append(last._replace(gone=last.gone.union(light[:count])))

    without(Weight.CHATTER)
    without(Weight.DETAIL)
    found.append(found[-1]._replace(binding=True))
    found += [found[-1]._replace(cap=cap) for cap in LAST_CAPS]
    for weight in (Weight.STANDING, Weight.STATED, Weight.RULE):
        without(weight)
    found.append(_Cut(gone=frozenset(weights)))
    return found


def _cut(words: Sequence[Words], how: _Cut) -> list[Words]:
    kept = []
    for each in words:
        if each.seq in how.gone:
            continue
        text = binding(each.text) if how.binding else each.text
        if how.cap and len(text) > how.cap:
            text = f"{cut(text, how.cap)}\n[the whole is message {each.seq}, which recall finds]"
        kept.append(Words(each.seq, text))
    return kept


class _Room:
    """Checks whether words fit; the size of each text is computed only once."""

    def __init__(self, limit: int, tokens_of: Callable[[Size], int]) -> None:
        self._limit = limit
        self._tokens_of = tokens_of
        self._sizes: dict[str, Size] = {}

    def holds(self, words: Sequence[Words]) -> bool:
        total = size_of_text(WORDS_HEADING)
        for each in words:
            size = self._sizes.get(each.text)
            if size is None:
                size = self._sizes[each.text] = size_of_text(f"\n- {each.text}")
            total = total.plus(size)
        return not words or self._tokens_of(total) <= self._limit


def _without_repeats(said: Sequence[Words]) -> list[Words]:
    """The words without earlier repetitions of the same text."""
    newest = {" ".join(each.text.casefold().split()): each.seq for each in said}
    return [each for each in said if newest[" ".join(each.text.casefold().split())] == each.seq]
