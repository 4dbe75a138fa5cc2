"""Claude on Amazon Bedrock, with Anthropic's SDK and the credentials that AWS's SDK finds."""

import json
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from typing_extensions import override

from tui_agent.models.anthropic.adapter import AnthropicModel, http_client, post
from tui_agent.models.anthropic.request import AnthropicOptions
from tui_agent.models.base import AuthFailed, InvalidRequest, ModelError
from tui_agent.models.errors import plain, unreadable

if TYPE_CHECKING:
    from anthropic import AsyncStream

    from tui_agent.models.anthropic.adapter import ClaudeClient

VERSION = "bedrock-2023-05-31"


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
        return msgspec.structs.replace(super()._options(), version=VERSION, betas_inside=True)

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
            return AuthFailed(f"{known.message} AWS's credentials and AWS_REGION have to allow it.")
        if known is None and type(error).__module__ == "botocore.eventstream":
            return unreadable(self._provider)
        if known is None and type(error).__module__.partition(".")[0] in ("botocore", "boto3"):
            return AuthFailed(
                f"There are no AWS credentials: set AWS_PROFILE, or run `aws configure`. ({plain(str(error))})"
            )
        if known is None and isinstance(error, RuntimeError) and "credentials" in str(error):
            return AuthFailed("There are no AWS credentials: set AWS_PROFILE, or run `aws configure`.")
        return known
