"""Gemini alone: signatures, ids, answers in step with calls, and the reasons an answer ends."""

import json
import warnings
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.genai import types

from tests.models.talking import PNG, TOOLS, Talk, assistant, create_model, finish, request, user
from tests.servers.gemini import GeminiServer
from tests.servers.script import Call, Fault, Script, Step
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.models.base import Completed, ModelRetrying, Unavailable
from tui_agent.models.gemini.reply import GeminiReply
from tui_agent.models.gemini.request import SENTINEL, GeminiEncoder
from tui_agent.models.retry import stream_with_retries

FLASH = "gemini-3.8-flash"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GeminiServer]:
    async with GeminiServer(Script()) as running:
        for variable, value in running.environment.items():
            monkeypatch.setenv(variable, value)
        yield running


def encoded(*messages: Any, model: str = FLASH, **fields: object) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(GeminiEncoder(model).encode(request(*messages, **fields)))
    return body


async def test_text_signatures_come_back_as_they_came(server: GeminiServer) -> None:
    server.script = Script.of(Step(text="Hello there, you.", reasoning="Greet."))
    model = create_model(FLASH)
    talk = Talk(model)
    await talk.say("hi")
    await talk.say("hi again")
    sent = server.model_requests[-1].json
    assert sent is not None
    parts = sent["contents"][1]["parts"]
    assert [part["text"] for part in parts] == ["Hello there, you.", ""]
    assert "thoughtSignature" in parts[1]
    assert b"Greet." not in server.model_requests[-1].body
    assert server.violations == []
    await model.close()


async def test_the_request_needs_no_header_of_ours_and_the_pinned_version(server: GeminiServer) -> None:
    model = create_model(FLASH)
    await finish(model.stream(request(user("hi"))))
    sent = server.model_requests[-1]
    assert sent.path == f"/v1beta/models/{FLASH}:streamGenerateContent"
    assert not any("prepared" in name for name in sent.headers)
    assert int(sent.headers["content-length"]) == len(sent.body)
    await model.close()


async def test_a_malformed_call_is_asked_for_again(server: GeminiServer) -> None:
    server.script = Script.of(Step(calls=(Call("grep"),), fault=Fault(kind="malformed_args")))

    async def no_wait(seconds: float) -> None:
        waited.append(seconds)

    waited: list[float] = []
    model = create_model(FLASH)
    events, completed = await finish(stream_with_retries(model, request(user("hi")), sleep=no_wait))
    assert [type(event.error) for event in events if isinstance(event, ModelRetrying)] == [Unavailable]
    assert completed.stop_reason == "tool_calls"
    assert len(waited) == 1
    await model.close()


@pytest.mark.parametrize(
    ("told", "meant"),
    [
        ("RECITATION", "refusal"),
        ("PROHIBITED_CONTENT", "refusal"),
        ("blocked", "refusal"),
        ("MAX_TOKENS", "max_tokens"),
    ],
)
async def test_finish_reasons(told: str, meant: str, server: GeminiServer) -> None:
    server.script = Script.of(Step(text="so far", stop_reason=told))
    model = create_model(FLASH)
    _, completed = await finish(model.stream(request(user("hi"))))
    assert completed.stop_reason == meant
    assert completed.usage.input_tokens > 0
    await model.close()


async def test_a_reason_to_stop_that_is_new_reaches_no_screen(
    server: GeminiServer, capfd: pytest.CaptureFixture[str]
) -> None:
    server.script = Script.of(Step(text="so far", stop_reason="BRAND_NEW"))
    model = create_model(FLASH)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        _, completed = await finish(model.stream(request(user("hi"))))
    await model.close()
    assert completed.stop_reason == "end_turn"
    assert [str(each.message) for each in told] == []
    assert capfd.readouterr() == ("", "")


CALLS = (ToolCall("a", "grep", '{"x": 1.0}'), ToolCall("b", "read_file", "{}"))


