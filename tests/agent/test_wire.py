"""What is sent of a conversation, piece by piece."""

import json
from pathlib import Path
from typing import Any

from tests.agent.serving import OPUS, Serve
from tests.agent.talking import goes_on, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Fault, Script, Step

STEERING = {
    "max_tokens",
    "messages",
    "contents",
    "stream",
    "system",
    "tools",
    "systemInstruction",
    "generationConfig",
    "diagnostics",
}


def pieces(body: dict[str, Any]) -> list[bytes]:
    """A request in the order in which a provider reads it, cache markers aside: one piece for each block."""
    found = [body.get("tools"), body.get("system") or body.get("systemInstruction")]
    found.append({name: value for name, value in body.items() if name not in STEERING})
    for message in body.get("messages") or body.get("contents") or ():
        content = message.get("content") or message.get("parts")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [[message["role"], block] for block in blocks]
    return [json.dumps(unmarked(piece)).encode() for piece in found]


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unmarked(each) for name, each in value.items() if name != "cache_control"}
    return [unmarked(each) for each in value] if isinstance(value, list) else value


async def test_a_retry_sends_the_same_bytes_again(tmp_path: Path, serve: Serve) -> None:
    fault = Fault(kind="rate_limited", times=2, retry_after=0.01)
    server = serve(AnthropicServer(Script.of(Step(text="Done.", fault=fault))))
    async with talking(tmp_path, OPUS) as session:
        await goes_on(session, "Please go on.")
    bodies = [request.body for request in server.model_requests]
    assert len(bodies) == 3
    assert len(set(bodies)) == 1
