"""What must hold of every provider's model, through its real SDK against its protocol server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise, permutations

import msgspec
import pytest
from typing_extensions import override

from tests.models.talking import (
    HOSTED,
    MODELS,
    ONE_EACH,
    PNG,
    Server,
    Talk,
    assistant,
    closing,
    create_model,
    finish,
    name_endpoint,
    point_at,
    provider_of,
    request,
    user,
)
from tests.servers.coding_task import ANSWER, coding_task_script
from tests.servers.openai_responses import ENDPOINT, ResponsesServer
from tests.servers.script import Call, Fault, Script, ScriptSource, Step
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.wire import read_opaque, write_opaque
from tui_agent.models.adapter import DESCRIBE_TIMEOUT_S, Adapter
from tui_agent.models.anthropic.adapter import AnthropicModel
from tui_agent.models.base import (
    AuthFailed,
    Completed,
    ConnectionLost,
    InvalidRequest,
    Model,
    ModelRetrying,
    RateLimited,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UnknownModel,
)
from tui_agent.models.retry import stream_with_retries

Open = Callable[[str, ScriptSource], AbstractAsyncContextManager[tuple[Server, Model]]]

TOLD = frozenset(MODELS) - {name for name in MODELS if name.startswith(("responses", "deepseek", "openai"))}
"""Models whose provider tells the window: OpenAI's and DeepSeek's listings do not."""


@pytest.fixture
def open_model(monkeypatch: pytest.MonkeyPatch) -> Open:
    @asynccontextmanager
    async def opened(name: str, script: ScriptSource) -> AsyncIterator[tuple[Server, Model]]:
        async with MODELS[name](script) as server:
            point_at(server, monkeypatch.setenv)
            model = create_model(name)
            yield server, model
            await model.close()

    return opened


@pytest.mark.parametrize("name", MODELS)
async def test_a_coding_task_of_many_steps_breaks_no_rule(name: str, open_model: Open) -> None:
    async with open_model(name, coding_task_script()) as (server, model):
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
        assert [a.stop_reason for a in talk.answers] == ["tool_calls"] * 4 + ["end_turn"]
        assert getattr(server, "dropped_thinking", []) == []
        reasons = any(isinstance(b, Reasoning) and b.text for a in talk.answers for b in a.blocks)
        assert reasons == (name != "responses:gpt-4.1")
        assert server.violations == []


@pytest.mark.parametrize("name", ONE_EACH)
async def test_deltas_add_up_to_the_blocks(name: str, open_model: Open) -> None:
    calls = (Call("grep", {"a": "b"}),)
    script = Script.of(Step(text="First this, then that.", reasoning="Think " * 9, calls=calls, chunk=16))
    async with open_model(name, script) as (_, model):
        events, completed = await finish(model.stream(request(user("go"))))
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        thought = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
        assert [b.text for b in completed.blocks if isinstance(b, Text)] == [text] == ["First this, then that."]
        assert [b.text for b in completed.blocks if isinstance(b, Reasoning)] == [thought]
        assert thought.replace("\n\n", "") == "Think " * 9
        deltas = [event for event in events if isinstance(event, ToolCallDelta)]
        assert {delta.name for delta in deltas} == {"grep"}
        assert deltas[-1].size == len('{"a":"b"}')
        assert sum(isinstance(event, TextDelta) for event in events) > 1


@pytest.mark.parametrize("name", MODELS)
async def test_the_wire_has_one_growing_prefix(name: str, open_model: Open) -> None:
    steps = [Step(text=f"step {i}", reasoning="hm", calls=(Call("read_file", {"path": f"f{i}"}),)) for i in range(12)]
    async with open_model(name, Script.of(*steps, Step(text="end"))) as (server, model):
        talk = Talk(model)
        await talk.say("begin")
        await talk.say("and again")
        key = "contents" if name.startswith("gemini") else "input" if name.startswith("responses") else "messages"
        sent = [_unmarked(recorded.body) for recorded in server.model_requests]
        assert len(sent) > 20
        for earlier, later in pairwise(sent):
            head, messages = _split(earlier, key)
            assert _split(later, key)[0] == head
            assert _split(later, key)[1].startswith(messages)
        again = create_model(name)
        await finish(again.stream(talk.requests[-1]))
        assert server.model_requests[-1].body == server.model_requests[-2].body
        assert server.violations == []
        await again.close()


def _unmarked(body: bytes) -> bytes:
    return body.replace(b',"cache_control":{"type":"ephemeral"}', b"")


def _split(body: bytes, key: str) -> tuple[bytes, bytes]:
    head, _, rest = body.partition(f'"{key}":['.encode())
    return head, rest.removesuffix(b"]}")


@pytest.mark.parametrize("name", HOSTED)
async def test_usage_is_what_the_provider_counted(name: str, open_model: Open) -> None:
    async with open_model(name, coding_task_script()) as (server, model):
        talk = Talk(model)
        await talk.say("word " * 20_000)
        told = server.usage_total
        used = talk.answers[0].usage
        for later in talk.answers[1:]:
            used += later.usage
        if name.startswith("claude"):
            assert used.input_tokens == sum(
                told[key] for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            )
            assert used.cache_read_tokens == told["cache_read_input_tokens"]
            assert used.cache_write_tokens == told["cache_creation_input_tokens"] > 0
            assert used.output_tokens == told["output_tokens"]
        elif name.startswith("gemini"):
            assert used.input_tokens == told["promptTokenCount"]
            assert used.cache_read_tokens == told["cachedContentTokenCount"]
            assert used.output_tokens == told["candidatesTokenCount"] + told["thoughtsTokenCount"]
            assert used.reasoning_tokens == told["thoughtsTokenCount"]
        else:
            assert used.input_tokens == told.get("input_tokens", told.get("prompt_tokens"))
            assert used.output_tokens == told.get("output_tokens", told.get("completion_tokens"))
            assert used.cache_read_tokens == told["cached_tokens"]
            assert 0 < used.reasoning_tokens < used.output_tokens
        # Every call after the first reads all the earlier one wrote.
        assert all(answer.usage.cache_read_tokens > 20_000 for answer in talk.answers[1:])


@pytest.mark.parametrize("name", MODELS)
async def test_images_from_the_user_and_from_tools(name: str, open_model: Open) -> None:
    async with open_model(name, Script.of(Step(calls=(Call("read_file"), Call("grep"))), Step(text="ok"))) as (
        server,
        model,
    ):
        talk = Talk(model)

        def reply(call: ToolCall) -> ToolResult:
            return ToolResult(call.id, "a picture", images=(PNG, PNG), is_error=call.name == "grep")

        await model.describe()
        await talk.say("look", PNG, reply=reply)
        sees = model.profile.images
        assert [each for each in server.violations if "multimodal" not in each and "GET /props" not in each] == []
        assert server.model_requests[-1].body.count(PNG.data.encode()) >= 3 * sees
        assert sees or name.startswith(("deepseek", "llamacpp", "vllm", "openai", "groq", "ollama"))


@pytest.mark.parametrize(
    ("there", "here"),
    [*permutations(HOSTED, 2), ("gemini-3.8-flash", "gemini-3.1-pro-preview"), (HOSTED[0], ONE_EACH[-1])],
)
async def test_a_conversation_goes_on_with_another_model(there: str, here: str, open_model: Open) -> None:
    async with open_model(there, coding_task_script()) as (_, model):
        talk = Talk(model)
        await talk.say("fix the bug")
    # As a view does it: another model's reasoning is left out.
    said = [
        RequestMessage(each.role, tuple(block for block in each.blocks if not isinstance(block, Reasoning)))
        for each in talk.messages
    ]
    async with open_model(here, coding_task_script()) as (server, model):
        other = Talk(model, messages=said)
        await other.say("once more")
        assert server.violations == []


@pytest.mark.parametrize("name", ONE_EACH)
async def test_hostile_and_blank_texts_and_names_do_not_break_a_request(name: str, open_model: Open) -> None:
    hostile = "lone \ud800 surrogate \x00 \x1b]0;title\x07 [bold] \u2028 \ufeff"
    calls = (
        ToolCall("id with spaces/\ud800", "no such tool!" * 9, '{"a": 1}'),
        ToolCall("i" * 120, "long", "{}"),
        ToolCall("", "", "[1, 2]", malformed=hostile),
    )
    results = tuple(ToolResult(call.id, hostile) for call in calls)
    async with open_model(name, Script(after=Step(text="fine"))) as (server, model):
        asked = request(user(hostile), assistant(hostile, *calls), user(*results, " "), system=hostile)
        _, completed = await finish(model.stream(asked))
        assert [block.text for block in completed.blocks if isinstance(block, Text)] == ["fine"]
        blank = user("", "go", "  "), assistant("", "\n", "said"), user(" ", "on")
        await finish(model.stream(request(*blank, system=" ")))
        assert server.violations == []


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (the record has no event to wait for)
            await asyncio.sleep(0.005)


class Waits(list[float]):
    """Stands for the clock: notes how long was waited, and does not wait."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)


