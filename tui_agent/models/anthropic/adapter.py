"""Claude, with Anthropic's SDK.

The SDK takes seconds to import and encodes requests on the event loop. So it is imported on first use, in a thread, and
gets requests as bytes; it signs them in and sends them, reports errors, and describes models.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from typing_extensions import override

from tui_agent.conversation.profile import ModelProfile, Tier
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.adapter import CONNECT_TIMEOUT_S, DESCRIBE_TIMEOUT_S, EFFORTS, Adapter, told_sizes
from tui_agent.models.anthropic.claude import (
    Feature,
    Thinking,
    defers_tools,
    load_unsupported,
    most_pictures,
    other_server,
    refused_feature,
    save_unsupported,
    thinking_of,
)
from tui_agent.models.anthropic.reply import AnthropicReply
from tui_agent.models.anthropic.request import (
    COMPACT_BETA,
    AnthropicEncoder,
    AnthropicOptions,
    betas,
    block_at,
    has_signed_summary,
    picture_at,
)
from tui_agent.models.base import ModelError, PictureRefused, ReasoningRefused
from tui_agent.models.encoding import call_ids
from tui_agent.models.errors import (
    ErrorReply,
    WrongServerError,
    error_text_in,
    is_about_signature,
    no_key,
    unreadable,
)
from tui_agent.models.http import events_in
from tui_agent.models.provider import Provider
from tui_agent.models.refusals import seconds_to_reset
from tui_agent.system.network import tls

if TYPE_CHECKING:
    from anthropic import (
        APIStatusError,
        AsyncAnthropic,
        AsyncAnthropicBedrock,
        AsyncAnthropicVertex,
        AsyncStream,
        DefaultAsyncHttpxClient,
        Timeout,
    )
    from anthropic._types import RequestOptions
    from anthropic.types import ModelInfo

    ClaudeClient: TypeAlias = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex

TIER_OF_LINE: dict[str, Tier] = {
    "fable": "frontier",
    "mythos": "frontier",
    "opus": "frontier",
    "sonnet": "mid",
    "haiku": "small",
}


class AnthropicModel(Adapter["ClaudeClient", AnthropicReply]):
    """A Claude model, served by Anthropic or at ``ANTHROPIC_BASE_URL``."""

    def __init__(self, provider: Provider, profile: ModelProfile) -> None:
        super().__init__(provider, profile)
        self._thinking: Thinking = thinking_of(profile.id)
        self._diagnoses = False
        self._encoder = AnthropicEncoder()
        self._other_server = ""
        self._without: frozenset[Feature] = frozenset()

    @override
    def _connect(self) -> "ClaudeClient":
        from anthropic import AsyncAnthropic

        # The SDK imports this lazily, which would block the event loop.
        import_module("anthropic.resources.models")
        self._use_other_server(other_server())
        http, timeout = http_client(self._idle_timeout_s)
        return AsyncAnthropic(max_retries=0, http_client=http, timeout=timeout, open_telemetry=False)

    @override
    def _reply(self, request: ModelRequest) -> AnthropicReply:
        return AnthropicReply(self._profile.id, call_ids(request.messages))

    @override
    async def _events(self, request: ModelRequest, reply: AnthropicReply) -> AsyncGenerator[bytes, None]:
        client = await self._connection.client()
        from anthropic import APIStatusError

        while True:
            options, bounded = self._options(), self._bounded(request)
            body = await asyncio.to_thread(self._encoder.encode, bounded, options)
            try:
                stream = await self._post(client, body, betas(options, bounded))
                break
            except APIStatusError as error:
                if error.response.is_redirect:
                    raise WrongServerError(str(client.base_url)) from error
                if await self._drops_signed(error, bounded):
                    continue
                if request.summarize is not None and not self._profile.signs_summaries:
                    raise
                if not self._shortens_answer(_refusal(error)) and not await self._drops_refused(error):
                    raise
        try:
            if "html" in stream.response.headers.get("content-type", ""):
                raise WrongServerError(str(client.base_url))
            async with contextlib.aclosing(self._data_of(stream)) as events:
                async for data in events:
                    yield data
        finally:
            await stream.close()

    async def _data_of(self, stream: "AsyncStream[object]") -> AsyncGenerator[bytes, None]:
        """The data of each event of a stream."""
        async with contextlib.aclosing(events_in(stream.response.aiter_bytes())) as events:
            async for data in events:
                yield data

    def _options(self) -> AnthropicOptions:
        thinking, without = self._thinking, self._without
        if "adaptive" in without and thinking == "adaptive":
            thinking = "enabled"
        if "thinking" in without:
            thinking = "off"
        profile = self._profile
        return AnthropicOptions(
            profile.id, thinking, profile.bound_reasoning, self._diagnoses, without, effort=profile.effort
        )

    async def _post(self, client: "ClaudeClient", body: bytes, wanted: str) -> "AsyncStream[object]":
        """Send a request's body; `wanted` is its ``anthropic-beta`` header."""
        headers = {"anthropic-beta": wanted} if wanted else {}
        params = {} if "parameter" in self._without else {"beta": "true"}
        return await post(client, "/v1/messages", body, {"params": params, "headers": headers})

    def _use_other_server(self, address: str) -> None:
        """Set the address of a server that replaces Anthropic's (empty: none), and load the features it lacks."""
        self._other_server = address
        if address:
            self._without = load_unsupported(address, self._profile.id)

    async def _drops_signed(self, error: "APIStatusError", request: ModelRequest) -> bool:
        """If the server refused signed summaries, ask for none and send them as text from now on; True if the request
        can be sent again so.
        """
        value: object = error.body
        for name in ("error", "details", "error_code"):
            value = value.get(name) if isinstance(value, dict) else None
        code = value if isinstance(value, str) else ""
        named = refused_feature(f"{_refusal(error).text} {code}", self._without)
        if error.status_code not in (400, 422) or named != "compaction":
            return False
        asked = request.summarize is not None
        if not asked and not has_signed_summary(request):
            return False
        if asked and code.startswith("compaction_"):
            return False  # about these messages, not about the feature
        self._without |= {"compaction"}
        self._profile = msgspec.structs.replace(self._profile, signs_summaries=False)
        if self._other_server:
            await asyncio.to_thread(save_unsupported, self._other_server, self._profile.id, self._without)
        return not asked

    async def _drops_refused(self, error: "APIStatusError") -> bool:
        """If another server refused a feature that can be left out, leave it out from now on and return True."""
        if not self._other_server or error.status_code not in (400, 422):
            return False
        refusal = _refusal(error)
        if self._drops_effort(refusal.text):
            return True
        feature = refused_feature(refusal.text, self._without)
        if feature is None or is_about_signature(refusal):
            return False
        self._without |= {feature}
        await asyncio.to_thread(save_unsupported, self._other_server, self._profile.id, self._without)
        return True

    @override
    async def _learn(self) -> None:
        client = await self._connection.client()
        if not hasattr(client, "models"):
            return
        asked: dict[str, str] = {} if "betas" in self._without else {"anthropic-beta": COMPACT_BETA}
        self._take_in(await client.models.retrieve(self._profile.id, timeout=DESCRIBE_TIMEOUT_S, extra_headers=asked))

    def _take_in(self, info: "ModelInfo") -> None:
        """Update the profile from the Models API, whose answer the SDK does not validate."""
        changes = told_sizes(info.max_input_tokens, info.max_tokens)
        # Only Anthropic's own API reports the line (since 2026); another server may refuse the diagnostics field.
        self._diagnoses = isinstance(info.line, str)
        changes["defers_tools"] = self._diagnoses and defers_tools(self._profile.id)
        if isinstance(info.line, str) and info.line in TIER_OF_LINE:
            changes["tier"] = TIER_OF_LINE[info.line]
        if info.capabilities is not None:
            with contextlib.suppress(AttributeError):
                changes["images"] = bool(info.capabilities.image_input.supported)
                kinds = info.capabilities.thinking.types
                adaptive, enabled = bool(kinds.adaptive.supported), bool(kinds.enabled.supported)
                self._thinking = "adaptive" if adaptive else "enabled" if enabled else "off"
                levels = info.capabilities.effort
                self._limit_effort([each for each in EFFORTS if levels.supported and getattr(levels, each).supported])
        signs = _is_supported(info.capabilities, "compaction", "summarize") and "compaction" not in self._without
        changes["signs_summaries"] = signs
        window = changes.get("window", self._profile.window)
        changes["most_pictures"] = most_pictures(window if isinstance(window, int) else 0)
        self._profile = msgspec.structs.replace(self._profile, **changes)

    @override
    async def _error_to_raise(self, error: Exception, request: ModelRequest) -> Exception:
        known = await super()._error_to_raise(error, request)
        if isinstance(known, PictureRefused):
            known.pictures = picture_at(request, known.place)
        return known

    @override
    def _named(self, refused: ReasoningRefused, request: ModelRequest) -> frozenset[str]:
        block = block_at(request, refused.named)
        return frozenset({block.opaque}) if block is not None and block.opaque else frozenset()

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        if (known := await super()._failure(error)) is not None:
            return known
        import anthropic

        match error:
            case anthropic.APIStatusError():
                return await self._refused(_refusal(error))
            case anthropic.APITimeoutError():
                return self._timed_out()
            case anthropic.APIConnectionError():
                cause = error.__cause__ or error
                return self._unreachable(str(cause) or type(cause).__name__)
            case TypeError() if "authentication method" in str(error):
                return no_key(self._provider)
            case anthropic.CredentialsError():
                return no_key(self._provider, str(error))
            case anthropic.AnthropicError():
                return await self._refused(ErrorReply(0, "", str(error)))
            case json.JSONDecodeError():
                return unreadable(self._provider)
            case _:
                return None


