"""The servers that speak one of OpenAI's APIs, as the rest of the program knows them."""

import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tui_agent.models.base import FREE, LocalModels, Model, ModelProfile, OnHand, Prices, Tier
from tui_agent.models.openai.service import OPENAI, OTHERS, Service, addressed, of_endpoint, root
from tui_agent.models.provider import NO_MODELS, Provider
from tui_agent.settings.schema import Endpoint, EndpointModel, Models, TierModels

if TYPE_CHECKING:
    from tui_agent.models.openai.facts import Facts

CACHE_MINIMUM = 1024
"""Tokens of the smallest prefix that is cached (OpenAI, prompt caching)."""
CACHE_S = 300
"""Seconds a prefix is kept after its last use (OpenAI, prompt caching: five to ten minutes)."""
LOCAL_CACHE_S = 86_400
"""A local server keeps the last prefix until it is stopped, or asked something else."""
PROBE_TIMEOUT_S = 0.25
LIST_TIMEOUT_S = 1.5

_ASIDE = {"llamacpp": "/props", "lmstudio": "/api/v0/models"}
"""Where a server tells more of its models than in their listing."""

_UNKNOWN = EndpointModel()


def provider_for(
    service: Service, models: Mapping[str, EndpointModel] | None = None, tiers: TierModels = NO_MODELS
) -> Provider:
    """The record of a server. `models`: what the settings say of its models, by id."""
    said = models or {}

    def create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
        from tui_agent.models.openai.adapter import OpenAiModel

        return OpenAiModel(provider, profile, service)

    def profile(model: str) -> ModelProfile:
        return _profile(addressed(service), model, said.get(model, _UNKNOWN))

    def elsewhere() -> bool:
        """Another server in its place may want no key, and then says so."""
        return bool(service.address and os.environ.get(service.address) and addressed(service).api != service.api)

    return Provider(
        id=service.id,
        title=service.title,
        label=service.label,
        create=create,
        profile=profile,
        keys=(service.key,) if service.key else (),
        keys_at=service.keys_at,
        needs_key=not service.local,
        signed_in=elsewhere,
        addresses=(service.address,) if service.address else (),
        setting=service.setting,
        models=tiers,
        suggested=tuple(f"{service.id}:{model}" for model in (tiers.frontier, tiers.mid, tiers.small) if model),
        tiers=_TIERS if service is OPENAI else {},
        free_names=True,
        catalogue=service.catalogue,
        listed=_LISTED.get(service.id),
        running=lambda _local: _at_hand(service, said),
    )


def endpoints(named: Mapping[str, Endpoint]) -> tuple[Provider, ...]:
    """The records of the endpoints that the settings name."""
    return tuple(
        provider_for(of_endpoint(name, endpoint), endpoint.models, _tiers_of(endpoint.models))
        for name, endpoint in named.items()
    )


_TIERS: Mapping[Tier, Sequence[str]] = {
    "frontier": ("-sol", "-astra", "gpt-5*-pro"),
    "mid": ("-terra",),
    "small": ("-luna", "-mini", "-nano"),
}
_LISTED = {
    "openai": re.compile(r"(gpt-(5|[6-9])(?!.*(image|cyber|search|audio|rosalind|chat))|o[34])"),
    "groq": re.compile(r"(openai/gpt-oss|qwen/|moonshotai/|meta-llama/llama-4|llama-3\.[13]-)(?!.*guard)"),
    "deepseek": re.compile(r"deepseek-(?!reasoner$)"),
}


def _profile(service: Service, model: str, said: EndpointModel) -> ModelProfile:
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
        source="settings" if said is not _UNKNOWN else "default",
    )


def _tiers_of(models: Mapping[str, EndpointModel]) -> TierModels:
    """The first model of each tier."""

    def first(tier: str) -> str:
        return next((name for name, model in models.items() if model.tier == tier), "")

    return TierModels(frontier=first("frontier"), mid=first("mid"), small=first("small"))


def _at_hand(service: Service, said: Mapping[str, EndpointModel]) -> list[OnHand]:
    """The models of a server: those the settings name, and those it lists where it is a local one."""
    listed = {each.id: each for each in _running(service)}
    return [*(listed.pop(name, OnHand(name)) for name in said), *listed.values()]


def _running(service: Service) -> Sequence[OnHand]:
    """The models a local server lists; none where it does not answer at once. May block for some seconds."""
    service = addressed(service)
    if not service.local:
        return ()
    try:
        parts = urlsplit(service.url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
        socket.create_connection((parts.hostname or "", port), PROBE_TIMEOUT_S).close()
    except (OSError, ValueError, KeyError):
        return ()
    import httpx2
    import msgspec

    from tui_agent.models.openai.facts import facts_in, facts_of_props, listed

    key = os.environ.get(service.key, "") if service.key else ""
    try:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        with httpx2.Client(headers=headers, timeout=LIST_TIMEOUT_S, trust_env=False) as client:
            listing = client.get(f"{service.url.rstrip('/')}/models").raise_for_status().content
            told = client.get(f"{root(service)}{_ASIDE[service.id]}") if service.id in _ASIDE else None
        more = told.content if told is not None and told.is_success else b"{}"
        return [
            _described(name, facts_in(listing, name), facts_in(more, name), facts_of_props(more))
            for name in listed(listing)
        ]
    except (httpx2.HTTPError, httpx2.InvalidURL, msgspec.DecodeError):
        return ()


def _described(name: str, *told: "Facts") -> OnHand:
    """A model by what each answer tells of it, the first that does."""

    def first(values: Iterable[bool | None]) -> bool | None:
        return next((value for value in values if value is not None), None)

    return OnHand(
        name,
        window=next((each.window for each in told if each.window), 0),
        loaded=any(each.loaded for each in told),
        tools=first(each.tools for each in told),
        images=first(each.images for each in told),
    )


PROVIDERS = (provider_for(OPENAI, tiers=Models().openai), *map(provider_for, OTHERS))
