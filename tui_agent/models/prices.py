"""Windows and prices from the package ``genai-prices``, which includes its data: nothing is fetched.

Its import takes 0.4 s, so call these functions in a thread, after the first paint.
"""

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.models.provider import Provider

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices
    from genai_prices.types import Provider as CatalogueProvider

DEFAULT_WINDOW = 131_072
"""The window assumed for a model, in tokens, if nothing else is known."""

FULL_PRICE_HOUR = 8
"""An hour, in UTC, without discounts (DeepSeek's prices depend on the hour)."""


def look_up(profile: ModelProfile) -> ModelProfile:
    """`profile` with the catalogue's prices, and its window if the provider did not report one."""
    info = _find(profile.catalogue, profile.id)
    changes: dict[str, object] = {}
    if info is not None:
        changes["prices"] = _prices(info.get_prices(_at_full_price()))
    if profile.window <= 0:
        known = info.context_window if info is not None else None
        changes["window"], changes["source"] = (known, "catalogue") if known else (DEFAULT_WINDOW, "default")
    return msgspec.structs.replace(profile, **changes)


def prices_by_name(model: str) -> Prices | None:
    """The prices of a model that only its maker serves, by its id; None for any other, which may run anywhere."""
    name = model.rpartition("/")[2]
    maker = next((catalogue for pattern, catalogue in _CLOSED if re.match(pattern, name)), "")
    info = _find(maker, name)
    return _prices(info.get_prices(_at_full_price())) if info is not None else None


def all_models() -> list[str]:
    """The ids of all models whose prices are known, whoever sells them."""
    from genai_prices.data_snapshot import get_snapshot

    return [model.id for seller in get_snapshot().providers for model in seller.models]


def sold_anywhere(model: str) -> ModelProfile | None:
    """A model by its id alone, as its maker sells it, else the first seller that lists it; None if there is none.

    Its cache is assumed to be an implicit one.
    """
    from genai_prices.data_snapshot import get_snapshot

    name = model.rpartition(":")[2]
    for each in dict.fromkeys((name.rpartition("/")[2], name)):
        sellers = sorted(
            get_snapshot().providers, key=lambda seller: not (seller.model_match and seller.model_match.is_match(each))
        )
        for seller in sellers:
            found = look_up(ModelProfile("", each, cache="implicit", catalogue=seller.id))
            if found.prices is not None:
                return found
    return None


_CLOSED = ((r"gpt-(?!oss)|o[134]\b", "openai"), ("claude-", "anthropic"), ("gemini-", "google"), ("grok-", "x-ai"))
"""The beginnings of the ids of models whose weights are not published, and the catalogue's id of their maker."""


def _at_full_price() -> datetime:
    """Today at an hour of full prices, so that a session over several hours never sees too low a cost."""
    return datetime.now(UTC).replace(hour=FULL_PRICE_HOUR, minute=0, second=0, microsecond=0)


def listed_models(provider: Provider) -> list[str]:
    """A provider's models in the catalogue that can chat with tools, newest generation first."""
    if provider.listed is None or (found := _served(provider.catalogue)) is None:
        return []
    ids = [each.id for each in found.models if not each.deprecated and provider.listed.match(each.id)]
    return sorted(ids, key=lambda name: ([*map(int, re.findall(r"\d+", name)[:2])], name), reverse=True)


def _find(catalogue: str, model: str) -> "ModelInfo | None":
    return found.find_model(model) if (found := _served(catalogue)) is not None else None


def _served(catalogue: str) -> "CatalogueProvider | None":
    if not catalogue:
        return None
    from genai_prices.data_snapshot import get_snapshot

    return next((each for each in get_snapshot().providers if each.id == catalogue), None)


def _prices(price: "ModelPrice") -> Prices | None:
    """The prices with those of larger requests. None if input or output has no price."""
    starts: set[int] = set()
    for name in ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok"):
        starts.update(tier.start for tier in getattr(getattr(price, name), "tiers", ()))
    base = _prices_above(price, 0)
    if base is None:
        return None
    cliffs = tuple((start, prices) for start in sorted(starts) if (prices := _prices_above(price, start)) is not None)
    return msgspec.structs.replace(base, above=cliffs)


def _prices_above(price: "ModelPrice", start: int) -> Prices | None:
    """The prices of a request of more than `start` tokens (0: of any size)."""
    paid, answered = _price_at(price.input_mtok, start), _price_at(price.output_mtok, start)
    if paid is None or answered is None:
        return None
    return Prices(paid, answered, _price_at(price.cache_read_mtok, start), _price_at(price.cache_write_mtok, start))


def _price_at(price: "Decimal | TieredPrices | None", start: int) -> float | None:
    if price is None:
        return None
    if isinstance(price, Decimal):
        return float(price)
    reached = [tier.price for tier in price.tiers if start and tier.start <= start]
    return float(reached[-1] if reached else price.base)
