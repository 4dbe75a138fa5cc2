"""A gateway at the user's own address passes requests on to models that cost money, and says so in its own way."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.agent.talking import say, talking
from tests.servers import openai_chat, openai_chat_rules
from tests.servers.coding_task import make_coding_workspace
from tests.servers.openai_chat import ChatServer
from tests.servers.recording import RecordedRequest
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Script, Step
from tests.servers.wire import Exchange, Request
from tui_agent.agent import events

ANSWERS = Script(after=Step(text="Hello."))


class Gateway(ChatServer):
    """A server with LiteLLM's ``/model/info``."""

    offers: dict[str, Any] | None = None

    @override
    async def route(self, request: Request, recorded: RecordedRequest, exchange: Exchange) -> None:
        if request.path == "/model/info" and self.offers is not None:
            offered = [
                {"model_name": name, "litellm_params": {}, "model_info": info} for name, info in self.offers.items()
            ]
            await exchange.respond(200, {"data": offered})
        else:
            await super().route(request, recorded, exchange)


async def cost_of_a_turn(server: ChatServer, model: str, folder: Path, **settings: Any) -> tuple[float | None, bool]:
    """What a turn with a model of this server costs in USD, and whether the model counts as one of this machine."""
    endpoint = {"url": f"{server.url}/v1", "key": "GATEWAY_KEY", "models": settings}
    async with talking(folder, {"model.id": f"mine:{model}", "models.endpoints": {"mine": endpoint}}) as session:
        told = await say(session, "Hi.")
        assert [event for event in told if isinstance(event, events.TurnFailed)] == []
        return session.agent.tracker.session.known_cost_usd, session.agent.profile.local


async def test_its_own_prices_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(Gateway(ANSWERS)) as server:
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        server.offers = {"qwen/qwen3-coder": {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6}}
        cost, local = await cost_of_a_turn(server, "qwen/qwen3-coder", tmp_path)
    assert cost is not None
    assert 0.001 < cost < 0.05
    assert not local


async def test_a_model_that_only_its_maker_serves_has_his_prices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(Gateway(ANSWERS)) as server:
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        cost, local = await cost_of_a_turn(server, "gpt-4.1", tmp_path)
    assert cost is not None
    assert 0.001 < cost < 0.1
    assert not local


async def test_any_other_model_at_an_address_of_this_machine_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(Gateway(ANSWERS)) as server:
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        assert await cost_of_a_turn(server, "deepseek-v4-pro", tmp_path) == (0.0, True)


async def test_what_the_settings_say_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(Gateway(ANSWERS)) as server:
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        server.offers = {"qwen/qwen3-coder": {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6}}
        prices = {"qwen/qwen3-coder": {"input": 1_000, "output": 1_000}}
        cost, _ = await cost_of_a_turn(server, "qwen/qwen3-coder", tmp_path, **prices)
    assert cost is not None
    assert cost > 1


@pytest.mark.parametrize("counts", [True, False], ids=["usage", "no usage"])
async def test_a_small_window_without_a_tokenizer_holds_several_messages(
    counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    make_coding_workspace(project)
    (project / "AGENTS.md").write_text("Run the tests before you say that you are done.\n" * 40)
    with in_thread(ChatServer(ANSWERS)) as server:
        server.counts = counts
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        models = {"deepseek-v4-pro": {"window": 8_192}}
        endpoint = {"url": f"{server.url}/v1", "key": "GATEWAY_KEY", "models": models}
        settings: dict[str, Any] = {"model.id": "mine:deepseek-v4-pro", "models.endpoints": {"mine": endpoint}}
        async with talking(tmp_path, settings, trusted=True) as session:
            for _ in range(6):
                told = await say(session, "What is in the file notes.txt, and who wrote it, and when was that?")
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []


@pytest.mark.parametrize("counts", [True, False], ids=["usage", "no usage"])
async def test_a_dense_file_in_a_small_window_without_a_tokenizer_ends_nothing(
    counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_coding_workspace(tmp_path / "project")
    sums = "".join(f"{sha256(str(number).encode()).hexdigest()}  file_{number}\n" for number in range(60))
    (tmp_path / "project" / "sums.txt").write_text(sums)

    def reading(asked: ParsedRequest) -> Step:
        if asked.position == 0 and "sums" in asked.prompt[:40]:
            return Step(text="I read.", calls=(Call("read_file", {"path": "sums.txt"}),))
        return Step(text="These are sums of files.")

    for module in (openai_chat, openai_chat_rules):  # as many tokens as prose has
        monkeypatch.setattr(module, "tokens_in", lambda text: -(-len(text) // 4))
    with in_thread(ChatServer(reading)) as server:
        server.counts = counts
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        models = {"deepseek-v4-pro": {"window": 8_192}}
        endpoint = {"url": f"{server.url}/v1", "key": "GATEWAY_KEY", "models": models}
        settings: dict[str, Any] = {"model.id": "mine:deepseek-v4-pro", "models.endpoints": {"mine": endpoint}}
        async with talking(tmp_path, settings) as session:
            for number in range(10):
                told = await say(session, f"What is in sums.txt? ({number})")
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []
