"""Gemini, read with the types of Google's SDK.

Requests are ours, as bytes, and so is the connection: the SDK's client would encode the whole conversation on the event
loop for every call. The SDK takes a second to import, so it is imported on first use, in a thread.
"""

import asyncio
import json
import os
import warnings
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

import msgspec
from typing_extensions import override

from tui_agent.conversation.profile import ModelProfile
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.adapter import DESCRIBE_TIMEOUT_S, Adapter, told_sizes
from tui_agent.models.base import ModelError
from tui_agent.models.encoding import call_ids
from tui_agent.models.errors import no_key, unreadable
from tui_agent.models.gemini.reply import GeminiReply, in_types_of_sdk
from tui_agent.models.gemini.request import GeminiEncoder
from tui_agent.models.http import HttpClient
from tui_agent.models.provider import Provider

ADDRESS = "https://generativelanguage.googleapis.com"
API_VERSION = "v1beta"
"""``v1`` lacks thought signatures and JSON Schemas for tools."""


class GeminiModel(Adapter[HttpClient, GeminiReply]):
    def __init__(self, provider: Provider, profile: ModelProfile) -> None:
        super().__init__(provider, profile)
        self._encoder = GeminiEncoder(profile.id)

    @override
    def _connect(self) -> HttpClient:
        client = self._client()
        from google.genai.types import GenerateContentResponse

        # Its warnings, such as of an unknown finish reason, would garble the screen.
        warnings.filterwarnings("ignore", module=r"google\.genai\b")
        # Pydantic builds these models on first use, which would block the event loop.
        GenerateContentResponse.model_validate({})
        return client

    def _client(self) -> HttpClient:
        """The client of the server, with its credentials."""
        key = os.environ.get("GOOGLE_API_KEY") or os.environ.get("GEMINI_API_KEY")
        if not key:
            raise no_key(self._provider)
        version = os.environ.get("GOOGLE_GENAI_API_VERSION") or API_VERSION
        url = f"{(os.environ.get('GOOGLE_GEMINI_BASE_URL') or ADDRESS).rstrip('/')}/{version}"
        return HttpClient(url, key, self._idle_timeout_s, key_header="x-goog-api-key")

    @override
    def _reply(self, request: ModelRequest) -> GeminiReply:
        return GeminiReply(self._profile.id, call_ids(request.messages))

    @property
    def _path(self) -> str:
        return f"/models/{quote(self._profile.id, safe='')}"

    @override
    async def _events(self, request: ModelRequest, reply: GeminiReply) -> AsyncGenerator[bytes, None]:
        client = await self._connection.client()
        body = await asyncio.to_thread(self._encoder.encode, request, self._profile.effort)
        async with aclosing(client.events(f"{self._path}:streamGenerateContent?alt=sse", body)) as events:
            async for data in events:
                yield data

    @override
    async def _learn(self) -> None:
        client = await self._connection.client()
        from google.genai.types import Model

        described = await client.fetch(client.url + self._path, DESCRIBE_TIMEOUT_S)
        info = in_types_of_sdk(Model, json.loads(described))
        changes = told_sizes(info.input_token_limit, info.output_token_limit)
        self._profile = msgspec.structs.replace(self._profile, **changes)

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        from pydantic import ValidationError

        if isinstance(error, ValidationError | json.JSONDecodeError):
            return unreadable(self._provider)
        return await super()._failure(error)
