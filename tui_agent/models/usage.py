"""The cost of calls, the totals of a turn and of a session, and the speed of local models, whose calls cost time."""

from collections.abc import Iterable, Mapping

import msgspec

from tui_agent.conversation.entries import AnyEntry, Usage, model_call
from tui_agent.conversation.profile import HOUR_WRITE, ModelProfile, Prices
from tui_agent.models.base import Completed, Metered, Timings

MTOK = 1_000_000
NEWEST_WEIGHT = 0.4
"""The newest call's weight in the moving average: speed varies with the machine's load."""
FEWEST_READ, FEWEST_WRITTEN = 64, 8
"""Calls with fewer tokens are not measured: their time is mostly overhead."""
SHORTEST_S = 0.05
"""Shorter times are not measured: such an answer was cached or comes from no real model."""


def cost_usd(usage: Usage, prices: Prices | None, search_usd: float | None = None) -> float | None:
    """The cost of a call in USD, with its searches; None if the prices are unknown."""
    if prices is None:
        return None
    rates = prices.of(usage.input_tokens)
    read = rates.input if rates.cache_read is None else rates.cache_read
    write = rates.input if rates.cache_write is None else rates.cache_write
    uncached = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    return (
        usage.searches * (search_usd or 0.0)
        + (
            uncached * rates.input
            + usage.cache_read_tokens * read
            + (usage.cache_write_tokens - usage.cache_write_hour_tokens) * write
            + usage.cache_write_hour_tokens * HOUR_WRITE * rates.input
            + usage.output_tokens * rates.output
        )
        / MTOK
    )


def cost_of(answer: Completed | Metered, profile: ModelProfile) -> float | None:
    """The cost of a call in USD: what the server says, else by the model's prices; None if neither is known."""
    if answer.charged_usd is not None:
        return answer.charged_usd
    return cost_usd(answer.usage, profile.prices, profile.search_usd)


class Totals(msgspec.Struct, frozen=True):
    """The totals of several calls. `unpriced` counts those without known prices, whose cost `cost_usd` lacks."""

    usage: Usage = Usage()
    calls: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    @property
    def known_cost_usd(self) -> float | None:
        """The cost in USD; None if there were calls and none had known prices."""
        return None if self.calls and self.calls == self.unpriced else self.cost_usd

    @property
    def cache_share(self) -> float | None:
        """The share of input tokens read from the provider's cache, 0 to 1; None without input."""
        return self.usage.cache_read_tokens / self.usage.input_tokens if self.usage.input_tokens else None

    def plus(self, usage: Usage, cost: float | None) -> "Totals":
        """These totals with one more call."""
        return Totals(self.usage + usage, self.calls + 1, self.cost_usd + (cost or 0.0), self.unpriced + (cost is None))


class UsageTracker:
    """Adds up calls: per model, for the turn and for the session.

    A subtask's tracker has a `parent`, which records each of its calls at once, so nothing is left to add when the
    subtask ends.
    """

    def __init__(self, parent: "UsageTracker | None" = None) -> None:
        self.session = Totals()
        self.turn = Totals()
        self.subtasks = Totals()
        """The part of `session` that is from subtasks."""
        self.subtask_count = 0
        self._models: dict[str, Totals] = {}
        self.in_turn = True
        """Whether calls count for `turn` too; between turns they count for `session` only."""
        self._parent = parent
        self._known_to_parent = False

    def start_turn(self) -> None:
        self.turn, self.in_turn = Totals(), True

    def end_turn(self) -> None:
        """End the turn: later calls belong to no turn."""
        self.in_turn = False

    def record(self, model: str, usage: Usage, cost: float | None) -> None:
        """Record a call; `cost` in USD, None if unknown."""
        if self.in_turn:
            self.turn = self.turn.plus(usage, cost)
        self.session = self.session.plus(usage, cost)
        self._models[model] = self._models.get(model, Totals()).plus(usage, cost)
        if self._parent is not None:
            self._parent.record_subtask(model, usage, cost, first=not self._known_to_parent)
            self._known_to_parent = True

    def record_log(self, entries: Iterable[AnyEntry]) -> None:
        """Record every call in the entries of a log."""
        for entry in entries:
            call = model_call(entry)
            if call is not None:
                self.record(call.model, call.usage, call.cost_usd)

    def record_subtask(self, model: str, usage: Usage, cost: float | None, *, first: bool) -> None:
        """Record a call of a subtask; `first`: its first one."""
        self.subtask_count += first
        self.subtasks = self.subtasks.plus(usage, cost)
        self.record(model, usage, cost)

    def by_model(self) -> Mapping[str, Totals]:
        """The session's totals by model, most expensive first."""
        return dict(sorted(self._models.items(), key=lambda item: item[1].cost_usd, reverse=True))


class Speed(msgspec.Struct, frozen=True):
    """Tokens per second; 0: unknown."""

    reading: float = 0.0
    writing: float = 0.0


class Speedometer:
    """Measures the speed of each model, by name."""

    def __init__(self) -> None:
        self._speeds: dict[str, Speed] = {}

    def of(self, model: str) -> Speed:
        return self._speeds.get(model, Speed())

    def measure(self, model: str, timings: Timings, usage: Usage, kept: int) -> Speed:
        """Update a model's speed with a call; `kept` are the prompt tokens its server should have had in its cache."""
        before = self.of(model)
        read = timings.read if timings.read is not None else usage.input_tokens - max(kept, usage.cache_read_tokens)
        now = Speed(
            _mixed(before.reading, read, timings.read_s, FEWEST_READ),
            _mixed(before.writing, usage.output_tokens, timings.write_s, FEWEST_WRITTEN),
        )
        self._speeds[model] = now
        return now


def _mixed(before: float, tokens: int, seconds: float, fewest: int) -> float:
    if tokens < fewest or seconds < SHORTEST_S:
        return before
    newest = tokens / seconds
    return before + NEWEST_WEIGHT * (newest - before) if before else newest
