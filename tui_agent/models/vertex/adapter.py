"""Claude and Gemini on Google's Vertex AI, with their SDKs and Google's default credentials."""

import os
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.adapter import IDLE_TIMEOUT_S
from tui_agent.models.anthropic.adapter import AnthropicModel, http_client
from tui_agent.models.anthropic.request import Options
from tui_agent.models.base import AuthFailed, InvalidRequest, ModelError
from tui_agent.models.errors import plain
from tui_agent.models.gemini.adapter import GeminiModel
from tui_agent.models.provider import Provider

if TYPE_CHECKING:
    from anthropic import AsyncStream
    from google.genai import Client
    from google.genai.types import HttpOptions

    from tui_agent.models.anthropic.adapter import ClaudeClient

VERSION = "vertex-2023-10-16"
REGIONS = ("CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION")
PROJECTS = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")
DEFAULT_REGION = "global"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"


class ClaudeOnVertex(AnthropicModel):
    """A Claude model served by Vertex AI."""

    def __init__(self, provider: Provider, profile: ModelProfile, *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        super().__init__(provider, profile, idle_timeout_s=idle_timeout_s)
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
    def _options(self) -> Options:
        options = super()._options()
        return Options(options.model, options.thinking, options.bound, without=options.without, version=VERSION)

    @override
    async def _post(self, client: "ClaudeClient", body: bytes, wanted: str) -> "AsyncStream[object]":
        from anthropic import AsyncStream

        path = f"{self._place}/{self._profile.id}:streamRawPredict"
        streamed = body[:-1] + b',"stream":true}'
        return await client.post(
            path,
            content=streamed,
            cast_to=object,
            options={"headers": {"anthropic-beta": wanted} if wanted else {}},
            stream=True,
            stream_cls=AsyncStream[object],
        )

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        return await super()._failure(error) or _refused_credentials(error)


class GeminiOnVertex(GeminiModel):
    """A Gemini model served by Vertex AI, which needs a project instead of a key."""

    @override
    def _client(self, options: "HttpOptions") -> "Client":
        from google.genai import Client

        credentials, project = _signed_in(self._provider)
        options.api_version = "v1"
        region = _first(REGIONS[::-1]) or DEFAULT_REGION
        return Client(vertexai=True, project=project, location=region, credentials=credentials, http_options=options)

    @override
    async def _failure(self, error: Exception) -> ModelError | None:
        return await super()._failure(error) or _refused_credentials(error)


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
