"""What goes wrong with a local model: what is said, what is tried again, and that no prompt is cut in silence."""

import dataclasses
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.models.talking import assistant, closing, create_model, finish, request, user
from tests.models.test_every_provider import Waits
from tests.servers.ollama import OllamaServer
from tests.servers.script import Fault, FaultKind, Script, Step
from tui_agent.conversation.blocks import Text
from tui_agent.models.base import (
    AuthFailed,
    ConnectionLost,
    ContextOverflow,
    InvalidRequest,
    LocalModels,
    ModelError,
    ModelRetrying,
    Overloaded,
    RateLimited,
    Unavailable,
    UnknownModel,
)
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.ollama.adapter import OllamaModel
from tui_agent.models.ollama.server import OllamaFacts, address_of, loaded_context, pulled_models, read_facts
from tui_agent.models.records import OLLAMA
from tui_agent.models.retry import stream_with_retries
from tui_agent.system.network import host_of, is_local

NAME = "ollama:qwen3:8b"


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


RETRIED: dict[FaultKind, type[ModelError]] = {
    "rate_limited": RateLimited,
    "overloaded": Overloaded,
    "unavailable": Unavailable,
    "server_error": Unavailable,
    "disconnect": ConnectionLost,
    "reset": ConnectionLost,
    "truncate": ConnectionLost,
    "empty_stream": ConnectionLost,
    "stream_error": Unavailable,
    "malformed_args": Unavailable,
}


async def test_a_model_that_cannot_think_after_all_is_asked_again_without_it(server: OllamaServer) -> None:
    refusal = Fault(kind="stream_error", after=0, message='"qwen3:8b" does not support thinking')
    server.script = Script.of(Step(text="All went well.", fault=refusal))
    async with closing(create_model(NAME)) as model:
        _, completed = await finish(model.stream(request(user("hello"))))
    assert completed.blocks == (Text("All went well."),)
    assert [(each.json or {}).get("think") for each in server.model_requests] == [True, None]


@pytest.mark.parametrize("kind", RETRIED)
async def test_a_passing_fault_is_retried_with_the_same_request(kind: FaultKind, server: OllamaServer) -> None:
    server.script = Script.of(Step(text="All went well in the end.", fault=Fault(kind=kind, times=2)))
    async with closing(create_model(NAME)) as model:
        waits = Waits()
        events, completed = await finish(stream_with_retries(model, request(user("go")), sleep=waits))
        assert [type(event.error) for event in events if isinstance(event, ModelRetrying)] == [RETRIED[kind]] * 2
        assert "".join(b.text for b in completed.blocks if isinstance(b, Text)) == "All went well in the end."
        bodies = [recorded.body for recorded in server.model_requests]
        assert len(bodies) == 3
        assert len(set(bodies)) == 1


FINAL: dict[FaultKind, type[ModelError]] = {
    "unauthorized": AuthFailed,
    "forbidden": AuthFailed,
    "bad_request": InvalidRequest,
    "context_overflow": ContextOverflow,
}


@pytest.mark.parametrize("kind", FINAL)
async def test_a_lasting_fault_is_raised_at_once(kind: FaultKind, server: OllamaServer) -> None:
    server.script = Script.of(Step(text="never", fault=Fault(kind=kind, times=9)))
    async with closing(create_model(NAME)) as model:
        with pytest.raises(FINAL[kind]) as caught:
            await finish(stream_with_retries(model, request(user("go")), sleep=Waits()))
        assert len(server.model_requests) == 1
        assert "\n" not in caught.value.message
        if isinstance(caught.value, ContextOverflow):
            assert caught.value.tokens > caught.value.limit > 0


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


async def test_a_model_that_turns_out_not_to_think_answers_all_the_same(server: OllamaServer) -> None:
    async with closing(create_model(NAME)) as model:
        await model.describe()
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


async def test_silence_counts_as_a_lost_connection(server: OllamaServer) -> None:
    server.script = Script.of(Step(text="slow" * 9, fault=Fault(kind="stall", seconds=60)))
    profile = create_model(NAME).profile
    async with closing(OllamaModel(OLLAMA, profile, idle_timeout_s=0.2)) as model:
        with pytest.raises(ConnectionLost, match="sent nothing for"):
            await finish(model.stream(request(user("go"))))


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
    import asyncio

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
