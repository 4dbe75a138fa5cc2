"""The second opinion on requests has one."""

import json
from typing import Any

import pytest

from tests.servers.recording import RecordedRequest
from tests.servers.sdk_types import unknown_to_the_sdk

ANTHROPIC: dict[str, Any] = {
    "model": "claude-opus-5-5",
    "max_tokens": 10,
    "stream": True,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
}
GEMINI: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}


@pytest.mark.parametrize(
    ("path", "body", "wrong"),
    [
        ("/v1/messages?beta=true", ANTHROPIC, {"message": []}),
        ("/v1/messages", ANTHROPIC, {"messages": [{"role": "user", "content": [{"type": "text", "txt": "hi"}]}]}),
        ("/v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse", GEMINI, {"content": []}),
        ("/v1beta/models/gemini-3.8-flash:generateContent", GEMINI, {"contents": [{"part": []}]}),
    ],
)
def test_what_a_package_does_not_know_is_named(path: str, body: dict[str, Any], wrong: dict[str, Any]) -> None:
    def found(sent: dict[str, Any]) -> list[str]:
        return unknown_to_the_sdk(RecordedRequest(0, "POST", path, {}, json.dumps(sent).encode(), sent, 0.0))

    assert found(body) == []
    assert len(found(body | wrong)) == 1
