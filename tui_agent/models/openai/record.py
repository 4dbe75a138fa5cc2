"""The provider records of the servers with one of OpenAI's APIs."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tui_agent.conversation.profile import FREE, ModelProfile, Prices
from tui_agent.models.base import InstalledModel, LocalModels, Model
from tui_agent.models.openai.service import CACHE_S, OPENAI, OTHERS, OpenAiServer, addressed, of_endpoint, root
from tui_agent.models.provider import NO_MODELS, Provider
from tui_agent.settings.schema import Endpoint, EndpointModel, ModelsSettings, TierModels

if TYPE_CHECKING:
    from tui_agent.models.openai.facts import ServerFacts

CACHE_MINIMUM = 1024
"""Tokens of the smallest prefix that is cached (OpenAI, prompt caching)."""
LOCAL_CACHE_S = 86_400
"""A local server caches the last prefix until it stops or gets another request."""

_UNKNOWN = EndpointModel()


def provider_for(
    service: OpenAiServer, models: Mapping[str, EndpointModel] | None = None, tiers: TierModels = NO_MODELS
) -> Provider:
    """The provider record of a server. `models`: the settings of its models, by id."""
    said = models or {}

    def create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
        from tui_agent.models.openai.adapter import OpenAiModel

        return OpenAiModel(provider, profile, service)

    def profile(model: str) -> ModelProfile:
        return _profile(addressed(service), model, said.get(model, _UNKNOWN))

    def works_without_key() -> bool:
        """Whether another server replaces it, which may not need a key; if it does, it will say so."""
        return bool(service.address and os.environ.get(service.address) and addressed(service).api != service.api)

    return Provider(
        id=service.id,
        title=service.title,
        label=service.label,
        create=create,
        profile=profile,
        keys=(service.key,) if service.key else (),
        keys_page=service.keys_page,
        needs_key=not service.local,
        signed_in=works_without_key,
        addresses=(service.address,) if service.address else (),
        setting=service.setting,
        models=tiers,
        suggested=tuple(f"{service.id}:{model}" for model in (tiers.frontier, tiers.mid, tiers.small) if model),
        tiers=service.tiers,
        free_names=True,
        catalogue=service.catalogue,
        listed=re.compile(service.listed) if service.listed else None,
        installed=lambda _local: _installed(service, said),
    )


def endpoints(named: Mapping[str, Endpoint]) -> tuple[Provider, ...]:
    """The provider records of the endpoints in the settings."""
    return tuple(
        provider_for(of_endpoint(name, endpoint), endpoint.models, _tiers_of(endpoint.models))
        for name, endpoint in named.items()
    )


def _profile(service: OpenAiServer, model: str, said: EndpointModel) -> ModelProfile:
    prices = FREE if service.local else None
    if said.input is not None and said.output is not None:
        prices = Prices(said.input, said.output, said.cache_read)
    return ModelProfile(
        provider=service.id,
        id=model,
        window=said.window,
        max_output=said.max_output,
        tier=said.tier,
        prices=prices,
        images=said.images if said.images is not None else not service.local or service.api == "responses",
        cache="none" if service.local else "implicit",
        cache_ttl_s=LOCAL_CACHE_S if service.local else CACHE_S,
        cache_minimum=CACHE_MINIMUM,
        fixed_window=service.local,
        local=service.local,
        tools=said.tools is not False,
        loose_calls=service.api == "chat",
        catalogue=service.catalogue,
        compacts=service.api == "responses",
        source="settings" if said is not _UNKNOWN else "default",
        search_usd=0.01 if service.api == "responses" and service.id == OPENAI.id else said.search_usd,
    )


def _tiers_of(models: Mapping[str, EndpointModel]) -> TierModels:
    """The first model of each tier."""

    def first(tier: str) -> str:
        return next((name for name, model in models.items() if model.tier == tier), "")

    return TierModels(frontier=first("frontier"), mid=first("mid"), small=first("small"))


def _installed(service: OpenAiServer, said: Mapping[str, EndpointModel]) -> list[InstalledModel]:
    """The models of a server: those in the settings, and those a local server lists."""
    listed = {each.id: each for each in _listed_locally(service)}
    return [*(listed.pop(name, InstalledModel(name)) for name in said), *listed.values()]


def _listed_locally(service: OpenAiServer) -> Sequence[InstalledModel]:
    """The models a local server lists; none if it does not answer at once. May block for some seconds."""
    service = addressed(service)
    if not service.local:
        return ()
    from tui_agent.models.http import local_client
    from tui_agent.models.openai.facts import facts_in, facts_of_props, listed

    key = os.environ.get(service.key, "") if service.key else ""
    try:
        with local_client(service.url, key) as client:
            listing = client.get(f"{service.url.rstrip('/')}/models").raise_for_status().content
            response = client.get(f"{root(service)}{service.described}") if service.described else None
        more = response.content if response is not None and response.is_success else b"{}"
        return [
            _described(name, facts_in(listing, name), facts_in(more, name), facts_of_props(more))
            for name in listed(listing)
        ]
    except (OSError, ValueError):
        return ()


def _described(name: str, *facts: "ServerFacts") -> InstalledModel:
    """A model, each fact from the first answer that has it."""

    def first(values: Iterable[bool | None]) -> bool | None:
        return next((value for value in values if value is not None), None)

    return InstalledModel(
        name,
        window=next((each.window for each in facts if each.window), 0),
        loaded=any(each.loaded for each in facts),
        tools=first(each.tools for each in facts),
        images=first(each.images for each in facts),
    )


PROVIDERS = (provider_for(OPENAI, tiers=ModelsSettings().openai), *map(provider_for, OTHERS))
