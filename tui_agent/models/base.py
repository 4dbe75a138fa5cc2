"""What every model is to the rest of the program: one request in, events out, errors of one taxonomy.

Nothing of a provider's SDK leaks through here. A model's stream yields deltas and ends with exactly one `Completed`, or
raises one `ModelError`. It never runs a tool and never retries: `models/retry.py` does that for all of them.
"""

from collections.abc import AsyncIterator
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.speed import Timings

Tier: TypeAlias = Literal["frontier", "mid", "small", "unknown"]
Cache: TypeAlias = Literal["marked", "implicit", "none"]
StopReason: TypeAlias = Literal["end_turn", "tool_calls", "max_tokens", "refusal", "context_window", "interrupted"]


class Prices(msgspec.Struct, frozen=True, omit_defaults=True):
    """USD per million tokens. `None` where it is not known; `cache_write` None: writes cost what input costs.

    `above` holds the price cliffs: (input tokens of one request, prices that then hold for all of it), ascending.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    above: tuple[tuple[int, "Prices"], ...] = ()


FREE = Prices(0.0, 0.0, 0.0, 0.0)


class ModelProfile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a model. `window` is its input capacity, `max_output` its longest answer (tokens; 0: unknown).

    `bound_reasoning`: its reasoning is only accepted back under the prefix it was made under.
    `cache`: its provider keeps the prefixes a request marks and bills writing them, any prefix at no price, or none.
    `cache_ttl_s`: how long a cached prefix lives, in seconds. `cache_minimum`: the smallest cacheable one, in tokens.
    `fixed_window`: the window is what the model is loaded with, so a setting may narrow it but never widen it.
    `picture_bytes` (in base64) and `most_pictures` are what all pictures of one request may come to; 0: not known to be
    limited. `defers_tools`: it takes definitions of tools that the model sees only once they were found.
    `catalogue` is what the price catalogue calls its provider (empty: not there).
    `local`: it runs on a machine of one's own, where a request costs time, not money. `tools`: it can be given tools.
    `loose_calls`: its server leaves it to the model how calls are written, so that they may stand in the text.
    `size` is what it takes on disk, in bytes (0: not told); `loaded`: it is in memory now.
    `source` says where window and prices come from: ``provider``, ``settings``, ``catalogue``, or ``default``.
    """

    provider: str
    id: str
    window: int = 0
    max_output: int = 0
    tier: Tier = "unknown"
    prices: Prices | None = None
    bound_reasoning: bool = False
    fixed_window: bool = False
    images: bool = True
    cache: Cache = "none"
    cache_ttl_s: int = 300
    cache_minimum: int = 1024
    picture_bytes: int = 0
    most_pictures: int = 0
    defers_tools: bool = False
    catalogue: str = ""
    local: bool = False
    tools: bool = True
    loose_calls: bool = False
    size: int = 0
    loaded: bool = False
    source: str = "default"

    @property
    def name(self) -> str:
        """``provider:id``, as entries and settings name it."""
        return f"{self.provider}:{self.id}"


class LocalModels(NamedTuple):
    """How local models are run: where Ollama listens when its variable is not set (empty: this machine), and the
    largest context, in tokens, that the memory is meant for.
    """

    host: str = ""
    window: int = 65_536


THIS_MACHINE = LocalModels()


class OnHand(NamedTuple):
    """A model that a local server has. `size` in bytes, `window` in tokens; 0 and None: not told."""

    id: str
    size: int = 0
    window: int = 0
    loaded: bool = False
    tools: bool | None = None
    images: bool | None = None


class Pulled(NamedTuple):
    """How far a download is, in bytes; `total` 0: not known yet. `step` is what the server calls what it does."""

    step: str
    done: int = 0
    total: int = 0


class TextDelta(msgspec.Struct, frozen=True):
    """More of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of the model's reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """The model is writing a call; `name` once it is known, `size` the characters of arguments so far."""

    index: int
    name: str
    size: int


class Retrying(msgspec.Struct, frozen=True):
    """The call failed and starts anew after `delay_s` seconds, `retries` times at most; all deltas so far are void."""

    attempt: int
    retries: int
    delay_s: float
    error: "ModelError"


class Completed(msgspec.Struct, frozen=True):
    """The whole answer. `dropped_reasoning` counts blocks the provider itself left out of the request; `cache_miss` is
    why it could not read all of the last request's prefix from its cache, where it tells (``messages_changed`` …);
    `answer_id` is what the provider calls this answer, for the next request's `follows`. `timings`: what it took, where
    the server tells.
    """

    blocks: tuple[Block, ...]
    usage: Usage
    stop_reason: StopReason
    model: str = ""
    dropped_reasoning: int = 0
    cache_miss: str = ""
    answer_id: str = ""
    timings: Timings | None = None


class Metered(msgspec.Struct, frozen=True):
    """What the call has used as far as the provider has told; a later one replaces it. Billed also if it breaks off."""

    usage: Usage


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Metered | Retrying | Completed


class Model(Protocol):
    """A model that can be asked. `profile` is what is known of it now; `describe` refines it by asking the provider."""

    @property
    def profile(self) -> ModelProfile: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Ask. Ends with one `Completed`. Raises `ModelError`. Closing the iterator ends the connection."""
        ...

    async def describe(self) -> ModelProfile:
        """Ask the provider for window, output limit and tier. Never raises: what cannot be learned stays as it was."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class ModelError(Exception):
    """A call failed. `message` is one plain sentence; `retryable`: the same call may go through later."""

    kind = "model_error"
    retryable = False

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after = retry_after


class ContextOverflow(ModelError):
    """The request is larger than the model's window. `tokens` and `limit` where the provider tells, else 0."""

    kind = "context_overflow"

    def __init__(self, message: str, *, tokens: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit


class RequestTooLarge(ContextOverflow):
    """The request has more bytes than the provider accepts, whatever its tokens are."""


class RateLimited(ModelError):
    """Too many requests or tokens for now; `retry_after` in seconds where the provider tells."""

    kind = "rate_limited"
    retryable = True


class Overloaded(ModelError):
    """The provider has no capacity at the moment."""

    kind = "overloaded"
    retryable = True


class Unavailable(ModelError):
    """The provider failed on its side."""

    kind = "unavailable"
    retryable = True


class AuthFailed(ModelError):
    """The key is missing, wrong, or may not use this model."""

    kind = "auth"


class InvalidRequest(ModelError):
    """The provider refuses the request as it is; sending it again would not help."""

    kind = "invalid_request"


class ToolsRefused(InvalidRequest):
    """The model, or its server as it runs now, takes no tools: without them it can be asked."""


class PictureRefused(InvalidRequest):
    """The provider takes a picture of the request for none, or for too large. `pictures`: which; empty: not told.

    `place` is where in the request's JSON it stands, as the provider names it.
    """

    def __init__(self, message: str, *, place: str = "", pictures: tuple[Image, ...] = ()) -> None:
        super().__init__(message)
        self.place = place
        self.pictures = pictures


class ConnectionLost(ModelError):
    """The connection could not be made or broke, or the stream ended before its last event."""

    kind = "connection"
    retryable = True


class AdapterFailed(ModelError):
    """The code that talks to the provider raised what it should not; its cause says what."""

    kind = "model_error"


class UnknownModel(ModelError):
    """No model goes by this name here."""

    kind = "unknown_model"
