"""Long sessions through the real SDKs: every layer at work, no rule broken, every fact found again."""

import random
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
SIZES = (3, 40, 400, 1_500, 6_000, 40_000, 160_000)
STEPS_A_TURN = 12


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
            filler = "".join(self.chance.choice("abcdefgh \n") for _ in range(size // 2))
            name = f"file_{number}.txt"
            (folder / name).write_text(f"{filler}\n{fact}\n{filler}")
            self.facts[name] = fact

    def step(self, request: ParsedRequest) -> Step:
        """Read the next file, print the next one, or say what was found."""
        if "# Current state" in request.prompt + request.system:
            return Step(text="# Current state\nThe files are being read one by one.\n\n# Exact next steps\n1. Go on.")
        number = self.read
        if number % STEPS_A_TURN == 0 and number and not self.paused:
            self.paused = True
            return Step(text=f"The files before {number} are read.")
        self.read, self.paused = number + 1, False
        if number % 3:
            return Step(text=f"Reading file {number}.", calls=(Call("read_file", {"path": f"file_{number}.txt"}),))
        return Step(reasoning="I print it.", calls=(Call("run_command", {"command": f"cat file_{number}.txt"}),))


async def _long_session(provider: str, window: int, calls: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = folder / "project"
    material = Material(project, calls, seed=window % 97)
    server_class = AnthropicServer if provider == "anthropic" else GeminiServer
    with in_thread(server_class(material.step, windows={MODELS[provider]: window})) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        settings = {"model.id": MODELS[provider], "permissions.mode": "allow"}
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
                if printed or any(fact in str(entry) for entry in session.record.view.log):
                    found = await session.agent.recall(fact)
                    assert any(fact in hit.excerpt for hit in found.hits), f"file {number} is lost"


@pytest.mark.parametrize("window", [20_000, 60_000])
@pytest.mark.parametrize("provider", MODELS)
async def test_a_session_of_a_hundred_calls(
    provider: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _long_session(provider, window, 96, tmp_path, monkeypatch)


@pytest.mark.soak
@pytest.mark.parametrize("window", [20_000, 60_000, 200_000])
@pytest.mark.parametrize("provider", MODELS)
async def test_a_session_of_three_hundred_calls(
    provider: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _long_session(provider, window, 300, tmp_path, monkeypatch)
