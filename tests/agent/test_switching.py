"""Another model in the middle of a session: whose reasoning goes where, what still fits, and what each has cost."""

import asyncio
from pathlib import Path

import pytest
from msgspec import structs
from typing_extensions import override

from tests.agent.billing import billed, counted
from tests.agent.models import PROFILE, Scripted, answers
from tests.agent.serving import MODELS, Serve
from tests.agent.summaries import HANDOVER, Reader
from tests.agent.talking import failures, goes_on, of, pages, say, talking
from tests.servers import signing
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.script import Call, ParsedRequest, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.table import run_command
from tui_agent.conversation.blocks import Reasoning, Text
from tui_agent.conversation.entries import Message, Summarized
from tui_agent.conversation.profile import ModelProfile
from tui_agent.models.catalogue import CATALOGUE

PAGES = 32


def thinking(request: ParsedRequest) -> Step:
    """A page, then an answer, each after some reasoning that names its provider."""
    reasoning = f"Reasoning by {request.provider}, step {request.position}."
    if request.position:
        return Step(reasoning=reasoning, text=f"Said by {request.provider}.")
    return Step(reasoning=reasoning, calls=(Call("read_file", {"path": "calc.py"}),))


def bodies(server: ProtocolServer, since: int = 0) -> list[str]:
    return [request.body.decode() for request in server.model_requests[since:]]


async def test_a_switch_that_is_cancelled_is_none() -> None:
    class Slow(Scripted):
        @override
        async def describe(self) -> ModelProfile:
            await asyncio.sleep(60)
            return PROFILE

    before, after = Scripted(answers(Text("Here."))), Slow(profile=structs.replace(PROFILE, id="slow"))
    async with Agent(before) as agent:
        await agent.ask("Hello?")
        switching = asyncio.create_task(agent.swap_model(after))
        await asyncio.sleep(0.1)
        switching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await switching
        assert (agent.profile.id, agent.engine.model.id, before.closed, after.closed) == (
            "scripted",
            "scripted",
            False,
            True,
        )
        assert await agent.ask("And now?") == "Here."


@pytest.mark.parametrize("first", MODELS)
async def test_reasoning_stays_with_who_made_it_and_each_is_billed_its_own(
    first: str, tmp_path: Path, serve: Serve
) -> None:
    servers: dict[str, ProtocolServer] = {"anthropic": AnthropicServer(thinking), "gemini": GeminiServer(thinking)}
    second = next(name for name in MODELS if name != first)
    for server in servers.values():
        serve(server)
    async with talking(tmp_path, {"model.id": MODELS[first]}) as session:
        for turn, provider in enumerate((first, second, first)):
            if turn:
                await session.agent.swap_model(CATALOGUE.create_model(MODELS[provider]))
            await goes_on(session, f"Look at calc.py, {turn}.")
        tracker = session.agent.tracker
        expected = await billed(*servers.values())
        costs = {name: totals.cost_usd for name, totals in tracker.by_model().items()}
        name = session.id
    assert costs == pytest.approx(expected)
    assert set(costs) == {f"{provider}:{model}" for provider, model in MODELS.items()}
    assert tracker.session.cost_usd == pytest.approx(sum(expected.values()))
    for provider, server in servers.items():
        other = second if provider == first else first
        assert all(f"Reasoning by {other}" not in body for body in bodies(server))
    # Within its own tool loop each model got its reasoning back; the words of the other came along.
    assert '"thinking"' in bodies(servers["anthropic"])[1] or '"signature"' in bodies(servers["anthropic"])[1]
    assert "thoughtSignature" in bodies(servers["gemini"])[1]
    assert all(f"Said by {first}." in body for body in bodies(servers[second]))
    async with talking(tmp_path, {"model.id": "offline"}, resume=name) as session:
        again = {name: totals.cost_usd for name, totals in session.agent.tracker.by_model().items()}
    assert again == pytest.approx(expected)


def reading(request: ParsedRequest) -> Step:
    """Four pages a turn."""
    if request.position < 4 and "Read" in request.prompt:
        number = int(request.prompt.rpartition(" ")[2].rstrip(".")) * 4 + request.position
        return Step(reasoning="On.", text="Next.", calls=(Call("read_file", {"path": f"page_{number % PAGES}.txt"}),))
    return Step(reasoning="Enough.", text="Read.")


