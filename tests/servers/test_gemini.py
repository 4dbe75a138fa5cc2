"""The Gemini server, spoken to by the real SDK: good traffic passes, every rule and every fault bites."""

from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from aiohttp import ClientError
from google import genai
from google.genai import errors, types

from tests.servers.coding_task import ANSWER, coding_task_script
from tests.servers.gemini import GeminiServer
from tests.servers.gemini_rules import SENTINEL, estimate_tokens
from tests.servers.pictures import PNG
from tests.servers.script import Call, Fault, FaultKind, Script, Step

NAMES = ("read_file", "grep", "list_dir", "edit_file", "run_command")
PATH = types.Schema(type=types.Type.OBJECT, properties={"path": types.Schema(type=types.Type.STRING)})
TOOLS = [types.Tool(function_declarations=[types.FunctionDeclaration(name=name, parameters=PATH) for name in NAMES])]
MODEL = "gemini-3.8-flash"


class Talk:
    """A server and the real client, with short cuts."""

    def __init__(self, server: GeminiServer) -> None:
        self.server = server
        options = types.HttpOptions(base_url=server.url, retry_options=types.HttpRetryOptions(attempts=1))
        self.client = genai.Client(api_key=server.api_key, http_options=options)

    async def ask(
        self, contents: list[Any], *, model: str = MODEL, **options: Any
    ) -> list[types.GenerateContentResponse]:
        """The chunks of one streamed answer."""
        config = types.GenerateContentConfig(tools=list(TOOLS), **options)
        stream = await self.client.aio.models.generate_content_stream(model=model, contents=contents, config=config)
        return [chunk async for chunk in stream]

    async def post(self, body: dict[str, Any], model: str = MODEL) -> httpx2.Response:
        """A raw request, for what the SDK would not let through."""
        url = f"{self.server.url}/v1beta/models/{model}:generateContent"
        async with httpx2.AsyncClient() as client:
            return await client.post(url, json=body, headers={"x-goog-api-key": self.server.api_key})


def parts_of(chunks: list[types.GenerateContentResponse]) -> list[types.Part]:
    """The parts that may be sent back: the API closes a stream with an empty text part that it does not take itself."""
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    parts = [part for c in candidates if c.content is not None for part in c.content.parts or []]
    return [part for part in parts if part.text != "" or part.thought_signature]


def answered(parts: list[types.Part]) -> types.Content:
    calls = [part.function_call for part in parts if part.function_call is not None]
    responses = [types.FunctionResponse(id=call.id, name=call.name, response={"output": "ok"}) for call in calls]
    return types.Content(role="user", parts=[types.Part(function_response=response) for response in responses])


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with GeminiServer(Script.of(Step(text="Hello there, friend.", reasoning="Greet."))) as server:
        yield Talk(server)


@pytest.mark.parametrize("model", ["gemini-3.8-flash", "gemini-3.1-pro-preview", "gemini-2.5-pro"])
async def test_coding_task_completes_with_no_rule_broken(model: str) -> None:
    async with GeminiServer(coding_task_script()) as server:
        talk = Talk(server)
        contents: list[Any] = [types.UserContent("fix the bug")]
        calls: list[list[str | None]] = []
        while True:
            chunks = await talk.ask(contents, model=model)
            parts = parts_of(chunks)
            calls.append([part.function_call.name for part in parts if part.function_call])
            if not calls[-1]:
                break
            contents += [types.Content(role="model", parts=parts), answered(parts)]
        assert calls == [["read_file"], ["grep", "list_dir"], ["edit_file"], ["run_command"], []]
        assert "".join(part.text or "" for part in parts) == ANSWER
        assert server.violations == []
        assert len(server.model_requests) == 5


async def test_answer_shape(talk: Talk) -> None:
    thinking = types.ThinkingConfig(include_thoughts=True)
    chunks = await talk.ask([types.UserContent("hi")], thinking_config=thinking)
    parts = parts_of(chunks)
    assert [part.text for part in parts if part.thought] == ["Greet."]
    assert "".join(part.text or "" for part in parts if not part.thought) == "Hello there, friend."
    assert parts[-1].thought_signature
    last = chunks[-1]
    assert last.candidates is not None
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.model_version == MODEL
    usage = last.usage_metadata
    assert usage is not None
    assert usage.thoughts_token_count == 2
    assert usage.total_token_count == (usage.prompt_token_count or 0) + (usage.candidates_token_count or 0) + 2
    assert talk.server.usage_total["promptTokenCount"] == usage.prompt_token_count
    again = [types.UserContent("hi"), types.Content(role="model", parts=parts), types.UserContent("more")]
    await talk.ask(again)
    assert talk.server.violations == []


