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


def at(server: ChatServer, model: str, **models: Any) -> dict[str, Any]:
    """The settings that name this server `mine`."""
    endpoint = {"url": f"{server.url}/v1", "key": "GATEWAY_KEY", "models": models}
    return {"model.id": f"mine:{model}", "models.endpoints": {"mine": endpoint}}


OWN = {"qwen/qwen3-coder": {"input_cost_per_token": 1e-6, "output_cost_per_token": 4e-6}}
DEARER = {"qwen/qwen3-coder": {"input": 1_000, "output": 1_000}}


@pytest.mark.parametrize(
    ("model", "offers", "said", "least", "most"),
    [
        pytest.param("qwen/qwen3-coder", OWN, {}, 0.001, 0.05, id="its own prices are taken"),
        pytest.param("gpt-4.1", None, {}, 0.001, 0.1, id="a model that only its maker serves has his prices"),
        pytest.param("deepseek-v4-pro", None, {}, 0.0, 0.0, id="any other at an address of this machine is free"),
        pytest.param("qwen/qwen3-coder", OWN, DEARER, 1.0, 99.0, id="what the settings say comes first"),
    ],
)
async def test_what_a_turn_costs(
    model: str, offers: Any, said: Any, least: float, most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with in_thread(Gateway(ANSWERS)) as server:
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        server.offers = offers
        async with talking(tmp_path, at(server, model, **said)) as session:
            told = await say(session, "Hi.")
            cost, local = session.agent.tracker.session.known_cost_usd, session.agent.profile.local
    assert [event for event in told if isinstance(event, events.TurnFailed)] == []
    assert cost is not None
    assert least <= cost <= most
    if not said:
        assert local == (most == 0.0)


async def test_a_small_window_without_a_tokenizer_holds_several_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    make_coding_workspace(project)
    (project / "AGENTS.md").write_text("Run the tests before you say that you are done.\n" * 40)
    with in_thread(ChatServer(ANSWERS)) as server:
        server.counts = False
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        settings = at(server, "deepseek-v4-pro", **{"deepseek-v4-pro": {"window": 8_192}})
        async with talking(tmp_path, settings, trusted=True) as session:
            for _ in range(6):
                told = await say(session, "What is in the file notes.txt, and who wrote it, and when was that?")
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []


async def test_a_dense_file_in_a_small_window_without_a_tokenizer_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        server.counts = False
        monkeypatch.setenv("GATEWAY_KEY", server.api_key)
        settings = at(server, "deepseek-v4-pro", **{"deepseek-v4-pro": {"window": 8_192}})
        async with talking(tmp_path, settings) as session:
            for number in range(10):
                told = await say(session, f"What is in sums.txt? ({number})")
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []
