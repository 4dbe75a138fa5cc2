"""The provider's cache of the prefix: what it still has, and for how long it is asked to keep it.

That is five minutes or, at a higher price, an hour. The decision is made from the user's own pauses, in this session
and earlier ones: how many calls came so late that an hour would have kept what five minutes lose, and how many came
later still. It is made whenever all is written to the cache anyway, so that within a session nothing is written twice
for it.

Anthropic: writing for an hour costs twice the input price, for five minutes 1.25 times; a read renews either; marks of
an hour come before those of five minutes ("Prompt caching"). No other provider here lets a request choose.
"""

from bisect import bisect_left
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.conversation.profile import HOUR_S, ModelProfile
from tui_agent.conversation.request import CacheHours
from tui_agent.conversation.view import View
from tui_agent.text import spoken_time

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


class CacheState(msgspec.Struct, frozen=True):
    """Whether the provider's cache of the prefix has expired, and why."""

    cold: bool
    reason: str


class PrefixCache(msgspec.Struct, frozen=True):
    """The provider's cache of the next request's prefix at the moment `now`, as the log tells it.

    hours: what the newest request asked to keep for an hour.
    """

    view: View
    model: ModelProfile
    now: float
    hours: CacheHours

    @property
    def state(self) -> CacheState:
        """Whether the provider still has the prefix of the next request."""
        return self._state_after(self._ttl_s)

    @property
    def until(self) -> float:
        """When it expires (seconds since the epoch); 0 if it has, or there is none."""
        call = self.view.last_call
        return 0.0 if call is None or self.state.cold else self.view.last_read(call) + self._ttl_s

    @property
    def expires_in(self) -> float:
        """In how many seconds that is; 0 if it has expired, or there is none."""
        return max(0.0, self.until - self.now)

    @property
    def _ttl_s(self) -> float:
        return priced(self.model, self._written_for).cache_ttl_s

    def _state_after(self, ttl_s: float) -> CacheState:
        """The state of a cache that lives so long. That of a session resumed within it is still warm, since its first
        request has the same bytes.
        """
        call, prefix = self.view.last_call, self.view.prefix
        if call is None:
            return CacheState(True, "nothing was answered yet")
        if call.model != self.model.name:
            return CacheState(True, "another model answers, whose cache is empty")
        if prefix is not None and prefix.seq >= call.seq:
            return CacheState(True, "the system prompt or the tools have changed")
        idle = self.now - self.view.last_read(call)
        if idle >= ttl_s:
            return CacheState(True, f"the last call was {spoken_time(idle)} ago, the cache lives {spoken_time(ttl_s)}")
        return CacheState(False, "the cache is warm")

    @property
    def _written_for(self) -> CacheHours:
        """What the newest call has had kept for an hour, as its usage says; if it wrote nothing, as was asked for."""
        call = self.view.last_call
        used = call.usage if call is not None else None
        if used is None or not used.cache_write_tokens:
            return self.hours
        if used.cache_write_hour_tokens == used.cache_write_tokens:
            return "all"
        return "prefix" if used.cache_write_hour_tokens or self.hours == "prefix" else ""

    def next_hours(self, setting: "CacheLife", pauses: "Pauses", tokens: int) -> CacheHours:
        """What the next request asks to keep for an hour: decided anew whenever all is written to the cache anyway."""
        if not self.model.keeps_hours:
            return ""
        return kept_for(setting, self.model, pauses, tokens) if self.state.cold else self._written_for

    def kept(self, tokens: int, fixed: int) -> int:
        """How many of the next request's `tokens`, of which `fixed` are system prompt and tools, are in the cache."""
        call = self.view.last_call
        caches = self.model.cache != "none" or self.model.local
        if call is None or call.usage is None or not caches:
            return 0
        if self.state.cold:
            alive = self._written_for == "prefix" and not self._state_after(HOUR_S).cold
            return min(fixed, tokens) if alive and fixed >= self.model.cache_minimum else 0
        used = call.usage
        left = used.input_tokens + (used.output_tokens if self.model.local else 0)
        if self.model.cache == "marked":
            left = used.cache_read_tokens + used.cache_write_tokens
        if self.view.edits_since_call:
            # At least the system prompt and the tools come before what was changed.
            left = min(left, fixed)
        return min(left, tokens) if left >= self.model.cache_minimum or self.model.local else 0


def priced(model: ModelProfile, hours: CacheHours) -> ModelProfile:
    """The model with the prices and the lifetime of a cache of which so much is kept for an hour."""
    return model.for_an_hour() if hours == "all" else model


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
