"""The bill of one policy: every call it makes, at the model's prices, with what the cache spares."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tui_agent.conversation.entries import Usage
from tui_agent.models.base import ModelProfile
from tui_agent.models.usage import cost_usd
from tui_agent.replay.cache import CacheUse, PromptCache
from tui_agent.replay.prompt import Prompt
from tui_agent.replay.script import Said

REWRITE_TOKENS = 1_000
"""An edit that has at least this much of an earlier request billed again counts as a rewrite."""
FETCH_OUTPUT = 80
"""Tokens of the answer that asks for something again."""
LARGEST_FETCH = 20_000
"""Tokens of the largest piece that is fetched at once; more is paged."""


@dataclass(slots=True)
class Bill:
    """Sums over a replay. Costs in USD, everything else in tokens or counts."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: float = 0.0
    summaries: int = 0
    summary_cost: float = 0.0
    fetches: int = 0
    fetched_tokens: int = 0
    fetch_cost: float = 0.0
    rewrites: int = 0
    rewritten_tokens: int = 0
    cold_calls: int = 0
    peak: int = 0
    overflows: int = 0

    @property
    def total(self) -> float:
        """What the session would have cost: its calls, its summaries, and what had to be fetched again."""
        return self.cost + self.summary_cost + self.fetch_cost


class Ledger:
    """Bills one policy on one model. Owns the model's cache; `newest` is what the newest call of the session used."""

    def __init__(self, profile: ModelProfile, small: ModelProfile | None = None, window: int = 0) -> None:
        self.profile = profile
        self.window = window or profile.window
        self.small = small
        self.bill = Bill()
        self.newest = Usage()
        self.cache = PromptCache(
            ttl_s=profile.cache_ttl_s, minimum=profile.cache_minimum, marked=profile.provider == "anthropic"
        )

    def call(self, prompt: Prompt, output: int, now: float) -> None:
        """One of the session's own calls."""
        bill, cold, earlier = self.bill, self.cache.is_cold(now), prompt.sent_tokens
        edited = prompt.unchanged < prompt.sent
        use = self.cache.use(prompt, now)
        again = min(earlier, use.total) - use.read
        if edited and not cold and again >= REWRITE_TOKENS:
            bill.rewrites += 1
            bill.rewritten_tokens += again
        bill.cold_calls += cold and bill.calls > 0
        bill.calls += 1
        self.newest = _usage(use, output)
        bill.usage += self.newest
        bill.cost += self._cost(use, output)
        bill.peak = max(bill.peak, use.total)
        if self.window and use.total > self.window:
            bill.overflows += 1

    def summary(self, prompt: Prompt, instruction: int, output: int, now: float) -> float:
        """A summary asked for at the end of the running request, which the cache holds; returns its cost."""
        use = self.cache.use(prompt, now)
        cost = self._cost(CacheUse(use.total + instruction, use.read, use.written), output)
        return self._summarised(cost)

    def separate(self, tokens: int, output: int) -> float:
        """A summary by the small model (where there is none, by the same) on `tokens` of its own; returns its cost."""
        profile = self.small or self.profile
        return self._summarised(cost_usd(Usage(input_tokens=tokens, output_tokens=output), profile.prices) or 0.0)

    def fetch(self, pieces: Sequence[Said], prompt: Prompt) -> None:
        """What had left the view is fetched again, all in one step: one more call, and its text is new to the cache."""
        tokens = sum(min(said.tokens, LARGEST_FETCH) for said in pieces)
        asked = FETCH_OUTPUT * len(pieces)
        extra = Usage(
            input_tokens=prompt.tokens + tokens + asked,
            cache_read_tokens=prompt.tokens,
            cache_write_tokens=tokens + asked if self.profile.provider == "anthropic" else 0,
            output_tokens=asked,
        )
        self.bill.fetches += len(pieces)
        self.bill.fetched_tokens += tokens
        self.bill.fetch_cost += cost_usd(extra, self.profile.prices) or 0.0

    def _summarised(self, cost: float) -> float:
        self.bill.summaries += 1
        self.bill.summary_cost += cost
        return cost

    def _cost(self, use: CacheUse, output: int) -> float:
        return cost_usd(_usage(use, output), self.profile.prices) or 0.0


def _usage(use: CacheUse, output: int) -> Usage:
    return Usage(
        input_tokens=use.total, cache_read_tokens=use.read, cache_write_tokens=use.written, output_tokens=output
    )
