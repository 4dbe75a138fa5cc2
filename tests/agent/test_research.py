"""A question about a large tree, asked with the wrappers and without them: what the session's own context holds at its
peak, and that the bill shown is the one the server counted.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.agent.billing import billed, counted
from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Script, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
AREAS = ("billing", "search", "storage", "transport")
FILES = 25
READ = 6
"""Files of an area that are read to answer the question about it."""


def large_tree(project: Path) -> None:
    for area in AREAS:
        (project / area).mkdir(parents=True)
        for number in range(FILES):
            lines = (f"def {area}_{number}_{each}(value):  # retry {each % 7} times\n" for each in range(400))
            (project / area / f"part_{number:02}.py").write_text("".join(lines))


def looking(area: str, position: int) -> Call | None:
    """What is done, one call after another, to find out how an area does it."""
    calls = [Call("list_dir", {"path": area}), Call("grep", {"pattern": "retry 3", "path": f"{area}/part_00.py"})]
    calls += [Call("read_file", {"path": f"{area}/part_{number:02}.py"}) for number in range(READ)]
    return calls[position] if position < len(calls) else None


def is_subtask(request: ParsedRequest) -> bool:
    return "on behalf of another agent" in request.system


class Researcher:
    """Answers by how often it was asked, not by what a request shows: a summary may take that away."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: ParsedRequest) -> Step:
        if is_subtask(request):
            area = next(area for area in AREAS if f'List "{area}"' in request.prompt)
            call = looking(area, request.position)
            return Step(calls=(call,)) if call else Step(text=f"{area}: each function retries, see part_00.py:4.")
        if asks_for_summary(request):
            return Step(text=HANDOVER)
        self.asked += 1
        if "agentic_research" in request.tools:
            asked = (Call("agentic_research", {"question": "How does it retry?", "path": area}) for area in AREAS)
            return Step(calls=tuple(asked)) if self.asked == 1 else Step(text="All areas retry.")
        place, position = divmod(self.asked - 1, READ + 2)
        call = looking(AREAS[place], position) if place < len(AREAS) else None
        return Step(calls=(call,)) if call else Step(text="All areas retry.")


async def researched(server: ProtocolServer, folder: Path, settings: Mapping[str, str]) -> tuple[int, float]:
    """The most input tokens of a call of the session itself, and the cost it shows, checked against the server's."""
    server.script = Researcher()
    already, answered = sum((await billed(server)).values()), len(server.answers)
    async with talking(folder, settings) as session:
        seen = await say(session, "How does each area of this tree retry?")
        assert not [event for event in seen if isinstance(event, events.TurnFailed)]
        finished = seen[-1]
        assert isinstance(finished, events.TurnFinished)
        assert finished.text == "All areas retry."
        shown = session.agent.tracker.session.cost_usd
        stats = session.agent.context_stats()
    assert finished.cost_usd == stats.cost_usd == shown
    assert shown == pytest.approx(sum((await billed(server)).values()) - already)
    asked = {request.number: request for request in server.model_requests}
    own = [
        counted(answer).input_tokens
        for answer in server.answers[answered:]
        if answer.usage and answer.number in asked and b"on behalf of another agent" not in asked[answer.number].body
    ]
    return max(own), shown


@pytest.mark.parametrize("provider", ["anthropic", pytest.param("gemini", marks=pytest.mark.soak)])
async def test_with_wrappers_the_sessions_own_context_stays_below_a_fifth(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_tree(tmp_path / "project")
    with in_thread(AnthropicServer(Script()) if provider == "anthropic" else GeminiServer(Script())) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        settings = {"model.id": MODELS[provider]}
        without, dear = await researched(server, tmp_path, {**settings, "agentic.enabled": "false"})
        within, cheap = await researched(server, tmp_path, settings)
        assert server.violations == []
        assert within <= without / 5
        assert cheap < dear