def http_client(idle_timeout_s: float) -> "tuple[DefaultAsyncHttpxClient, Timeout]":
    """The HTTP client for the SDK's client, and its timeouts. Imports the SDK: call it in a thread."""
    from anthropic import DefaultAsyncHttpxClient, Timeout

    timeout = Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S)
    # A redirect would carry the key to wherever it leads.
    return DefaultAsyncHttpxClient(verify=tls(), timeout=timeout, follow_redirects=False), timeout


async def post(client: "ClaudeClient", path: str, body: bytes, options: "RequestOptions") -> "AsyncStream[object]":
    """Send a request's body, and begin to read its answer."""
    from anthropic import AsyncStream

    return await client.post(
        path, content=body, cast_to=object, options=options, stream=True, stream_cls=AsyncStream[object]
    )


def _is_supported(value: object, *path: str) -> bool:
    """Whether the Models API says that a capability is supported, and what it contains; the SDK's types may lack it."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        supported = value.get("supported") if isinstance(value, dict) else getattr(value, "supported", None)
        if supported is not True:
            return False
    return True


def _refusal(error: "APIStatusError") -> ErrorReply:
    text = error.api_message or error_text_in(error.body)
    waits = seconds_to_reset(error.response.headers, error.body, text)
    return ErrorReply(error.status_code, error.type or "", text, waits)
