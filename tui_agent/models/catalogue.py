"""Which models there are: names, providers, tiers, and the model behind a name.

Nothing here imports an SDK or the price catalogue, except the functions that say so.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from tui_agent.models.anthropic.claude import binds_reasoning, cache_minimum_of
from tui_agent.models.base import THIS_MACHINE, LocalModels, Model, ModelProfile, Prices, Tier, UnknownModel
from tui_agent.models.errors import plain
from tui_agent.models.ollama.facts import is_remote

OFFLINE = "offline"

TIERS: Mapping[Tier, Sequence[str]] = {
    "frontier": ("opus", "fable", "mythos", "gemini-[3-9]*-pro"),
    "mid": ("sonnet", "gemini-2.5-pro"),
    "small": ("haiku", "flash"),
}
"""Tier by a part of the id (``*`` and ``[…]`` as in file names); the first that fits holds."""

SUGGESTED = (
    "claude-fable-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-opus-4-7",
    "claude-sonnet-4-6",
    "claude-haiku-4-5",
    "gemini-3.8-flash",
    "gemini-3.1-pro-preview",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    OFFLINE,
)
"""Names offered where one is not known; any other model of a provider may be named too."""

_PROVIDERS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "google": "gemini",
    "gemini": "gemini",
    "ollama": "ollama",
    OFFLINE: OFFLINE,
}
_BARE = {"claude": "anthropic", "gemini": "gemini", "gemma": "gemini"}
_KEYS: Mapping[str, Sequence[str]] = {
    "anthropic": (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_PROFILE",
        "ANTHROPIC_IDENTITY_TOKEN",
        "ANTHROPIC_IDENTITY_TOKEN_FILE",
    ),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
_FREE = Prices(0.0, 0.0, 0.0, 0.0)
_GEMINI_CACHE_MINIMUM = {"gemini-2.5": 2048, "gemini-3": 4096}


class ModelName(NamedTuple):
    """A model and who serves it."""

    provider: str
    id: str

    @override
    def __str__(self) -> str:
        return f"{self.provider}:{self.id}"


def resolve(name: str) -> ModelName:
    """``claude-…``, ``gemini-…``, ``provider:id`` (also ``ollama/id``) or ``offline`` as provider and id.

    Raises `UnknownModel`.
    """
    given = name.strip()
    if given.lower().startswith("ollama/"):
        given = f"ollama:{given[len('ollama/') :]}"
    prefix, separator, rest = given.partition(":")
    if given.lower() in (OFFLINE, f"{OFFLINE}:{OFFLINE}"):
        return ModelName(OFFLINE, OFFLINE)
    if separator and prefix.lower() in _PROVIDERS:
        provider, model = _PROVIDERS[prefix.lower()], rest.strip()
        if not model or provider == OFFLINE:
            raise _unknown(given)
    else:
        bare = given.removeprefix("models/")
        family = next((family for family in _BARE if bare.lower().startswith(f"{family}-")), None)
        if family is None:
            raise _unknown(given)
        provider, model = _BARE[family], bare
    # A local model's name is never part of an address; it may have a host and a namespace (hf.co/user/model:Q4_K_M).
    forbidden = "" if provider == "ollama" else "/?#%"
    if any(character.isspace() or not character.isprintable() or character in forbidden for character in model):
        raise _unknown(given)
    return ModelName(provider, model)


def tier_of(model: str, tiers: Mapping[Tier, Sequence[str]] = TIERS) -> Tier:
    """The tier of a model by its id. A table of the user's own comes first where it is given."""
    for table in (tiers, TIERS) if tiers is not TIERS else (TIERS,):
        for tier, parts in table.items():
            if any(fnmatchcase(model.lower(), f"*{part.lower()}*") for part in parts if part):
                return tier
    return "unknown"


def quick_profile(name: str, tiers: Mapping[Tier, Sequence[str]] = TIERS) -> ModelProfile:
    """What the name alone tells, at no cost: the window is not known (0). Raises `UnknownModel`."""
    provider, model = resolve(name)
    if provider == OFFLINE:
        from tui_agent.models.offline.adapter import OfflineModel

        return OfflineModel().profile
    if provider == "ollama":
        prices = None if is_remote(model) else _FREE
        return ModelProfile(provider=provider, id=model, tier=tier_of(model, tiers), prices=prices, fixed_window=True)
    claude = provider == "anthropic"
    return ModelProfile(
        provider=provider,
        id=model,
        tier=tier_of(model, tiers),
        bound_reasoning=claude and binds_reasoning(model),
        cache_minimum=cache_minimum_of(model) if claude else _gemini_cache_minimum(model),
    )


def create_model(name: str, tiers: Mapping[Tier, Sequence[str]] = TIERS, local: LocalModels = THIS_MACHINE) -> Model:
    """The model behind a name; its SDK is imported when it is first asked. `local`: how local models are run.

    Raises `UnknownModel`.
    """
    provider, _ = resolve(name)
    if provider == OFFLINE:
        from tui_agent.models.offline.adapter import OfflineModel

        return OfflineModel()
    profile = quick_profile(name, tiers)
    if provider == "anthropic":
        from tui_agent.models.anthropic.adapter import AnthropicModel

        return AnthropicModel(profile)
    if provider == "ollama":
        from tui_agent.models.ollama.adapter import OllamaModel

        return OllamaModel(profile, local)
    from tui_agent.models.gemini.adapter import GeminiModel

    return GeminiModel(profile)


def missing_key(name: str) -> str | None:
    """The environment variable to set before this model can be asked; None where nothing is missing.

    Raises `UnknownModel`.
    """
    provider = resolve(name).provider
    variables = _KEYS.get(provider, ())
    if not variables or any(os.environ.get(variable) for variable in variables):
        return None
    return None if provider == "anthropic" and _has_anthropic_profile() else variables[0]


def known_models(tiers: Mapping[Tier, Sequence[str]] = TIERS, local: LocalModels = THIS_MACHINE) -> list[ModelProfile]:
    """Every model to choose from, with tier, window and prices; those of Ollama where it answers at once.

    Imports the price catalogue and asks Ollama: call it in a thread.
    """
    from tui_agent.models.ollama.address import pulled_models
    from tui_agent.models.prices import listed_models, look_up

    found = [look_up(quick_profile(f"{provider}:{model}", tiers)) for provider, model in listed_models()]
    for model in pulled_models(local.host):
        with contextlib.suppress(UnknownModel):
            found.append(quick_profile(f"ollama:{model}", tiers))
    return [*found, quick_profile(OFFLINE)]


def _has_anthropic_profile() -> bool:
    """Does a profile on disk hold credentials, where Anthropic's SDK looks for one?"""
    chosen = os.environ.get("ANTHROPIC_CONFIG_DIR")
    folder = Path(chosen) if chosen else Path.home() / ".config" / "anthropic"
    return any((folder / name).is_file() for name in ("active_config", "configs/default.json"))


def _gemini_cache_minimum(model: str) -> int:
    return next((size for prefix, size in _GEMINI_CACHE_MINIMUM.items() if model.startswith(prefix)), 4096)


def _unknown(name: str) -> UnknownModel:
    close = get_close_matches(name.lower(), SUGGESTED, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"try {SUGGESTED[1]}, {SUGGESTED[7]} or {OFFLINE}."
    return UnknownModel(f'There is no model "{plain(name)[:80]}": {hint}')