async def test_unstreamed_answer(talk: Talk) -> None:
    answer = await talk.client.aio.models.generate_content(model=MODEL, contents="hi")
    assert answer.text == "Hello there, friend."


async def test_output_is_cut_at_max_output_tokens(talk: Talk) -> None:
    chunks = await talk.ask([types.UserContent("hi")], max_output_tokens=4)
    assert chunks[-1].candidates is not None
    assert chunks[-1].candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    assert parts_of(chunks)[0].text == "Hello "


async def test_models_and_count_tokens(talk: Talk) -> None:
    models = [model async for model in await talk.client.aio.models.list(config={"page_size": 2})]
    assert len(models) == 3
    model = await talk.client.aio.models.get(model="gemini-2.5-pro")
    assert (model.input_token_limit, model.output_token_limit) == (1_048_576, 65_536)
    counted = await talk.client.aio.models.count_tokens(model=MODEL, contents="a" * 300)
    body = {"contents": [{"parts": [{"text": "a" * 300}], "role": "user"}]}
    assert counted.total_tokens == estimate_tokens(body) > 100
    with pytest.raises(errors.ClientError, match="is not found for API version"):
        await talk.client.aio.models.get(model="gemini-9")


async def test_implicit_cache(talk: Talk) -> None:
    system = "rules " * 4000
    cold = await talk.ask([types.UserContent("hi")], system_instruction=system)
    warm = await talk.ask([types.UserContent("hello")], system_instruction=system)
    first, second = cold[-1].usage_metadata, warm[-1].usage_metadata
    assert first is not None
    assert second is not None
    assert first.cached_content_token_count is None
    assert 4096 < (second.cached_content_token_count or 0) < (second.prompt_token_count or 0)


async def test_key(talk: Talk) -> None:
    async with httpx2.AsyncClient() as client:
        assert (await client.get(f"{talk.server.url}/v1/models")).status_code == 403
        wrong = await client.get(f"{talk.server.url}/v1/models?key=wrong")
    assert wrong.status_code == 400
    assert wrong.json()["error"]["details"][0]["reason"] == "API_KEY_INVALID"


def user(*parts: object) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts)}


def model(*parts: object) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts)}


def text(value: str, **more: object) -> dict[str, Any]:
    return {"text": value, **more}


def call(name: str = "grep", *, signature: str | None = SENTINEL.decode(), **more: object) -> dict[str, Any]:
    part: dict[str, Any] = {"functionCall": {"name": name, "args": {}, **more}}
    return part if signature is None else {**part, "thoughtSignature": signature}


def response(name: str = "grep", **more: object) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "x"}, **more}}


def body(*contents: object, **more: object) -> dict[str, Any]:
    return {"contents": list(contents), **more}


def declare(**more: object) -> dict[str, Any]:
    return body(user(text("x")), tools=[{"functionDeclarations": [{"name": "f", **more}]}])


