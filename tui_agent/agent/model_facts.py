"""What the context layers are told of a model: facts and rates, no provider."""

from tui_agent.context.manager import ModelFacts
from tui_agent.context.pricing import rates
from tui_agent.context.situation import Rates
from tui_agent.models.base import ModelProfile, Prices
from tui_agent.models.usage import prices_for


def model_facts(profile: ModelProfile, tokens: int, small: ModelProfile | None = None) -> ModelFacts:
    """The facts of a model for a request of `tokens`, whose size decides which prices hold; `small` may summarise."""
    prices = profile.prices
    return ModelFacts(
        name=profile.name,
        window=profile.window,
        told_by_provider=profile.source == "provider",
        fixed_window=profile.fixed_window,
        max_output=profile.max_output,
        tier=profile.tier,
        rates=rates_of(prices, tokens),
        small=rates_of(small.prices, tokens) if small is not None else None,
        cliffs=tuple(start for start, _ in prices.above) if prices else (),
        cache_ttl_s=float(profile.cache_ttl_s),
    )


def rates_of(prices: Prices | None, tokens: int) -> Rates | None:
    """The prices of a request of `tokens` as multiples of its input price."""
    if prices is None:
        return None
    held = prices_for(prices, tokens)
    return rates(held.input, held.output, held.cache_read, held.cache_write)
