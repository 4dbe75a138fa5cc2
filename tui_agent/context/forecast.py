"""What a layer would do if it came now: what it frees, what that costs and saves, and why it comes or waits.

Worked out from running sizes and prices alone, so that it can be shown all the time; what the user asks for is worked
out to the end (`asked`).
"""

from typing import NamedTuple

from tui_agent.context.clearing import batch_of, candidates, smallest_batch
from tui_agent.context.manager import ContextManager, ModelFacts
from tui_agent.context.pricing import clearing_size, payback
from tui_agent.context.situation import Rates, Situation
from tui_agent.context.thresholds import keep_tokens
from tui_agent.context.timing import compaction_worth, pays_from
from tui_agent.conversation.view import View

_FREE = Rates(0.0, 0.0, 0.0, 0.0)


class Forecast(NamedTuple):
    """`frees` in tokens, about. In USD: `cost` of the step, `saving` with each later call; None where prices are
    unknown. `calls` is after how many calls it has paid (None: never, or unknown); `why` it comes, or waits.
    """

    frees: int = 0
    cost_usd: float | None = None
    saving_usd: float | None = None
    calls: int | None = None
    why: str = ""


class Forecaster:
    """Looks ahead with the figures of `manager`; `now` in seconds since the epoch."""

    def __init__(self, manager: ContextManager, view: View, model: ModelFacts, now: float) -> None:
        self._manager = manager
        self._view = view
        self._model = model
        self._here = manager.situation(view, model, now, between_turns=False)

    def __call__(self, layer: str) -> Forecast:
        """The forecast for ``clear`` or ``compact``; an empty one for any other layer."""
        match layer:
            case "clear":
                return self._clearing(self._here)
            case "compact":
                return self._compaction(self._here)
            case _:
                return Forecast()

    def _clearing(self, here: Situation) -> Forecast:
        settings, rates = self._manager.settings.clearing, here.rates
        found = candidates(self._view, here, settings, never=self._manager.never)
        batch = batch_of(found, here)
        if batch is None:
            return Forecast(why=f"nothing to clear yet: the newest {settings.keep} results, pins and the tail stay")
        least = smallest_batch(settings, here.budget.window)
        why = ""
        if batch.freed < least:
            why = f"not before {least:,} tokens can be freed in one batch"
        elif settings.by_price and here.cold and rates is not None and rates.read > 0:
            why = "now: the cache is cold, so clearing costs nothing"
        elif settings.by_price and (needed := clearing_size(rates, batch.tail, here.growth)) is not None:
            needed = max(least, needed)
            why = _paying(batch.freed, needed)
        written = 0.0 if here.cold or rates is None else max(0.0, rates.write - rates.read) * batch.tail
        return _priced(batch.freed, written, rates, why)

    def _compaction(self, here: Situation) -> Forecast:
        manager, settings = self._manager, self._manager.settings.compaction
        trigger = manager.thresholds(self._view, self._model).compact
        keep = keep_tokens(settings, here.budget, trigger.tokens)
        worth = compaction_worth(here, settings, here.rates or _FREE, keep=keep, small=self._model.small)
        if worth.freed <= 0:
            return Forecast(why=f"nothing to gain yet: the newest {keep:,} tokens stay word for word")
        why = ""
        if not settings.auto:
            why = "not by itself: compaction.auto is off"
        elif here.rates is not None:
            needed = pays_from(here, settings, here.rates, worth, growth=manager.meter.growth.all)
            why = _paying(worth.freed, needed) if needed is not None else ""
        return _priced(worth.freed, worth.cost, here.rates, why)


def _paying(freed: float, needed: float) -> str:
    if freed >= needed:
        return f"now: it pays from {needed:,.0f} freed tokens on"
    return f"not yet: it pays from {needed:,.0f} freed tokens on"


def _priced(freed: int, cost: float, rates: Rates | None, why: str) -> Forecast:
    """`cost` in tokens at the input price."""
    if rates is None:
        return Forecast(frees=freed, why=why)
    figures = payback(rates, cost, freed)
    return Forecast(freed, figures.cost_usd, figures.saving_usd, figures.calls, why)
