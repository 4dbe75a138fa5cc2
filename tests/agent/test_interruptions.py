"""A turn stopped while its answer is being saved: what was saved is the answer, and it is there once."""

import asyncio
import resource
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tui_agent.agent import events
from tui_agent.agent.history.as_events import text_of
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message


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
                text_of(entry.blocks, Text)
                for entry in list(session.agent.engine.view.log)[begin:]
                if isinstance(entry, Message) and entry.role == "assistant"
            ]
            assert len(said) == len(set(said)), ticks


async def test_a_stop_that_cannot_be_saved_ends_the_turn_and_says_so(tmp_path: Path) -> None:
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
