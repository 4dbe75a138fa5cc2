"""A turn, from the user's words to the answer: in order, interrupted anywhere, and with texts sent meanwhile."""

import asyncio
import gc
import resource
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.agent.models import Scripted
from tests.agent.talking import failures, goes_on, of, saved, say, talking, texts
from tests.agent.test_opening import saying
from tests.conversation.logs import broken_rules
from tests.examples import examples
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.answers import TurnError
from tui_agent.agent.turn import toolbox
from tui_agent.agent.turn.turn import AGAIN
from tui_agent.agent.turn.turns import NotRunning
from tui_agent.conversation.blocks import Text, text_in
from tui_agent.conversation.entries import Message
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.view import View
from tui_agent.models.base import StreamEvent, TextDelta
from tui_agent.session import Session
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

TASK = "read calc.py and test_calc.py, find 'return' in ., run python test_calc.py"


async def test_a_turn_tells_its_story_in_order_and_history_tells_it_again(tmp_path: Path) -> None:
    kept = (events.UserMessage, events.AssistantMessage, events.ToolStarted)
    async with talking(tmp_path) as session:
        await say(session, "read calc.py")
        name, newest = session.id, len(session.agent.engine.view.log)
        told = await say(session, TASK)
    kinds = [type(event) for event in told]
    assert kinds[:2] == [events.TurnStarted, events.UserMessage]
    assert kinds[-1] is events.TurnFinished
    assert kinds.count(events.ToolStarted) == kinds.count(events.ToolFinished) == 4
    started = [event.call_id for event in of(events.ToolStarted, told)]
    assert sorted(event.call_id for event in of(events.ToolFinished, told)) == sorted(started)
    # All that follows has a higher number.
    assert of(events.TurnStarted, told)[0].seq == newest
    assert min(event.seq for event in told if isinstance(event, kept[:2])) > newest
    async with talking(tmp_path, resume=name) as session:
        again = [event for event in session.agent.branches.history() if isinstance(event, kept)]
        assert again[-len([event for event in told if isinstance(event, kept)]) :] == [
            event for event in told if isinstance(event, kept)
        ]


