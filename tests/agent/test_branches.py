"""Rewind, fork and going back: nothing is lost, and each branch is the conversation as if there were no other."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import saved, say, shown, talking
from tests.agent.test_wire import pieces
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, ParsedRequest, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.turn.turns import AgentBusy
from tui_agent.context.effects import Refusal
from tui_agent.conversation.entries import HeadMoved, Queued
from tui_agent.conversation.view import View
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.session import Session
from tui_agent.storage.sessions import list_sessions
from tui_agent.storage.verify import verify

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.1-pro-preview"}
PROVIDERS = pytest.mark.parametrize("provider", MODELS)


def answering(request: ParsedRequest) -> Step:
    """Look at a file, with a thought, then say so."""
    if asks_for_summary(request):
        return Step(text=HANDOVER)
    if request.position == 0 and "look" in request.prompt:
        return Step(reasoning="I look first.", text="One moment.", calls=(Call("read_file", {"path": "calc.py"}),))
    return Step(reasoning="That is it.", text=f"Answer to: {request.prompt[-60:]}")


@contextmanager
def serving(provider: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProtocolServer]:
    with in_thread((AnthropicServer if provider == "anthropic" else GeminiServer)(answering)) as server:
        for variable, value in server.environment.items():
            monkeypatch.setenv(variable, value)
        yield server
        assert server.violations == []
        assert server.dropped_thinking == []


def settings_of(provider: str) -> dict[str, str]:
    return {"model.id": MODELS[provider], "compaction.keep_recent_tokens": "500"}


def prompt_number(agent: Agent, text: str) -> int:
    """The number of the user's newest message with this text, on the present branch."""
    said = [
        event.seq for event in agent.branches.history() if isinstance(event, events.UserMessage) and event.text == text
    ]
    return said[-1]


def requests(server: ProtocolServer) -> list[list[bytes]]:
    return [pieces(request.json) for request in server.model_requests if request.json]


async def goes_well(session: Session, prompt: str) -> list[events.AgentEvent]:
    told = await say(session, prompt)
    assert [event for event in told if isinstance(event, events.TurnFailed)] == []
    assert broken_rules(session.agent.engine.view.messages()) == []
    return told


