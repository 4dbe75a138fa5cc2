"""Gemini, over Google's SDK.

As with Anthropic's, the SDK is imported at first use, in a thread, and is handed the request's bytes: its own walk over
a long conversation would hold up the event loop. It builds the address, authenticates, and reads the stream.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import msgspec

from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.wire import fresh_id
from tui_agent.models.base import ConnectionLost, ModelError, ModelProfile, StreamEvent
from tui_agent.models.encoding import call_ids
from tui_agent.models.errors import Provider, Refusal, bad_address, broke_off, failure, no_key, parse_retry_after, plain
from tui_agent.models.gemini.reply import GeminiReply
from tui_agent.models.gemini.request import RequestEncoder
from tui_agent.models.prices import look_up
from tui_agent.models.sdk import Connection
from tui_agent.tls import tls

if TYPE_CHECKING:
    from google.genai import Client
    from google.genai.errors import APIError
    from google.genai.types import GenerateContentResponse

    from tui_agent.models.gemini.client import PreparedClient

GEMINI = Provider("Gemini", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL")
API_VERSION = "v1beta"
"""The SDK's default, ``v1``, lacks thought signatures and JSON schemas of tools."""

DESCRIBE_TIMEOUT_S = 10.0


class GeminiModel:
    """A `Model` of Google's. After `idle_timeout_s` seconds without a byte a call counts as lost."""

    def __init__(self, profile: ModelProfile, *, idle_timeout_s: float = 180.0) -> None:
        self._profile = profile
        self._idle_timeout_s = idle_timeout_s
        self._encoder = RequestEncoder(profile.id)
        # The SDK closes its connections when the Client is collected, so both are kept.
        self._connection: Connection[tuple[Client, PreparedClient]] = Connection(
            self._connect, lambda clients: clients[1].aclose()
        )

    @property
    def profile(self) -> ModelProfile:
        return self._profile

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Ask. Ends with one `Completed`. Raises `ModelError`. Closing the iterator ends the connection."""
        reply = GeminiReply(self._profile.id, call_ids(request.messages))
        try:
            chunks = self._chunks(request)
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    for event in reply.read(chunk):
                        yield event
        except Exception as error:
            known = self._failure(error)
            if known is None:
                raise
            raise known from error
        if not reply.complete:
            raise broke_off(GEMINI.title, started=reply.started)
        yield reply.completed()

    async def describe(self) -> ModelProfile:
        """Ask the catalogue and the models endpoint. Never raises: what cannot be learned stays as it was."""
        self._profile = await asyncio.to_thread(look_up, self._profile)
        try:
            client, _ = await self._connection.client()
            async with asyncio.timeout(DESCRIBE_TIMEOUT_S):
                info = await client.aio.models.get(model=self._profile.id)
        except Exception as error:
            if self._failure(error) is None:
                raise
        else:
            changes: dict[str, object] = {}
            for name, told in (("window", info.input_token_limit), ("max_output", info.output_token_limit)):
                if isinstance(told, int) and told > 0:
                    changes[name] = told
                    changes["source"] = "provider"
            self._profile = msgspec.structs.replace(self._profile, **changes)
        return self._profile

    async def close(self) -> None:
        """Release connections."""
        await self._connection.close()

    def _connect(self) -> "tuple[Client, PreparedClient]":
        from google.genai import Client
        from google.genai.types import GenerateContentConfig, GenerateContentResponse, HttpOptions, HttpRetryOptions

        from tui_agent.models.gemini.client import PreparedClient

        key = os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY")
        if not key:
            raise no_key(GEMINI)
        http = PreparedClient(self._idle_timeout_s)
        options = HttpOptions(
            api_version=os.environ.get("GOOGLE_GENAI_API_VERSION") or API_VERSION,
            retry_options=HttpRetryOptions(attempts=1),
            httpx_async_client=http,
            # The SDK's clients that are never used read the certificates once more each, if they are given none.
            client_args={"verify": tls()},
            async_client_args={"verify": tls(), "ssl": tls()},
        )
        # Their first use builds them, which takes a while: better here than on the event loop.
        for kind in (GenerateContentConfig, GenerateContentResponse):
            kind.model_validate({})
        return Client(vertexai=False, api_key=key, http_options=options), http

    async def _chunks(self, request: ModelRequest) -> "AsyncGenerator[GenerateContentResponse, None]":
        client, http = await self._connection.client()
        body = await asyncio.to_thread(self._encoder.encode, request)
        from google.genai.types import AutomaticFunctionCallingConfig, GenerateContentConfig, HttpOptions

        token = fresh_id()
        async with http.prepared(token, body) as headers:
            stream = await client.aio.models.generate_content_stream(
                model=self._profile.id,
                contents="",
                config=GenerateContentConfig(
                    http_options=HttpOptions(headers=headers),
                    automatic_function_calling=AutomaticFunctionCallingConfig(disable=True),
                    automatic_continuation=False,
                ),
            )
            async for chunk in stream:
                yield chunk

    def _failure(self, error: Exception) -> ModelError | None:
        """The error of the taxonomy; None for a mistake of ours."""
        if isinstance(error, ModelError):
            return error
        import httpx2
        from google.genai import errors

        match error:
            case errors.APIError():
                return failure(GEMINI, self._profile.id, _refusal(error))
            case httpx2.TimeoutException() | TimeoutError():
                return ConnectionLost(f"Gemini sent nothing for {self._idle_timeout_s:g} seconds: try again.")
            case httpx2.ConnectError():
                return ConnectionLost(f"Gemini cannot be reached: check the network. ({plain(str(error))})")
            case httpx2.HTTPError() | httpx2.StreamError():
                return ConnectionLost("The connection to Gemini broke in the middle of its answer: try again.")
            case httpx2.InvalidURL():
                return bad_address(GEMINI, str(error))
            case OSError():
                return ConnectionLost(f"Gemini cannot be reached: {plain(str(error))}")
            case ValueError() | TypeError() | AttributeError():
                return ConnectionLost("Gemini's answer could not be read: try again.")
            case _:
                return None


def _refusal(error: "APIError") -> Refusal:
    """`RetryInfo` among an error's details tells how long to wait."""
    details = error.details if isinstance(error.details, dict) else {}
    body = details.get("error", details)
    retry_after = None
    for detail in body.get("details") or () if isinstance(body, dict) else ():
        if isinstance(detail, dict) and str(detail.get("@type", "")).endswith("RetryInfo"):
            retry_after = parse_retry_after(str(detail.get("retryDelay", "")))
    if retry_after is None and (headers := getattr(error.response, "headers", None)) is not None:
        retry_after = parse_retry_after(headers.get("retry-after"))
    return Refusal(error.code or 0, str(error.status or ""), str(error.message or ""), retry_after)