def test_only_the_first_call_of_another_model_gets_the_sentinel() -> None:
    parts = encoded(user("go"), assistant("I look.", *CALLS), user("x"))["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == [None, SENTINEL, None]
    old = encoded(user("go"), assistant(*CALLS), user("x"), model="gemini-2.5-pro")["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in old] == [None, None]


def test_a_signature_goes_back_to_its_own_model_alone() -> None:
    call = ToolCall("a", "grep", "{}", '{"model":"gemini-3.8-flash","signature":"c2ln","id":"f1"}')
    messages = (user("go"), assistant(call), user(ToolResult("a", "r")))
    own, other = encoded(*messages), encoded(*messages, model="gemini-3.1-pro-preview")
    assert own["contents"][1]["parts"][0]["thoughtSignature"] == "c2ln"
    assert other["contents"][1]["parts"][0]["thoughtSignature"] == SENTINEL
    assert own["contents"][2]["parts"][0]["functionResponse"] == {
        "id": "f1", "name": "grep", "response": {"output": "r"},
    }  # fmt: skip


def test_answers_come_first_in_order_then_pictures_and_text() -> None:
    results = (ToolResult("a", "ra", images=(PNG,)), "and this", ToolResult("b", "", is_error=True))
    parts = encoded(user("go"), assistant(*CALLS), user(*results))["contents"][2]["parts"]
    assert [next(iter(part)) for part in parts] == ["functionResponse", "functionResponse", "inlineData", "text"]
    assert [part["functionResponse"]["name"] for part in parts[:2]] == ["grep", "read_file"]
    assert parts[1]["functionResponse"]["response"] == {"error": "(no output)"}


def test_the_body_is_what_the_sdk_itself_would_send() -> None:
    """Each content and tool, read and written by the SDK's own types, stays what it is."""
    signed = Text("said", '{"model":"gemini-3.8-flash","signature":"c2ln"}')
    call = ToolCall("a", "grep", '{"x": 1.5, "y": [null, "ü"]}', '{"model":"gemini-3.8-flash","signature":"c2ln"}')
    body = encoded(user("go", PNG), assistant(Reasoning("hm"), signed, call), user(ToolResult("a", "r", images=(PNG,))))
    for content in body["contents"]:
        read = types.Content.model_validate(content).model_dump(mode="json", by_alias=True, exclude_none=True)
        for part in read["parts"]:
            if picture := part.get("inlineData"):
                # The SDK writes the other alphabet of base64; the service takes both.
                picture["data"] = picture["data"].translate(str.maketrans("-_", "+/"))
        assert read == content
    tool = types.Tool.model_validate(body["tools"][0])
    assert tool.model_dump(mode="json", by_alias=True, exclude_none=True) == body["tools"][0]
    config = types.GenerateContentConfig.model_validate(body["generationConfig"])
    assert config.max_output_tokens == 16_384
    assert config.thinking_config is not None
    assert config.thinking_config.include_thoughts
    assert len(body["tools"][0]["functionDeclarations"]) == len(TOOLS)


def test_older_messages_are_encoded_once() -> None:
    encoder = GeminiEncoder(FLASH)
    messages = (user("go"), assistant(*CALLS), user(ToolResult("a", "r"), ToolResult("b", "r")))
    encoder.encode(request(*messages))
    before = {key: kept[2] for key, kept in encoder._pieces._made.items()}
    encoder.encode(request(*messages, assistant("done"), user("more")))
    assert all(encoder._pieces._made[key][2] is piece for key, piece in before.items())
    assert len(encoder._pieces._made) == 5


def chunk(*parts: dict[str, Any], finish_reason: str | None = None, **fields: Any) -> bytes:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": finish_reason, "new": 1}
    return json.dumps({"candidates": [candidate], **fields, "new": {}}).encode()


def read(*chunks: bytes, taken: frozenset[str] = frozenset()) -> Completed:
    reply = GeminiReply(FLASH, taken)
    for each in chunks:
        reply.read(each)
    assert reply.complete
    return reply.completed()


def test_calls_without_ids_and_with_known_ones_get_ids_of_their_own() -> None:
    call = {"functionCall": {"name": "grep", "args": {"a": 1}}}
    known = {"functionCall": {"id": "known", "name": "grep"}}
    completed = read(chunk(call, call, known, known, finish_reason="STOP"), taken=frozenset({"known"}))
    calls = [block for block in completed.blocks if isinstance(block, ToolCall)]
    assert len({call.id for call in calls} | {"known"}) == 5
    assert [call.arguments for call in calls] == ['{"a":1}', '{"a":1}', "{}", "{}"]
    assert completed.stop_reason == "tool_calls"


def test_a_signed_part_is_not_joined_with_the_next() -> None:
    signature = b64encode(b"sig").decode()
    completed = read(
        chunk({"text": "one "}, {"text": "two", "thoughtSignature": signature}),
        chunk({"text": "three"}, {"text": "four", "thought": True}),
        chunk(finish_reason="STOP"),
    )
    texts = [block for block in completed.blocks if isinstance(block, Text)]
    assert [text.text for text in texts] == ["one two", "three"]
    assert json.loads(texts[0].opaque) == {"model": FLASH, "signature": signature}
    assert completed.blocks[-1] == Reasoning("four")


def test_a_call_of_a_tool_there_is_not_is_an_answer() -> None:
    """The model is told, which is paid once; to ask again is paid as often as it happens."""
    completed = read(chunk({"functionCall": {"name": "list_files"}}, finish_reason="UNEXPECTED_TOOL_CALL"))
    assert [block.name for block in completed.blocks if isinstance(block, ToolCall)] == ["list_files"]
    assert completed.stop_reason == "tool_calls"


def test_an_answer_without_content_or_known_reason_is_an_error() -> None:
    with pytest.raises(Unavailable):
        read(chunk(finish_reason="OTHER"))
    assert read(chunk({"text": "hi"}, finish_reason="OTHER")).stop_reason == "end_turn"
    assert read(chunk(finish_reason="STOP")).blocks == ()


def test_usage_of_a_chunk_replaces_what_it_tells() -> None:
    told = [
        {"promptTokenCount": 10},
        {"promptTokenCount": 12, "thoughtsTokenCount": 3},
        {"candidatesTokenCount": 4},
    ]
    completed = read(*(chunk(usageMetadata=each) for each in told), chunk(finish_reason="STOP"))
    assert completed.usage.input_tokens == 12
    assert completed.usage.reasoning_tokens == 3
