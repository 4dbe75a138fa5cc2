"""On the wire a request only grows: each begins with the one before it, but right after a context step."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.summaries import Reader
from tests.agent.talking import say, talking
from tests.agent.test_long_sessions import STEPS_A_TURN, Material
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Fault, Script, Step
from tui_agent.agent import events
from tui_agent.conversation.entries import AnyEntry, ContextEntry, Message, ModelSwitched, Prefix

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
CALLS = 36
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


def grows_without_a_step(log: list[AnyEntry]) -> Iterator[bool]:
    """For each call but the first: whether nothing that changes what is shown lies between it and the one before."""
    free = True
    started = False
    for entry in log:
        if isinstance(entry, ContextEntry | ModelSwitched | Prefix):
            free = False
        if isinstance(entry, Message) and entry.usage is not None:
            if started:
                yield free
            started, free = True, True


@pytest.mark.parametrize(
    ("provider", "preset"),
    [
        ("anthropic", "layered"),
        ("gemini", "summary-only"),
        pytest.param("anthropic", "digest", marks=pytest.mark.soak),
        pytest.param("anthropic", "summary-only", marks=pytest.mark.soak),
        pytest.param("gemini", "layered", marks=pytest.mark.soak),
        pytest.param("gemini", "digest", marks=pytest.mark.soak),
    ],
)
async def test_each_request_begins_with_the_one_before_it(
    provider: str, preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    material = Material(tmp_path / "project", CALLS, seed=11)
    server_class = AnthropicServer if provider == "anthropic" else GeminiServer
    reader = Reader(material.step)
    with in_thread(server_class(reader, windows={MODELS[provider]: 60_000})) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        settings = {"model.id": MODELS[provider], "permissions.mode": "allow", "context.preset": preset}
        resumed: str | None = None
        steps = 0
        for part in range(CALLS // STEPS_A_TURN):
            # Closed and opened again before every turn: nothing but the disk carries over.
            async with talking(tmp_path, settings, resume=resumed) as session:
                told = await say(session, f"Please read part {part} of the files.")
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []
                steps += sum(isinstance(event, events.ContextStep) for event in told)
                log, resumed = list(session.agent.engine.view.log), session.id
        assert server.violations == []
        assert server.dropped_thinking == []
        requests = [pieces(request.body) for request in reader.own]
        growing = list(grows_without_a_step(log))
        assert len(growing) == len(requests) - 1
        assert steps
        assert growing.count(True) > CALLS // 2
        for number, (earlier, later, free) in enumerate(zip(requests, requests[1:], growing, strict=False)):
            if free:
                assert later[: len(earlier)] == earlier, f"request {number + 1} does not begin with request {number}"
                assert len(later) > len(earlier)


async def test_a_retry_sends_the_same_bytes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Fault(kind="rate_limited", times=2, retry_after=0.01)
    with in_thread(AnthropicServer(Script.of(Step(text="Done.", fault=fault)))) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with talking(tmp_path, {"model.id": "claude-opus-5-5"}) as session:
            told = await say(session, "Please go on.")
            assert isinstance(told[-1], events.TurnFinished)
        bodies = [request.body for request in server.model_requests]
        assert len(bodies) == 3
        assert len(set(bodies)) == 1
