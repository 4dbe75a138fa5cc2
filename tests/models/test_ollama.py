"""A conversation with a local model, through Ollama's own client and the protocol server."""

import asyncio
import dataclasses
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest

from tests.models.talking import PNG, Talk, assistant, closing, create_model, finish, request, user
from tests.servers.coding_task import coding_task_script
from tests.servers.ollama import OllamaServer
from tests.servers.script import Call, Fault, Script, ScriptSource, Step
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.models.base import (
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    LocalModels,
    Model,
    ModelError,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.ollama.server import OllamaFacts, address_of, loaded_context, pulled_models, read_facts
from tui_agent.models.usage import cost_usd
from tui_agent.system.network import host_of, is_local

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
async def test_a_coding_task_has_one_context_and_breaks_no_rule(name: str, legacy: bool, open_model: Open) -> None:
    async with open_model(coding_task_script(), name, legacy=legacy) as (server, model):
        talk = Talk(model)
        await talk.say("word " * 5_000)
        thought = any(isinstance(block, Reasoning) for answer in talk.answers for block in answer.blocks)
        assert thought is (name == NAME)
        ids = [block.id for answer in talk.answers for block in answer.blocks if isinstance(block, ToolCall)]
        assert len(set(ids)) == 5
        asked = server.model_requests[-1].json or {}
        assert asked["options"] == {"num_ctx": 40_960 if name == NAME else 65_536, "num_predict": 16_384}
        assert (asked["truncate"], asked["shift"]) == (False, False)
        assert asked.get("think", False) == (name == NAME and not legacy)
        assert sum(answer.usage.input_tokens for answer in talk.answers) == server.usage_total["prompt_eval_count"]
        assert sum(answer.usage.output_tokens for answer in talk.answers) == server.usage_total["eval_count"]
        assert cost_usd(talk.answers[0].usage, model.profile.prices) == 0.0
        assert server.violations == []
        assert len(server.loads) == 1


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


@pytest.mark.parametrize(("max_tokens", "reason"), [(40, "max_tokens"), (3_000, "context_window")])
async def test_an_answer_that_is_cut_says_by_what(max_tokens: int, reason: str, open_model: Open) -> None:
    async with open_model(Script.of(Step(text="long " * 2_000)), window=2_048) as (server, model):
        asked = request(user("word " * 500), tools=(), max_tokens=max_tokens)
        _, completed = await finish(model.stream(asked))
        assert completed.stop_reason == reason
        assert server.violations == []


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OllamaServer]:
    async with OllamaServer(Script()) as running:
        monkeypatch.setenv("OLLAMA_HOST", running.url)
        yield running


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address where nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("OLLAMA_HOST", address)
    return address


async def test_ollama_is_not_running(nobody: str) -> None:
    async with closing(create_model(NAME, local=LocalModels(window=30_000))) as model:
        profile = await model.describe()
        assert (profile.window, profile.source) == (30_000, "default")
        with pytest.raises(ConnectionLost, match=rf"does not answer at http://{nobody}: start it with `ollama serve`"):
            await finish(model.stream(request(user("go"))))
    assert pulled_models() == []


async def test_ollama_is_started_meanwhile(nobody: str) -> None:
    async with closing(create_model(NAME)) as model:
        await model.describe()
        async with OllamaServer(Script(), port=int(nobody.rpartition(":")[2])):
            await finish(model.stream(request(user("go"))))
        assert model.profile.window == 40_960


async def test_a_model_that_is_not_pulled_names_those_that_are(server: OllamaServer) -> None:
    async with closing(create_model("ollama:qwen9")) as model:
        await model.describe()
        with pytest.raises(UnknownModel, match=r"`ollama pull qwen9`, or choose one it has: qwen3:8b, gemma4:12b"):
            await finish(model.stream(request(user("go"))))


