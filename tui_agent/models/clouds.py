"""Claude and Gemini on Amazon Bedrock and on Google's Vertex AI, with the credentials of these clouds."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
from typing_extensions import override

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.anthropic.adapter import AnthropicModel, http_client, post
from tui_agent.models.anthropic.request import AnthropicOptions
from tui_agent.models.base import AuthFailed, InvalidRequest, ModelError
from tui_agent.models.errors import plain, unreadable
from tui_agent.models.gemini.adapter import GeminiModel
from tui_agent.models.http import HttpClient
from tui_agent.models.provider import Provider

if TYPE_CHECKING:
    from anthropic import AsyncStream
    from httpx2 import Auth, Request, Response

    from tui_agent.models.anthropic.adapter import ClaudeClient


BEDROCK_VERSION = "bedrock-2023-05-31"


class BedrockModel(AnthropicModel):
    """A Claude model served by Amazon Bedrock."""

    @override
    def _connect(self) -> "ClaudeClient":
        if missing := self._provider.missing():
            raise InvalidRequest(missing)
        from anthropic import AsyncAnthropicBedrock

        http, timeout = http_client(self._idle_timeout_s)
        try:
            client = AsyncAnthropicBedrock(max_retries=0, http_client=http, timeout=timeout, open_telemetry=False)
        except ValueError as error:
            raise InvalidRequest(f"Amazon Bedrock is not set up: set AWS_REGION. ({plain(str(error))})") from error
        self._use_other_server(str(client.base_url))
        return client

    @override
    def _options(self) -> AnthropicOptions:
        return msgspec.structs.replace(super()._options(), version=BEDROCK_VERSION, betas_inside=True)

    @override
    async def _post(self, client: "ClaudeClient", body: bytes, wanted: str) -> "AsyncStream[object]":
        return await post(client, f"/model/{quote(self._profile.id, safe=':')}/invoke-with-response-stream", body, {})

    @override
    async def _data_of(self, stream: "AsyncStream[object]") -> AsyncGenerator[bytes, None]:
        async for data in stream:  # AWS frames its events, which the SDK reads
            yield json.dumps(data).encode()

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        known = await super()._failure(error)
        if isinstance(known, AuthFailed):
            return AuthFailed(f"{known.message.rstrip('.')}. AWS's credentials and AWS_REGION have to allow it.")
        if known is None and type(error).__module__ == "botocore.eventstream":
            return unreadable(self._provider)
        of_aws = type(error).__module__.partition(".")[0] in ("botocore", "boto3")
        if known is None and (of_aws or (isinstance(error, RuntimeError) and "credentials" in str(error))):
            told = f" ({plain(str(error))})" if of_aws else ""
            return AuthFailed(f"There are no AWS credentials: set AWS_PROFILE, or run `aws configure`.{told}")
        return known


VERTEX_VERSION = "vertex-2023-10-16"
REGIONS = ("CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION")
PROJECTS = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")
DEFAULT_REGION = "global"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class ClaudeOnVertex(AnthropicModel):
    """A Claude model served by Vertex AI."""

    def __init__(self, provider: Provider, profile: ModelProfile) -> None:
        super().__init__(provider, profile)
        self._place = ""

    @override
    def _connect(self) -> "ClaudeClient":
        credentials, project = _signed_in(self._provider)
        region = _first(REGIONS) or DEFAULT_REGION
        from anthropic import AsyncAnthropicVertex

        self._place = f"/projects/{project}/locations/{region}/publishers/anthropic/models"
        http, timeout = http_client(self._idle_timeout_s)
        client = AsyncAnthropicVertex(
            region=region,
            project_id=project,
            credentials=credentials,
            max_retries=0,
            http_client=http,
            timeout=timeout,
            open_telemetry=False,
        )
        self._use_other_server(str(client.base_url))
        return client

    @override
    def _options(self) -> AnthropicOptions:
        return msgspec.structs.replace(super()._options(), version=VERTEX_VERSION)

    @override
    async def _post(self, client: "ClaudeClient", body: bytes, wanted: str) -> "AsyncStream[object]":
        path = f"{self._place}/{self._profile.id}:streamRawPredict"
        headers = {"anthropic-beta": wanted} if wanted else {}
        return await post(client, path, body[:-1] + b',"stream":true}', {"headers": headers})

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        return await super()._failure(error) or _refused_credentials(error)


class GeminiOnVertex(GeminiModel):
    """A Gemini model served by Vertex AI, which needs a project instead of a key."""

    @override
    def _client(self) -> HttpClient:
        credentials, project = _signed_in(self._provider)
        region = _first(REGIONS[::-1]) or DEFAULT_REGION
        address = os.environ.get("GOOGLE_VERTEX_BASE_URL") or _address(region)
        url = f"{address.rstrip('/')}/v1/projects/{project}/locations/{region}/publishers/google"
        return HttpClient(url, "", self._idle_timeout_s, auth=_google_auth(credentials))

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        return await super()._failure(error) or _refused_credentials(error)


def _address(region: str) -> str:
    """The address of a region (Google Cloud, Vertex AI: locations)."""
    match region:
        case "global":
            return "https://aiplatform.googleapis.com"
        case "us" | "eu":
            return f"https://aiplatform.{region}.rep.googleapis.com"
        case _:
            return f"https://{region}-aiplatform.googleapis.com"


def _google_auth(credentials: Any) -> "Auth":
    """Signs requests in with Google's credentials, which are renewed when they have expired."""
    import httpx2
    from google.auth.transport.requests import Request as Transport

    transport = Transport()

    class GoogleAuth(httpx2.Auth):
        @override
        async def async_auth_flow(self, request: "Request") -> "AsyncGenerator[Request, Response]":
            headers: dict[str, str] = {}
            await asyncio.to_thread(credentials.before_request, transport, request.method, str(request.url), headers)
            request.headers.update(headers)
            yield request

    return GoogleAuth()


def _signed_in(provider: Provider) -> tuple[Any, str]:
    """Google's default credentials, and the project. Raises `ModelError`. Blocks."""
    if missing := provider.missing():
        raise InvalidRequest(missing)
    import google.auth
    import google.auth.exceptions

    try:
        credentials, found = google.auth.default(scopes=[SCOPE])
    except google.auth.exceptions.GoogleAuthError as error:
        raise _no_credentials(str(error)) from error
    project = _first(PROJECTS) or found
    if not project:
        raise InvalidRequest("Vertex AI needs a project: set GOOGLE_CLOUD_PROJECT.")
    return credentials, project


def _refused_credentials(error: Exception) -> ModelError | None:
    if type(error).__module__.startswith("google.auth"):
        return _no_credentials(str(error))
    return None


def _no_credentials(text: str) -> AuthFailed:
    return AuthFailed(
        "There are no credentials for Vertex AI: run `gcloud auth application-default login`, or set "
        f"GOOGLE_APPLICATION_CREDENTIALS. ({plain(text)})"
    )


def _first(variables: tuple[str, ...]) -> str:
    return next((value for name in variables if (value := os.environ.get(name, ""))), "")
