"""A long session with a local model stays inside the context the model is loaded with."""

from pathlib import Path

import pytest

from tests.agent.serving import Serve
from tests.agent.summaries import Reader
from tests.agent.talking import failures, goes_on, of, say, talking
from tests.agent.test_long_sessions import STEPS_A_TURN, Material
from tests.servers.ollama import OllamaServer
from tests.servers.openai_chat import ChatServer, Make
from tests.servers.script import Script, Step
from tui_agent.agent import events
from tui_agent.settings import GivenValue
from tui_agent.tools.subtasks import SubtaskSpec

MODEL = "ollama:qwen3:8b"
NAME = "deepseek-v4-pro"
CALLS = 48


@pytest.mark.parametrize(
    ("legacy", "preset"),
    [
        pytest.param(False, "layered", id="refusing, layered"),
        pytest.param(True, "summary-only", id="cutting, summary-only", marks=pytest.mark.soak),
        pytest.param(False, "summary-only", id="refusing, summary-only", marks=pytest.mark.soak),
        pytest.param(True, "layered", id="cutting, layered", marks=pytest.mark.soak),
    ],
)
async def test_nothing_is_ever_cut_and_the_model_is_loaded_once(
    legacy: bool, preset: str, tmp_path: Path, serve: Serve
) -> None:
    material = Material(tmp_path / "project", CALLS, seed=11)
    reader = Reader(material.step)
    server = serve(OllamaServer(reader))
    server.legacy = legacy
    settings = {
        "model.id": MODEL,
        "permissions.mode": "allow",
        "context.preset": preset,
        "context.memory_budget_tokens": "20000",
    }
    steps: list[events.ContextStep] = []
    async with talking(tmp_path, settings) as session:
        for part in range(CALLS // STEPS_A_TURN):
            told = await goes_on(session, f"Please read part {part} of the files.")
            steps += of(events.ContextStep, told)
        assert session.agent.profile.window == 20_000
    assert len(reader.own) >= CALLS
    assert "summary" in {step.step for step in steps}
    # A prompt that was too long, whether refused or cut, is among these.
    assert server.loads == [("qwen3:8b", 20_000)]


@pytest.mark.parametrize(("asked", "window"), [("12000", 12_000), ("1000000", 40_960)])
async def test_a_window_that_is_set_is_what_the_model_is_loaded_with(
    asked: str, window: int, tmp_path: Path, serve: Serve
) -> None:
    server = serve(OllamaServer(Script(after=Step(text="Hello."))))
    async with talking(tmp_path, {"model.id": MODEL, "context.context_window": asked}) as session:
        await say(session, "Hi.")
        assert session.agent.context_stats().window == window
    assert server.loads == [("qwen3:8b", window)]


@pytest.mark.parametrize(("window", "offered"), [(4_096, 5), (8_192, 14), (12_000, 20)])
async def test_a_small_window_has_room_to_talk(window: int, offered: int, tmp_path: Path) -> None:
    async with talking(tmp_path, {"context.context_window": str(window)}) as session:
        told = await say(session, "read nothing.txt")
        left_out = [each.text for each in of(events.Notice, told) if "left out" in each.title]
        names = {tool.name for tool in session.agent.tools()}
        assert names >= {"read_file", "run_command", "edit_file", "write_file", "recall"}
        assert len(names) >= offered
        assert bool(left_out) == (len(names) < 20)
        assert all("agentic_research" in text and "recall" not in text for text in left_out)
        await goes_on(session, *(f"Say something about the number {number}. " + "word " * 40 for number in range(25)))
        assert of(events.Notice, await say(session, "And one thing more.")) == []


async def test_a_subtask_is_answered_by_the_same_model(tmp_path: Path, serve: Serve) -> None:
    server = serve(OllamaServer(Script(after=Step(text="Forty-two."))))
    async with talking(tmp_path, {"model.id": MODEL}) as session:
        result = await session.agent.run_subtask(SubtaskSpec(system="Count.", prompt="How many?"))
        assert "Forty-two." in result.text
    assert server.loads == [("qwen3:8b", 40_960)]


async def test_switching_to_a_local_model_takes_the_settings_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    from tui_agent.models.choice import configured_model

    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    server = serve(OllamaServer(Script(after=Step(text="Hello."))))
    settings = {"ollama.host": server.url, "context.memory_budget_tokens": "9000"}
    async with talking(tmp_path, settings) as session:
        await session.agent.swap_model(configured_model(session.agent.settings, MODEL))
        await say(session, "Hi.")
    assert server.loads == [("qwen3:8b", 9_000)]


async def test_what_costs_time_is_timed_by_it(tmp_path: Path, serve: Serve) -> None:
    """A server that reads slowly has its context edited for what carrying it costs, and less often than at a price."""
    material = Material(tmp_path / "project", CALLS, seed=7)
    serve(OllamaServer(Reader(material.step)))
    settings = {"model.id": MODEL, "permissions.mode": "allow", "context.memory_budget_tokens": "40000"}
    async with talking(tmp_path, settings) as session:
        told = await say(session, "Please read part 0 of the files.")
        changed = of(events.ContextChanged, told)
        assert changed[-1].reading > 0
        assert changed[-1].writing > 0
        rates = session.agent.engine.model.rates(10_000)
        assert rates is not None
        assert rates.input_usd == 0
        assert rates.input_s == pytest.approx(1_000_000 / session.agent.speed.reading)
        ahead = session.agent.context.forecast()
        assert ahead.in_seconds
        assert ahead.cost is not None
        assert ahead.price(ahead.cost).endswith(" s")


async def test_a_server_that_counts_nothing_has_a_speed_too(tmp_path: Path, serve: Serve) -> None:
    words = "One word after the other, until there are enough of them to tell how fast they came. "
    server = serve(ChatServer(Script(after=Step(text=words, delay=0.06, chunk=40)), make="llamacpp"))
    server.counts = False
    async with talking(tmp_path, {"model.id": "llamacpp:qwen/qwen3-coder"}) as session:
        told = await say(session, "Hi.")
        (first,) = of(events.ContextChanged, told)
        assert first.reading > 0
        assert first.writing > 0
        await say(session, "And again.")
        # What it had to read of a prompt that it knew is not told: the speed stays as it was measured.
        assert session.agent.speed.reading == first.reading


@pytest.mark.parametrize(("make", "refused"), [("deepseek", 1), ("vllm", 0), ("llamacpp", 0)])
async def test_a_window_smaller_than_said_is_gone_by(
    make: Make, refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    """Some servers tell what they have loaded; of the others one request is refused, and one sentence says why."""
    server = serve(ChatServer(Script(after=Step(text="Hello.")), make=make, windows={NAME: 9_000}), may_break=True)
    monkeypatch.setenv("MINE", server.api_key)
    models = {NAME: {"window": 131_072}}
    reasoning = make != "vllm"
    mine: dict[str, object] = {"url": f"{server.url}/v1", "key": "MINE", "reasoning": reasoning, "models": models}
    settings: dict[str, GivenValue] = {"model.id": f"mine:{NAME}", "models.endpoints": {"mine": mine}}
    async with talking(tmp_path, settings) as session:
        told = [*await say(session, "Hi."), *await say(session, "word " * 4_000), *await say(session, "And?")]
        assert failures(told) == []
        assert session.agent.context_stats().window == 9_000
        notices = [event.title for event in told if isinstance(event, events.Notice) and "takes" in event.title]
        assert notices == [f"{NAME} takes 9,000 tokens, not 131,072"] * refused
        assert (await session.agent.context.recall("word word")).hits
    assert len([each for each in server.violations if "404" not in each]) == refused
