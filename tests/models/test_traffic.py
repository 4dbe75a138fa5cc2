"""Answers as they come over the wire from servers that keep to the letter of server-sent events, and from those that
do not: each is read, whoever sends it.

The shapes are those of recorded traffic: proxies that end lines with CR LF and send comments to keep a connection
open, servers that leave out the blank after ``data:``, name what comes as ``event:`` and ``id:``, cut characters in
two, and send fields and events that came up after this program was written.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.models.talking import closing, create_model, finish, name_endpoint, request, user
from tests.servers.wire import Exchange, HttpServer, Request
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


def anthropic() -> Events:
    """Messages."""
    block = {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}
    cut = json.dumps(ARGUMENTS, ensure_ascii=False)
    deltas: list[tuple[int, dict[str, Any]]] = [
        (0, {"type": "text_delta", "text": SAID[:7]}),
        (0, {"type": "text_delta", "text": SAID[7:]}),
        (0, {"type": "citations_delta", "citation": {"new": True}}),
    ]
    usage = {"input_tokens": 90, "output_tokens": 1, "cache_read_input_tokens": None, "service_tier": "new"}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "usage": usage}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "container": None}},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "", "citations": None}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for index, delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "brand_new_block", "data": None}},
        {"type": "content_block_stop", "index": 1},
        {"type": "content_block_start", "index": 2, "content_block": block},
        *(
            {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": piece}}
            for piece in (cut[:9], "", cut[9:])
        ),
        {"type": "content_block_stop", "index": 2},
        {"type": "brand_new_event", "payload": [1, 2]},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use", "stop_sequence": None},
            "usage": {"output_tokens": 7},
        },
        {"type": "message_stop"},
    ]
    return [(each["type"], each) for each in told]


def gemini() -> Events:
    """Chunks of ``streamGenerateContent``."""
    used = {"promptTokenCount": 90, "candidatesTokenCount": 7, "totalTokenCount": 97, "brandNewDetails": [{"x": 1}]}
    call = {"functionCall": {"name": "read_file", "args": ARGUMENTS}, "brandNewField": None}
    contents: list[dict[str, Any]] = [
        {"parts": [{"text": SAID[:7]}], "role": "model"},
        {"parts": [{"text": SAID[7:], "brandNewField": {"a": 1}}], "role": "model"},
        {"parts": [call], "role": "model"},
    ]
    told: list[dict[str, Any]] = [
        {"candidates": [{"content": content, "index": 0, "avgLogprobs": None}], "modelVersion": "m", "brandNew": True}
        for content in contents
    ]
    told.insert(1, {"usageMetadata": {"promptTokenCount": 90}, "responseId": "r"})
    told.append({"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}], "usageMetadata": used})
    return [("", each) for each in told]


def chat() -> Events:
    """Chat Completions: the name and the id of a call come after its first piece, and come again."""
    cut = json.dumps(ARGUMENTS, ensure_ascii=False)
    deltas: list[dict[str, Any] | None] = [
        {"role": "assistant", "content": None, "refusal": None, "tool_calls": None, "reasoning_content": None},
        {"content": SAID[:7], "brand_new": {"a": 1}},
        {"content": SAID[7:], "annotations": []},
        {},
        None,
        {"content": None, "tool_calls": [{"index": 0, "type": "function", "function": {"arguments": cut[:9]}}]},
        {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "read_file", "arguments": None}}]},
        {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "read_file", "arguments": cut[9:]}}]},
        {"tool_calls": [{"index": 0, "id": None, "function": None}]},
        {"tool_calls": []},
    ]
    told: list[dict[str, Any]] = [
        {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "prompt_filter": []},
        *(
            {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}]}
            for delta in deltas
        ),
        {"id": "c", "choices": None, "usage": None},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "tool_calls"}], "usage": None},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 90, "completion_tokens": 7, "cost": 0.1}, "brand_new": 1},
    ]
    return [("", each) for each in told]


def responses() -> Events:
    """Responses."""
    cut = json.dumps(ARGUMENTS, ensure_ascii=False)
    text: dict[str, Any] = {"type": "output_text", "text": SAID, "annotations": [], "logprobs": None}
    message = {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    call = {"id": "f1", "type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": ""}
    used = {"input_tokens": 90, "output_tokens": 7, "input_tokens_details": None, "total_tokens": 97}
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "model": "m", "usage": None}},
        {"type": "response.in_progress", "response": {"id": "r", "error": None, "incomplete_details": None}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        {"type": "response.content_part.added", "output_index": 0, "content_index": 0, "part": {"type": "output_text"}},
        {"type": "response.output_text.delta", "output_index": 0, "delta": SAID[:7], "logprobs": []},
        {"type": "response.output_text.delta", "output_index": 0, "delta": SAID[7:], "obfuscation": "x"},
        {"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {}},
        {"type": "response.output_item.done", "output_index": 0, "item": message},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": cut[:9]},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": cut[9:]},
        {"type": "response.output_item.done", "output_index": 1, "item": {**call, "arguments": cut}},
        {"type": "response.brand_new.delta", "output_index": 2, "delta": {"not": "a text"}, "item": None},
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "brand_new_item", "content": None}},
        {"type": "response.output_item.done", "output_index": 2, "item": {"type": "brand_new_item", "action": {}}},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "usage": used, "output": []}},
    ]
    return [(each["type"], each) for each in told]


def ollama() -> Events:
    """Lines of ``/api/chat``."""
    call = {"function": {"name": "read_file", "arguments": ARGUMENTS, "index": 0}, "brand_new": None}
    told: list[dict[str, Any]] = [
        {"model": "m", "created_at": "now", "message": {"role": "assistant", "content": SAID[:7], "images": None}},
        {"model": "m", "message": {"role": "assistant", "content": SAID[7:], "thinking": None, "tool_calls": None}},
        {"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False},
        {"model": "m", "brand_new": {"a": 1}},
        {
            "model": "m",
            "message": {"content": ""},
            "done": True,
            "done_reason": "stop",
            "prompt_eval_count": 90,
            "eval_count": 7,
        },
    ]
    return [("", each) for each in told]


def plainly(events: Events) -> bytes:
    """As the standard has it, and as the providers send it."""
    return b"".join(_named(name) + b"data: %b\n\n" % _json(data) for name, data in events)


def with_carriage_returns(events: Events) -> bytes:
    return plainly(events).replace(b"\n", b"\r\n")


def with_carriage_returns_alone(events: Events) -> bytes:
    return without_blanks(events).replace(b"\n", b"\r")


def with_a_mark(events: Events) -> bytes:
    """With a byte order mark in front, which the standard has readers leave out."""
    return b"\xef\xbb\xbf" + plainly(events)


def with_a_mark_and_carriage_returns(events: Events) -> bytes:
    return b"\xef\xbb\xbf" + with_carriage_returns_alone(events)


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


FORMS: dict[str, Callable[[Events], bytes]] = {
    form.__name__: form
    for form in (
        plainly,
        with_carriage_returns,
        with_carriage_returns_alone,
        with_a_mark,
        with_a_mark_and_carriage_returns,
        with_empty_events,
        with_comments,
        without_blanks,
        with_more_fields,
        without_names,
        escaped,
    )
}
PROTOCOLS: dict[str, tuple[Callable[[], Events], str, str]] = {
    "claude-opus-5-5": (anthropic, "ANTHROPIC_BASE_URL", ""),
    "gemini-3.8-flash": (gemini, "GOOGLE_GEMINI_BASE_URL", ""),
    "openrouter:m": (chat, "OPENROUTER_BASE_URL", "/v1"),
    "mine:gpt-6.1-sol": (responses, "OPENAI_BASE_URL", "/v1"),
}


async def answered(
    name: str, variable: str, root: str, pieces: Iterable[bytes], set_variable: Callable[[str, str], None], kind: str
) -> Completed:
    """What is read of these pieces, each of which is sent on its own."""

    async def answer(asked: Request, exchange: Exchange) -> None:
        if asked.method == "GET":
            await exchange.respond(404, {"error": "not found"})
            return
        if asked.path == "/api/show":
            await exchange.respond(200, {"model_info": None, "capabilities": None, "brand_new": 1})
            return
        await exchange.start({"content-type": kind})
        for piece in pieces:
            await exchange.send(piece)
        await exchange.finish()

    server = HttpServer(answer)
    address = f"http://127.0.0.1:{await server.listen()}{root}"
    set_variable(variable, address)
    name_endpoint("mine", address)
    for key in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY", "OPENAI_API_KEY"):
        set_variable(key, "test-key")
    try:
        async with closing(create_model(name)) as model:
            _, completed = await finish(model.stream(request(user("go"))))
    finally:
        await server.close()
    return completed


def check(completed: Completed) -> None:
    """All of it was read, and nothing else."""
    assert [block for block in completed.blocks if isinstance(block, Text)] == [Text(SAID)]
    (call,) = [block for block in completed.blocks if isinstance(block, ToolCall)]
    assert (call.name, json.loads(call.arguments), call.malformed) == ("read_file", ARGUMENTS, "")
    assert not any(isinstance(block, Reasoning) for block in completed.blocks)
    assert (completed.usage.input_tokens, completed.usage.output_tokens) == (90, 7)
    assert completed.stop_reason == "tool_calls"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PROTOCOLS)
async def test_an_answer_is_read_in_whatever_form_it_comes(
    name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, variable, root = PROTOCOLS[name]
    told = FORMS[form](events())
    check(await answered(name, variable, root, [told], monkeypatch.setenv, "text/event-stream"))


@pytest.mark.parametrize("name", [*PROTOCOLS, "ollama:m"])
async def test_characters_and_lines_may_be_cut_anywhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "ollama:m":
        told, kind = b"".join(_json(data) + b"\n" for _, data in ollama()), "application/x-ndjson"
        variable, root = "OLLAMA_HOST", ""
    else:
        events, variable, root = PROTOCOLS[name]
        told, kind = with_carriage_returns(events()), "text/event-stream"
    pieces = [told[start : start + 3] for start in range(0, len(told), 3)]
    check(await answered(name, variable, root, pieces, monkeypatch.setenv, kind))


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
    for told in ([plainly(chat()), b"data: half a {\n\n"], [b"\n", b" \n" + whole[:100], whole[100:]]):
        check(await answered("openrouter:m", "OPENROUTER_BASE_URL", "/v1", told, monkeypatch.setenv, kind))


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
    _, variable, root = PROTOCOLS[name]
    check(await answered(name, variable, root, [told[:50], told[50:]], monkeypatch.setenv, "application/json"))


async def test_the_last_line_of_a_stream_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason an answer ended is its end, with or without ``[DONE]`` after it, which others send twice."""
    for end in (b"", b"data: [DONE]\n\n", b"data:[DONE]\r\n\r\ndata: [DONE]\n\n", b"data: [DONE]"):
        told = plainly(chat()) + end
        check(
            await answered(
                "openrouter:m", "OPENROUTER_BASE_URL", "/v1", [told], monkeypatch.setenv, "text/event-stream"
            )
        )


