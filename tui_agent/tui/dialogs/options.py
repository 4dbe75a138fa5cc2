"""What the picker of models offers."""

from typing import TYPE_CHECKING, Final

from tui_agent.tui.dialogs.pickers import Option
from tui_agent.tui.wording import compact_count

if TYPE_CHECKING:
    from tui_agent.models.base import LocalModels, ModelProfile

MAX_TITLE: Final = 30


def model_options(current: str, local: "LocalModels") -> tuple[Option, ...]:
    """The models of the catalogue and of Ollama, the present one among them: tier, window, dollars per million tokens,
    and whether a key is missing. Imports the price catalogue and asks Ollama: call it in a thread.
    """
    from tui_agent.models.catalogue import known_models

    options = [Option(profile.name, profile.name, _model_facts(profile)) for profile in known_models(local=local)]
    if current not in {option.value for option in options}:
        options.insert(0, Option(current, current))
    return tuple(options)


def _model_facts(profile: "ModelProfile") -> str:
    from tui_agent.models.catalogue import missing_key

    tier = "" if profile.tier == "unknown" else profile.tier
    assumed = "?" if profile.source == "default" else " "
    window = f"{compact_count(profile.window)}{assumed}" if profile.window else ""
    prices = profile.prices
    cost = f"{_price(prices.input):>5} / {_price(prices.output):<5}" if prices is not None else ""
    key = "no key" if missing_key(profile.name) else ""
    return f"{tier:<9}{window:>6} {cost:<13} {key}".rstrip()


def _price(usd: float) -> str:
    """Dollars per million tokens: whole ones without decimals."""
    return f"${usd:.2f}" if usd % 1 and round(usd, 2) == usd else f"${usd:g}"
