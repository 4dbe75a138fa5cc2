"""The records of the providers: what the program knows of each before it asks it. `catalogue.py` finds them by name."""

import os
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from msgspec import structs

from tui_agent.conversation.profile import FREE, ModelProfile, Prices
from tui_agent.models.anthropic.claude import (
    PICTURE_BYTES,
    binds_reasoning,
    cache_minimum_of,
    most_pictures,
    signs_summaries,
)
from tui_agent.models.base import InstalledModel, LocalModels, Model, PullProgress
from tui_agent.models.gemini.request import wants_signatures
from tui_agent.models.ollama.server import OLLAMA_HOST, installed_models, is_remote
from tui_agent.models.openai.service import CACHE_S, OPENAI, OTHERS, OpenAiServer, addressed, of_endpoint, root
from tui_agent.models.provider import NO_MODELS, Provider
from tui_agent.regex import regex
from tui_agent.settings.schema import Endpoint, EndpointModel, ModelsSettings, TierModels


def _create_anthropic(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.anthropic.adapter import AnthropicModel

    return AnthropicModel(provider, profile)


def _claude_profile(provider: str, model: str, catalogue: str = "anthropic") -> ModelProfile:
    """The profile of a Claude model by its id, for any provider that serves it."""
    return ModelProfile(
        provider=provider,
        id=model,
        cache="marked",
        bound_reasoning=binds_reasoning(model),
        signs_summaries=signs_summaries(model),
        cache_minimum=cache_minimum_of(model),
        picture_bytes=PICTURE_BYTES,
        most_pictures=most_pictures(0),
        catalogue=catalogue,
    )


def _profile_on_disk() -> bool:
    """Whether there is a profile with credentials where Anthropic's SDK looks for one."""
    chosen = os.environ.get("ANTHROPIC_CONFIG_DIR")
    folder = Path(chosen) if chosen else Path.home() / ".config" / "anthropic"
    return any((folder / name).is_file() for name in ("active_config", "configs/default.json"))


ANTHROPIC = Provider(
    id="anthropic",
    title="Anthropic",
    label="Claude (Anthropic)",
    create=_create_anthropic,
    profile=lambda model: structs.replace(_claude_profile("anthropic", model), keeps_hours=True, search_usd=0.01),
    keys=(
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_PROFILE",
        "ANTHROPIC_IDENTITY_TOKEN",
        "ANTHROPIC_IDENTITY_TOKEN_FILE",
    ),
    keys_page="https://console.anthropic.com/settings/keys",
    signed_in=_profile_on_disk,
    addresses=("ANTHROPIC_BASE_URL",),
    models=ModelsSettings().anthropic,
    suggested=(
        "claude-fable-5-2",
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-opus-4-7",
        "claude-sonnet-4-6",
        "claude-haiku-4-5",
    ),
    families=("claude",),
    tiers={"frontier": ("opus", "fable", "mythos"), "mid": ("sonnet",), "small": ("haiku",)},
    catalogue="anthropic",
    listed=re.compile(r"claude-[a-z]+-\d"),
    package="anthropic",
)


# Tokens of the smallest cacheable prefix (Gemini API, context caching); 4,096 for models that are not listed.
_GEMINI_CACHE_MINIMUM = {"gemini-2.5": 2048}
_GEMINI_PICTURE_BYTES = 15_000_000
"""Bytes in base64: three quarters of the 20 MB of a request (Gemini API, inline data), the rest for text."""
_GEMINI_LISTED = regex(r"gemini-(2\.5|[3-9])(?!.*(tts|image|live|omni|robotics|audio|embedding))")


def _create_gemini(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.gemini.adapter import GeminiModel

    return GeminiModel(provider, profile)


def _gemini_profile(provider: str, model: str) -> ModelProfile:
    """The profile of a Gemini model by its id, for any provider that serves it."""
    smallest = next((size for prefix, size in _GEMINI_CACHE_MINIMUM.items() if model.startswith(prefix)), 4096)
    return ModelProfile(
        provider=provider,
        id=model,
        cache="implicit",
        cache_minimum=smallest,
        picture_bytes=_GEMINI_PICTURE_BYTES,
        catalogue="google",
        # For each query from Gemini 3 on, for each prompt before (Gemini API, pricing: grounding with Google Search).
        search_usd=None if model.startswith("gemma") else 0.014 if wants_signatures(model) else 0.035,
    )


GEMINI = Provider(
    id="gemini",
    title="Gemini",
    label="Gemini (Google)",
    create=_create_gemini,
    profile=lambda model: _gemini_profile("gemini", model),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    keys_page="https://aistudio.google.com/apikey",
    addresses=("GOOGLE_GEMINI_BASE_URL",),
    models=ModelsSettings().gemini,
    suggested=("gemini-3.8-flash", "gemini-3.1-pro-preview", "gemini-2.5-pro", "gemini-2.5-flash"),
    families=("gemini", "gemma"),
    aliases=("google",),
    tiers={"frontier": ("gemini-[3-9]*-pro",), "mid": ("gemini-2.5-pro",), "small": ("flash",)},
    catalogue="google",
    listed=_GEMINI_LISTED,
    package="google-genai",
)


_OPENAI_CACHE_MINIMUM = 1024
"""Tokens of the smallest prefix that is cached (OpenAI, prompt caching)."""
_LOCAL_CACHE_S = 86_400
"""A local server caches the last prefix until it stops or gets another request."""

_UNKNOWN_MODEL = EndpointModel()


def provider_for(
    service: OpenAiServer, models: Mapping[str, EndpointModel] | None = None, tiers: TierModels = NO_MODELS
) -> Provider:
    """The provider record of a server. `models`: the settings of its models, by id."""
    said = models or {}

    def create(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
        from tui_agent.models.openai.adapter import OpenAiModel

        return OpenAiModel(provider, profile, service)

    def profile(model: str) -> ModelProfile:
        return _openai_profile(addressed(service), model, said.get(model, _UNKNOWN_MODEL))

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


def _openai_profile(service: OpenAiServer, model: str, said: EndpointModel) -> ModelProfile:
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
        cache_ttl_s=_LOCAL_CACHE_S if service.local else CACHE_S,
        cache_minimum=_OPENAI_CACHE_MINIMUM,
        fixed_window=service.local,
        local=service.local,
        tools=said.tools is not False,
        loose_calls=service.api == "chat",
        catalogue=service.catalogue,
        compacts=service.api == "responses",
        source="settings" if said is not _UNKNOWN_MODEL else "default",
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
    from tui_agent.models.openai.facts import facts_in, facts_of_props, listed, merged

    key = os.environ.get(service.key, "") if service.key else ""
    try:
        with local_client(service.url, key) as client:
            listing = client.get(f"{service.url.rstrip('/')}/models").raise_for_status().content
            response = client.get(f"{root(service)}{service.described}") if service.described else None
        more = response.content if response is not None and response.is_success else b"{}"
        found = {
            name: (facts_in(listing, name), facts_in(more, name), facts_of_props(more)) for name in listed(listing)
        }
    except (OSError, ValueError):
        return ()
    known = {name: merged(*facts) for name, facts in found.items()}
    return [
        InstalledModel(name, window=each.window, loaded=each.loaded, tools=each.tools, images=each.images)
        for name, each in known.items()
    ]


OPENAI_LIKE = (provider_for(OPENAI, tiers=ModelsSettings().openai), *map(provider_for, OTHERS))


def _create_bedrock(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.clouds import BedrockModel

    return BedrockModel(provider, profile)


def _missing(what: str, extra: str, *modules: str) -> str:
    """What to install for a provider; empty if these modules are there."""
    if all(find_spec(module) is not None for module in modules):
        return ""
    return f"{what}, which is not installed: pip install 'tui-agent[{extra}]'."


BEDROCK = Provider(
    id="bedrock",
    title="Amazon Bedrock",
    label="Claude (Amazon Bedrock)",
    create=_create_bedrock,
    profile=lambda model: _claude_profile("bedrock", model, catalogue="aws"),
    keys=("AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"),
    needs_key=False,
    addresses=("ANTHROPIC_BEDROCK_BASE_URL",),
    suggested=("bedrock:global.anthropic.claude-opus-5-5",),
    tiers=ANTHROPIC.tiers,
    free_names=True,
    catalogue="aws",
    listed=re.compile(r"global\.anthropic\.claude-[a-z]+-\d"),
    missing=lambda: _missing("Amazon Bedrock needs AWS's SDK", "bedrock", "boto3"),
)


def _is_claude(model: str) -> bool:
    """Whether a model of Vertex AI is a Claude."""
    return model.startswith("claude")


def _create_vertex(provider: Provider, profile: ModelProfile, _local: LocalModels) -> Model:
    from tui_agent.models.clouds import ClaudeOnVertex, GeminiOnVertex

    return (ClaudeOnVertex if _is_claude(profile.id) else GeminiOnVertex)(provider, profile)


def _vertex_profile(model: str) -> ModelProfile:
    return _claude_profile("vertex", model, "google") if _is_claude(model) else _gemini_profile("vertex", model)


VERTEX = Provider(
    id="vertex",
    title="Vertex AI",
    label="Claude and Gemini (Vertex AI)",
    create=_create_vertex,
    profile=_vertex_profile,
    keys=("GOOGLE_APPLICATION_CREDENTIALS",),
    needs_key=False,
    addresses=("ANTHROPIC_VERTEX_BASE_URL", "GOOGLE_VERTEX_BASE_URL"),
    suggested=("vertex:claude-opus-5-5", "vertex:gemini-3.8-flash"),
    tiers={**GEMINI.tiers, **ANTHROPIC.tiers},
    catalogue="google",
    listed=re.compile(rf"claude-[a-z]+-\d|{GEMINI.listed.pattern if GEMINI.listed else ''}"),
    missing=lambda: _missing("Vertex AI needs Google's authentication", "vertex", "google.auth", "requests"),
)


def _create_ollama(provider: Provider, profile: ModelProfile, local: LocalModels) -> Model:
    from tui_agent.models.ollama.adapter import OllamaModel

    return OllamaModel(provider, profile, local)


def _ollama_profile(model: str) -> ModelProfile:
    remote = is_remote(model)
    return ModelProfile(
        provider="ollama",
        id=model,
        prices=None if remote else FREE,
        fixed_window=True,
        local=not remote,
        loose_calls=True,
    )


def _pull_from_ollama(model: str, local: LocalModels) -> AsyncGenerator[PullProgress, None]:
    from tui_agent.models.ollama.adapter import pulling

    return pulling(OLLAMA, model, local.host)


OLLAMA = Provider(
    id="ollama",
    title="Ollama",
    label="Local models (Ollama)",
    create=_create_ollama,
    profile=_ollama_profile,
    keys=("OLLAMA_API_KEY",),
    needs_key=False,
    addresses=(OLLAMA_HOST,),
    models=ModelsSettings().ollama,
    free_names=True,
    installed=lambda local: installed_models(local.host, local.window),
    pull=_pull_from_ollama,
)


_OFFLINE = "offline"


def _offline_model(name: str) -> Model:
    from tui_agent.models.offline.adapter import DEMO, OfflineModel

    return OfflineModel(priced=name == DEMO)


OFFLINE = Provider(
    id=_OFFLINE,
    title="The offline model",
    label="Offline (no key, no network)",
    create=lambda _provider, profile, _local: _offline_model(profile.id),
    profile=lambda name: _offline_model(name).profile,
    suggested=(_OFFLINE,),
)

PROVIDERS: tuple[Provider, ...] = (ANTHROPIC, GEMINI, *OPENAI_LIKE, BEDROCK, VERTEX, OLLAMA, OFFLINE)
"""The built-in providers, in the order in which a default model is chosen."""