YEARS = ["Fri, 01 Jan 2100 00:00:00 GMT", 4e9, "4102444800", 1e308]


@pytest.mark.parametrize(("name", "asked"), [*zip(HOSTED, YEARS, strict=True)])
async def test_a_wait_of_years_is_told_at_once(name: str, asked: float | str, open_model: Open) -> None:
    fault = Fault(kind="rate_limited", times=9, retry_after=asked)
    async with open_model(name, Script.of(Step(text="never", fault=fault))) as (server, model):
        waits = Waits()
        with pytest.raises(RateLimited) as caught:
            await finish(stream_with_retries(model, request(user("go")), sleep=waits))
        assert waits == []
        assert len(server.model_requests) == 1
        assert (caught.value.retry_after or 0.0) > 10 * 365 * 86_400
        assert "wait more than a year, or use another model" in caught.value.message


@pytest.mark.parametrize("name", ["claude-haiku-4-5", "deepseek:deepseek-v4-pro", "groq:qwen/qwen3-coder"])
async def test_a_longer_answer_than_there_can_be_is_asked_for_once(name: str, open_model: Open) -> None:
    async with open_model(name, Script(after=Step(text="ok"))) as (server, model):
        for _ in range(2):
            await finish(model.stream(request(user("go"), max_tokens=100_000)))
        asked = [recorded.json["max_tokens"] for recorded in server.model_requests if recorded.json is not None]
        most = server.models[model.profile.id].max_output
        assert asked == [100_000, most, most]
        assert model.profile.max_output == most


