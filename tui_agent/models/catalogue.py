"""Which models there are: names, providers, tiers, and the model behind a name.

Nothing here imports an SDK or the price catalogue, except the functions that say so.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec
from typing_extensions import override

from tui_agent.models.anthropic.record import ANTHROPIC
from tui_agent.models.base import THIS_MACHINE, LocalModels, Model, ModelProfile, OnHand, Tier, UnknownModel
from tui_agent.models.bedrock.record import BEDROCK
from tui_agent.models.errors import plain
from tui_agent.models.gemini.record import GEMINI
from tui_agent.models.offline.record import OFFLINE as OFFLINE_MODEL
from tui_agent.models.ollama.record import OLLAMA
from tui_agent.models.openai.record import PROVIDERS as OPENAI_LIKE
from tui_agent.models.openai.record import endpoints
from tui_agent.models.provider import Provider
from tui_agent.models.vertex.record import VERTEX
from tui_agent.settings.schema import Endpoint, Settings

OFFLINE = OFFLINE_MODEL.id

PROVIDERS: tuple[Provider, ...] = (ANTHROPIC, GEMINI, *OPENAI_LIKE, BEDROCK, VERTEX, OLLAMA, OFFLINE_MODEL)
"""Every provider of the package, in the order in which a model is looked for where none is named."""


class ModelName(NamedTuple):
    """A model and who serves it."""

    provider: str
    id: str

    @override
    def __str__(self) -> str:
        return f"{self.provider}:{self.id}"


class Catalogue:
    """Which models there are: those of the package's providers, and of the endpoints that the settings name, which may
    stand in for one of the package's servers.

    Raises `UnknownModel` where an endpoint has a name that is taken.
    """

    def __init__(self, named: Mapping[str, Endpoint] | None = None) -> None:
        for name in named or ():
            if any(
                name in (each.id, *each.aliases)
                for each in (ANTHROPIC, GEMINI, OPENAI_LIKE[0], BEDROCK, VERTEX, OLLAMA, OFFLINE_MODEL)
            ):
                raise UnknownModel(f"models.endpoints.{name}: that name is taken; call the endpoint something else.")
        own = {provider.id: provider for provider in endpoints(named or {})}
        self.providers = (*(each for each in PROVIDERS if each.id not in own), *own.values())
        """The package's, in the order in which a model is looked for where none is named, then the endpoints."""

    def provider_of(self, name: str) -> Provider:
        """Who serves the model of this name. Raises `UnknownModel`."""
        found = self.provider_named(self.resolve(name).provider)
        if found is None:
            raise self._unknown(name)
        return found

    def provider_named(self, name: str) -> Provider | None:
        """The provider of this id, or of this other name; None: there is none."""
        return next((each for each in self.providers if name in (each.id, *each.aliases)), None)

    def short_name(self, name: str) -> str:
        """A name as it is typed: without the provider where the id alone says it."""
        provider, _, model = name.partition(":")
        bare = self._by_family(model)
        return model if bare is not None and bare.id == provider else name

    def with_keys(self) -> list[Provider]:
        """The providers that are asked with a key, which a user may have to enter."""
        return [provider for provider in self.providers if provider.keys and provider.needs_key]

    def resolve(self, name: str) -> ModelName:
        """``claude-…``, ``gemini-…``, ``provider:id`` (also ``ollama/id``) or ``offline`` as provider and id.

        Raises `UnknownModel`.
        """
        given = name.strip()
        if given.lower().startswith("ollama/"):
            given = f"ollama:{given[len('ollama/') :]}"
        prefix, separator, rest = given.partition(":")
        if given.lower() in (OFFLINE, f"{OFFLINE}:{OFFLINE}"):
            return ModelName(OFFLINE, OFFLINE)
        provider = self.provider_named(prefix.strip().lower()) if separator else None
        if provider is not None:
            model = rest.strip()
            if not model or provider.id == OFFLINE:
                raise self._unknown(given)
        else:
            model = given.removeprefix("models/")
            provider = self._by_family(model)
            if provider is None:
                raise self._unknown(given)
        # Where an id is part of an address, it must not be able to lead elsewhere.
        forbidden = "" if provider.free_names else "/?#%"
        if any(character.isspace() or not character.isprintable() or character in forbidden for character in model):
            raise self._unknown(given)
        return ModelName(provider.id, model)

    def tier_of(self, model: str, tiers: Mapping[Tier, Sequence[str]] | None = None) -> Tier:
        """The tier of a model by its id. A table of the user's own comes first where it is given."""
        for table in (tiers or {}, *(provider.tiers for provider in self.providers)):
            for tier, parts in table.items():
                if any(fnmatchcase(model.lower(), f"*{part.lower()}*") for part in parts if part):
                    return tier
        return "unknown"

    def quick_profile(self, name: str, tiers: Mapping[Tier, Sequence[str]] | None = None) -> ModelProfile:
        """What the name alone tells, at no cost: the window is not known (0). Raises `UnknownModel`."""
        provider = self.provider_of(name)
        model = self.resolve(name).id
        profile = provider.profile(model)
        tier = self.tier_of(model, tiers) if profile.tier == "unknown" else profile.tier
        return msgspec.structs.replace(profile, tier=tier)

    def create_model(
        self, name: str, tiers: Mapping[Tier, Sequence[str]] | None = None, local: LocalModels = THIS_MACHINE
    ) -> Model:
        """The model behind a name; its SDK is imported when it is first asked. `local`: how local models are run.

        Raises `UnknownModel`.
        """
        provider = self.provider_of(name)
        return provider.create(provider, self.quick_profile(name, tiers), local)

    def missing_key(self, name: str) -> str | None:
        """The environment variable to set before this model can be asked; None where nothing is missing.

        Raises `UnknownModel`.
        """
        provider = self.provider_of(name)
        return None if provider.has_key() else provider.key

    def known_models(
        self, tiers: Mapping[Tier, Sequence[str]] | None = None, local: LocalModels = THIS_MACHINE
    ) -> list[ModelProfile]:
        """Every model to choose from, with tier, window and prices; those of local servers where they answer at once.

        Imports the price catalogue and asks the servers: call it in a thread.
        """
        from tui_agent.models.prices import listed_models, look_up

        found: list[ModelProfile] = []
        for provider in self.providers:
            listed = (self.quick_profile(f"{provider.id}:{model}", tiers) for model in listed_models(provider))
            # Another server in a provider's place has models of its own.
            found += [look_up(profile) for profile in listed if profile.catalogue]
            for model in provider.running(local):
                with contextlib.suppress(UnknownModel):
                    found.append(_on_hand(self.quick_profile(f"{provider.id}:{model.id}", tiers), model))
        return [*found, self.quick_profile(OFFLINE)]

    def _by_family(self, model: str) -> Provider | None:
        return next((each for each in self.providers if model.lower().startswith(_families(each))), None)

    def _unknown(self, name: str) -> UnknownModel:
        suggested = [each for provider in self.providers for each in provider.suggested]
        word = name.strip().lower()
        close = [each for each in suggested if word and word in each.lower()][:3]
        close = close or get_close_matches(word, suggested, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"try {_examples()}."
        return UnknownModel(f'There is no model "{plain(name)[:80]}": {hint}')


CATALOGUE = Catalogue()
"""The package's alone."""


def catalogue_of(settings: Settings) -> Catalogue:
    """The package's models, and those of the endpoints that these settings name. Raises `UnknownModel`."""
    return Catalogue(settings.models.endpoints) if settings.models.endpoints else CATALOGUE


def _on_hand(profile: ModelProfile, model: OnHand) -> ModelProfile:
    """What is known of a model that a server has at hand."""
    return msgspec.structs.replace(
        profile,
        window=model.window or profile.window,
        tools=profile.tools if model.tools is None else model.tools,
        images=profile.images if model.images is None else model.images,
        size=model.size,
        loaded=model.loaded,
        source="provider" if model.window else profile.source,
    )


def _families(provider: Provider) -> tuple[str, ...]:
    return tuple(f"{family}-" for family in provider.families)


def _examples() -> str:
    first: Iterable[str] = [each.models.frontier for each in PROVIDERS if each.models.frontier]
    return f"{', '.join(first)} or {OFFLINE}"
