"""Models by their names."""

from typing import Any

from tui_agent.conversation.profile import ModelProfile, Prices, Rates


def priced(rates: Rates) -> Prices:
    """The prices that have these rates."""
    usd = rates.input_usd
    return Prices(usd, rates.output * usd, rates.read * usd, rates.write * usd)


def model_named(name: str, *, rates: Rates | None = None, **known: Any) -> ModelProfile:
    """The profile of ``provider:id``, with what else is known."""
    provider, _, model = name.rpartition(":")
    return ModelProfile(provider, model, prices=priced(rates) if rates is not None else None, **known)