RULES: dict[str, tuple[dict[str, Any], str]] = {
    "no contents": ({"contents": []}, "contents is not specified"),
    "unknown field": (body(user(text("x")), prompt="x"), 'Unknown name "prompt": Cannot find field'),
    "unknown part field": (body(user(text("x", type="text"))), "Unknown name \"type\" at 'contents[0].parts[0]'"),
    "unknown setting": (body(user(text("x")), generationConfig={"maxTokens": 1}), 'Unknown name "maxTokens"'),
    "first role": (body(model(text("x")), user(text("y"))), "first turn has the role user"),
    "role": (body({"role": "system", "parts": [text("x")]}), "Please use a valid role: user, model."),
    "last role": (body(user(text("x")), model(text("y"))), "multiturn requests end with a user turn"),
    "no parts": (body(user()), "contents[0].parts: contents.parts must not be empty"),
    "empty text": (body(user(text(""))), "required oneof field 'data'"),
    "empty part": (body(user({})), "required oneof field 'data'"),
    "unanswered call": (
        body(user(text("x")), model(call()), user(text("y"))),
        "number of function response parts is equal",
    ),
    "one of two unanswered": (
        body(user(text("x")), model(call(), call("list_dir")), user(response())),
        "number of function response parts is equal",
    ),
    "response without a call": (
        body(user(text("x")), model(text("y")), user(response())),
        "after a function call turn",
    ),
    "name of the response": (
        body(user(text("x")), model(call()), user(response("list_dir"))),
        "names of the function response parts match",
    ),
    "id of the response": (
        body(user(text("x")), model(call(id="a")), user(response(id="b"))),
        "Function response id b does not match",
    ),
    "call after a model turn": (
        body(user(text("x")), model(text("y")), model(call()), user(response())),
        "comes immediately after a user turn",
    ),
    "no signature": (
        body(user(text("x")), model(call(signature=None)), user(response())),
        "missing a thought_signature",
    ),
    "forged signature": (
        body(user(text("x")), model(call(signature="AAAA")), user(response())),
        "Corrupted thought signature",
    ),
    "signature not base64": (
        body(user(text("x")), model(call(signature="?")), user(response())),
        "Base64 decoding failed",
    ),
    "function name": (declare(name="1 f"), "Invalid function name"),
    "schema field": (declare(parameters={"type": "OBJECT", "$schema": "x"}), 'Unknown name "$schema"'),
    "schema type": (declare(parameters={"type": "dict"}), "type.googleapis.com/Type"),
    "required property": (declare(parameters={"type": "OBJECT", "required": ["a"]}), "property is not defined: a"),
    "output limit": (body(user(text("x")), generationConfig={"maxOutputTokens": 65_537}), "in the range"),
    "both thinking settings": (
        body(user(text("x")), generationConfig={"thinkingConfig": {"thinkingBudget": 1, "thinkingLevel": "LOW"}}),
        "only set only one",
    ),
    "image type": (body(user({"inlineData": {"mimeType": "image/bmp", "data": "AAAA"}})), "Unsupported MIME type"),
}


@pytest.mark.parametrize("rule", RULES)
async def test_rule(talk: Talk, rule: str) -> None:
    request, message = RULES[rule]
    answer = await talk.post(request)
    error = answer.json()["error"]
    assert (answer.status_code, error["status"]) == (400, "INVALID_ARGUMENT")
    assert message in error["message"]
    assert talk.server.violations == [f"request 0: 400 {error['message']}"]


async def test_what_the_rules_allow(talk: Talk) -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": PNG}}
    encoded = base64.b64encode(SENTINEL).decode()
    request = body(
        user(text("x"), image),
        model(text("y"), call(signature=encoded), call("list_dir", signature=None)),
        user(response("list_dir"), response()),
        user(text("one thing more")),
    )
    assert (await talk.post(request)).status_code == 200
    assert (
        await talk.post(body(user(text("x")), model(call(signature=None)), user(response())), "gemini-2.5-pro")
    ).is_success
    assert talk.server.violations == []


async def test_a_signature_belongs_to_its_call() -> None:
    async with GeminiServer(coding_task_script()) as server:
        talk = Talk(server)
        parts = parts_of(await talk.ask([types.UserContent("go")]))
        changed = [part.model_copy(deep=True) for part in parts]
        found = next(part.function_call for part in changed if part.function_call)
        assert found is not None
        found.args = {"path": "other.py"}
        with pytest.raises(errors.ClientError, match="Corrupted thought signature"):
            await talk.ask([types.UserContent("go"), types.Content(role="model", parts=changed), answered(changed)])


async def test_window() -> None:
    async with GeminiServer(Script.of(Step(text="x")), windows={MODEL: 500}) as server:
        talk = Talk(server)
        assert (await talk.client.aio.models.get(model=MODEL)).input_token_limit == 500
        with pytest.raises(errors.ClientError, match=r"The input token count \(\d+\) exceeds .* allowed \(500\)\."):
            await talk.ask([types.UserContent("a" * 3000)])


ERRORS: dict[FaultKind, tuple[int, str]] = {
    "rate_limited": (429, "RESOURCE_EXHAUSTED"),
    "overloaded": (503, "UNAVAILABLE"),
    "unavailable": (503, "UNAVAILABLE"),
    "server_error": (500, "INTERNAL"),
    "unauthorized": (401, "UNAUTHENTICATED"),
    "forbidden": (403, "PERMISSION_DENIED"),
    "bad_request": (400, "INVALID_ARGUMENT"),
    "context_overflow": (400, "INVALID_ARGUMENT"),
}


