"""Claude, over Anthropic's SDK.

The SDK takes seconds to import and walks every request on the event loop; so it is imported at first use, in a thread,
and is handed the request's bytes. It sends them, authenticates, and reads the stream.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from importlib import import_module
from typing import TYPE_CHECKING

import msgspec

from tui_agent.conversation.request import ModelRequest
from tui_agent.models.anthropic.claude import Thinking, thinking_of
from tui_agent.models.anthropic.reply import AnthropicReply
from tui_agent.models.anthropic.request import Options, RequestEncoder, betas, picture_at
from tui_agent.models.base import ConnectionLost, ModelError, ModelProfile, PictureRefused, StreamEvent, Tier
from tui_agent.models.encoding import call_ids
from tui_agent.models.errors import Provider, Refusal, bad_address, broke_off, failure, no_key, parse_retry_after, plain
from tui_agent.models.prices import look_up
from tui_agent.models.sdk import Connection
from tui_agent.tls import tls

if TYPE_CHECKING:
    from anthropic import APIStatusError, AsyncAnthropic
    from anthropic.types import ModelInfo

ANTHROPIC = Provider("Anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
CONNECT_TIMEOUT_S = 15.0
DESCRIBE_TIMEOUT_S = 10.0
TIER_OF_LINE: dict[str, Tier] = {
    "fable": "frontier",
    "mythos": "frontier",
    "opus": "frontier",
    "sonnet": "mid",
    "haiku": "small",
}


class AnthropicModel:
    """A `Model` of Anthropic's. After `idle_timeout_s` seconds without a byte a call counts as lost."""

    def __init__(self, profile: ModelProfile, *, idle_timeout_s: float = 180.0) -> None:
        self._profile = profile
        self._idle_timeout_s = idle_timeout_s
        self._thinking: Thinking = thinking_of(profile.id)
        self._diagnoses = False
        self._encoder = RequestEncoder()
        self._connection: Connection[AsyncAnthropic] = Connection(self._connect, lambda client: client.close())

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask. Ends with one `Completed`. Raises `ModelError`. Closing the iterator ends the connection."""
        reply = AnthropicReply(self._profile.id, call_ids(request.messages))
        try:
            client = await self._connection.client()
            events = self._events(client, request)
            async with contextlib.aclosing(events):
                async for data in events:
                    event = reply.read(data)
                    if event is not None:
                        yield event
        except Exception as error:
            # What goes wrong after the last event no longer matters.
            if not reply.complete:
                known = self._failure(error)
                if known is None:
                    raise
                if isinstance(known, PictureRefused):
                    known.pictures = picture_at(request, known.place)
                raise known from error
        if not reply.complete:
            raise broke_off(ANTHROPIC.title, started=reply.started)
        yield reply.completed()

    async def describe(self) -> ModelProfile:
        """Ask the catalogue and the Models API. Never raises: what cannot be learned stays as it was."""
        self._profile = await asyncio.to_thread(look_up, self._profile)
        try:
            client = await self._connection.client()
            info = await client.models.retrieve(self._profile.id, timeout=DESCRIBE_TIMEOUT_S)
        except Exception as error:
            if self._failure(error) is None:
                raise
        else:
            self._learn(info)
        return self._profile

    async def close(self) -> None:
        """Release connections."""
        await self._connection.close()

    def _connect(self) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient, Timeout

        # The SDK imports its parts where they are first used: better here than on the event loop.
        import_module("anthropic.resources.models")
        timeout = Timeout(self._idle_timeout_s, connect=CONNECT_TIMEOUT_S)
        http = DefaultAsyncHttpxClient(verify=tls(), timeout=timeout)
        return AsyncAnthropic(max_retries=0, http_client=http, timeout=timeout, open_telemetry=False)

    async def _events(self, client: "AsyncAnthropic", request: ModelRequest) -> AsyncGenerator[object, None]:
        from anthropic import AsyncStream

        options = Options(self._profile.id, self._thinking, self._profile.bound_reasoning, self._diagnoses)
        body = await asyncio.to_thread(self._encoder.encode, request, options)
        wanted = betas(options, request.max_tokens)
        stream = await client.post(
            "/v1/messages",
            content=body,
            cast_to=object,
            options={"params": {"beta": "true"}, "headers": {"anthropic-beta": wanted} if wanted else {}},
            stream=True,
            stream_cls=AsyncStream[object],
        )
        try:
            async for data in stream:
                yield data
        finally:
            await stream.close()

    def _learn(self, info: "ModelInfo") -> None:
        """Take in what the Models API tells; it is not validated by the SDK."""
        changes: dict[str, object] = {}
        for name, told in (("window", info.max_input_tokens), ("max_output", info.max_tokens)):
            if isinstance(told, int) and told > 0:
                changes[name] = told
                changes["source"] = "provider"
        # Whoever tells the line is Anthropic's own API of 2026; what else stands at the address may refuse the field.
        self._diagnoses = isinstance(info.line, str)
        if isinstance(info.line, str) and info.line in TIER_OF_LINE:
            changes["tier"] = TIER_OF_LINE[info.line]
        if info.capabilities is not None:
            with contextlib.suppress(AttributeError):
                changes["images"] = bool(info.capabilities.image_input.supported)
                kinds = info.capabilities.thinking.types
                adaptive, enabled = bool(kinds.adaptive.supported), bool(kinds.enabled.supported)
                self._thinking = "adaptive" if adaptive else "enabled" if enabled else "off"
        self._profile = msgspec.structs.replace(self._profile, **changes)

    def _failure(self, error: Exception) -> ModelError | None:
        """The error of the taxonomy; None for a mistake of ours."""
        if isinstance(error, ModelError):
            return error
        import anthropic
        import httpx2

        match error:
            case anthropic.APIStatusError():
                return failure(ANTHROPIC, self._profile.id, _refusal(error))
            case anthropic.APITimeoutError() | httpx2.TimeoutException():
                return ConnectionLost(f"Anthropic sent nothing for {self._idle_timeout_s:g} seconds: try again.")
            case anthropic.APIConnectionError():
                return ConnectionLost(f"Anthropic cannot be reached: check the network. ({_cause(error)})")
            case httpx2.HTTPError() | httpx2.StreamError():
                return ConnectionLost("The connection to Anthropic broke in the middle of its answer: try again.")
            case httpx2.InvalidURL():
                return bad_address(ANTHROPIC, str(error))
            case OSError():
                return ConnectionLost(f"Anthropic cannot be reached: {plain(str(error))}")
            case TypeError() if "authentication method" in str(error):
                return no_key(ANTHROPIC)
            case anthropic.CredentialsError():
                return no_key(ANTHROPIC, str(error))
            case anthropic.AnthropicError():
                return failure(ANTHROPIC, self._profile.id, Refusal(0, "", str(error)))
            case ValueError():
                return ConnectionLost("Anthropic's answer could not be read: try again.")
            case _:
                return None


def _refusal(error: "APIStatusError") -> Refusal:
    retry_after = parse_retry_after(error.response.headers.get("retry-after"))
    return Refusal(error.status_code, error.type or "", error.api_message or error.message, retry_after)


def _cause(error: BaseException) -> str:
    return plain(str(error.__cause__ or error)) or type(error.__cause__ or error).__name__
