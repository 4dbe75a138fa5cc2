"""The interface of models: a request in, a stream of events out, and one hierarchy of errors.

No types of a provider's SDK appear here. A model's stream yields deltas and ends with exactly one `Completed`, or
raises one `ModelError`. It never runs tools and never retries; `models/retry.py` retries for all models.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, Protocol, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest

StopReason: TypeAlias = Literal[
    "end_turn", "tool_calls", "paused", "max_tokens", "refusal", "context_window", "interrupted"
]
"""Why an answer ended; ``paused``: the provider wants to be asked to go on from what it has sent."""


class LocalModels(msgspec.Struct, frozen=True):
    """How to run local models: the address of Ollama if its variable is not set (empty: this machine), and the largest
    context to load a model with, in tokens.
    """

    host: str = ""
    window: int = 65_536


THIS_MACHINE = LocalModels()


class InstalledModel(msgspec.Struct, frozen=True):
    """A model that a local server has installed. `size` in bytes, `window` in tokens; 0 or None: unknown."""

    id: str
    size: int = 0
    window: int = 0
    loaded: bool = False
    tools: bool | None = None
    images: bool | None = None


class PullProgress(msgspec.Struct, frozen=True):
    """The progress of a download in bytes; `total` 0: unknown. `step`: the server's name for the current step."""

    step: str
    done: int = 0
    total: int = 0


class Timings(msgspec.Struct, frozen=True):
    """The duration of a call in seconds; 0: unknown. `read` are the prompt tokens the server had to process, because
    they were not in its cache; None: it does not say.
    """

    read_s: float = 0.0
    write_s: float = 0.0
    read: int | None = None


class TextDelta(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    """The next piece of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning_delta"):
    """The next piece of the model's reasoning."""

    text: str


class ToolCallDelta(msgspec.Struct, frozen=True, tag_field="type", tag="tool_call_delta"):
    """The model is writing the arguments of tool call number `index` of this step; `size`: their characters so far."""

    index: int
    name: str
    size: int


class ModelRetrying(msgspec.Struct, frozen=True):
    """The call failed and is retried after `delay_s` seconds, at most `retries` times; discard all deltas so far."""

    attempt: int
    retries: int
    delay_s: float
    error: "ModelError"


class Completed(msgspec.Struct, frozen=True):
    """The whole answer.

    `cache_miss`: why the provider could not read the previous request's prefix from its cache (``messages_changed`` …;
    empty: not reported). `answer_id`: its id of this answer, for the next request's `follows`. `timings`: None if the
    server does not report them. `charged_usd`: what the server says that the call cost; None if it does not.
    """

    blocks: tuple[Block, ...]
    usage: Usage
    stop_reason: StopReason
    model: str = ""
    cache_miss: str = ""
    answer_id: str = ""
    timings: Timings | None = None
    charged_usd: float | None = None


class Metered(msgspec.Struct, frozen=True):
    """The call's usage as reported so far. Replaces earlier ones; it is billed even if the call breaks off.

    `charged_usd`: as in `Completed`.
    """

    usage: Usage
    charged_usd: float | None = None


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Metered | ModelRetrying | Completed


class Model(Protocol):
    """A model. `profile` is what is known about it now; `describe` refines it by asking the provider."""

    @property
    def profile(self) -> ModelProfile: ...

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Send a request. The last event is a `Completed`. Raises `ModelError`. Closing the iterator ends the call."""
        ...

    async def describe(self) -> ModelProfile:
        """Ask the provider for window, output limit and tier; failures leave the profile unchanged. Never raises."""
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


class SharedModel:
    """A model shared by several conversations: `close` does nothing, its owner closes it with `close_for_good`."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._described: asyncio.Future[ModelProfile] | None = None

    @property
    def profile(self) -> ModelProfile:
        return self._model.profile

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """As `Model.stream`. Several calls may run concurrently."""
        return self._model.stream(request)

    async def describe(self) -> ModelProfile:
        """Ask the provider, once for all conversations."""
        if self._described is None:
            self._described = asyncio.ensure_future(self._model.describe())
        return await asyncio.shield(self._described)

    async def close(self) -> None:
        """Do nothing: other conversations may still use the model."""

    async def close_for_good(self) -> None:
        """Release connections."""
        if self._described is not None:
            self._described.cancel()
        await self._model.close()


class ModelError(Exception):
    """A call failed. `message` is one sentence for the user; `retryable`: the same call may succeed later.

    `happened` is the message without its `advice` on what to do; both include what the provider `said`. `retry_after`:
    seconds the provider asks to wait; None: not said.
    """

    kind = "model_error"
    retryable = False

    def __init__(self, happened: str, *, advice: str = "", said: str = "", retry_after: float | None = None) -> None:
        self.happened = f"{happened}.{said}" if said else happened
        self.message = f"{happened}: {advice}.{said}" if advice else self.happened
        self.retry_after = retry_after
        super().__init__(self.message)


class ContextOverflow(ModelError):
    """The request is larger than the model's window. `tokens`, `limit`: the sizes; 0 if the provider does not say.

    `bound`: `tokens` is an upper bound of ours, for a server that does not count.
    """

    kind = "context_overflow"

    def __init__(self, message: str, *, tokens: int = 0, limit: int = 0, bound: bool = False) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.limit = limit
        self.bound = bound


class RequestTooLarge(ContextOverflow):
    """The request has more bytes than the provider accepts, however many tokens it has."""


class RateLimited(ModelError):
    """Too many requests or tokens in a short time."""

    kind = "rate_limited"
    retryable = True


class Overloaded(ModelError):
    """The provider has no capacity now."""

    kind = "overloaded"
    retryable = True


class Unavailable(ModelError):
    """The provider had an internal error."""

    kind = "unavailable"
    retryable = True


class AuthFailed(ModelError):
    """The key is missing, wrong, or may not use this model."""

    kind = "auth"


class InvalidRequest(ModelError):
    """The provider refuses the request; sending it again would not help."""

    kind = "invalid_request"


class ToolsRefused(InvalidRequest):
    """The model, or its server as configured, does not accept tools; requests without tools may succeed."""


class ReasoningRefused(InvalidRequest):
    """The provider does not accept the signature of reasoning in the request; without it, the request may succeed.

    `named`: which, in the provider's notation: a path in the request's JSON, an item's id, or both ends of what is
    encrypted (``gAAA...DQ==``); empty: not said.
    """

    def __init__(self, message: str, *, named: str = "") -> None:
        super().__init__(message)
        self.named = named


class PictureRefused(InvalidRequest):
    """The provider refuses a picture of the request. `pictures`: which one, once the adapter has found it; empty:
    unknown. `place`: its path in the request's JSON, in the provider's notation.
    """

    pictures: tuple[Image, ...] = ()

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(message)
        self.place = place


class ConnectionLost(ModelError):
    """The connection could not be made or broke, or the stream ended before its last event."""

    kind = "connection"
    retryable = True


class AdapterFailed(ModelError):
    """The adapter raised an unexpected exception, which is this error's cause."""


class UnknownModel(ModelError):
    """There is no model with this name."""

    kind = "unknown_model"


class SeveralModels(UnknownModel):
    """A part of a name is that of several models. `names`: theirs, with their providers."""

    def __init__(self, message: str, names: tuple[str, ...]) -> None:
        super().__init__(message)
        self.names = names
