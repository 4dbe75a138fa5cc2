"""A conversation with a local model, through Ollama's own client and the protocol server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise

import pytest

from tests.models.talking import PNG, Talk, assistant, create_model, finish, request, user
from tests.servers.coding_task import ANSWER, coding_task_script
from tests.servers.ollama import OllamaServer
from tests.servers.script import Call, Fault, Script, ScriptSource, Step
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.models.base import LocalModels, Model, ReasoningDelta, TextDelta, ToolCallDelta
from tui_agent.models.usage import cost_usd

NAME = "ollama:qwen3:8b"
SEEING = "ollama:gemma4:12b"
Open = Callable[..., AbstractAsyncContextManager[tuple[OllamaServer, Model]]]


@pytest.fixture
def open_model(monkeypatch: pytest.MonkeyPatch) -> Open:
    @asynccontextmanager
    async def opened(
        script: ScriptSource, name: str = NAME, *, legacy: bool = False, window: int = 65_536
    ) -> AsyncIterator[tuple[OllamaServer, Model]]:
        async with OllamaServer(script) as server:
            server.legacy = legacy
            monkeypatch.setenv("OLLAMA_HOST", server.url)
            model = create_model(name, local=LocalModels(window=window))
            yield server, model
            await model.close()

    return opened


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", [NAME, SEEING])
async def test_a_coding_task_of_many_steps_breaks_no_rule(name: str, legacy: bool, open_model: Open) -> None:
    async with open_model(coding_task_script(), name, legacy=legacy) as (server, model):
        talk = Talk(model)
        last = await talk.say("fix the bug")
        assert [[b.name for b in a.blocks if isinstance(b, ToolCall)] for a in talk.answers] == [
            ["read_file"],
            ["grep", "list_dir"],
            ["edit_file"],
            ["run_command"],
            [],
        ]
        assert "".join(block.text for block in last.blocks if isinstance(block, Text)) == ANSWER
        assert [answer.stop_reason for answer in talk.answers] == ["tool_calls"] * 4 + ["end_turn"]
        thought = any(isinstance(block, Reasoning) for answer in talk.answers for block in answer.blocks)
        assert thought is (name == NAME)
        ids = [block.id for answer in talk.answers for block in answer.blocks if isinstance(block, ToolCall)]
        assert len(set(ids)) == 5
        assert server.violations == []
        assert len(server.loads) == 1


async def test_deltas_add_up_to_the_blocks(open_model: Open) -> None:
    script = Script.of(Step(text="First this, then that.", reasoning="Think " * 9, calls=(Call("grep", {"a": "b"}),)))
    async with open_model(script) as (_, model):
        events, completed = await finish(model.stream(request(user("go"))))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        assert [b.text for b in completed.blocks if isinstance(b, Text)] == [text] == ["First this, then that."]
        assert [b.text for b in completed.blocks if isinstance(b, Reasoning)] == [thought] == ["Think " * 9]
        assert [event for event in events if isinstance(event, ToolCallDelta)] == [ToolCallDelta(2, "grep", 9)]
        assert sum(isinstance(event, TextDelta) for event in events) > 1


async def test_the_wire_has_one_growing_prefix_and_one_context(open_model: Open) -> None:
    steps = [Step(text=f"step {i}", reasoning="hm", calls=(Call("read_file", {"path": f"f{i}"}),)) for i in range(12)]
    async with open_model(Script.of(*steps, Step(text="end"))) as (server, model):
        talk = Talk(model)
        await talk.say("begin")
        await talk.say("and again")
        sent = [recorded.body.removesuffix(b"]}") for recorded in server.model_requests]
        assert len(sent) > 20
        assert all(later.startswith(earlier) for earlier, later in pairwise(sent))
        asked = server.model_requests[-1].json or {}
        assert asked["options"] == {"num_ctx": 40_960, "num_predict": 16_384}
        assert (asked["truncate"], asked["shift"], asked["think"]) == (False, False, True)
        assert server.violations == []
        assert server.loads == [("qwen3:8b", 40_960)]


@pytest.mark.parametrize(
    ("name", "budget", "window"),
    [(NAME, 65_536, 40_960), (NAME, 16_000, 16_000), (SEEING, 65_536, 65_536), ("ollama:tinyllama", 65_536, 2_048)],
)
async def test_the_window_is_what_the_model_is_loaded_with(
    name: str, budget: int, window: int, open_model: Open
) -> None:
    async with open_model(Script(), name, window=budget) as (server, model):
        assert model.profile.window == budget
        profile = await model.describe()
        assert (profile.window, profile.source, profile.fixed_window) == (window, "provider", True)
        assert profile.images is (name == SEEING)
        await finish(model.stream(request(user("hi"), tools=(), max_tokens=100)))
        assert [size for _, size in server.loads] == [window]
        assert model.profile.window == window


async def test_a_smaller_context_than_asked_for_becomes_the_window(open_model: Open) -> None:
    async with open_model(Script()) as (server, model):
        server.most = 8_192
        await finish(model.stream(request(user("hi"))))
        assert model.profile.window == 8_192
        assert sum(recorded.path == "/api/ps" for recorded in server.requests) == 1
        await finish(model.stream(request(user("hi"))))
        assert sum(recorded.path == "/api/ps" for recorded in server.requests) == 1
        assert (server.model_requests[-1].json or {})["options"]["num_ctx"] == 40_960


async def test_a_model_in_the_cloud_has_its_own_window_and_no_known_price(open_model: Open) -> None:
    async with open_model(Script(), "ollama:gpt-oss:120b-cloud", window=8_192) as (server, model):
        profile = await model.describe()
        assert (profile.window, profile.prices) == (131_072, None)
        await finish(model.stream(request(user("hi"), max_tokens=100)))
        assert (server.model_requests[-1].json or {})["options"] == {"num_predict": 100}


async def test_usage_is_what_the_server_counted_and_costs_nothing(open_model: Open) -> None:
    async with open_model(coding_task_script()) as (server, model):
        talk = Talk(model)
        await talk.say("word " * 10_000)
        assert sum(answer.usage.input_tokens for answer in talk.answers) == server.usage_total["prompt_eval_count"]
        assert sum(answer.usage.output_tokens for answer in talk.answers) == server.usage_total["eval_count"]
        assert cost_usd(talk.answers[0].usage, model.profile.prices) == 0.0


async def test_a_count_that_is_missing_is_not_taken_for_a_measurement(open_model: Open) -> None:
    async with open_model(Script()) as (server, model):
        server.counts = False
        _, completed = await finish(model.stream(request(user("word " * 1_000))))
        assert completed.usage.input_tokens == 0


async def test_pictures_go_where_templates_show_them(open_model: Open) -> None:
    async with open_model(Script.of(Step(calls=(Call("read_file"), Call("grep"))), Step(text="ok")), SEEING) as (
        server,
        model,
    ):
        talk = Talk(model)
        await talk.say("look", PNG, reply=lambda call: ToolResult(call.id, "a picture", images=(PNG,)))
        assert server.violations == []
        sent = (server.model_requests[-1].json or {})["messages"]
        assert [(message["role"], len(message.get("images", ()))) for message in sent[1:]] == [
            ("user", 1),
            ("assistant", 0),
            ("tool", 0),
            ("tool", 0),
            ("user", 2),
        ]


async def test_a_model_that_sees_nothing_is_told_of_pictures(open_model: Open) -> None:
    async with open_model(Script()) as (server, model):
        await finish(model.stream(request(user("look", PNG))))
        assert server.violations == []
        said = (server.model_requests[-1].json or {})["messages"][-1]
        assert said == {"role": "user", "content": "look\n\n(a picture, which this model cannot see)"}


async def test_a_conversation_comes_from_another_model(open_model: Open) -> None:
    said = [
        user("go"),
        assistant("I look.", ToolCall("toolu_1", "grep", '{"x": 1.0}'), ToolCall("b", "read_file", "{}")),
        user(ToolResult("b", "two"), ToolResult("toolu_1", "one", is_error=True), "and then?"),
    ]
    async with open_model(Script()) as (server, model):
        await finish(model.stream(request(*said)))
        assert server.violations == []
        results = [each for each in (server.model_requests[-1].json or {})["messages"] if each["role"] == "tool"]
        assert [(each["tool_name"], each["content"]) for each in results] == [
            ("read_file", "two"),
            ("grep", "Error: one"),
        ]


async def test_hostile_text_and_names_do_not_break_a_request(open_model: Open) -> None:
    hostile = "lone \ud800 surrogate \x00 \x1b]0;title\x07 [bold] \u2028 \ufeff"
    calls = (ToolCall("id with spaces/\ud800", "no such tool!", '{"a": 1}'), ToolCall("", "", "[1]", malformed=hostile))
    results = tuple(ToolResult(call.id, hostile) for call in calls)
    async with open_model(Script(after=Step(text="fine"))) as (server, model):
        asked = request(user(hostile), assistant(hostile, *calls), user(*results, " "), system=hostile)
        _, completed = await finish(model.stream(asked))
        assert completed.blocks == (Text("fine"),)
        assert server.violations == []


async def test_empty_and_blank_blocks_are_left_out(open_model: Open) -> None:
    async with open_model(Script(after=Step(text="fine"))) as (server, model):
        said = (user("", "go", "  "), assistant("", "\n", Reasoning("hm")), user(" ", "on"))
        await finish(model.stream(request(*said, system=" ")))
        assert server.violations == []
        assert [m["content"] for m in (server.model_requests[-1].json or {})["messages"]] == ["go", "on"]


@pytest.mark.parametrize(("max_tokens", "reason"), [(40, "max_tokens"), (3_000, "context_window")])
async def test_an_answer_that_is_cut_says_by_what(max_tokens: int, reason: str, open_model: Open) -> None:
    async with open_model(Script.of(Step(text="long " * 2_000)), window=2_048) as (server, model):
        asked = request(user("word " * 500), tools=(), max_tokens=max_tokens)
        _, completed = await finish(model.stream(asked))
        assert completed.stop_reason == reason
        assert server.violations == []


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_leaving_a_stream_ends_its_connection(how: str, open_model: Open) -> None:
    async with open_model(Script.of(Step(text="long " * 50))) as (server, model):
        server.inject(Fault(kind="stall", seconds=60, after=12))
        stream = model.stream(request(user("go")))
        if how == "closed":
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]
        else:
            task = asyncio.ensure_future(finish(stream))
            await _until(lambda: bool(server.model_requests))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await _until(lambda: bool(server.answers))
        assert server.answers[0].outcome == "client_gone"
        _, completed = await finish(model.stream(request(user("again"))))
        assert completed.stop_reason == "end_turn"


async def test_older_messages_are_encoded_once(open_model: Open) -> None:
    from tui_agent.models.ollama.request import OllamaEncoder, OllamaOptions

    encoder, options = OllamaEncoder(), OllamaOptions("m", 4_096, True, False)
    messages = (user("go"), assistant(ToolCall("a", "grep", "{}")), user(ToolResult("a", "r")))
    encoder.encode(request(*messages), options)
    before = {key: kept[2] for key, kept in encoder._pieces._made.items()}
    encoder.encode(request(*messages, assistant("done"), user("more")), options)
    assert all(encoder._pieces._made[key][2] is piece for key, piece in before.items())


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (the record has no event to wait for)
            await asyncio.sleep(0.005)
