"""A turn, from the user's words to the answer: in order, interrupted anywhere, and with texts sent meanwhile."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.talking import saved, say, talking
from tests.conversation.logs import broken_rules
from tests.examples import examples
from tui_agent.agent import events
from tui_agent.agent.turn import toolbox
from tui_agent.agent.turn.turns import AgentBusy, NotRunning
from tui_agent.conversation.blocks import Text, ToolResult
from tui_agent.conversation.entries import Message
from tui_agent.conversation.view import View
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

TASK = "read calc.py and test_calc.py, find 'return' in ., run python test_calc.py"


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


async def test_a_turn_tells_its_story_in_order(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told = await say(session, TASK)
    kinds = [type(event) for event in told]
    assert kinds[:2] == [events.TurnStarted, events.UserMessage]
    assert kinds[-1] is events.TurnFinished
    assert kinds.count(events.ToolStarted) == kinds.count(events.ToolFinished) == 4
    started = [event.call_id for event in told if isinstance(event, events.ToolStarted)]
    assert sorted(event.call_id for event in told if isinstance(event, events.ToolFinished)) == sorted(started)


async def test_history_replays_what_was_told(tmp_path: Path) -> None:
    kept = (events.UserMessage, events.AssistantMessage, events.ToolStarted)
    async with talking(tmp_path) as session:
        told = [event for event in await say(session, TASK) if isinstance(event, kept)]
        name = session.id
    async with talking(tmp_path, resume=name) as session:
        assert [event for event in session.agent.branches.history() if isinstance(event, kept)] == told


@given(ticks=st.integers(0, 400), by_cancel=st.booleans())
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_an_interruption_anywhere_leaves_a_valid_log(
    ticks: int, by_cancel: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("interrupted")

    async def interrupted() -> list[str]:
        async with talking(folder) as session:
            turn = asyncio.ensure_future(say(session, TASK))
            for _ in range(ticks):
                await asyncio.sleep(0)
            if by_cancel:
                turn.cancel()
            else:
                session.agent.interrupt()
            await asyncio.wait([turn])
            assert not session.agent.busy
            view = View(list(session.agent.engine.view.log))
            assert broken_rules(view.messages()) == []
            assert view.unanswered() == ()
            again = await say(session, "read calc.py")
            assert isinstance(again[-1], events.TurnFinished)
            assert again[-1].stop_reason == "end_turn"
        return broken_rules(View(await saved(folder)).messages())

    assert asyncio.run(interrupted()) == []


@pytest.mark.parametrize("by_cancel", [True, False])
async def test_a_turn_stopped_before_its_first_step_ends(by_cancel: bool, tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        turn = asyncio.ensure_future(say(session, TASK))
        await asyncio.sleep(0)
        assert turn.cancel() if by_cancel else session.agent.interrupt()
        await asyncio.wait_for(asyncio.wait([turn]), 60)
        assert not session.agent.busy
        assert isinstance((await say(session, "read calc.py"))[-1], events.TurnFinished)


async def test_a_text_sent_during_a_turn_is_delivered_at_its_next_step(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told: list[events.AgentEvent] = []
        seq = 0
        async for event in session.agent.run("read calc.py"):
            told.append(event)
            if isinstance(event, events.ToolStarted) and not seq:
                seq = await session.agent.queue("read test_calc.py")
    delivered = [event for event in told if isinstance(event, events.UserMessage)]
    assert [(event.text, event.queued) for event in delivered] == [("read calc.py", 0), ("read test_calc.py", seq)]
    read = [event.arguments for event in told if isinstance(event, events.ToolStarted)]
    assert read == ['{"path":"calc.py"}', '{"path":"test_calc.py"}']


async def test_a_text_taken_back_is_not_delivered(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
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
        name = session.id
    async with talking(tmp_path, resume=name) as session:
        told = await say(session)
    assert [event.text for event in told if isinstance(event, events.UserMessage)] == ["read calc.py"]


async def test_a_text_sent_once_the_failure_is_told_is_not_left_waiting(tmp_path: Path) -> None:
    async with talking(tmp_path, {"context.context_window": "1000"}) as session:
        async for event in session.agent.run("please read calc.py"):
            if isinstance(event, events.TurnFailed):
                with pytest.raises(NotRunning):
                    await session.agent.queue("try again")
        async for event in session.agent.run("try again"):
            if isinstance(event, events.TurnStarted):
                assert await session.agent.queue("and this")


async def test_one_turn_at_a_time(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        running = session.agent.run("read calc.py")
        await anext(running)
        with pytest.raises(AgentBusy):
            await anext(session.agent.run("another"))
        await running.aclose()
        assert not session.agent.busy


async def test_read_only_calls_run_together_and_others_in_order(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told = await say(session, "read calc.py and test_calc.py, then run sleep 0.3, then run echo second")
    order = [(type(event), event.name) for event in told if isinstance(event, events.ToolStarted | events.ToolFinished)]
    assert order[:2] == [(events.ToolStarted, "read_file")] * 2
    texts = [event.text for event in told if isinstance(event, events.ToolFinished) and event.name == "run_command"]
    assert "second" in texts[1]


async def test_what_cannot_fit_is_not_sent(tmp_path: Path) -> None:
    async with talking(tmp_path, {"context.context_window": "1000"}) as session:
        told = await say(session, "please read calc.py")
        failed = next(event for event in told if isinstance(event, events.TurnFailed))
        assert failed.kind == "context_overflow"
        assert failed.hint
        assert not any(isinstance(event, events.AssistantMessage) for event in told)
        kept = [entry for entry in session.agent.engine.view.log if isinstance(entry, Message)]
        assert kept[-1].blocks == (Text("please read calc.py"),)


async def test_an_unknown_tool_and_bad_arguments_are_answered(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told = await say(session, "read missing.txt")
        finished = next(event for event in told if isinstance(event, events.ToolFinished))
        assert finished.status == "error"
        results = [
            block
            for entry in session.agent.engine.view.log
            if isinstance(entry, Message)
            for block in entry.blocks
            if isinstance(block, ToolResult)
        ]
        assert results[0].is_error


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
    (finished,) = [event for event in told if isinstance(event, events.ToolFinished)]
    assert ahead_s
    assert 0 <= finished.duration_ms < 1_800_000