@pytest.mark.parametrize(
    ("before", "after", "window_before", "window_after", "lines", "preset"),
    [
        ("claude-opus-5-5", "claude-haiku-4-5", 1_000_000, 200_000, 700, "layered"),
        ("claude-haiku-4-5", "claude-sonnet-4-6", 200_000, 20_000, 80, "summary-only"),
    ],
)
async def test_what_a_smaller_window_does_not_hold_is_fitted_before_the_next_call(
    before: str,
    after: str,
    window_before: int,
    window_after: int,
    lines: int,
    preset: str,
    tmp_path: Path,
    serve: Serve,
) -> None:
    pages(tmp_path, PAGES, lines=lines)
    reader = Reader(reading)
    server = serve(AnthropicServer(reader, windows={before: window_before, after: window_after}))
    settings = {"model.id": before, "context.preset": preset, "safety.small_tier_parent": "allow"}
    settings |= {"compaction.threshold_by_tier.small": "0.85", "compaction.thrift": "0"}
    settings |= {"clearing.by_price": "false"}
    async with talking(tmp_path, settings) as session:
        for turn in range(PAGES // 4):
            told = await say(session, f"Read four pages, {turn}.")
            assert failures(told) == []
            if session.agent.engine.tokens > window_after:
                break
        assert session.agent.engine.tokens > window_after
        await session.agent.swap_model(CATALOGUE.create_model(after))
        asked = len(server.answers)
        told = await say(session, "What was on the last page?")
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].stop_reason == "end_turn"
        steps = of(events.ContextStep, told)
        assert steps
        assert steps[-1].after < window_after
        assert session.agent.context_stats().window == window_after
        assert (await session.agent.context.recall("line 3 of page 1 names")).hits
        # And back: the larger window goes on with what the view is now.
        await session.agent.swap_model(CATALOGUE.create_model(before))
        assert [event for event in await say(session, "Thanks.") if isinstance(event, events.TurnFailed)] == []
    sizes = [counted(answer).input_tokens for answer in server.answers[asked:] if answer.usage]
    assert sizes
    assert max(sizes) <= window_after
    assert [answer.detail for answer in server.answers if answer.outcome != "completed" and answer.detail] == []


# Reasoning whose signatures a provider no longer accepts, as at a new address: nothing ends


REFUSING = {"claude-sonnet-4-6": AnthropicServer, "claude-opus-5-5": AnthropicServer, "gemini-3.8-flash": GeminiServer}


def looking(request: ParsedRequest) -> Step:
    """Reads the file for each prompt, thinking; a summary where one is asked for."""
    if not request.results and "calc.py" in request.prompt[:60]:
        return Step(text="I look.", reasoning="It may be long.", calls=(Call("read_file", {"path": "calc.py"}),))
    return Step(text=HANDOVER if "summar" in request.prompt.lower() else "It adds.", reasoning="I see.")


@pytest.mark.parametrize("name", REFUSING)
async def test_a_session_goes_on_at_a_server_that_refuses_all_its_reasoning(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    settings = {"model.id": name, "compaction.keep_recent_tokens": "100"}
    server = serve(REFUSING[name](looking), may_break=True)
    async with talking(tmp_path, settings) as session:
        (tmp_path / "project" / "calc.py").write_text("".join(f"def add_{i}(): ...\n" for i in range(200)))
        for number in range(4):
            await say(session, f"What does calc.py do? ({number})")
    monkeypatch.setattr(signing, "KEY", b"another server")
    async with talking(tmp_path, settings, resume=session.id) as session:
        view = session.agent.engine.view
        assert not (await run_command(session.agent, "/compact!")).failed
        assert any(isinstance(entry, Summarized) for entry in view.log)
        told = await say(session, "And calc.py again?")
        assert failures(told) == []
        refused = sum(answer.outcome == "refused" for answer in server.answers)
        assert refused <= 2
    async with talking(tmp_path, settings, resume=session.id) as session:
        told = await say(session, "And once more?")
        assert failures(told) == []
        assert sum(answer.outcome == "refused" for answer in server.answers) == refused
        log = [entry for entry in session.agent.engine.view.log if isinstance(entry, Message)]
        if name != "gemini-3.8-flash":  # whose reasoning has its signature at the calls
            assert sum(isinstance(block, Reasoning) for entry in log for block in entry.blocks) >= 8
