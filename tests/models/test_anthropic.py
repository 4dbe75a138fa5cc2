"""Claude alone: thinking, its binding, the cache marks, and what its stream may hold."""

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.models.talking import PNG, Talk, assistant, create_model, finish, request, user
from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic_rules import cache_marks
from tests.servers.script import Call, Fault, Script, Step
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.models.anthropic.adapter import AnthropicModel
from tui_agent.models.anthropic.reply import AnthropicReply
from tui_agent.models.anthropic.request import BINDING_BETA, AnthropicEncoder, AnthropicOptions, betas, encode_message
from tui_agent.models.base import Metered, ToolCallDelta
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.records import ANTHROPIC

STEPS = Script.of(
    Step(text="one", reasoning="why one", calls=(Call("read_file"),)),
    Step(text="two", reasoning="why two", calls=(Call("grep"),)),
    Step(text="three", reasoning="why three"),
)
BOUND = AnthropicOptions("claude-opus-5-5", "adaptive", bound=True)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(STEPS) as running:
        for variable, value in running.environment.items():
            monkeypatch.setenv(variable, value)
        yield running


async def test_reasoning_under_a_changed_prefix_is_dropped(server: AnthropicServer) -> None:
    model = create_model("claude-opus-5-5")
    talk = Talk(model)
    await talk.say("begin")
    talk.messages[0] = user("another beginning")
    await talk.say("go on")
    last = [each for each in server.dropped_thinking if each.startswith("request 5:")]
    assert len(last) == 5  # with the first block go all later ones
    assert server.violations == []
    sent = server.model_requests[0]
    assert sent.headers["anthropic-beta"] == BINDING_BETA
    assert sent.json is not None
    assert sent.json["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}
    await model.close()


async def test_redacted_and_signature_only_thinking_goes_back_unchanged(server: AnthropicServer) -> None:
    server.script = Script.of(
        Step(text="a", reasoning="secret", redacted=True, calls=(Call("grep"),)),
        Step(reasoning="shown", calls=(Call("grep"),)),
        Step(text="b"),
    )
    model = create_model("claude-opus-5-5")
    talk = Talk(model)
    await talk.say("begin")
    first = talk.answers[0].blocks[0]
    assert isinstance(first, Reasoning)
    assert first.text == ""
    sent = server.model_requests[-1].json
    assert sent is not None
    assert [block["type"] for message in sent["messages"] for block in message["content"]] == [
        "text", "redacted_thinking", "text", "tool_use", "tool_result", "thinking", "tool_use", "tool_result",
    ]  # fmt: skip
    assert server.dropped_thinking == []
    assert server.violations == []
    await model.close()


async def test_arguments_that_are_cut_are_told_as_malformed(server: AnthropicServer) -> None:
    call = Call("read_file", {"path": "a/long/path/to/a/file.py"})
    server.script = Script.of(Step(calls=(call, call), fault=Fault(kind="malformed_args")), Step(text="sorry"))
    model = create_model("claude-opus-5-5")
    talk = Talk(model)
    await talk.say("read it")
    calls = [block for block in talk.answers[0].blocks if isinstance(block, ToolCall)]
    assert [call.arguments for call in calls] == ["{}", "{}"]
    assert all(call.malformed.startswith('{"path":"a/') for call in calls)
    assert talk.answers[1].stop_reason == "end_turn"
    assert server.violations == []
    await model.close()


async def test_the_cache_is_read_on_every_step_of_a_long_loop(server: AnthropicServer) -> None:
    steps = [Step(text="x" * 4000, calls=tuple(Call("grep", {"n": n}) for n in range(9))) for _ in range(8)]
    server.script = Script.of(*steps, Step(text="end"))
    model = create_model("claude-opus-5-5")
    talk = Talk(model)
    await talk.say("begin " * 1000)
    for before, after in zip(talk.answers, talk.answers[1:], strict=False):
        assert after.usage.cache_read_tokens == before.usage.input_tokens
    for sent in server.model_requests:
        assert sent.json is not None
        assert len(list(cache_marks(sent.json))) <= 4
    await model.close()


async def test_describe_corrects_a_wrong_guess_of_how_a_model_thinks(server: AnthropicServer) -> None:
    profile = CATALOGUE.quick_profile("claude-haiku-4-5")
    model = AnthropicModel(ANTHROPIC, profile)
    model._thinking = "adaptive"
    assert (await model.describe()).images
    await finish(model.stream(request(user("begin"))))
    sent = server.model_requests[-1].json
    assert sent is not None
    assert sent["thinking"]["type"] == "enabled"
    await model.close()


def encoded(*messages: RequestMessage, options: AnthropicOptions = BOUND, **fields: object) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(AnthropicEncoder().encode(request(*messages, **fields), options))
    return body


def marks(body: dict[str, Any]) -> list[str]:
    where = ["tools" for tool in body.get("tools", ()) if "cache_control" in tool]
    where += ["system" for block in body.get("system", ()) if "cache_control" in block]
    for i, message in enumerate(body["messages"]):
        where += [f"{i}:{block['type']}" for block in message["content"] if "cache_control" in block]
    return where


LONG = (*(message for i in range(6) for message in (user(f"ask {i}"), assistant(f"say {i}"))), user("now"))


def test_at_most_four_breakpoints_at_the_places_that_matter() -> None:
    assert marks(encoded(*LONG)) == ["system", "12:text"]
    assert marks(encoded(*LONG, cache_edges=(4, 10))) == ["system", "4:text", "10:text", "12:text"]
    assert marks(encoded(*LONG, cache_edges=(0, 2, 4, 10, 12, 99))) == ["system", "4:text", "10:text", "12:text"]
    assert marks(encoded(*LONG, system="", cache_edges=(4,))) == ["tools", "4:text", "12:text"]
    assert marks(encoded(*LONG, system="", tools=(), cache_edges=(0, 2, 4, 6))) == [
        "2:text", "4:text", "6:text", "12:text",
    ]  # fmt: skip


def test_thinking_never_carries_a_breakpoint_nor_ends_a_message() -> None:
    thinking = Reasoning("hm", '{"signature":"s"}')
    call = ToolCall("c1", "grep", "{}")
    body = encoded(user("a"), assistant(thinking, call), user(ToolResult("c1", "r")), cache_edges=(1,))
    assert marks(body) == ["system", "1:tool_use", "2:tool_result"]
    assert json.loads(encode_message(assistant("said", thinking, thinking)))["content"] == [
        {"type": "text", "text": "said"}
    ]
    assert encode_message(assistant(thinking)) == b""
    assert encode_message(assistant(Reasoning("of another provider"), "said")).count(b"thinking") == 0


def test_marking_a_message_changes_nothing_else_of_it() -> None:
    message = user("a", PNG, ToolResult("c1", "r", images=(PNG,)))
    plain = encode_message(message)
    assert (
        encode_message(message, mark={"type": "ephemeral"}).replace(b',"cache_control":{"type":"ephemeral"}', b"")
        == plain
    )


def test_older_messages_are_encoded_once() -> None:
    encoder = AnthropicEncoder()
    encoder.encode(request(*LONG), BOUND)
    before = {key: piece for key, (_, _, piece) in encoder._pieces._made.items()}
    encoder.encode(request(*LONG, assistant("more"), user("now")), BOUND)
    after = {key: piece for key, (_, _, piece) in encoder._pieces._made.items()}
    assert all(after[key] is piece for key, piece in before.items())
    encoder.encode(request(user("only this")), BOUND)
    assert len(encoder._pieces._made) == 1


def test_no_sampling_parameters_and_no_thinking_where_there_is_no_room() -> None:
    body = encoded(user("a"))
    assert set(body) == {"model", "max_tokens", "stream", "thinking", "tools", "system", "messages"}
    old = AnthropicOptions("claude-haiku-4-5", "enabled", bound=False)
    assert encoded(user("a"), options=old)["thinking"]["budget_tokens"] < 16_384
    assert "thinking" not in encoded(user("a"), options=old, max_tokens=1000)
    assert betas(old, ModelRequest("", (), (), 1000)) == ""


def test_a_loop_that_another_model_began_goes_on_without_a_thinking_budget() -> None:
    old = AnthropicOptions("claude-haiku-4-5", "enabled", bound=False)
    thinking, call, result = Reasoning("hm", '{"signature":"s"}'), ToolCall("c1", "grep", "{}"), ToolResult("c1", "r")
    second, answer = ToolCall("c2", "grep", "{}"), ToolResult("c2", "r")
    begun = (user("a"), assistant(thinking, call), user(result), assistant(second), user(answer))
    taken_over = (user("a"), assistant(call), user(result), assistant(thinking, second), user(answer))
    assert "thinking" in encoded(*begun, options=old)
    assert "thinking" not in encoded(*taken_over, options=old)
    assert "thinking" in encoded(*taken_over[:-1], user(answer, "and now"), options=old)
    assert "thinking" in encoded(*taken_over)


def test_errors_are_text_alone_and_odd_ids_stay_in_step() -> None:
    call = ToolCall("call/1 ü", "läuft", '{"a": 1}')
    body = encoded(user("a"), assistant(call), user(ToolResult(call.id, "", is_error=True, images=(PNG,))))
    use, result = body["messages"][1]["content"][0], body["messages"][2]["content"][0]
    assert use["id"] == result["tool_use_id"]
    assert use["name"] == "l_uft"
    assert use["input"] == {"a": 1}
    assert result["content"] == "(no output)"


def events(*blocks: dict[str, Any]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = [{"type": "message_start", "message": {"usage": {"input_tokens": 3}}}]
    for index, block in enumerate(blocks):
        told.append({"type": "content_block_start", "index": index, "content_block": block})
        told.append({"type": "content_block_stop", "index": index})
    told.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 5}})
    return [*told, {"type": "message_stop"}]