@example(ticks=1, by_cancel=True)
@example(ticks=1, by_cancel=False)
@given(ticks=st.integers(0, 400), by_cancel=st.booleans())
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
async def test_an_interruption_anywhere_leaves_a_valid_log(
    ticks: int, by_cancel: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("interrupted")
    async with talking(folder) as session:
        turn = asyncio.ensure_future(say(session, TASK))
        for _ in range(ticks):
            await asyncio.sleep(0)
        if by_cancel:
            turn.cancel()
        else:
            session.agent.interrupt()
        await asyncio.wait_for(asyncio.wait([turn]), 60)
        assert not session.agent.busy
        view = View(list(session.agent.engine.view.log))
        assert broken_rules(view.messages()) == []
        assert view.unanswered() == ()
        await goes_on(session, "read calc.py")
    assert broken_rules(View(await saved(folder)).messages()) == []


async def test_a_text_sent_during_a_turn_is_delivered_at_its_next_step(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told: list[events.AgentEvent] = []
        seq = 0
        async for event in session.agent.run("read calc.py"):
            told.append(event)
            if isinstance(event, events.ToolStarted) and not seq:
                seq = await session.agent.queue("read test_calc.py")
    delivered = of(events.UserMessage, told)
    assert [(event.text, event.queued) for event in delivered] == [("read calc.py", 0), ("read test_calc.py", seq)]
    read = [event.arguments for event in of(events.ToolStarted, told)]
    assert read == ['{"path":"calc.py"}', '{"path":"test_calc.py"}']


async def test_a_text_taken_back_is_not_delivered(session: Session) -> None:
    async for event in session.agent.run("read calc.py"):
        if isinstance(event, events.ToolStarted):
            seq = await session.agent.queue("read test_calc.py")
            assert await session.agent.turns.withdraw(seq) == "read test_calc.py"
            assert await session.agent.turns.withdraw(seq) == ""
    assert session.agent.turns.queued() == ()
    with pytest.raises(NotRunning):
        await session.agent.queue("too late")


async def test_what_waited_at_an_interruption_is_delivered_by_the_next_run(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        async for event in session.agent.run("run sleep 30"):
            if isinstance(event, events.ToolStarted):
                await session.agent.queue("read calc.py")
                session.agent.interrupt()
    async with talking(tmp_path, resume=session.id) as session:
        told = await say(session)
    assert [event.text for event in of(events.UserMessage, told)] == ["read calc.py"]


async def test_what_cannot_fit_is_not_sent_and_nothing_is_left_waiting(tmp_path: Path) -> None:
    async with talking(tmp_path, {"context.context_window": "1000"}) as session:
        told: list[events.AgentEvent] = []
        async for event in session.agent.run("please read calc.py"):
            told.append(event)
            if isinstance(event, events.TurnFailed):
                assert (event.kind, bool(event.hint)) == ("context_overflow", True)
                with pytest.raises(NotRunning):
                    await session.agent.queue("try again")
        assert of(events.TurnFailed, told)
        assert of(events.AssistantMessage, told) == []
        assert of(Message, session.agent.engine.view.log)[-1].blocks == (Text("please read calc.py"),)
        async for event in session.agent.run("try again"):
            if isinstance(event, events.TurnStarted):
                assert await session.agent.queue("and this")


async def test_read_only_calls_run_together_and_others_in_order(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told = await say(session, "read calc.py and test_calc.py, then run sleep 0.3, then run echo second")
    order = [(type(event), event.name) for event in told if isinstance(event, events.ToolStarted | events.ToolFinished)]
    assert order[:2] == [(events.ToolStarted, "read_file")] * 2
    texts = [event.text for event in of(events.ToolFinished, told) if event.name == "run_command"]
    assert "second" in texts[1]


async def test_how_long_the_user_thinks_is_not_how_long_a_call_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_s = 0

    async def slowly(question: PermissionQuestion) -> PermissionAnswer:
        nonlocal ahead_s
        ahead_s += 3600
        return PermissionAnswer(allowed=True)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s)
    monkeypatch.setattr(toolbox, "time", clock)
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=slowly) as session:
        told = await say(session, "run echo now")
    (finished,) = of(events.ToolFinished, told)
    assert ahead_s
    assert 0 <= finished.duration_ms < 1_800_000


# Stopped while its answer is being saved: what was saved is the answer, and it is there once


async def test_an_answer_is_not_saved_twice(session: Session) -> None:
    for ticks in range(25):
        begin = len(session.agent.engine.view.log)
        async for event in session.agent.run("read calc.py"):
            if isinstance(event, events.ToolCallDelta):
                for _ in range(ticks):
                    await asyncio.sleep(0)
                session.agent.interrupt()
        said = [
            text_in(entry.blocks)
            for entry in list(session.agent.engine.view.log)[begin:]
            if isinstance(entry, Message) and entry.role == "assistant"
        ]
        assert len(said) == len(set(said)), ticks


def times(session: Session, text: str) -> int:
    return sum(text in each for each in texts(session.agent.engine.view))


@pytest.mark.parametrize("at", [events.ModelCallStarted, events.ToolStarted, events.TextDelta])
async def test_a_prompt_sent_again_after_a_stop_stands_once(at: type[events.AgentEvent], session: Session) -> None:
    prompt = "run sleep 30" if at is events.ToolStarted else "read calc.py"
    for stops in (1, 2):
        async for event in session.agent.run(prompt):
            if isinstance(event, at):
                session.agent.interrupt()
        assert times(session, prompt) == 1
        assert times(session, AGAIN) == stops - 1
    await say(session, "read calc.py" if at is events.ToolStarted else prompt)
    answered = times(session, "read calc.py")
    # What was answered is a new message.
    await say(session, "read calc.py")
    assert times(session, "read calc.py") == answered + 1
    assert broken_rules(session.agent.engine.view.messages()) == []


async def test_a_prompt_sent_again_after_a_failure_in_mid_answer_stands_once() -> None:
    async def breaks(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        yield TextDelta("So far, ")
        raise ValueError("broken")

    agent = Agent(Scripted(breaks, breaks, *saying("Here I am.", "And again.")))
    for _ in range(2):
        with pytest.raises(TurnError):
            await agent.ask("Which?")
    assert await agent.ask("Which?") == "Here I am."
    assert [each.text for each in agent.engine.view.said()] == ["Which?"]
    assert await agent.ask("Which?") == "And again."
    assert [each.text for each in agent.engine.view.said()] == ["Which?", "Which?"]
    assert broken_rules(agent.engine.view.messages()) == []


async def test_a_consumer_that_is_cancelled_while_it_holds_the_iterator_ends_the_turn() -> None:
    handling = asyncio.Event()

    async def talks_on(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        while True:
            yield TextDelta("on and on, ")
            await asyncio.sleep(0.01)

    agent = Agent(Scripted(talks_on, *saying("Here I am.")))
    turn = agent.run("Which?")

    async def consume() -> None:
        async for event in turn:
            if isinstance(event, TextDelta):
                handling.set()
                await asyncio.Event().wait()

    consumer = asyncio.create_task(consume())
    await handling.wait()
    consumer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await consumer
    assert await agent.ask("Which?") == "Here I am."
    assert isinstance([event async for event in turn][-1], events.TurnFinished)


async def test_a_stop_that_cannot_be_saved_ends_the_turn_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with talking(tmp_path) as session:
        told: list[events.AgentEvent] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            async for event in session.agent.run("run sleep 30"):
                told.append(event)
                if isinstance(event, events.ToolStarted):
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
                    session.agent.interrupt()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert failures(told) == ["disk_full"]
        assert isinstance(told[-1], events.TurnFinished)
        assert not session.agent.busy
        await goes_on(session, "read calc.py")
    gc.collect()
    assert "never retrieved" not in caplog.text
