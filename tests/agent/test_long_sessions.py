"""Long sessions through the real SDKs: every layer at work, no rule broken, every fact found again."""

import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.agent.serving import MODELS, Serve
from tests.agent.summaries import Reader
from tests.agent.talking import goes_on, of, talking
from tests.agent.test_wire import pieces
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.conversation.entries import AnyEntry, ContextEntry, Message, ModelSwitched, Prefix

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
        number = self.read
        if number % STEPS_A_TURN == 0 and number and not self.paused:
            self.paused = True
            return Step(text=f"The files before {number} are read.")
        self.read, self.paused = number + 1, False
        if number % 3:
            return Step(text=f"Reading file {number}.", calls=(Call("read_file", {"path": f"file_{number}.txt"}),))
        return Step(reasoning="I print it.", calls=(Call("run_command", {"command": f"cat file_{number}.txt"}),))


def grows_without_a_step(log: Iterable[AnyEntry]) -> Iterator[bool]:
    """For each call but the first: whether nothing that changes what is shown lies between it and the one before."""
    started = free = False
    for entry in log:
        if isinstance(entry, ContextEntry | ModelSwitched | Prefix):
            free = False
        if isinstance(entry, Message) and entry.usage is not None:
            if started:
                yield free
            started = free = True


async def _long_session(
    model: str, window: int, calls: int, folder: Path, serve: Serve, more: Mapping[str, str] | None = None
) -> None:
    """No rule is broken, every fact is found again, and each request begins with the one before it, but right after a
    context step.
    """
    material = Material(folder / "project", calls, seed=window % 97)
    server_class = AnthropicServer if model.startswith("claude") else GeminiServer
    reader = Reader(material.step)
    serve(server_class(reader, windows={model: window}))
    settings = {"model.id": model, "permissions.mode": "allow", **(more or {})}
    steps: list[events.ContextStep] = []
    resumed: str | None = None
    for turn in range(calls // STEPS_A_TURN):
        # Closed and opened again before every turn: nothing but the disk carries over.
        async with talking(folder, settings, resume=resumed) as session:
            steps += of(events.ContextStep, await goes_on(session, f"Please read part {turn} of the files."))
            resumed = session.id
            if turn < calls // STEPS_A_TURN - 1:
                continue
            log = list(session.agent.engine.view.log)
            for number, fact in enumerate(list(material.facts.values())[: material.read]):
                printed = number % 3 == 0
                if printed or any(fact in str(entry) for entry in log):
                    found = await session.agent.context.recall(fact)
                    assert any(fact in hit.excerpt for hit in found.hits), f"file {number} is lost"
            for entry in of(Message, log):
                if entry.artifact is not None:
                    assert f'"{entry.artifact.path}"' in str(entry.blocks)
                    page = (session.folder / entry.artifact.path).read_text()
                    assert any(fact in page for fact in material.facts.values()), f"{entry.artifact.path} has no fact"
    assert [step.error for step in steps if step.error] == []
    assert steps, "no layer had to work"
    requests, growing = [pieces(request.body) for request in reader.own], list(grows_without_a_step(log))
    assert len(growing) == len(requests) - 1
    assert growing.count(True) > calls // 3
    for number, (earlier, later, free) in enumerate(zip(requests, requests[1:], growing, strict=False)):
        if free:
            assert later[: len(earlier)] == earlier, f"request {number + 1} does not begin with request {number}"
            assert len(later) > len(earlier)


SOAK = pytest.mark.soak


@pytest.mark.parametrize(
    ("provider", "window", "calls", "more"),
    [
        ("anthropic", 20_000, 60, {}),
        ("anthropic", 60_000, 36, {"context.preset": "digest"}),
        ("gemini", 60_000, 36, {"context.preset": "summary-only"}),
        pytest.param("gemini", 60_000, 60, {}, marks=SOAK),
        *(
            pytest.param(provider, 60_000, 36, {"context.preset": preset, "compaction.auto": auto}, marks=SOAK)
            for provider in MODELS
            for preset in ("layered", "digest", "summary-only", "off")
            for auto in ("true", "false")
        ),
        *(pytest.param(name, window, 300, {}, marks=SOAK) for name in MODELS for window in (20_000, 60_000, 200_000)),
    ],
)
async def test_a_long_session(
    provider: str, window: int, calls: int, more: Mapping[str, str], tmp_path: Path, serve: Serve
) -> None:
    await _long_session(MODELS[provider], window, calls, tmp_path, serve, more)


@pytest.mark.parametrize("model", [pytest.param("claude-haiku-5-5", marks=SOAK), "gemini-3.8-flash"])
async def test_a_session_of_a_small_model(model: str, tmp_path: Path, serve: Serve) -> None:
    await _long_session(model, 60_000, 48, tmp_path, serve, {"safety.small_tier_parent": "allow"})
