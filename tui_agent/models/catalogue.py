"""The catalogue of models: names, providers, tiers, and how to create a model by its name.

Nothing here imports an SDK or the price catalogue, except where a docstring says so.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

import msgspec
from typing_extensions import override

from tui_agent.conversation.profile import ModelProfile, Tier
from tui_agent.models.base import THIS_MACHINE, InstalledModel, LocalModels, Model, UnknownModel
from tui_agent.models.errors import plain
from tui_agent.models.provider import Provider
from tui_agent.models.records import OFFLINE as OFFLINE_MODEL
from tui_agent.models.records import OPENAI_LIKE, PROVIDERS, endpoints
from tui_agent.settings.schema import Endpoint, Settings, TierSettings

OFFLINE = OFFLINE_MODEL.id
OFFLINE_DEMO = "offline:demo"
"""The offline model with prices and a cache, as the demonstration uses it; not offered elsewhere."""

_WORD = r"[^\W_]+"
_TIERS = TierSettings()
_DIGIT = re.compile(r"[0-9]")


class ModelName(msgspec.Struct, frozen=True):
    """A model's id and its provider's."""

    provider: str
    id: str

    @override
    def __str__(self) -> str:
        return f"{self.provider}:{self.id}"


class Catalogue:
    """The models of the built-in providers and of the endpoints in the settings. The table of `tiers` takes
    precedence over those of the providers.

    An endpoint may replace a built-in OpenAI-compatible server by using its name. Raises `UnknownModel` if an endpoint
    has a name that it may not use.
    """

    def __init__(self, named: Mapping[str, Endpoint] | None = None, tiers: TierSettings = _TIERS) -> None:
        for name in named or ():
            if any(name in (each.id, *each.aliases) for each in PROVIDERS if each not in OPENAI_LIKE[1:]):
                raise UnknownModel(f"models.endpoints.{name}: that name is taken; call the endpoint something else.")
        own = {provider.id: provider for provider in endpoints(named or {})}
        self.providers = (*(each for each in PROVIDERS if each.id not in own), *own.values())
        """The built-in providers, in the order in which a default model is chosen, then the endpoints."""
        ours: Mapping[Tier, Sequence[str]] = {"frontier": tiers.frontier, "mid": tiers.mid, "small": tiers.small}
        self._tiers = (ours, *(provider.tiers for provider in self.providers))

    def provider_of(self, name: str) -> Provider:
        """The provider of a model. Raises `UnknownModel`."""
        found = self.provider_named(self.resolve(name).provider)
        if found is None:
            raise self._unknown(name)
        return found

    def provider_named(self, name: str) -> Provider | None:
        """The provider with this id or alias; None if there is none."""
        return next((each for each in self.providers if name in (each.id, *each.aliases)), None)

    def short_name(self, name: str) -> str:
        """A model's name without the provider, if the id alone identifies it."""
        provider, _, model = name.partition(":")
        bare = self._by_family(model)
        return model if bare is not None and bare.id == provider else name

    def with_keys(self) -> list[Provider]:
        """The providers that need a key, which the user may have to enter."""
        return [provider for provider in self.providers if provider.keys and provider.needs_key]

    def has_key(self, provider: str) -> bool:
        """Whether a key for this provider is at hand."""
        found = self.provider_named(provider)
        return found is not None and not _without_key(found)

    def resolve(self, name: str) -> ModelName:
        """Resolve ``claude-…``, ``gemini-…``, ``provider:id``, ``provider/id``, ``offline`` or a word such as ``opus``.

        Words, and names without a number such as ``claude-opus``, are looked for in the models that are suggested; of
        several, the first of a provider with a key is meant. Raises `UnknownModel`.
        """
        given = name.strip()
        prefix, separator, rest = _parts(given)
        if given.lower() in (OFFLINE, f"{OFFLINE}:{OFFLINE}"):
            return ModelName(OFFLINE, OFFLINE)
        if given == OFFLINE_DEMO:
            return ModelName(*given.split(":"))
        provider = self.provider_named(prefix.strip().lower()) if separator else None
        if provider is not None:
            model = rest.strip()
            if not model or provider.id == OFFLINE:
                raise self._unknown(given)
            if not _DIGIT.search(model) and (found := self._with_words(model, [provider])) is not None:
                return found
        else:
            model = given.removeprefix("models/")
            provider = self._by_family(model)
            if provider is None or not _DIGIT.search(model):
                ours = self.providers if provider is None else [provider]
                if (found := self._with_words(model, ours)) is not None:
                    return found
            provider = provider or next(
                (each for each in self.providers if each.listed and each.listed.match(model)), None
            )
            if provider is None:
                raise self._unknown(given)
        # If the id becomes part of a URL, it must not change the rest of it.
        forbidden = "" if provider.free_names else "/?#%"
        if any(character.isspace() or not character.isprintable() or character in forbidden for character in model):
            raise self._unknown(given)
        return ModelName(provider.id, model)

    def tier_of(self, model: str) -> Tier:
        """The tier of a model by its id."""
        for table in self._tiers:
            for tier, parts in table.items():
                if any(fnmatchcase(model.lower(), f"*{part.lower()}*") for part in parts if part):
                    return tier
        return "unknown"

    def quick_profile(self, name: str) -> ModelProfile:
        """The profile as far as the name alone tells, without its window. Costs nothing. Raises `UnknownModel`."""
        provider = self.provider_of(name)
        model = self.resolve(name).id
        profile = provider.profile(model)
        tier = self.tier_of(model) if profile.tier == "unknown" else profile.tier
        return msgspec.structs.replace(profile, tier=tier)

    def create_model(self, name: str, local: LocalModels = THIS_MACHINE, effort: str = "") -> Model:
        """Create a model by its name; its SDK is imported on first use. `local`: how to run local models.

        Raises `UnknownModel`.
        """
        provider = self.provider_of(name)
        profile = msgspec.structs.replace(self.quick_profile(name), effort=effort)
        return provider.create(provider, profile, local)

    def missing_key(self, name: str) -> str | None:
        """The environment variable with the key that this model needs and that is not set; None if nothing is missing.

        Raises `UnknownModel`.
        """
        provider = self.provider_of(name)
        return None if provider.has_key() else provider.key

    def known_models(self, local: LocalModels = THIS_MACHINE) -> list[ModelProfile]:
        """All models to choose from, with tier, window and prices, with those of local servers that answer at once.

        Imports the price catalogue and asks the servers, so call it in a thread.
        """
        from tui_agent.models.prices import listed_models, look_up

        found: list[ModelProfile] = []
        for provider in self.providers:
            listed = (self.quick_profile(f"{provider.id}:{model}") for model in listed_models(provider))
            # Another server at a provider's address has its own models: its profiles have no catalogue.
            found += [look_up(profile) for profile in listed if profile.catalogue]
            for model in provider.installed(local):
                with contextlib.suppress(UnknownModel):
                    found.append(_with_installed(self.quick_profile(f"{provider.id}:{model.id}"), model))
        return [*found, self.quick_profile(OFFLINE)]

    def _with_words(self, text: str, providers: Iterable[Provider]) -> ModelName | None:
        """The first model with all these words in its id, of those set for a tier and those suggested."""
        asked = set(re.findall(_WORD, text.lower()))
        if not any(word.isalpha() for word in asked):
            return None
        for provider in sorted(providers, key=_without_key):
            tiers = provider.models
            for name in (tiers.frontier, tiers.mid, tiers.small, *provider.suggested):
                model = name.removeprefix(f"{provider.id}:")
                if asked <= set(re.findall(_WORD, model.lower())):
                    return ModelName(provider.id, model)
        return None

    def _by_family(self, model: str) -> Provider | None:
        family = model.lower().partition("-")
        return next((each for each in self.providers if family[1] and family[0] in each.families), None)

    def _unknown(self, name: str) -> UnknownModel:
        suggested = [each for provider in self.providers for each in provider.suggested]
        word = name.strip().lower()
        close = [each for each in suggested if word and word in each.lower()][:3]
        close = close or get_close_matches(word, suggested, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"try {_examples()}."
        return UnknownModel(f'There is no model "{plain(name)[:80]}": {hint}')


CATALOGUE = Catalogue()
"""The built-in models, without endpoints."""


def create_model(name: str) -> Model:
    """A built-in model by its name, such as ``claude-haiku-4-5``. Raises `UnknownModel`."""
    return CATALOGUE.create_model(name)


def catalogue_of(settings: Settings) -> Catalogue:
    """The built-in models and those of the endpoints in these settings, with their tiers. Raises `UnknownModel`."""
    endpoints, tiers = settings.models.endpoints, settings.tiers
    return Catalogue(endpoints, tiers) if endpoints or tiers != _TIERS else CATALOGUE


def _with_installed(profile: ModelProfile, model: InstalledModel) -> ModelProfile:
    """The profile with what a local server says about the installed model."""
    return msgspec.structs.replace(
        profile,
        window=model.window or profile.window,
        tools=profile.tools if model.tools is None else model.tools,
        images=profile.images if model.images is None else model.images,
        size=model.size,
        loaded=model.loaded,
        source="provider" if model.window else profile.source,
    )


def _without_key(provider: Provider) -> bool:
    return not ((provider.needs_key and provider.has_key()) or any(map(os.environ.get, provider.keys)))


def _parts(name: str) -> tuple[str, str, str]:
    """A name's provider, the colon or slash after it, and the id; without one of these all of it is the id."""
    at = min((at for mark in ":/" if (at := name.find(mark)) >= 0), default=-1)
    return ("", "", name) if at < 0 else (name[:at], name[at], name[at + 1 :])


def _examples() -> str:
    first: Iterable[str] = [each.models.frontier for each in PROVIDERS if each.models.frontier]
    return f"{', '.join(first)} or {OFFLINE}"
