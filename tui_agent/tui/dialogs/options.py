"""What the picker of models offers."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tui_agent.text import one_line
from tui_agent.tui.dialogs.pickers import Option
from tui_agent.tui.wording import compact_count, model_label

if TYPE_CHECKING:
    from tui_agent.models.base import ModelProfile
    from tui_agent.models.catalogue import Catalogue
    from tui_agent.settings import Settings

MAX_MODEL: Final = 30
"""Characters of a model's name: what follows is never cut on a screen of 80 columns."""
GENERATIONS: Final = 2
"""Models of a tier that show; those before them are found by searching."""


def model_options(current: str, settings: "Settings") -> tuple[Option, ...]:
    """The models of the catalogue and of this machine: the present one first, then by provider, the cheap ones first
    and old ones folded. Each with its price in dollars per million tokens, window, tier, and whether a key is missing.

    Imports the price catalogue and asks local servers: call it in a thread.
    """
    from tui_agent.agent.model_choice import local_models
    from tui_agent.models.catalogue import catalogue_of

    catalogue = catalogue_of(settings)
    known, short_name = catalogue.known_models(local=local_models(settings)), catalogue.short_name
    present = next((each for each in known if each.name == current), None)
    options = [
        Option("", "Now", heading=True),
        Option(
            current,
            one_line(model_label(short_name(current)), MAX_MODEL),
            _model_facts(present, catalogue) if present else "",
        ),
    ]
    by_provider = [
        (provider, [each for each in known if each.provider == provider.id and each.name != current])
        for provider in catalogue.providers
    ]
    # What runs on this machine can be asked at once, and is what nobody looks for below a hundred others.
    by_provider.sort(key=lambda served: not any(each.local for each in served[1]))
    for provider, served in by_provider:
        newer = set(_newest(served))
        served.sort(key=lambda each: (each.name not in newer, each.prices.input if each.prices else 0.0))
        if served:
            options.append(Option("", provider.label, heading=True))
        for each in served:
            label = one_line(model_label(short_name(each.name)), MAX_MODEL)
            options.append(Option(each.name, label, _model_facts(each, catalogue), folded=each.name not in newer))
    return tuple(options)


def _newest(served: "Iterable[ModelProfile]") -> "Iterator[str]":
    """The models of the newest generations of each tier, and all of which that is not known; newest come first."""
    seen: Counter[str] = Counter()
    for profile in served:
        seen[profile.tier] += 1
        if seen[profile.tier] <= GENERATIONS or profile.prices is None or not profile.prices.input:
            yield profile.name


def _model_facts(profile: "ModelProfile", catalogue: "Catalogue") -> str:
    tier = "" if profile.tier == "unknown" else profile.tier
    assumed = "?" if profile.source == "default" else " "
    window = f"{compact_count(profile.window)}{assumed}" if profile.window else ""
    prices = profile.prices
    cost = f"{_price(prices.input):>5} / {_price(prices.output)}" if prices is not None else ""
    if profile.local:
        size = f"{profile.size / 1e9:.1f} GB" if profile.size else ""
        able = ("loaded" * profile.loaded, "tools" if profile.tools else "no tools", "vision" * profile.images)
        return f"{size:<14}{window:>6} {', '.join(filter(None, able))}".rstrip()
    absent = catalogue.provider_of(profile.name).missing()
    lacks = "no key" if catalogue.missing_key(profile.name) else "not installed" if absent else ""
    return f"{cost:<14}{window:>6} {tier:<9}{lacks}".rstrip()


def _price(usd: float) -> str:
    """Dollars per million tokens: whole ones without decimals."""
    return f"${usd:.2f}" if usd % 1 and round(usd, 2) == usd else f"${usd:g}"
