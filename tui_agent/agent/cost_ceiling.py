"""The cost ceiling: what a turn and a session may cost at most, subtasks included.

It is looked at before and after every model call. Once reached, nothing more is asked of a model until the user resets
it: a session that costs more than it should almost always has something wrong with it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tui_agent.conversation.entries import Message
from tui_agent.models.base import ModelError, ModelProfile, Prices
from tui_agent.models.usage import MTOK, UsageTracker, prices_for
from tui_agent.text import money_text

Bound: TypeAlias = Literal["turn", "session"]

_KEYS = {"turn": "agent.max_turn_cost_usd", "session": "agent.max_session_cost_usd"}


class CostCeilingReached(ModelError):
    """A bound is met or exceeded, or the next call's input alone would do so: the call is not made."""

    kind = "cost_ceiling"

    def __init__(self, message: str, bound: Bound) -> None:
        super().__init__(message)
        self.bound = bound


@dataclass(frozen=True, slots=True)
class Limit:
    """What a turn and a session may cost, in USD; None: no bound."""

    turn: float | None = None
    session: float | None = None


class CostCeiling:
    """One ceiling for a session and all its subtasks; `tracker` is the session's, which subtasks record into too."""

    def __init__(self, limit: Limit, tracker: UsageTracker) -> None:
        self._limit = limit
        self._session_bound = limit.session
        self._tracker = tracker
        self._reached: CostCeilingReached | None = None
        self._unwatched: set[str] = set()
        self._under_way: list[float] = []

    @property
    def reached(self) -> bool:
        """Whether it stays shut until `reset`."""
        return self._reached is not None

    def check(self) -> None:
        """Raises `CostCeilingReached`, the same again until `reset`, where a bound is met or exceeded."""
        if self._reached is not None:
            raise self._reached
        for bound, spent, most in self._bounds():
            if spent >= most:
                raise self._shut(
                    f"This {bound} has cost {money_text(spent)}; its ceiling is {money_text(most)} ({_KEYS[bound]}).",
                    bound,
                )

    @contextmanager
    def calling(self, profile: ModelProfile, tokens: int, cached: int = 0) -> Iterator[None]:
        """For the time of one call, from before it is made until it is recorded.

        Raises as `check` does, also where `tokens` tokens of input would break a bound by themselves, together with the
        input of calls under way at the same time. `cached`: how many of them the provider probably holds in its cache.
        """
        self.check()
        expected = 0.0 if profile.prices is None else input_cost_usd(profile.prices, tokens, cached)
        if expected:
            self._check_expected(profile, tokens, expected)
        self._under_way.append(expected)
        try:
            yield
        finally:
            self._under_way.remove(expected)

    def _check_expected(self, profile: ModelProfile, tokens: int, expected: float) -> None:
        others = sum(self._under_way)
        beside = f", with {money_text(others)} for the input of calls under way" if others else ""
        call = (
            f"The next call to {profile.id} would cost {money_text(expected)} for its {tokens:,} tokens of input alone."
        )
        for bound, spent, most in self._bounds():
            if spent + others + expected >= most:
                so_far = f"This {bound} has cost {money_text(spent)}{beside}"
                raise self._shut(f"{call} {so_far}; its ceiling is {money_text(most)} ({_KEYS[bound]}).", bound)

    def unwatched(self, profile: ModelProfile) -> str:
        """That calls to this model cannot be counted against the ceiling, said once per model; else nothing."""
        bounded = self._limit.turn is not None or self._limit.session is not None
        if not bounded or profile.prices is not None or profile.name in self._unwatched:
            return ""
        self._unwatched.add(profile.name)
        return f"The prices of {profile.id} are not known: what it costs does not count towards the cost ceiling."

    def reset(self) -> str:
        """Let the session go on, by decision of the user; a sentence that says what it may cost from here on."""
        if self._reached is None:
            return "The cost ceiling is not reached; nothing was reset."
        reached, self._reached = self._reached, None
        if reached.bound == "session" and self._limit.session is not None:
            spent = self._tracker.session.cost_usd
            self._session_bound = spent + self._limit.session
            return (
                f"The session may cost {money_text(self._limit.session)} more: it has cost {money_text(spent)}, "
                f"its ceiling is now {money_text(self._session_bound)}."
            )
        # The rest of what was asked is a turn of its own, also where it goes on with the same question.
        self._tracker.start_turn()
        return f"The next turn may cost {money_text(self._limit.turn or 0)} again."

    def _bounds(self) -> list[tuple[Bound, float, float]]:
        """Each bound there is: its name, what was spent, what may be."""
        found: list[tuple[Bound, float, float]] = []
        if self._limit.turn is not None:
            found.append(("turn", self._tracker.turn.cost_usd, self._limit.turn))
        if self._session_bound is not None:
            found.append(("session", self._tracker.session.cost_usd, self._session_bound))
        return found

    def _shut(self, message: str, bound: Bound) -> CostCeilingReached:
        self._reached = CostCeilingReached(message, bound)
        return self._reached


def input_cost_usd(prices: Prices, tokens: int, cached: int = 0) -> float:
    """What `tokens` tokens of input cost in USD, `cached` of them read from the provider's cache."""
    rates = prices_for(prices, tokens)
    read = rates.input if rates.cache_read is None else rates.cache_read
    held = min(cached, tokens)
    return ((tokens - held) * rates.input + held * read) / MTOK


def probably_cached(last: Message | None, profile: ModelProfile, now: float | None = None) -> int:
    """How many tokens of the next request the provider's cache still holds, by the `last` call and its age.

    `now` in seconds since the epoch (by default, the clock's).
    """
    if last is None or last.usage is None or last.model != profile.name:
        return 0
    age = (time.time() if now is None else now) - last.time
    return last.usage.cache_read_tokens + last.usage.cache_write_tokens if age < profile.cache_ttl_s else 0