async def test_something_else_that_answers_is_no_model_that_is_missing(
    server: OllamaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", f"{server.url}/v1")
    async with closing(create_model(NAME)) as model:
        with pytest.raises(InvalidRequest, match="check OLLAMA_HOST"):
            await finish(model.stream(request(user("go"))))


async def test_a_model_without_tools_says_so_and_which_have(server: OllamaServer) -> None:
    async with closing(create_model("ollama:tinyllama")) as model:
        with pytest.raises(InvalidRequest, match=r"cannot call tools.*these can: qwen3:8b, gemma4:12b"):
            await finish(model.stream(request(user("go"))))
        await finish(model.stream(request(user("go"), tools=(), max_tokens=100)))
    server.legacy = True
    async with closing(create_model("ollama:tinyllama")) as model:
        with pytest.raises(InvalidRequest, match="cannot call tools"):
            await finish(model.stream(request(user("go"))))


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_model_that_turns_out_not_to_think_answers_all_the_same(streamed: bool, server: OllamaServer) -> None:
    async with closing(create_model(NAME)) as model:
        await model.describe()
        if streamed:
            server.inject(Fault(kind="stream_error", after=0, message='"qwen3:8b" does not support thinking'))
        else:
            spec = server.models["qwen3:8b"]
            server.models["qwen3:8b"] = dataclasses.replace(spec, capabilities=spec.capabilities - {"thinking"})
        for _ in range(2):
            _, completed = await finish(model.stream(request(user("go"))))
            assert completed.blocks == (Text("Done."),)
        assert ["think" in (recorded.json or {}) for recorded in server.model_requests] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("model requires more system memory (9.1 GiB) than is available (4.0 GiB)", InvalidRequest, "smaller model"),
        ("model runner has unexpectedly stopped: cudaMalloc failed: out of memory", InvalidRequest, "memory_budget"),
        ("the input length exceeds the context length", ContextOverflow, "40,960"),
        ("model runner has unexpectedly stopped", Unavailable, "unexpectedly"),
        ("error parsing tool call: raw='{\"path\": ', err=unexpected end", Unavailable, "cannot be read"),
    ],
)
async def test_what_the_server_says_decides(text: str, kind: type[ModelError], said: str, server: OllamaServer) -> None:
    server.script = Script.of(Step(fault=Fault(kind="server_error", message=text)))
    async with closing(create_model(NAME)) as model:
        with pytest.raises(kind, match=said):
            await finish(model.stream(request(user("go"))))


async def test_a_prompt_that_is_too_long_is_refused_not_cut(server: OllamaServer) -> None:
    async with closing(create_model(NAME, local=LocalModels(window=4_096))) as model:
        with pytest.raises(ContextOverflow) as caught:
            await finish(model.stream(request(user("word " * 3_000))))
        assert caught.value.tokens > caught.value.limit == 4_096
    assert not any("left out" in violation for violation in server.violations)


async def test_a_prompt_an_old_server_cut_is_an_overflow(server: OllamaServer) -> None:
    server.legacy = True
    first, said = user("word " * 2_000), assistant("fine")
    async with closing(create_model(NAME, local=LocalModels(window=4_096))) as model:
        _, completed = await finish(model.stream(request(first, tools=())))
        assert 3_000 < completed.usage.input_tokens < 4_096
        with pytest.raises(ContextOverflow) as caught:
            await finish(model.stream(request(first, said, user("x" * 9_000), tools=())))
        assert caught.value.tokens > caught.value.limit == 4_096
        assert any("left out" in violation for violation in server.violations)
        with pytest.raises(ContextOverflow):
            await finish(model.stream(request(user("other " * 5_000), tools=())))


async def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:port")
    async with closing(create_model(NAME)) as model:
        await model.describe()
        with pytest.raises(InvalidRequest, match="check OLLAMA_HOST"):
            await finish(model.stream(request(user("go"))))
    assert pulled_models() == []


@pytest.mark.parametrize(
    ("given", "url", "local"),
    [
        ("", "http://127.0.0.1:11434", True),
        ("1.2.3.4", "http://1.2.3.4:11434", False),
        (":56789", "http://127.0.0.1:56789", True),
        ("0.0.0.0", "http://127.0.0.1:11434", True),
        ("localhost:1/", "http://localhost:1", True),
        ("http://example.com", "http://example.com:80", False),
        ("https://example.com/ollama/", "https://example.com:443/ollama", False),
        ("[::1]:56789", "http://[::1]:56789", True),
    ],
)
def test_addresses(given: str, url: str, local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    assert (address_of(given), is_local(host_of(url))) == (url, local)
    monkeypatch.setenv("OLLAMA_HOST", "7.7.7.7:7")
    assert address_of(given) == "http://7.7.7.7:7"


async def test_the_models_to_choose_from_have_those_of_ollama(server: OllamaServer) -> None:
    found = {profile.name: profile for profile in await asyncio.to_thread(CATALOGUE.known_models)}
    assert NAME in found
    assert found[NAME].prices is not None
    assert found["ollama:gpt-oss:120b-cloud"].prices is None
    assert list(found)[-1] == "offline:offline"


def test_what_show_and_ps_tell() -> None:
    info = {"general.architecture": "qwen3", "qwen3.context_length": 40_960, "qwen3.block_count": 36}
    assert read_facts({"model_info": info, "capabilities": ["tools"]}, "q") == OllamaFacts(40_960, frozenset({"tools"}))
    assert read_facts({}, "q") == OllamaFacts()
    assert read_facts({"remote_host": "https://ollama.com"}, "q").remote
    with pytest.raises(msgspec.ValidationError):
        read_facts([], "q")
    running = {"models": [{"name": "llama3:latest", "context_length": 4_096}]}
    assert loaded_context(running, "llama3") == 4_096
    assert loaded_context(running, "llama3:8b") == 0
