"""Long sessions through the real SDKs: every layer at work, no rule broken, every fact found again."""

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.conversation.entries import Message

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
SIZES = (3, 40, 400, 1_500, 6_000, 40_000, 160_000)
STEPS_A_TURN = 12
LETTERS = bytes(b"abcdefgh \n"[byte % 10] for byte in range(256))
"""What random bytes become in a text."""


class Material:
    """Files of every size, each with a fact in its middle that no summary could guess."""

    def __init__(self, folder: Path, calls: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.facts: dict[str, str] = {}
        self.read = 0
        self.paused = True
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(calls):
            size = self.chance.choice(SIZES)
            fact = f"fact-{seed}-{number}-{self.chance.getrandbits(48):x}"
            filler = self.chance.randbytes(size // 2).translate(LETTERS).decode()
            name = f"file_{number}.txt"
            (folder / name).write_text(f"{filler}\n{fact}\n{filler}")
            self.facts[name] = fact

    def step(self, request: ParsedRequest) -> Step:
        """Read the next file, print the next one, or say what was found."""
        if asks_for_summary(request):
            return Step(text=HANDOVER)
        number = self.read
        if number % STEPS_A_TURN == 0 and number and not self.paused:
            self.paused = True
            return Step(text=f"The files before {number} are read.")
        self.read, self.paused = number + 1, False
        if number % 3:
            return Step(text=f"Reading file {number}.", calls=(Call("read_file", {"path": f"file_{number}.txt"}),))
        return Step(reasoning="I print it.", calls=(Call("run_command", {"command": f"cat file_{number}.txt"}),))


async def _long_session(
    model: str,
    window: int,
    calls: int,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: Mapping[str, str] | None = None,
) -> None:
    project = folder / "project"
    material = Material(project, calls, seed=window % 97)
    server_class = AnthropicServer if model.startswith("claude") else GeminiServer
    with in_thread(server_class(material.step, windows={model: window})) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        settings = {"model.id": model, "permissions.mode": "allow", **(more or {})}
        async with talking(folder, settings) as session:
            steps: list[events.ContextStep] = []
            for turn in range(calls // STEPS_A_TURN):
                told = await say(session, f"Please read part {turn} of the files.")
                failed = [event for event in told if isinstance(event, events.TurnFailed)]
                assert failed == []
                steps += [event for event in told if isinstance(event, events.ContextStep)]
            assert [step.error for step in steps if step.error] == []
            assert steps, "no layer had to work"
            assert server.violations == []
            for number, fact in enumerate(list(material.facts.values())[: material.read]):
                printed = number % 3 == 0
                if printed or any(fact in str(entry) for entry in session.agent.engine.view.log):
                    found = await session.agent.context.recall(fact)
                    assert any(fact in hit.excerpt for hit in found.hits), f"file {number} is lost"
            for entry in session.agent.engine.view.log:
                if isinstance(entry, Message) and entry.artifact is not None:
                    assert f'"{entry.artifact.path}"' in str(entry.blocks)
                    page = (session.folder / entry.artifact.path).read_text()
                    assert any(fact in page for fact in material.facts.values()), f"{entry.artifact.path} has no fact"


@pytest.mark.parametrize(
    ("provider", "window"), [("anthropic", 20_000), pytest.param("gemini", 60_000, marks=pytest.mark.soak)]
)
async def test_a_session_of_sixty_calls(
    provider: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _long_session(MODELS[provider], window, 60, tmp_path, monkeypatch)


@pytest.mark.parametrize("model", [pytest.param("claude-haiku-5-5", marks=pytest.mark.soak), "gemini-3.8-flash"])
async def test_a_session_of_a_small_model(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await _long_session(model, 60_000, 48, tmp_path, monkeypatch, {"safety.small_tier_parent": "allow"})


@pytest.mark.parametrize(
    "more",
    [
        {"context.preset": "digest"},
        pytest.param({"context.preset": "summary-only"}, marks=pytest.mark.soak),
        pytest.param({"context.preset": "off"}, marks=pytest.mark.soak),
        pytest.param({"compaction.auto": "false"}, marks=pytest.mark.soak),
        {"context.preset": "summary-only", "compaction.auto": "false"},
    ],
    ids=lambda more: " ".join(more.values()),
)
@pytest.mark.parametrize("provider", ["anthropic", pytest.param("gemini", marks=pytest.mark.soak)])
async def test_a_session_under_other_settings(
    provider: str, more: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _long_session(MODELS[provider], 60_000, 36, tmp_path, monkeypatch, more)


@pytest.mark.soak
@pytest.mark.parametrize("window", [20_000, 60_000, 200_000])
@pytest.mark.parametrize("provider", MODELS)
async def test_a_session_of_three_hundred_calls(
    provider: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _long_session(MODELS[provider], window, 300, tmp_path, monkeypatch)
