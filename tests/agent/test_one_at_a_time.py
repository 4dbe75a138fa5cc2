"""One turn or context step at a time: what is asked meanwhile waits, and is planned on the view as it is then."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.serving import OPUS, Serve
from tests.agent.summaries import Reader
from tests.agent.talking import of, pages, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.script import Call, ParsedRequest, Step
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import Delivered, Queued, Summarized
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.session import Session

SETTINGS = {
    **OPUS,
    # There is no cheaper one beside it that could write its summaries.
    "agentic.small_model": OPUS["model.id"],
    "clearing.by_price": "false",
    "compaction.keep_recent_tokens": "4000",
}
SLOW = Step(text="# Current state\n" + "All is read. " * 40, delay=0.02)


def reading(request: ParsedRequest) -> Step:
    """Four pages a turn."""
    if request.position < 4 and "Go on" not in request.prompt:
        return Step(text="I read on.", calls=(Call("read_file", {"path": f"page_{request.position}.txt"}),))
    return Step(text="All pages are read.")


@asynccontextmanager
async def long_session(folder: Path, serve: Serve) -> AsyncIterator[tuple[Session, AnthropicServer]]:
    """A session that has read pages, on a server that writes summaries slowly."""
    pages(folder, 4)
    server = serve(AnthropicServer(Reader(reading, lambda _: SLOW)))
    async with talking(folder, SETTINGS) as session:
        for turn in range(3):
            await say(session, f"Read the pages, {turn}.")
        yield session, server


async def compacting(session: Session) -> "asyncio.Task[events.ContextStep]":
    """A compaction that has begun to ask its model."""
    begun = asyncio.Event()
    session.agent.listen(lambda event: begun.set() if isinstance(event, events.ContextStepStarted) else None)
    running = asyncio.ensure_future(session.agent.compact())
    await begun.wait()
    return running


async def test_another_model_waits_for_a_running_compaction(tmp_path: Path, serve: Serve) -> None:
    async with long_session(tmp_path, serve) as (session, _):
        running = await compacting(session)
        swapping = asyncio.ensure_future(session.agent.swap_model(CATALOGUE.create_model("claude-sonnet-4-6")))
        await asyncio.wait([running, swapping], return_when=asyncio.FIRST_COMPLETED)
        assert (running.done(), swapping.done()) == (True, False)
        await swapping
        result = running.result()
        boundary = session.agent.engine.view.log[result.seq]
        assert isinstance(boundary, Summarized)
        # Written by the model that was asked, whose connection was left open meanwhile.
        assert (result.error, boundary.model) == ("", "anthropic:claude-opus-5-5")
        assert "extract" not in boundary.reason
        assert session.agent.profile.id == "claude-sonnet-4-6"
        await say(session, "Go on.")


WHILE_COMPACTING: dict[str, Callable[[Agent], Awaitable[events.ContextStep | Refusal]]] = {
    "clear": lambda agent: agent.context.clear_results(),
    "pin": lambda agent: agent.context.pin([results(agent)[-1]]),
    "undo": lambda agent: agent.context.undo(),
}


def results(agent: Agent) -> list[int]:
    return [item.seq for item in agent.context.items() if item.category == "results"]


@pytest.mark.parametrize("asked", WHILE_COMPACTING)
async def test_what_is_asked_during_a_compaction_is_planned_after_it(asked: str, tmp_path: Path, serve: Serve) -> None:
    async with long_session(tmp_path, serve) as (session, _):
        agent = session.agent
        running = await compacting(session)
        step = await WHILE_COMPACTING[asked](agent)
        assert running.done()
        result = running.result()
        assert result.error == ""
        if isinstance(step, Refusal):
            # What the compaction left is too little to be cleared.
            assert asked == "clear"
            return
        assert step.seq > result.seq
        # As the view was then: after the summary, and what was cleared along with it.
        entries = [entry for entry, _ in agent.engine.view.context_entries()]
        before = entries[-2]
        assert step.before == pytest.approx(before.after, rel=0.02)
        assert step.before < 0.8 * result.before
        assert step.after == agent.context_stats().tokens
        if asked == "undo":
            assert step.target == result.seq


@pytest.mark.parametrize("way", ["interrupt", "leave"])
async def test_a_turn_that_is_stopped_while_it_waits_is_told_to_end(way: str, tmp_path: Path, serve: Serve) -> None:
    async with long_session(tmp_path, serve) as (session, _):
        running = await compacting(session)
        told: list[events.AgentEvent] = []
        turn = session.agent.run("Go on with the pages.")
        told.append(await anext(turn))
        while not session.agent.turns.queued():  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not running.done()
        if way == "interrupt":
            assert session.agent.interrupt()
            told += [event async for event in turn]
            assert [type(event) for event in told] == [events.TurnStarted, events.TurnFinished]
            assert isinstance(told[-1], events.TurnFinished)
            assert told[-1].stop_reason == "interrupted"
        else:
            await turn.aclose()
        assert not session.agent.busy
        assert (await running).error == ""
        # What was said is on disk, and is heard with the next turn, once.
        heard = [event.text for event in of(events.UserMessage, await say(session))]
        assert heard == ["Go on with the pages."]
        log = session.agent.engine.view.log
        assert [type(entry) for entry in log if isinstance(entry, Queued | Delivered)] == [Queued, Delivered]
        assert broken_rules(session.agent.engine.view.messages()) == []


async def test_a_turn_waits_for_a_compaction_and_its_beginning_is_told_at_once(tmp_path: Path, serve: Serve) -> None:
    async with long_session(tmp_path, serve) as (session, _):
        running = await compacting(session)
        seq = len(session.agent.engine.view.log)
        told: list[events.AgentEvent] = []
        async for event in session.agent.run("Go on with the pages."):
            if isinstance(event, events.TurnStarted):
                assert not running.done()
                assert event.seq == seq
            else:
                assert running.done()
            told.append(event)
        kinds = [type(event) for event in told]
        assert kinds[:2] == [events.TurnStarted, events.UserMessage]
        assert kinds.count(events.TurnStarted) == kinds.count(events.TurnFinished) == 1


async def test_what_a_step_would_do_is_looked_at_after_a_running_one(tmp_path: Path, serve: Serve) -> None:
    async with long_session(tmp_path, serve) as (session, _):
        running = await compacting(session)
        seen = await session.agent.context.preview("clear")
        assert running.done()
        if not isinstance(seen, Refusal):
            assert seen.preview.before == session.agent.context_stats().tokens


# What another model is told of


@pytest.mark.parametrize(("provider", "name"), [("anthropic", "claude-haiku-4-5"), ("gemini", "gemini-3.8-flash")])
async def test_the_preview_of_another_model_asks_its_provider_for_the_window(
    provider: str, name: str, tmp_path: Path, serve: Serve
) -> None:
    made = (AnthropicServer if provider == "anthropic" else GeminiServer)(
        lambda _: Step(text="Hi."), windows={name: 33_000}
    )
    serve(made)
    async with talking(tmp_path) as session:
        await say(session, "read calc.py")
        other = CATALOGUE.create_model(name)
        seen = await session.agent.context.preview_switch(other)
        assert seen.window_after == 33_000
        assert seen.call_usd is not None
        await session.agent.swap_model(other)
        assert session.agent.context_stats().window == 33_000


def thinking(request: ParsedRequest) -> Step:
    if request.position < 2:
        page = f"page_{request.position}.txt"
        return Step(reasoning="I look.", text="Next.", calls=(Call("read_file", {"path": page}),))
    return Step(reasoning="I am done.", text="Read.")


async def test_dropped_reasoning_is_told_of_as_soon_as_a_session_is_open(tmp_path: Path, serve: Serve) -> None:
    """The model takes its reasoning back only behind the beginning it was made for; an edit there drops it."""
    async with long_session(tmp_path, serve) as (session, server):
        server.script = Reader(thinking)
        for turn in range(2):
            await say(session, f"Think, {turn}.")
        assert not isinstance(await session.agent.context.clear_results([results(session.agent)[0]]), Refusal)
        await say(session, "Think again.")
        dropped = session.agent.context_stats().reasoning_dropped
        assert dropped > 0
    async with talking(tmp_path, SETTINGS, resume=session.id) as session:
        assert session.agent.context_stats().reasoning_dropped == dropped
    assert server.dropped_thinking == []


async def test_growth_is_measured_against_the_window_in_force(tmp_path: Path, serve: Serve) -> None:
    async with long_session(tmp_path, serve) as (session, _):
        name = session.id
    settings = {**SETTINGS, "context.context_window": "60000", "watchdog.context_growth_share": "0.1"}
    serve(AnthropicServer(Reader(reading)))
    async with talking(tmp_path, settings, resume=name) as session:
        told = await say(session, "Read the pages once more.")
        assert session.agent.profile.window == 1_000_000
    (alert,) = of(events.Alert, told)
    assert alert.signal == "context-growth"
    assert "of the window" in alert.text