WAIT = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "33s"}
QUOTA = {"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED", "details": [WAIT]}
BUSY = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
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
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failure_in_the_middle_is_read_in_whatever_form_it_comes(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure, meant = FAILURES[case]
    name = next(each for each in PROTOCOLS if each.startswith("gemini" if case.startswith("gemini") else "claude"))
    events, variable, root = PROTOCOLS[name]
    told = plainly(events()[:2]) + failure
    with pytest.raises(ModelError) as caught:
        await answered(name, variable, root, [told], monkeypatch.setenv, "text/event-stream")
    assert type(caught.value) is meant
    assert caught.value.retryable
    assert caught.value.retry_after == (33.0 if meant is RateLimited else None)


async def test_gemini_s_chunks_may_come_as_one_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a proxy that drops the address's query."""
    told = json.dumps([data for _, data in gemini()], indent=2).encode()
    check(
        await answered("gemini-3.8-flash", "GOOGLE_GEMINI_BASE_URL", "", [told], monkeypatch.setenv, "application/json")
    )


async def test_a_key_that_no_header_can_hold_is_a_wrong_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "schl\u00fcssel")
    async with closing(create_model("gemini-3.8-flash")) as model:
        with pytest.raises(AuthFailed, match="GEMINI_API_KEY"):
            await finish(model.stream(request(user("go"))))


@pytest.mark.parametrize("name", ["claude-opus-5-5", "gemini-3.8-flash", "openrouter:m"])
async def test_a_key_follows_no_redirect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, variable, root = PROTOCOLS[name]
    asked: list[str] = []

    async def answer(request: Request, exchange: Exchange) -> None:
        asked.append(request.path)
        await exchange.respond(307, {}, {"location": "/elsewhere"})

    server = HttpServer(answer)
    monkeypatch.setenv(variable, f"http://127.0.0.1:{await server.listen()}{root}")
    for key in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(key, "test-key")
    try:
        async with closing(create_model(name)) as model:
            with pytest.raises(ModelError, match=f"check {variable}"):
                await finish(model.stream(request(user("go"))))
    finally:
        await server.close()
    assert len(asked) == 1