@pytest.mark.parametrize("reopened", [False, True], ids=["live", "reopened"])
@PROVIDERS
async def test_after_a_rewind_the_request_is_that_of_the_unbroken_session(
    provider: str, reopened: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(provider, monkeypatch) as server:
        async with talking(tmp_path, settings_of(provider)) as session:
            await goes_well(session, "look at A")
            before_b = len(server.model_requests)
            await goes_well(session, "look at B")
            await goes_well(session, "look at C")
            unbroken, entries = requests(server), list(session.agent.engine.view.log)
            told: list[events.AgentEvent] = []
            session.agent.listen(told.append)
            assert await session.agent.branches.rewind(prompt_number(session.agent, "look at B")) == "look at B"
            (moved,) = told
            assert isinstance(moved, events.BranchChanged)
            assert moved.reason == "rewind"
            assert moved.after < moved.before
            assert moved.after == session.agent.context_stats().tokens
            if not reopened:
                await goes_well(session, "look at B")
            name = session.id
        if reopened:
            async with talking(tmp_path, settings_of(provider), resume=name) as session:
                await goes_well(session, "look at B")
        first, second = requests(server)[len(unbroken) :]
        assert first == unbroken[before_b]
        # What the model answered has another id and signature this time.
        assert second[: len(first)] == first
        assert len(second) == len(unbroken[before_b + 1])
        log = await saved(tmp_path)
        assert log[: len(entries)] == entries
        folder = tmp_path / "home" / "sessions" / name
        assert verify(folder).ok


@PROVIDERS
async def test_a_fork_leaves_the_branch_it_came_from_to_go_back_to(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(provider, monkeypatch) as server:
        async with talking(tmp_path, settings_of(provider)) as session:
            agent = session.agent
            await goes_well(session, "look at A")
            measured = agent.context_stats().tokens
            after_a = prompt_number(agent, "look at A")
            first_answer = max(item.seq for item in agent.context.items())
            await goes_well(session, "look at B")
            longest, texts = requests(server)[-1], shown(agent.engine.view)
            tip = agent.engine.view.head
            assert await agent.branches.fork(first_answer) >= first_answer
            # The gauge is that of the branch, and measured: its last call says how large it is.
            stats = agent.context_stats()
            assert (stats.tokens, stats.measured) == (measured, True)
            await goes_well(session, "look at X")
            present, left = agent.branches.all()
            assert (present.present, present.text, left.present, left.tip) == (True, "look at X", False, tip)
            assert (left.text, left.fork >= after_a) == ("look at B", True)
            other_tip = agent.engine.view.head
            await agent.branches.switch(tip)
            assert shown(agent.engine.view) == texts
            await goes_well(session, "and now?")
            assert requests(server)[-1][: len(longest)] == longest
            assert "look at X" not in shown(agent.engine.view)
            name, state = session.id, (shown(agent.engine.view), agent.context_stats().tokens)
        async with talking(tmp_path, settings_of(provider), resume=name) as session:
            assert (shown(session.agent.engine.view), session.agent.context_stats().tokens) == state
            await session.agent.branches.switch(other_tip)
            assert "look at X" in shown(session.agent.engine.view)
            await goes_well(session, "and here?")
            # What was said on another branch can still be found.
            assert (await session.agent.context.recall("look at B")).hits


@PROVIDERS
async def test_costs_count_on_every_branch(provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(provider, monkeypatch):
        async with talking(tmp_path, settings_of(provider)) as session:
            await goes_well(session, "look at A")
            await goes_well(session, "look at B")
            cost = session.agent.tracker.session.cost_usd
            assert cost > 0
            await session.agent.branches.rewind(prompt_number(session.agent, "look at A"))
            assert session.agent.tracker.session.cost_usd == cost
            await goes_well(session, "look at C")
            whole, name = session.agent.tracker.session, session.id
            assert whole.cost_usd > cost
        async with talking(tmp_path, settings_of(provider), resume=name) as session:
            again = session.agent.tracker.session
            assert (again.usage, again.calls) == (whole.usage, whole.calls)
            assert again.cost_usd == pytest.approx(whole.cost_usd)
        (listed,) = await list_sessions(tmp_path / "home")
        assert listed.cost_usd == pytest.approx(whole.cost_usd)


@pytest.fixture
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


@pytest.mark.usefixtures("_no_delay")
async def test_what_waits_on_another_branch_is_not_delivered(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        agent = session.agent
        await say(session, "read calc.py")
        async for event in agent.run("run sleep 30"):
            if isinstance(event, events.ToolStarted):
                await agent.queue("read test_calc.py")
                agent.interrupt()
        assert len(agent.turns.queued()) == 1
        await agent.branches.rewind(prompt_number(agent, "run sleep 30"))
        assert agent.turns.queued() == ()
        told = await say(session, "find 'def' in .")
        assert [event.text for event in told if isinstance(event, events.UserMessage)] == ["find 'def' in ."]
        name = session.id
    async with talking(tmp_path, resume=name) as session:
        assert session.agent.turns.queued() == ()
        # On the branch that was left it was dealt with, by being left.
        (left,) = (branch for branch in session.agent.branches.all() if not branch.present)
        await session.agent.branches.switch(left.tip)
        assert session.agent.turns.queued() == ()
        assert not [event for event in await say(session) if isinstance(event, events.UserMessage)]


@pytest.mark.usefixtures("_no_delay")
async def test_a_text_delivered_during_a_turn_can_be_taken_back_and_is_not_delivered_again(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        agent, seq = session.agent, 0
        async for event in agent.run("read calc.py"):
            if isinstance(event, events.ToolStarted) and not seq:
                seq = await agent.queue("read test_calc.py")
        assert len([entry for entry in agent.engine.view.log if isinstance(entry, Queued)]) == 1
        assert await agent.branches.rewind(prompt_number(agent, "read test_calc.py")) == "read test_calc.py"
        assert agent.turns.queued() == ()
        assert "test_calc" not in shown(agent.engine.view)
        told = await say(session, "find 'def' in .")
        assert [event.text for event in told if isinstance(event, events.UserMessage)] == ["find 'def' in ."]


@pytest.mark.usefixtures("_no_delay")
async def test_context_steps_are_of_their_branch(tmp_path: Path) -> None:
    async with talking(tmp_path, {"compaction.keep_recent_tokens": "200"}) as session:
        agent = session.agent
        for prompt in ("read calc.py", "read test_calc.py", "find 'def' in ."):
            await say(session, prompt)
        whole, tip = shown(agent.engine.view), agent.engine.view.head
        await agent.branches.fork()
        assert (await agent.compact()).error == ""
        await say(session, "find 'assert' in .")
        summarised = agent.engine.view.head
        assert agent.context_stats().compactions == 1
        await agent.branches.switch(tip)
        assert shown(agent.engine.view) == whole
        assert agent.context_stats().compactions == 0
        assert isinstance(await agent.context.undo(), Refusal)
        await agent.branches.switch(summarised)
        assert agent.context_stats().compactions == 1
        assert not isinstance(await agent.context.undo(), Refusal)


@PROVIDERS
async def test_a_model_that_was_switched_to_later_still_answers(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who answers is the user's last word, whatever the branch said then."""
    other = {"anthropic": "claude-sonnet-4-6", "gemini": "gemini-3.8-flash"}[provider]
    with serving(provider, monkeypatch):
        async with talking(tmp_path, settings_of(provider)) as session:
            agent = session.agent
            await goes_well(session, "look at A")
            await goes_well(session, "look at B")
            await agent.swap_model(CATALOGUE.create_model(other))
            await goes_well(session, "look at C")
            await agent.branches.rewind(prompt_number(agent, "look at B"))
            told = await goes_well(session, "look at D")
            asked = {event.model for event in told if isinstance(event, events.ModelCallStarted)}
            assert asked == {f"{provider}:{other}"}
            assert agent.engine.view.model == f"{provider}:{other}"
            name = session.id
        async with talking(tmp_path, {"model.id": ""}, resume=name) as session:
            assert session.agent.profile.name == f"{provider}:{other}"
            await goes_well(session, "look at E")


@pytest.mark.usefixtures("_no_delay")
async def test_what_is_no_message_of_the_user_here_cannot_be_taken_back(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        agent = session.agent
        with pytest.raises(ValueError, match="no message"):
            await agent.branches.fork(3)
        await say(session, "read calc.py")
        await say(session, "read test_calc.py")
        first, second = (prompt_number(agent, text) for text in ("read calc.py", "read test_calc.py"))
        answer = next(item.seq for item in agent.context.items() if item.category == "assistant")
        for wrong in (0, -1, answer, len(agent.engine.view.log) + 1):
            with pytest.raises(ValueError, match="not a message of yours"):
                await agent.branches.rewind(wrong)
        await agent.branches.rewind(second)
        with pytest.raises(ValueError, match="not a message of yours"):
            await agent.branches.rewind(second)
        with pytest.raises(ValueError, match="no branch"):
            await agent.branches.switch(second)
        length = len(agent.engine.view.log)
        async for event in agent.run("find 'def' in ."):
            if isinstance(event, events.ToolStarted):
                for move in (agent.branches.rewind(first), agent.branches.fork(), agent.branches.switch(length)):
                    with pytest.raises(AgentBusy):
                        await move
        assert await agent.branches.rewind(first) == "read calc.py"
        assert agent.context.items() == []
        told = await say(session, "read test_calc.py")
        assert isinstance(told[-1], events.TurnFinished)
        assert told[-1].stop_reason == "end_turn"


@pytest.mark.usefixtures("_no_delay")
async def test_a_move_that_is_cancelled_is_made_or_not(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        agent = session.agent
        await say(session, "read calc.py")
        for ticks in range(12):
            await say(session, f"find 'def' in . # {ticks}")
            whole, seq = shown(agent.engine.view), prompt_number(agent, f"find 'def' in . # {ticks}")
            moving = asyncio.ensure_future(agent.branches.rewind(seq))
            for _ in range(ticks):
                await asyncio.sleep(0)
            moving.cancel()
            await asyncio.wait([moving])
            moved = isinstance(agent.engine.view.log[len(agent.engine.view.log)], HeadMoved)
            assert (shown(agent.engine.view) != whole) == moved
            assert shown(View(await session.persistence.store.load())) == shown(agent.engine.view)
