"""The user's own words that follow the newest summary: verbatim, in order, as many of the newest as fit.

Nothing here looks at what a message says. If there is no room for all, long messages are cut in the middle, then the
oldest are left out. Pinned messages are shown where they stood, so they take no room here.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from tui_agent.context.budget import Budget
from tui_agent.context.cutting import head, tail
from tui_agent.context.economics import Situation
from tui_agent.conversation.entries import Words
from tui_agent.conversation.request import said_text, words_block
from tui_agent.conversation.sizes import TextSize, size_of_text
from tui_agent.conversation.view import Group

CAPS: Final = (12_000, 6_000, 3_000, 1_500)
"""The lengths in characters to which messages are cut, one after the other, before any is left out."""
SHORTER_CAPS: Final = (600, 300, 100)
"""The lengths to which they are cut if not even the newest would fit otherwise."""
WINDOW_SHARE: Final = 10
"""The words take at most 1/`WINDOW_SHARE` of the window."""
HISTORY_SHARE: Final = 3
"""And at most 1/`HISTORY_SHARE` of what it leaves for the conversation. With a quarter, 2% fewer of the user's words
outlived the summaries of recorded sessions in windows of 64,000 tokens (``python -m tests.bench.evidence``).
"""
_BREAK_CHARS: Final = 200
"""A cut moves by at most so many characters, so that it falls between two lines or words."""


def words_limit(setting: int, budget: Budget) -> int:
    """The most tokens for the words: the setting, but in a known window at most their share of it and of the history.

    Where system prompt and tools take most of the window, a summary and the next message would have no room otherwise.
    """
    if not budget.known:
        return setting
    return min(setting, budget.window // WINDOW_SHARE, budget.history // HISTORY_SHARE)


def words_to_keep(
    said: Sequence[Words], groups: Iterable[Group], here: Situation, *, last: int, whole: Collection[int] = ()
) -> tuple[Words, ...]:
    """The words to keep of the user's messages up to entry `last`.

    `said`: the user's messages, oldest first. `groups`: those in view. `whole`: messages to keep as they are, however
    long.
    """
    pinned = {group.first for group in groups if group.pinned}.union(whole)
    limit = words_limit(here.settings.compaction.user_words_tokens, here.budget)
    return kept_words(said, last=last, limit=limit, tokens_of=here.mixed_tokens_of, pinned=pinned)


def kept_words(
    said: Sequence[Words], *, last: int, limit: int, tokens_of: Callable[[TextSize], int], pinned: Collection[int] = ()
) -> tuple[Words, ...]:
    """As `words_to_keep`, in a block of at most `limit` tokens. `pinned`: messages kept whole, which take no room."""
    covered = [each for each in said if each.seq <= last]
    aged = [each for each in covered if each.seq not in pinned]
    heading = size_of_text(words_block((), left_out=len(aged)))
    kept: list[Words] = []
    for cap in (0, *CAPS, *SHORTER_CAPS):
        kept, size = [], heading
        for each in reversed(aged):
            shown = _cut(each, cap)
            size = size.plus(size_of_text(f"\n{said_text(shown)}"))
            if tokens_of(size) > limit:
                break
            kept.append(shown)
        if len(kept) == len(aged) or (kept and cap and cap <= CAPS[-1]):
            break
    return tuple(sorted((*kept, *(each for each in covered if each.seq in pinned)), key=lambda each: each.seq))


def _cut(words: Words, limit: int) -> Words:
    """The words with at most about `limit` characters, from both ends of the text; 0: all."""
    text = words.text
    if not limit or len(text) <= limit:
        return words
    first, last = head(text, limit * 2 // 3), tail(text, limit // 3)
    # Between two lines, or at least two words: half a number looks like another one.
    end = next(
        (place for gap in "\n " if (place := first.rfind(gap, max(1, len(first) - _BREAK_CHARS))) > 0), len(first)
    )
    start = next((place + 1 for gap in "\n " if (place := last.find(gap, 0, _BREAK_CHARS)) >= 0), 0)
    first, last = first[:end], last[start:]
    gone = len(text) - len(first) - len(last)
    mark = f"[… {gone:,} characters of message {words.seq} are left out here; recall finds them by their words …]"
    return Words(words.seq, f"{first}\n{mark}\n{last}", words.time)
