"""A turn stopped while its answer is being saved: what was saved is the answer, and it is there once."""

import asyncio
import gc
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.models import Scripted
from tests.agent.talking import say, talking
from tests.agent.test_opening import saying
from tests.conversation.logs import broken_rules
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.answers import TurnError
from tui_agent.agent.turn.turn import AGAIN
from tui_agent.conversation.blocks import Text, text_in
from tui_agent.conversation.entries import Message
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import StreamEvent, TextDelta
from tui_agent.session import Session


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


async def test_an_answer_is_not_saved_twice(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
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
    return sum(
        text in block.text
        for message in session.agent.engine.view.messages()
        for block in message.blocks
        if isinstance(block, Text)
    )


@pytest.mark.parametrize("at", [events.ModelCallStarted, events.ToolStarted, events.TextDelta])
async def test_a_prompt_sent_again_after_a_stop_stands_once(at: type[events.AgentEvent], tmp_path: Path) -> None:
    prompt = "run sleep 30" if at is events.ToolStarted else "read calc.py"
    async with talking(tmp_path) as session:
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
        assert [event.kind for event in told if isinstance(event, events.TurnFailed)] == ["disk_full"]
        assert isinstance(told[-1], events.TurnFinished)
        assert not session.agent.busy
        again = await say(session, "read calc.py")
        assert isinstance(again[-1], events.TurnFinished)
        assert again[-1].stop_reason == "end_turn"
    gc.collect()
    assert "never retrieved" not in caplog.text
