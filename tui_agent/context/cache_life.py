"""How long the provider is asked to keep a conversation: for five minutes or, at a higher price, for an hour.

The decision is made from the user's own pauses, in this session and earlier ones: how many calls came so late that an
hour would have kept what five minutes lose, and how many came later still. It is made whenever all is written to the
cache anyway, so that within a session nothing is written twice for it.

Anthropic: writing for an hour costs twice the input price, for five minutes 1.25 times; a read renews either; marks of
an hour come before those of five minutes ("Prompt caching"). No other provider here lets a request choose.
"""

from bisect import bisect_left
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.profile import HOUR_S, MILLION, ModelProfile
from tui_agent.conversation.request import CacheHours

EDGES: Final = (60.0, 300.0, 900.0, 1_800.0, 3_600.0, 14_400.0)
"""Pauses are counted between these, in seconds; the last count is of longer ones."""
BRIEF_S: Final = 300.0
LEAST_CALLS: Final = 40
"""From so many calls on their pauses decide; before, nothing is kept for an hour."""
MOST_COUNTED: Final = 4_000
"""Beyond so many calls older ones count half."""

MARGIN: Final = 2.0
"""How many times its price keeping all for an hour must have saved: an expired cache is also the moment at which old
results leave for nothing, which a cache that lives forgoes (``python -m tests.bench.cache_life``).
"""
DOUBT: Final = 3.0
"""So many pauses seen count half: a few of them may be chance."""

CacheLife: TypeAlias = Literal["auto", "5m", "1h"]
_BUCKETS: Final = len(EDGES) + 1


class PauseCounts(msgspec.Struct, frozen=True):
    """How long after each answer the next call was made: by length of the pause, how many calls and how many tokens
    their requests had. added: tokens that were new in the requests; ends: sessions that ended, with no further call.
    """

    calls: tuple[float, ...] = (0.0,) * _BUCKETS
    tokens: tuple[float, ...] = (0.0,) * _BUCKETS
    added: float = 0.0
    ends: float = 0.0

    def plus(self, more: "PauseCounts") -> "PauseCounts":
        """Both together; these count half once they are many."""
        fade = 0.5 if sum(self.calls) > MOST_COUNTED else 1.0
        calls, tokens = (
            tuple(fade * one + another for one, another in zip(mine, others, strict=True))
            for mine, others in ((self.calls, more.calls), (self.tokens, more.tokens))
        )
        return PauseCounts(calls, tokens, fade * self.added + more.added, fade * self.ends + more.ends)

    @classmethod
    def of(cls, pause_s: float | None, tokens: int, added: int) -> "PauseCounts":
        """Those of one call; `pause_s` None: the first of its session."""
        if pause_s is None:
            return cls(added=float(tokens))
        place = bisect_left(EDGES, pause_s)
        one = tuple(float(bucket == place) for bucket in range(_BUCKETS))
        return cls(one, tuple(each * tokens for each in one), float(added))


class Pauses:
    """The user's pauses, in `known` earlier sessions and, as `new`, in this one."""

    def __init__(self, known: PauseCounts | None = None) -> None:
        usable = known is not None and len(known.calls) == len(known.tokens) == _BUCKETS
        self._known = known if known is not None and usable else PauseCounts()
        self.new = PauseCounts()

    @property
    def all(self) -> PauseCounts:
        """Those of all sessions."""
        return self._known.plus(self.new)

    def learn(self, pause_s: float | None, tokens: int, added: int) -> None:
        """Take in a call, made `pause_s` seconds after the answer before it (None: the first), with `tokens` tokens of
        which `added` are new.
        """
        self.new = self.new.plus(PauseCounts.of(pause_s, tokens, added))

    def returning(self, after_s: float) -> float:
        """The probability that a user who has been away for so many seconds comes back at all."""
        counted = self.all
        later = sum(counted.calls[bisect_left(EDGES, after_s) + 1 :])
        return later / (later + counted.ends) if later else 0.0


def kept_for(setting: CacheLife, model: ModelProfile, pauses: Pauses, tokens: int) -> CacheHours:
    """What of a request of `tokens` tokens, all of which is about to be written to the cache, is to live for an hour.

    All of it if that would have paid over the calls that were counted: an hour would have saved writing what was lost
    in pauses of up to an hour, and all other writing would have cost more. The system prompt and the tools, which do
    not grow, if such pauses are more frequent than longer ones and ends.
    """
    brief, lasting, counted = model.rates(tokens), model.for_an_hour().rates(tokens), pauses.all
    if not model.keeps_hours or brief is None or lasting is None or not brief.input_usd or setting == "5m":
        return ""
    if setting == "1h":
        return "all"
    if sum(counted.calls) < LEAST_CALLS:
        return ""
    first, last = bisect_left(EDGES, BRIEF_S) + 1, bisect_left(EDGES, float(HOUR_S)) + 1
    extra, saved = lasting.write - brief.write, brief.write - brief.read
    pauses_seen = sum(counted.calls[first:last])
    likely = sum(counted.tokens[first:last]) * pauses_seen / (pauses_seen + DOUBT)
    if saved * likely > MARGIN * extra * (counted.added + sum(counted.tokens[last:])):
        return "all"
    lost = sum(counted.calls[last:]) + counted.ends + 1
    return "prefix" if saved * pauses_seen > extra * lost else ""


def rewriting_usd(model: ModelProfile, tokens: int) -> float:
    """What writing so many tokens into the cache anew costs in USD; 0 if it costs no money, or prices are unknown."""
    rates = model.rates(tokens)
    return tokens * max(1.0, rates.write) * rates.input_usd / MILLION if rates is not None else 0.0
