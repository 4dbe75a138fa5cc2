"""Every fault of the Anthropic server, as the real SDK shows it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx2
import pytest

from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic_client import Talk, body, user
from tests.servers.script import Call, Fault, FaultKind, Script, Step


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with AnthropicServer(Script.of(Step(text="Hello there.", reasoning="Greet."))) as server:
        yield Talk(server)


ERRORS: dict[FaultKind, tuple[type[Exception], int]] = {
    "rate_limited": (anthropic.RateLimitError, 429),
    "overloaded": (anthropic.APIStatusError, 529),
    "unavailable": (anthropic.APIStatusError, 503),
    "server_error": (anthropic.InternalServerError, 500),
    "unauthorized": (anthropic.AuthenticationError, 401),
    "forbidden": (anthropic.PermissionDeniedError, 403),
    "bad_request": (anthropic.BadRequestError, 400),
    "context_overflow": (anthropic.BadRequestError, 400),
}


@pytest.mark.parametrize("kind", ERRORS)
async def test_status_fault_then_success(kind: FaultKind) -> None:
    fault = Fault(kind=kind, times=2, retry_after=7, message="" if kind == "context_overflow" else "by script")
    async with AnthropicServer(Script.of(Step(text="fine", fault=fault))) as server:
        talk = Talk(server)
        for _ in range(2):
            with pytest.raises(ERRORS[kind][0]) as caught:
                await talk.ask([user("hi")])
            assert isinstance(caught.value, anthropic.APIStatusError)
            assert caught.value.status_code == ERRORS[kind][1]
            assert ("prompt is too long" if kind == "context_overflow" else "by script") in str(caught.value)
            assert caught.value.response.headers.get("retry-after") == ("7" if kind == "rate_limited" else None)
        assert (await talk.ask([user("hi")])).stop_reason == "end_turn"
        assert server.violations == []
        assert [answer.outcome for answer in server.answers] == ["fault", "fault", "completed"]


async def events_of(talk: Talk) -> list[str]:
    request: Any = body(stream=True)
    return [event.type async for event in await talk.client.messages.create(**request)]


async def test_disconnect_and_reset() -> None:
    script = Script.of(Step(text="a long answer " * 20, fault=Fault(kind="disconnect")))
    async with AnthropicServer(script) as server:
        talk = Talk(server)
        with pytest.raises(anthropic.APIConnectionError):
            await events_of(talk)
        server.inject(Fault(kind="reset", after=5))
        with pytest.raises((anthropic.APIConnectionError, httpx2.TransportError)):
            await events_of(talk)
        assert (await events_of(talk))[-1] == "message_stop"


@pytest.mark.parametrize("after", [4, 1000])
async def test_truncated_stream_ends_quietly(talk: Talk, after: int) -> None:
    talk.server.inject(Fault(kind="truncate", after=after))
    events = await events_of(talk)
    assert events[0] == "message_start"
    assert "message_stop" not in events
    assert ("message_delta" in events) == (after == 1000)


async def test_empty_stream(talk: Talk) -> None:
    talk.server.inject(Fault(kind="empty_stream"))
    assert await events_of(talk) == []


async def test_error_event(talk: Talk) -> None:
    talk.server.inject(Fault(kind="stream_error"))
    with pytest.raises(anthropic.APIStatusError, match="overloaded_error"):
        await events_of(talk)


async def test_stall_then_the_stream_goes_on(talk: Talk) -> None:
    talk.server.inject(Fault(kind="stall", seconds=0.3))
    started = time.monotonic()
    assert (await events_of(talk))[-1] == "message_stop"
    assert time.monotonic() - started >= 0.3


async def test_stall_notices_that_the_client_left(talk: Talk) -> None:
    talk.server.inject(Fault(kind="stall", seconds=60, after=1))
    request: Any = body(stream=True)
    stream = await talk.client.messages.create(**request)
    async for _ in stream:
        break
    await stream.close()
    await events_of(talk)
    assert [answer.outcome for answer in talk.server.answers] == ["client_gone", "completed"]


async def test_cut_tool_arguments() -> None:
    step = Step(calls=(Call("read_file", {"path": "calc.py"}),), fault=Fault(kind="malformed_args"))
    async with AnthropicServer(Script.of(step)) as server:
        request: Any = body(stream=True)
        pieces = [
            event.delta.partial_json
            async for event in await Talk(server).client.messages.create(**request)
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta"
        ]
        assert "".join(pieces) == '{"path":"'


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "model_context_window_exceeded"])
async def test_stop_reasons(reason: str) -> None:
    async with AnthropicServer(Script.of(Step(text="So far", stop_reason=reason))) as server:
        message = await Talk(server).ask([user("hi")])
        assert message.stop_reason == reason
        assert (message.stop_details is not None) == (reason == "refusal")
