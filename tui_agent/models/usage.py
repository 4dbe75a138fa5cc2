"""What calls cost, and the totals of a turn and of a session."""

from collections.abc import Iterable, Mapping

import msgspec

from tui_agent.conversation.entries import AnyEntry, Usage, model_call
from tui_agent.models.base import Prices

MTOK = 1_000_000


def prices_for(prices: Prices, input_tokens: int) -> Prices:
    """The prices of a request with `input_tokens` tokens of input: those above the highest cliff it passes."""
    holding = prices
    for start, above in prices.above:
        if input_tokens > start:
            holding = above
    return holding


def cost_usd(usage: Usage, prices: Prices | None) -> float | None:
    """What one call cost in USD; None where the prices are not known.

    Cache reads and writes without a price of their own cost what input costs.
    """
    if prices is None:
        return None
    rates = prices_for(prices, usage.input_tokens)
    read = rates.input if rates.cache_read is None else rates.cache_read
    write = rates.input if rates.cache_write is None else rates.cache_write
    uncached = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    return (
        uncached * rates.input
        + usage.cache_read_tokens * read
        + usage.cache_write_tokens * write
        + usage.output_tokens * rates.output
    ) / MTOK


class Totals(msgspec.Struct, frozen=True):
    """Several calls together. `unpriced` of them had no known price: what they cost is not in `cost_usd`."""

    usage: Usage = Usage()
    calls: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    @property
    def known_cost_usd(self) -> float | None:
        """The cost, None where no call had a known price."""
        return None if self.calls and self.calls == self.unpriced else self.cost_usd

    @property
    def cache_share(self) -> float | None:
        """How much of all input was read from the provider's cache, 0 to 1; None without input."""
        return self.usage.cache_read_tokens / self.usage.input_tokens if self.usage.input_tokens else None

    def plus(self, usage: Usage, cost: float | None) -> "Totals":
        """These totals and one call more."""
        return Totals(self.usage + usage, self.calls + 1, self.cost_usd + (cost or 0.0), self.unpriced + (cost is None))


class UsageTracker:
    """Adds calls up: per model, for the turn and for the session.

    A subtask's tracker has a `parent`: each call is taken in there too, at once, and counts in its totals; so nothing
    is to be added up when the subtask ends.
    """

    def __init__(self, parent: "UsageTracker | None" = None) -> None:
        self.session = Totals()
        self.turn = Totals()
        self.subtasks = Totals()
        """The part of `session` that subtasks used."""
        self.subtask_count = 0
        self._models: dict[str, Totals] = {}
        self.in_turn = True
        """Whether calls count in `turn` as well; between turns they count in `session` alone."""
        self._parent = parent
        self._known_to_parent = False

    def start_turn(self) -> None:
        """The next call is the first of a new turn."""
        self.turn, self.in_turn = Totals(), True

    def end_turn(self) -> None:
        """The turn is over: what is asked of a model now belongs to no turn."""
        self.in_turn = False

    def record(self, model: str, usage: Usage, cost: float | None) -> None:
        """Take one call in; `cost` in USD, None where it is not known."""
        if self.in_turn:
            self.turn = self.turn.plus(usage, cost)
        self.session = self.session.plus(usage, cost)
        self._models[model] = self._models.get(model, Totals()).plus(usage, cost)
        if self._parent is not None:
            self._parent.record_subtask(model, usage, cost, first=not self._known_to_parent)
            self._known_to_parent = True

    def record_log(self, entries: Iterable[AnyEntry]) -> None:
        """Take in every call that the entries of a log account for."""
        for entry in entries:
            call = model_call(entry)
            if call is not None:
                self.record(call.model, call.usage, call.cost_usd)

    def record_subtask(self, model: str, usage: Usage, cost: float | None, *, first: bool) -> None:
        """Take in one call of a subtask, its `first` or a later one."""
        self.subtask_count += first
        self.subtasks = self.subtasks.plus(usage, cost)
        self.record(model, usage, cost)

    def by_model(self) -> Mapping[str, Totals]:
        """The session's totals per model, the most expensive first."""
        return dict(sorted(self._models.items(), key=lambda item: item[1].cost_usd, reverse=True))
