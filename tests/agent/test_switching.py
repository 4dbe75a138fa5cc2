"""Another model in the middle of a session: whose reasoning goes where, what still fits, and what each has cost."""

from pathlib import Path

import pytest

from tests.agent.billing import billed, counted
from tests.agent.summaries import Reader
from tests.agent.talking import say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events
from tui_agent.models.catalogue import CATALOGUE

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
PAGES = 32


def thinking(request: ParsedRequest) -> Step:
    """A page, then an answer, each after some reasoning that names its provider."""
    reasoning = f"Reasoning by {request.provider}, step {request.position}."
    if request.position:
        return Step(reasoning=reasoning, text=f"Said by {request.provider}.")
    return Step(reasoning=reasoning, calls=(Call("read_file", {"path": "calc.py"}),))


def bodies(server: ProtocolServer, since: int = 0) -> list[str]:
    return [request.body.decode() for request in server.model_requests[since:]]


@pytest.mark.parametrize("first", MODELS)
async def test_reasoning_stays_with_who_made_it_and_each_is_billed_its_own(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: dict[str, ProtocolServer] = {"anthropic": AnthropicServer(thinking), "gemini": GeminiServer(thinking)}
    second = next(name for name in MODELS if name != first)
    with in_thread(servers["anthropic"]), in_thread(servers["gemini"]):
        for server in servers.values():
            for name, value in server.environment.items():
                monkeypatch.setenv(name, value)
        async with talking(tmp_path, {"model.id": MODELS[first]}) as session:
            for turn, provider in enumerate((first, second, first)):
                if turn:
                    await session.agent.swap_model(CATALOGUE.create_model(MODELS[provider]))
                told = await say(session, f"Look at calc.py, {turn}.")
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []
                assert broken_rules(session.agent.engine.view.messages()) == []
            tracker = session.agent.tracker
            expected = await billed(*servers.values())
            costs = {name: totals.cost_usd for name, totals in tracker.by_model().items()}
            name = session.id
        assert costs == pytest.approx(expected)
        assert set(costs) == {f"{provider}:{model}" for provider, model in MODELS.items()}
        assert tracker.session.cost_usd == pytest.approx(sum(expected.values()))
        for provider, server in servers.items():
            other = second if provider == first else first
            assert server.violations == []
            assert server.dropped_thinking == []
            assert all(f"Reasoning by {other}" not in body for body in bodies(server))
        # Within its own tool loop each model got its reasoning back; the words of the other came along.
        assert '"thinking"' in bodies(servers["anthropic"])[1] or '"signature"' in bodies(servers["anthropic"])[1]
        assert "thoughtSignature" in bodies(servers["gemini"])[1]
        assert all(f"Said by {first}." in body for body in bodies(servers[second]))
        async with talking(tmp_path, {"model.id": "offline"}, resume=name) as session:
            again = {name: totals.cost_usd for name, totals in session.agent.tracker.by_model().items()}
        assert again == pytest.approx(expected)


def pages(request: ParsedRequest) -> Step:
    """Four pages a turn."""
    if request.position < 4 and "Read" in request.prompt:
        number = int(request.prompt.rpartition(" ")[2].rstrip(".")) * 4 + request.position
        return Step(reasoning="On.", text="Next.", calls=(Call("read_file", {"path": f"p{number % PAGES}.txt"}),))
    return Step(reasoning="Enough.", text="Read.")


@pytest.mark.parametrize(
    ("before", "after", "window_before", "window_after", "lines"),
    [
        ("claude-opus-5-5", "claude-haiku-4-5", 1_000_000, 200_000, 700),
        ("claude-haiku-4-5", "claude-sonnet-4-6", 200_000, 20_000, 80),
    ],
)
@pytest.mark.parametrize("preset", ["layered", "summary-only"])
async def test_what_a_smaller_window_does_not_hold_is_fitted_before_the_next_call(
    before: str,
    after: str,
    window_before: int,
    window_after: int,
    lines: int,
    preset: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for number in range(PAGES):
        text = "".join(f"page {number} line {each} holds nothing of note\n" for each in range(lines))
        (project / f"p{number}.txt").write_text(text)
    reader = Reader(pages)
    with in_thread(AnthropicServer(reader, windows={before: window_before, after: window_after})) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        settings = {"model.id": before, "context.preset": preset, "safety.small_tier_parent": "allow"}
        settings |= {"compaction.threshold_by_tier.small": "0.85", "compaction.thrift": "0"}
        settings |= {"clearing.by_price": "false"}
        async with talking(tmp_path, settings) as session:
            for turn in range(PAGES // 4):
                told = await say(session, f"Read four pages, {turn}.")
                assert [event for event in told if isinstance(event, events.TurnFailed)] == []
                if session.agent.engine.tokens > window_after:
                    break
            assert session.agent.engine.tokens > window_after
            await session.agent.swap_model(CATALOGUE.create_model(after))
            asked = len(server.answers)
            told = await say(session, "What was on the last page?")
            assert isinstance(told[-1], events.TurnFinished)
            assert told[-1].stop_reason == "end_turn"
            steps = [event for event in told if isinstance(event, events.ContextStep)]
            assert steps
            assert steps[-1].after < window_after
            assert session.agent.context_stats().window == window_after
            assert (await session.agent.context.recall("page 1 line 3 holds nothing")).hits
            # And back: the larger window goes on with what the view is now.
            await session.agent.swap_model(CATALOGUE.create_model(before))
            assert [event for event in await say(session, "Thanks.") if isinstance(event, events.TurnFailed)] == []
        sizes = [counted(answer).input_tokens for answer in server.answers[asked:] if answer.usage]
        assert sizes
        assert max(sizes) <= window_after
        assert server.violations == []
        assert [answer.detail for answer in server.answers if answer.outcome != "completed" and answer.detail] == []
        assert server.dropped_thinking == []