def test_a_whole_input_at_once_unknown_blocks_and_repeated_ids() -> None:
    reply = AnthropicReply("claude", frozenset({"taken"}))
    for event in events(
        {"type": "tool_use", "id": "taken", "name": "grep", "input": {"a": [1, None]}},
        {"type": "tool_use", "id": "new", "name": "grep", "input": {}},
        {"type": "tool_use", "id": "new", "name": "grep"},
        {"type": "server_tool_use", "id": "x", "name": "web_search"},
        {"type": "text", "text": "\ud800"},
    ):
        reply.read(json.dumps(event).encode())
    completed = reply.completed()
    calls = [block for block in completed.blocks if isinstance(block, ToolCall)]
    assert [call.arguments for call in calls] == ['{"a":[1,null]}', "{}", "{}"]
    ids = [call.id for call in calls]
    assert ids[1] == "new"
    assert len({*ids, "taken"}) == 4
    assert completed.blocks[-1] == Text("�")
    assert reply.complete


def test_a_stream_without_its_last_event_is_not_complete() -> None:
    reply = AnthropicReply("claude")
    for event in events({"type": "text", "text": "so far"})[:-1]:
        reply.read(json.dumps(event).encode())
    assert not reply.complete
    unstarted = AnthropicReply("claude")
    unstarted.read(json.dumps({"type": "message_stop"}).encode())
    assert not unstarted.complete


def test_an_answer_that_begins_again_is_the_second_one_and_may_begin_with_blocks() -> None:
    reply = AnthropicReply("claude")
    for event in events({"type": "text", "text": "cut"}, {"type": "text", "text": "short"})[:-2]:
        reply.read(json.dumps(event).encode())
    again: dict[str, Any] = {"id": "2", "usage": {"input_tokens": 3}, "content": [{"type": "text", "text": "whole"}]}
    for message in (again, {**again, "content": []}):  # the same answer is not forgotten
        told = reply.read(json.dumps({"type": "message_start", "message": message}).encode())
    assert reply.completed().blocks == (Text("whole"),)
    call: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "grep", "input": {"b": 1}}
    told = reply.read(
        json.dumps(
            {"type": "message_start", "message": {"id": "3", "content": [call], "stop_reason": "tool_use"}}
        ).encode()
    )
    reply.read(json.dumps({"type": "message_stop"}).encode())
    assert told[1:] == [ToolCallDelta(0, "grep", 0)]
    assert reply.completed().blocks == (ToolCall("a", "grep", '{"b":1}'),)
    assert reply.completed().stop_reason == "tool_calls"


def test_a_summary_of_the_servers_is_paid_beside_the_answer() -> None:
    reply = AnthropicReply("claude")
    written: dict[str, Any] = {"input_tokens": 100, "output_tokens": 83, "cache_read_input_tokens": 55_096}
    written |= {"cache_creation_input_tokens": 7, "cache_creation": {"ephemeral_1h_input_tokens": 6}}
    kinds: list[dict[str, Any]] = [
        {"type": "compaction", **written},
        {"type": "message", "input_tokens": 181, "output_tokens": 8},
    ]
    used = {"input_tokens": 181, "output_tokens": 8, "iterations": kinds}
    (metered,) = reply.read(json.dumps({"type": "message_delta", "usage": used}).encode())
    assert metered == Metered(
        Usage(55_384, cache_read_tokens=55_096, cache_write_tokens=7, output_tokens=91, cache_write_hour_tokens=6)
    )


def test_a_request_of_its_own_marks_nothing_for_the_cache() -> None:
    asked = request(user("summarise this"))
    options = AnthropicOptions("claude-opus-5-5", "adaptive", True)
    assert b"cache_control" in AnthropicEncoder().encode(asked, options)
    alone = msgspec.structs.replace(asked, one_off=True)
    assert b"cache_control" not in AnthropicEncoder().encode(alone, options)
