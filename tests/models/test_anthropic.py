"""Claude alone: thinking, its binding, the cache marks, and what its stream may hold."""

from collections.abc import AsyncIterator

import pytest

from tests.models.talking import Talk, closing, create_model, finish, point_at, request, user
from tests.servers.anthropic import AnthropicServer
from tests.servers.anthropic_rules import cache_marks
from tests.servers.script import Call, Fault, Script, Step
from tui_agent.conversation.blocks import Reasoning, ToolCall
from tui_agent.models.anthropic.adapter import AnthropicModel
from tui_agent.models.anthropic.request import BINDING_BETA
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.records import ANTHROPIC

STEPS = Script.of(
    Step(text="one", reasoning="why one", calls=(Call("read_file"),)),
    Step(text="two", reasoning="why two", calls=(Call("grep"),)),
    Step(text="three", reasoning="why three"),
)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(STEPS) as running:
        point_at(running, monkeypatch.setenv)
        yield running


@pytest.fixture
async def talk(server: AnthropicServer) -> AsyncIterator[Talk]:
    async with closing(create_model("claude-opus-5-5")) as model:
        yield Talk(model)


async def test_reasoning_under_a_changed_prefix_is_dropped(server: AnthropicServer, talk: Talk) -> None:
    await talk.say("begin")
    talk.messages[0] = user("another beginning")
    await talk.say("go on")
    last = [each for each in server.dropped_thinking if each.startswith("request 5:")]
    assert len(last) == 5  # with the first block go all later ones
    assert server.violations == []
    sent = server.model_requests[0]
    assert sent.headers["anthropic-beta"] == BINDING_BETA
    assert (sent.json or {})["thinking"]["block_binding"] == {"prefix_mismatch_behavior": "drop_block"}


async def test_redacted_and_signature_only_thinking_goes_back_unchanged(server: AnthropicServer, talk: Talk) -> None:
    server.script = Script.of(
        Step(text="a", reasoning="secret", redacted=True, calls=(Call("grep"),)),
        Step(reasoning="shown", calls=(Call("grep"),)),
        Step(text="b"),
    )
    await talk.say("begin")
    first = talk.answers[0].blocks[0]
    assert isinstance(first, Reasoning)
    assert first.text == ""
    messages = (server.model_requests[-1].json or {})["messages"]
    assert [block["type"] for message in messages for block in message["content"]] == [
        "text", "redacted_thinking", "text", "tool_use", "tool_result", "thinking", "tool_use", "tool_result",
    ]  # fmt: skip
    assert server.dropped_thinking == []
    assert server.violations == []


async def test_arguments_that_are_cut_are_told_as_malformed(server: AnthropicServer, talk: Talk) -> None:
    call = Call("read_file", {"path": "a/long/path/to/a/file.py"})
    server.script = Script.of(Step(calls=(call, call), fault=Fault(kind="malformed_args")), Step(text="sorry"))
    await talk.say("read it")
    calls = [block for block in talk.answers[0].blocks if isinstance(block, ToolCall)]
    assert [call.arguments for call in calls] == ["{}", "{}"]
    assert all(call.malformed.startswith('{"path":"a/') for call in calls)
    assert talk.answers[1].stop_reason == "end_turn"
    assert server.violations == []


async def test_the_cache_is_read_on_every_step_of_a_long_loop(server: AnthropicServer, talk: Talk) -> None:
    steps = [Step(text="x" * 4000, calls=tuple(Call("grep", {"n": n}) for n in range(9))) for _ in range(8)]
    server.script = Script.of(*steps, Step(text="end"))
    await talk.say("begin " * 1000)
    for before, after in zip(talk.answers, talk.answers[1:], strict=False):
        assert after.usage.cache_read_tokens == before.usage.input_tokens
    for sent in server.model_requests:
        assert len(list(cache_marks(sent.json or {}))) <= 4


async def test_describe_corrects_a_wrong_guess_of_how_a_model_thinks(server: AnthropicServer) -> None:
    profile = CATALOGUE.quick_profile("claude-haiku-4-5")
    model = AnthropicModel(ANTHROPIC, profile)
    model._thinking = "adaptive"
    assert (await model.describe()).images
    await finish(model.stream(request(user("begin"))))
    assert (server.model_requests[-1].json or {})["thinking"]["type"] == "enabled"
    await model.close()
