"""The real Anthropic SDK as the tests of the server use it, and short names for the blocks of a request."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from anthropic.types.beta import BetaMessage

from tests.servers.anthropic import AnthropicServer

TOOL = {"name": "read_file", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
TOOLS = [{**TOOL, "name": name} for name in ("read_file", "grep", "list_dir", "edit_file", "run_command")]
DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(value: str, **more: object) -> dict[str, Any]:
    return {"type": "text", "text": value, **more}


def use(identifier: str = "toolu_1", **more: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": identifier, "name": "read_file", "input": {}, **more}


def result(identifier: str = "toolu_1", **more: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": identifier, "content": "ok", **more}


MARK = {"cache_control": {"type": "ephemeral"}}


class Talk:
    """A server and the real client, with short cuts."""

    def __init__(self, server: AnthropicServer) -> None:
        self.server = server
        self.client = anthropic.AsyncAnthropic(base_url=server.url, api_key=server.api_key, max_retries=0)

    async def ask(self, messages: list[Any], *, betas: tuple[str, ...] = (), **options: Any) -> BetaMessage:
        options = {"model": "claude-opus-5-5", "max_tokens": 1000, "tools": TOOLS, **options}
        async with self.client.beta.messages.stream(messages=messages, betas=list(betas), **options) as stream:
            return await stream.get_final_message()

    async def refusal(self, body: dict[str, Any], **headers: str) -> tuple[int, str]:
        """Send a raw body through the SDK's transport; the refusal's status and message."""
        options: Any = {"headers": headers} if headers else {}
        with pytest.raises(anthropic.APIStatusError) as caught:
            await self.client.post("/v1/messages", cast_to=object, body=body, options=options)
        assert isinstance(caught.value.body, dict)
        return caught.value.status_code, caught.value.body["error"]["message"]


def body(messages: list[Any] | None = None, **more: object) -> dict[str, Any]:
    return {"model": "claude-opus-5-5", "max_tokens": 100, "messages": messages or [user("hi")], "tools": TOOLS, **more}