@pytest.mark.parametrize("kind", ERRORS)
async def test_status_fault_then_success(kind: FaultKind) -> None:
    async with GeminiServer(Script.of(Step(text="fine", fault=Fault(kind=kind, retry_after=7)))) as server:
        talk = Talk(server)
        with pytest.raises(errors.APIError) as caught:
            await talk.ask([types.UserContent("hi")])
        assert (caught.value.code, caught.value.status) == ERRORS[kind]
        assert ("retryDelay': '7s'" in str(caught.value)) == (kind == "rate_limited")
        assert ("input token count" in str(caught.value)) == (kind == "context_overflow")
        assert parts_of(await talk.ask([types.UserContent("hi")]))[0].text == "fine"
        assert server.violations == []


@pytest.mark.parametrize("kind", ["disconnect", "reset"])
async def test_broken_connection(talk: Talk, kind: FaultKind) -> None:
    # The SDK itself repeats a request whose connection failed, so the fault strikes more than once.
    talk.server.inject(Fault(kind=kind, times=4, after=1))
    # The SDK goes through aiohttp where that is installed.
    with pytest.raises((httpx2.TransportError, errors.APIError, OSError, ClientError)):
        await talk.ask([types.UserContent("hi")])
    assert {answer.detail for answer in talk.server.answers} == {kind}


@pytest.mark.parametrize("after", [0, 1, 1000])
async def test_truncated_stream_has_no_finish_reason(talk: Talk, after: int) -> None:
    talk.server.inject(Fault(kind="truncate", after=after))
    chunks = await talk.ask([types.UserContent("hi")])
    assert len(chunks) == min(after, 2)
    assert not any(candidate.finish_reason for chunk in chunks for candidate in chunk.candidates or [])


async def test_empty_stream(talk: Talk) -> None:
    talk.server.inject(Fault(kind="empty_stream"))
    assert await talk.ask([types.UserContent("hi")]) == []


async def test_bare_json_ends_a_stream_that_fails(talk: Talk) -> None:
    talk.server.inject(Fault(kind="stream_error", after=1))
    with pytest.raises(errors.APIError) as caught:
        await talk.ask([types.UserContent("hi")])
    assert caught.value.code == 503


async def test_stall_then_the_stream_goes_on(talk: Talk) -> None:
    talk.server.inject(Fault(kind="stall", seconds=0.3, after=1))
    started = time.monotonic()
    assert "".join(part.text or "" for part in parts_of(await talk.ask([types.UserContent("hi")]))) != ""
    assert time.monotonic() - started >= 0.3


FINISHES = {
    "max_tokens": ("MAX_TOKENS", "So far"),
    "refusal": ("SAFETY", ""),
    "MALFORMED_FUNCTION_CALL": ("MALFORMED_FUNCTION_CALL", ""),
}


@pytest.mark.parametrize("reason", FINISHES)
async def test_finish_reasons(reason: str) -> None:
    async with GeminiServer(Script.of(Step(text="So far", stop_reason=reason))) as server:
        chunks = await Talk(server).ask([types.UserContent("hi")])
        assert chunks[-1].candidates is not None
        finish = chunks[-1].candidates[0].finish_reason
        assert (finish, "".join(part.text or "" for part in parts_of(chunks))) == FINISHES[reason]


async def test_malformed_call_fault_and_blocked_prompt() -> None:
    step = Step(calls=(Call("grep"),), fault=Fault(kind="malformed_args"))
    async with GeminiServer(Script.of(step)) as server:
        talk = Talk(server)
        chunks = await talk.ask([types.UserContent("hi")])
        assert chunks[-1].candidates is not None
        assert chunks[-1].candidates[0].finish_reason == types.FinishReason.MALFORMED_FUNCTION_CALL
        assert parts_of(await talk.ask([types.UserContent("hi")]))[0].function_call is not None
    async with GeminiServer(Script.of(Step(text="x", stop_reason="blocked"))) as server:
        (chunk,) = await Talk(server).ask([types.UserContent("hi")])
        assert chunk.prompt_feedback is not None
        assert chunk.prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT
