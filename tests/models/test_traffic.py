"""Answers as they come over the wire from servers that keep to the letter of server-sent events, and from those that
do not: each is read, whoever sends it.

The shapes are those of recorded traffic: proxies that send comments to keep a connection open, servers that leave out
the blank after ``data:``, name what comes as ``event:`` and ``id:``, and cut characters in two. What the events are is
in `replies.txt`, with fields that came up after this program was written.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.models.talking import answered_by, closing, create_model, finish, provider_of, request, user
from tests.models.test_replies import KEPT
from tests.servers.wire import Exchange, Request
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall
from tui_agent.models.base import (
    AuthFailed,
    Completed,
    ConnectionLost,
    ModelError,
    Overloaded,
    RateLimited,
    Unavailable,
)

SAID = "Grüße, 世界 🌍: \u2028 and \x85 on."
ARGUMENTS = {"path": "naïve.txt", "n": 1}

Events = list[tuple[str, dict[str, Any]]]


def told_by(protocol: str) -> Events:
    """The events of an answer that says SAID and calls with ARGUMENTS, by their names."""
    case = f"# {protocol}: fields and events that came later, and nothing where something may be\n"
    lines = KEPT.read_text("utf-8").partition(case)[2].partition("\n# ")[0].split("\n")
    told = [json.loads(line[2:]) for line in lines if line.startswith("> ")]
    return [(each.get("type", ""), each) for each in told]


def plainly(events: Events) -> bytes:
    """As the standard has it, and as the providers send it."""
    return b"".join(_named(name) + b"data: %b\n\n" % _json(data) for name, data in events)


def with_carriage_returns(events: Events) -> bytes:
    return plainly(events).replace(b"\n", b"\r\n")


def with_empty_events(events: Events) -> bytes:
    """With events without data, which the standard has readers leave out."""
    return b"data:\n\n" + b"".join(_named(name) + b"data: %b\n\ndata:\n\n" % _json(data) for name, data in events)


def with_comments(events: Events) -> bytes:
    """Between the events, and in the middle of them."""
    lines = [_named(name) + b": keep-alive\ndata: %b\n\n: ping - 2026-11-22\n\n" % _json(data) for name, data in events]
    return b": OPENROUTER PROCESSING\n\n" + b"".join(lines)


def without_blanks(events: Events) -> bytes:
    return plainly(events).replace(b"data: ", b"data:").replace(b"event: ", b"event:")


def with_more_fields(events: Events) -> bytes:
    lines = [
        b"id: %d\nretry: 3000\n" % number + _named(name) + b"data: %b\n\n" % _json(data)
        for number, (name, data) in enumerate(events)
    ]
    return b"".join(lines)


def without_names(events: Events) -> bytes:
    """As gateways send Anthropic's events, with the end that OpenAI's streams have."""
    return plainly([("", data) for _, data in events]) + b"data: [DONE]\n\n"


def escaped(events: Events) -> bytes:
    """Nothing but ASCII: what lies beyond it as pairs of escapes."""
    return b"".join(_named(name) + b"data: %b\n\n" % json.dumps(data).encode() for name, data in events)


def _named(name: str) -> bytes:
    return f"event: {name}\n".encode() if name else b""


def _json(data: dict[str, Any]) -> bytes:
    return json.dumps(data, ensure_ascii=False).encode()


FORMS: list[tuple[Callable[[Events], bytes], str]] = [
    *((without_names, name) for name in ("claude-opus-5-5", "gemini-3.8-flash", "openrouter:m", "mine:gpt-6.1-sol")),
    (with_empty_events, "claude-opus-5-5"),
    (with_comments, "mine:gpt-6.1-sol"),
    (with_more_fields, "gemini-3.8-flash"),
    (without_blanks, "openrouter:m"),
    (escaped, "openrouter:m"),
]
PROTOCOLS = {
    "claude-opus-5-5": "anthropic",
    "gemini-3.8-flash": "gemini",
    "openrouter:m": "chat",
    "mine:gpt-6.1-sol": "responses",
    "ollama:m": "ollama",
}
Set = Callable[[str, str], None]


async def answered(name: str, pieces: Iterable[bytes], set_variable: Set, kind: str = "text/event-stream") -> Completed:
    """What is read of these pieces, each of which is sent on its own."""

    async def answer(asked: Request, exchange: Exchange) -> None:
        if asked.method == "GET" or asked.path == "/api/show":  # another server may have the chat alone
            await exchange.respond(404, {"error": "not found"})
        else:
            await exchange.start({"content-type": kind})
            for piece in pieces:
                await exchange.send(piece)
            await exchange.finish()

    async with answered_by(answer, name, set_variable) as model:
        _, completed = await finish(model.stream(request(user("go"))))
    return completed


def check(completed: Completed) -> None:
    """All of it was read, and nothing else."""
    assert [block for block in completed.blocks if isinstance(block, Text)] == [Text(SAID)]
    (call,) = [block for block in completed.blocks if isinstance(block, ToolCall)]
    assert (call.name, json.loads(call.arguments), call.malformed) == ("read_file", ARGUMENTS, "")
    assert not any(isinstance(block, Reasoning) for block in completed.blocks)
    assert (completed.usage.input_tokens, completed.usage.output_tokens) == (90, 7)
    assert completed.stop_reason == "tool_calls"


@pytest.mark.parametrize(("form", "name"), FORMS)
async def test_an_answer_is_read_in_whatever_form_it_comes(
    form: Callable[[Events], bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(await answered(name, [form(told_by(PROTOCOLS[name]))], monkeypatch.setenv))


@pytest.mark.parametrize("name", PROTOCOLS)
async def test_characters_and_lines_may_be_cut_anywhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    events, kind = told_by(PROTOCOLS[name]), "text/event-stream"
    told = with_carriage_returns(events)
    if name == "ollama:m":
        told, kind = b"".join(_json(data) + b"\n" for _, data in events), "application/x-ndjson"
    pieces = [told[start : start + 3] for start in range(0, len(told), 3)]
    check(await answered(name, pieces, monkeypatch.setenv, kind))


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "text/event-stream", ""])
async def test_what_an_answer_is_called_does_not_matter(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies call a stream JSON and JSON a stream, and write JSON over many lines."""
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": json.dumps(ARGUMENTS)}}
    ]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": SAID, "tool_calls": calls},
        "finish_reason": "stop",
    }
    used = {"prompt_tokens": 90, "completion_tokens": 7}
    whole = json.dumps({"object": "chat.completion", "choices": [choice], "usage": used}, indent=2).encode()
    for told in ([plainly(told_by("chat")), b"data: half a {\n\n"], [b"\n", b" \n" + whole[:100], whole[100:]]):
        check(await answered("openrouter:m", told, monkeypatch.setenv, kind))


@pytest.mark.parametrize("name", ["claude-opus-5-5", "mine:gpt-6.1-sol"])
async def test_a_server_that_does_not_stream_is_read_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Chat Completions and Gemini's chunks above, in the form that each API has without ``stream``."""
    blocks = [{"type": "text", "text": SAID}, {"type": "tool_use", "id": "t1", "name": "read_file", "input": ARGUMENTS}]
    message = {"type": "message", "content": blocks, "stop_reason": "tool_use"}
    items = [
        {"type": "message", "content": [{"type": "output_text", "text": SAID}]},
        {"type": "function_call", "call_id": "c1", "name": "read_file", "arguments": json.dumps(ARGUMENTS)},
    ]
    response = {"object": "response", "status": "completed", "output": items}
    whole = {**(message if name.startswith("claude") else response), "id": "1", "model": "m"}
    told = json.dumps({**whole, "usage": {"input_tokens": 90, "output_tokens": 7}}, indent=2).encode()
    check(await answered(name, [told[:50], told[50:]], monkeypatch.setenv, "application/json"))


async def test_the_last_line_of_a_stream_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason an answer ended is its end, with or without ``[DONE]`` after it, which others send twice."""
    for end in (b"", b"data: [DONE]\n\n", b"data:[DONE]\r\n\r\ndata: [DONE]\n\n", b"data: [DONE]"):
        told = plainly(told_by("chat")) + end
        check(await answered("openrouter:m", [told], monkeypatch.setenv))


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "33s"}
QUOTA = {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": [WAIT]}
BUSY = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
USED = {"input_tokens": 9, "output_tokens": 1}
ODD = {"type": "response.completed", "response": {"output": [{"type": "message", "content": "hi"}], "usage": USED}}
FAILURES: dict[str, tuple[bytes, type[ModelError]]] = {
    "gemini, an object over many lines": (json.dumps({"error": QUOTA}, indent=2).encode(), RateLimited),
    "gemini, a list over many lines": (json.dumps([{"error": QUOTA}], indent=2).encode(), RateLimited),
    "gemini, an event": (b"data: %b\n\n" % _json({"error": QUOTA}), RateLimited),
    "gemini, no JSON": (b"data: {half\n\n", ConnectionLost),
    "gemini, another kind of JSON": (b"data: 5\n\n", ConnectionLost),
    "gemini, a number for a name": (b'data: {"candidates":[{"finishReason":1}]}\n\n', ConnectionLost),
    "anthropic, an event": (b"event: error\ndata: %b\n\n" % _json(BUSY), Overloaded),
    "anthropic, an event without name": (b"data: %b\n\n" % _json(BUSY), Overloaded),
    "anthropic, an object": (json.dumps(BUSY).encode(), Overloaded),
    "anthropic, another server's": (b'event: error\ndata: {"error":{"message":"no","code":503}}\n\n', Unavailable),
    "anthropic, no JSON": (b"event: error\ndata: upstream gone\n\n", ConnectionLost),
    "mine, an item of another shape in the last event": (b"data: %b\n\n" % _json(ODD), ConnectionLost),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failure_in_the_middle_is_read_in_whatever_form_it_comes(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, meant = FAILURES[case]
    name = next(each for each in PROTOCOLS if each.startswith(case.partition(",")[0].replace("anthropic", "claude")))
    told = plainly(told_by(PROTOCOLS[name])[: 1 if name.startswith("mine") else 2]) + failure
    with pytest.raises(ModelError) as caught:
        await answered(name, [told], monkeypatch.setenv)
    assert type(caught.value) is meant
    assert caught.value.retryable
    assert caught.value.retry_after == (33.0 if meant is RateLimited else None)


async def test_gemini_s_chunks_may_come_as_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a proxy that drops the address's query."""
    told = json.dumps([data for _, data in told_by("gemini")], indent=2).encode()
    check(await answered("gemini-3.8-flash", [told], monkeypatch.setenv, "application/json"))


@pytest.mark.parametrize("name", ["claude-opus-5-5", "gemini-3.8-flash", "openrouter:m"])
async def test_a_key_follows_no_redirect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def answer(request: Request, exchange: Exchange) -> None:
        asked.append(request.path)
        await exchange.respond(307, {}, {"location": "/elsewhere"})

    async with answered_by(answer, name, monkeypatch.setenv) as model:
        with pytest.raises(ModelError, match=f"check {provider_of(name).addresses[0]}"):
            await finish(model.stream(request(user("go"))))
    assert len(asked) == 1


async def test_a_key_that_no_header_can_hold_is_a_wrong_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "schl\u00fcssel")
    async with closing(create_model("gemini-3.8-flash")) as model:
        with pytest.raises(AuthFailed, match="GEMINI_API_KEY"):
            await finish(model.stream(request(user("go"))))