@pytest.mark.parametrize("name", ONE_EACH)
async def test_silence_counts_as_a_lost_connection(name: str, open_model: Open) -> None:
    async with open_model(name, Script.of(Step(text="slow" * 9, fault=Fault(kind="stall", seconds=60)))) as (_, model):
        assert isinstance(model, Adapter)
        model._idle_timeout_s = 0.2
        with pytest.raises(ConnectionLost, match=r"nothing for 0\.2 seconds"):
            await finish(model.stream(request(user("go"))))


@pytest.mark.parametrize("name", ONE_EACH)
@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_leaving_a_stream_ends_its_connection(name: str, how: str, open_model: Open) -> None:
    async with open_model(name, Script.of(Step(text="long " * 50))) as (server, model):
        server.inject(Fault(kind="stall", seconds=60, after=12))
        stream = model.stream(request(user("go")))
        if how == "closed":
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]
        else:
            task = asyncio.ensure_future(finish(stream))
            await until(lambda: bool(server.model_requests))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await until(lambda: bool(server.answers))
        assert server.answers[0].outcome == "client_gone"
        _, completed = await finish(model.stream(request(user("again"))))
        assert completed.stop_reason == "end_turn"


@pytest.mark.parametrize("name", HOSTED)
async def test_no_key_and_a_wrong_key_say_which_variable(
    name: str, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_model(name, Script()) as (_, model):
        variable = provider_of(name).key
        monkeypatch.delenv(variable)
        with pytest.raises(AuthFailed, match=f"set {variable}"):
            await finish(model.stream(request(user("go"))))
        await model.close()
        monkeypatch.setenv(variable, "secret-value-1234")
        async with closing(create_model(name)) as wrong:
            with pytest.raises(AuthFailed, match=f"check {variable}") as caught:
                await finish(wrong.stream(request(user("go"))))
        assert "secret-value" not in str(caught.value)


@pytest.mark.parametrize("name", HOSTED)
async def test_a_key_in_a_provider_s_text_is_taken_out(
    name: str, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step(
        fault=Fault(kind="bad_request", message="bad: test-key and sk-ant-api03-abc_def, ?key=AIzaSyD1234567890")
    )
    async with open_model(name, Script.of(step)) as (_, model):
        with pytest.raises(InvalidRequest) as caught:
            await finish(model.stream(request(user("go"))))
        assert "bad: [key] and [key], ?key=[key]" in caught.value.message


@pytest.mark.parametrize("name", HOSTED)
async def test_an_unknown_model_and_no_server(name: str, open_model: Open) -> None:
    provider = name.partition(":")[0] if ":" in name else "anthropic" if name.startswith("claude") else "gemini"
    unknown = f"{provider}:nobody-99"
    async with open_model(name, Script()) as (server, _):
        async with closing(create_model(unknown)) as model:
            with pytest.raises(UnknownModel, match="nobody-99"):
                await finish(model.stream(request(user("go"))))
        await server.stop()
        async with closing(create_model(name)) as model:
            with pytest.raises(ConnectionLost, match=r"cannot be reached|does not answer"):
                await finish(model.stream(request(user("go"))))
            profile = await model.describe()
        assert profile.window > 100_000
        assert profile.source in ("catalogue", "default")


async def test_importing_an_sdk_takes_nothing_from_the_providers_time_to_describe_a_model(
    open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    real_time, connect, late = loop.time, AnthropicModel._connect, [0.0]

    def slowly(model: AnthropicModel) -> object:
        client = connect(model)
        late[0] += 10 * DESCRIBE_TIMEOUT_S
        return client

    monkeypatch.setattr(AnthropicModel, "_connect", slowly)
    monkeypatch.setattr(loop, "time", lambda: real_time() + late[0])
    async with open_model("claude-opus-5-5", Script()) as (_, model):
        profile = await model.describe()
    assert late[0] > 0
    assert (profile.source, profile.defers_tools) == ("provider", True)


@pytest.mark.parametrize("name", MODELS)
async def test_describe_asks_the_provider(name: str, open_model: Open) -> None:
    async with open_model(name, Script()) as (server, model):
        profile = await model.describe()
        spec = server.models[profile.id]
        assert profile.bound_reasoning == spec.bound
        if name in TOLD:
            assert (profile.window, profile.source) == (spec.window, "provider")
        if spec.line != "gpt" and spec.max_output:
            assert profile.max_output == spec.max_output
            assert profile.cache_minimum == spec.minimum_cached
            assert profile.prices is not None
            lines = {"opus": "frontier", "sonnet": "mid", "haiku": "small"}
            assert profile.tier == lines.get(spec.line, profile.tier) != "unknown"


@pytest.mark.parametrize("name", HOSTED)
async def test_stop_reasons(name: str, open_model: Open) -> None:
    async with open_model(name, lambda asked: Step(text="so far", stop_reason=asked.prompt)) as (_, model):
        for told in ("max_tokens", "refusal"):
            _, completed = await finish(model.stream(request(user(told))))
            assert completed.stop_reason == told


@pytest.mark.parametrize("name", ONE_EACH)
async def test_two_streams_of_one_model_at_once(name: str, open_model: Open) -> None:
    async with open_model(name, lambda asked: Step(text=asked.prompt)) as (_, model):
        both = await asyncio.gather(*(finish(model.stream(request(user(text)))) for text in ("one", "two")))
        assert [_text(completed) for _, completed in both] == ["one", "two"]


def _text(completed: Completed) -> str:
    return "".join(block.text for block in completed.blocks if isinstance(block, Text))


@pytest.mark.parametrize("name", ONE_EACH)
async def test_an_address_that_is_none_is_a_plain_error(
    name: str, open_model: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_model(name, Script()):
        for address in ("http://[broken", "no-protocol", "http://127.0.0.1:notaport"):
            if variables := provider_of(name).addresses:
                monkeypatch.setenv(variables[0], address)
            else:
                name_endpoint(ENDPOINT, address)
            async with closing(create_model(name)) as model:
                with pytest.raises((InvalidRequest, ConnectionLost)):
                    await finish(model.stream(request(user("go"))))
                await model.describe()


BOUND = ["claude-opus-5-5", "claude-sonnet-4-6", "claude-haiku-4-5", "gemini-3.8-flash", "responses:gpt-6.1-sol"]


@pytest.mark.parametrize("name", BOUND)
async def test_refused_reasoning_is_left_out_from_there_on_by_the_next_process_too(name: str, open_model: Open) -> None:
    thinks = Step(text="I look.", reasoning="Hm.", calls=(Call("grep", {"path": "a"}),))
    script = Script.of(thinks, Step(text="Found."), Step(text="Yes."), Step(text="Still."), Step(text="Again."))
    async with open_model(name, script) as (server, model):
        talk = Talk(model)
        await talk.say("go")
        talk.messages = [spoilt(message) for message in talk.messages]
        async with closing(create_model(name)) as later:
            for asked, prompt in ((model, "and now?"), (model, "and then?"), (later, "and once more?")):
                talk.model = asked
                assert (await talk.say(prompt)).stop_reason == "end_turn"
                refused = [answer for answer in server.answers if answer.outcome == "refused"]
                assert len(refused) == 1, "it is sent again once, and what was refused is not sent again"


@pytest.mark.parametrize("name", ["claude-sonnet-4-6", "responses:gpt-6.1-sol"])
async def test_reasoning_that_the_server_does_not_name_is_still_sent(name: str, open_model: Open) -> None:
    steps = [Step(text=f"Answer {i}.", reasoning=f"Thought {i}.") for i in range(5)]
    async with open_model(name, lambda asked: steps[asked.prompt.count("and")]) as (server, model):
        talk = Talk(model)
        for prompt in ("go", "and", "and and"):
            await talk.say(prompt)
        talk.messages[3] = spoilt(talk.messages[3])
        await talk.say("and and and")
        sent = [record.body.decode() for record in server.model_requests]
        whole, again = (body.count('"signature"') + body.count('"encrypted_content"') for body in sent[-2:])
        assert (whole, again) == (3, 2)
        await talk.say("and and and and")
        assert [answer.outcome for answer in server.answers].count("refused") == 1


@pytest.mark.parametrize("name", BOUND)
async def test_a_conversation_whose_reasoning_is_all_refused_goes_on_in_the_middle_of_calls(
    name: str, open_model: Open
) -> None:
    thinks = [Step(text=f"I look {i}.", reasoning="Hm.", calls=(Call("grep", {"path": "a"}),)) for i in range(4)]
    async with open_model(name, Script.of(*thinks, Step(text="Found."))) as (server, model):
        talk = Talk(model)

        def spoil(call: ToolCall) -> ToolResult:
            if len(talk.answers) == 3:
                talk.messages[:] = [spoilt(message) for message in talk.messages]
            return ToolResult(call.id, "done")

        assert (await talk.say("go", reply=spoil)).stop_reason == "end_turn"
        # What the server names is left out first; as it then names the next, all of it.
        assert [answer.outcome for answer in server.answers].count("refused") <= 2


class RefusesInside(ResponsesServer):
    """Refuses reasoning once it has begun to answer, as users of the API saw it (github.com/openai/codex, 8128)."""

    @override
    def broken_event(self, fault: Fault) -> bytes:
        error = {
            "type": "invalid_request_error",
            "code": "invalid_encrypted_content",
            "message": "could not be verified",
        }
        told = {"type": "error", "sequence_number": 0, "error": {**error, "param": None}}
        return f"data: {msgspec.json.encode(told).decode()}\n\n".encode()


@pytest.mark.parametrize(("events", "again"), [(1, 0), (8, 1)])
async def test_reasoning_refused_inside_of_an_answer_is_left_out_of_the_next_try(
    events: int, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = Step(text="Yes.", reasoning="Hm."), Step(text="Again, at some length.", reasoning="Hm, and hm once more?")
    async with RefusesInside(lambda asked: steps["then" in asked.prompt]) as server:
        point_at(server, monkeypatch.setenv)
        async with closing(create_model("responses:gpt-6.1-sol")) as model:
            talk = Talk(model)
            await talk.say("go")
            server.faults.inject(Fault(kind="stream_error", after=events))
            more = request(*talk.messages, user("and then?"))
            told = [event async for event in stream_with_retries(model, more, sleep=Waits())]
        assert isinstance(told[-1], Completed)
        assert _text(told[-1]) == steps[1].text
        assert sum(isinstance(event, ModelRetrying) for event in told) == again, "what has streamed is discarded"
        sent = [record.body.count(b'"encrypted_content"') for record in server.model_requests]
        assert sent == [0, 1, 0]


def spoilt(message: RequestMessage) -> RequestMessage:
    """The message with signatures that no provider made."""
    blocks = [
        msgspec.structs.replace(
            block,
            opaque=write_opaque(
                **{
                    key: "c3BvaWx0" if key in ("signature", "encrypted") else value
                    for key, value in read_opaque(block.opaque).items()
                }
            ),
        )
        if block.opaque
        else block
        for block in message.blocks
    ]
    return msgspec.structs.replace(message, blocks=tuple(blocks))
