"""Reads a server's information on a model: its window, its longest answer, its prices, whether it accepts pictures.

There is no standard. Most servers put some of it into the list of models, under names of their own; llama.cpp describes
the loaded model in ``/props``, LM Studio in ``/api/v0/models``.
"""

from collections.abc import Iterable

import msgspec

from tui_agent.conversation.profile import Prices

PER_MTOK = 1_000_000


class ServerFacts(msgspec.Struct, frozen=True):
    """What a server says about a model; 0 or None: nothing. `loaded`: the window is the one it is loaded with."""

    window: int = 0
    max_output: int = 0
    prices: Prices | None = None
    images: bool | None = None
    tools: bool | None = None
    loaded: bool = False


def merged(*facts: ServerFacts) -> ServerFacts:
    """Each fact from the first that has it; `loaded` if any is."""
    return ServerFacts(
        next((each.window for each in facts if each.window), 0),
        next((each.max_output for each in facts if each.max_output), 0),
        next((each.prices for each in facts if each.prices is not None), None),
        next((each.images for each in facts if each.images is not None), None),
        next((each.tools for each in facts if each.tools is not None), None),
        any(each.loaded for each in facts),
    )


class _Meta(msgspec.Struct):
    n_ctx: int | None = None


class _Provider(msgspec.Struct):
    max_completion_tokens: int | None = None
    context_length: int | None = None


class _Architecture(msgspec.Struct):
    input_modalities: list[str] | None = None


class _Listed(msgspec.Struct):
    """A listed model. The window's names are those of OpenRouter and Together, Groq, vLLM, Mistral, LM Studio (two)."""

    id: str = ""
    context_length: int | None = None
    context_window: int | None = None
    max_model_len: int | None = None
    max_context_length: int | None = None
    loaded_context_length: int | None = None
    meta: _Meta | None = None
    max_completion_tokens: int | None = None
    top_provider: _Provider | None = None
    architecture: _Architecture | None = None
    supported_parameters: list[str] | None = None
    pricing: dict[str, object] | None = None
    capabilities: object = None
    type: str | None = None


class _Listing(msgspec.Struct):
    data: list[_Listed] = []


class _Modalities(msgspec.Struct):
    vision: bool | None = None


class _Props(msgspec.Struct):
    default_generation_settings: _Meta | None = None
    modalities: _Modalities | None = None


def listed(listing: bytes) -> list[str]:
    """The ids of the models in a list. Raises `msgspec.DecodeError`."""
    models = msgspec.json.decode(listing, type=_Listing).data
    return [each.id for each in models if each.id and each.type not in ("embeddings", "embedding")]


def facts_in(listing: bytes, model: str) -> ServerFacts:
    """The facts in a list on a model, or on its only one. Raises `msgspec.DecodeError`."""
    models = msgspec.json.decode(listing, type=_Listing).data
    found = next((each for each in models if each.id == model), models[0] if len(models) == 1 else None)
    if found is None:
        return ServerFacts()
    provider, meta = found.top_provider or _Provider(), found.meta or _Meta()
    loaded = _first((found.loaded_context_length, meta.n_ctx, found.max_model_len))
    known = _first((provider.context_length, found.context_length, found.context_window, found.max_context_length))
    modalities = found.architecture.input_modalities if found.architecture is not None else None
    return ServerFacts(
        window=loaded or known,
        max_output=_first((provider.max_completion_tokens, found.max_completion_tokens)),
        prices=_prices(found.pricing or {}),
        images="image" in modalities if modalities is not None else True if found.type == "vlm" else None,
        tools="tools" in found.supported_parameters if found.supported_parameters is not None else None,
        loaded=loaded > 0,
    )


def facts_of_props(props: bytes) -> ServerFacts:
    """The facts in llama.cpp's ``/props``. Raises `msgspec.DecodeError`."""
    parsed = msgspec.json.decode(props, type=_Props)
    window = _first(((parsed.default_generation_settings or _Meta()).n_ctx,))
    return ServerFacts(window, images=(parsed.modalities or _Modalities()).vision, loaded=window > 0)


class _Cost(msgspec.Struct):
    """USD per token, and the sizes in tokens."""

    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    cache_creation_input_token_cost: float | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    supports_vision: bool | None = None
    supports_function_calling: bool | None = None


class _Offered(msgspec.Struct):
    model_name: str = ""
    model_info: _Cost | None = None


class _Offer(msgspec.Struct):
    data: list[_Offered] = []


def facts_of_gateway(offer: bytes, model: str) -> ServerFacts:
    """The facts in LiteLLM's ``/model/info``. Raises `msgspec.DecodeError`."""
    offered = msgspec.json.decode(offer, type=_Offer).data
    cost = next((each.model_info for each in offered if each.model_name == model and each.model_info), None) or _Cost()
    paid = (cost.input_cost_per_token, cost.output_cost_per_token)
    cached = (cost.cache_read_input_token_cost, cost.cache_creation_input_token_cost)
    prices = None
    if paid[0] is not None and paid[1] is not None and max(paid[0], paid[1]) > 0:
        read, written = (round(usd * PER_MTOK, 6) if usd else None for usd in cached)
        prices = Prices(round(paid[0] * PER_MTOK, 6), round(paid[1] * PER_MTOK, 6), read, written)
    return ServerFacts(
        window=_first((cost.max_input_tokens,)),
        max_output=_first((cost.max_output_tokens,)),
        prices=prices,
        images=cost.supports_vision,
        tools=cost.supports_function_calling,
    )


def _first(sizes: Iterable[int | None]) -> int:
    return next((size for size in sizes if size is not None and size > 0), 0)


def _prices(pricing: dict[str, object]) -> Prices | None:
    """Parse OpenRouter's prices."""
    names = ("prompt", "completion", "input_cache_read", "input_cache_write")
    paid, answered, read, written = (_usd_per_mtok(pricing.get(name)) for name in names)
    return Prices(paid, answered, read, written) if paid is not None and answered is not None else None


def _usd_per_mtok(price: object) -> float | None:
    """USD per token, as a text; -1 if it depends on the upstream provider."""
    try:
        usd = float(str(price))
    except ValueError:
        return None
    return round(usd * PER_MTOK, 6) if usd >= 0 else None
