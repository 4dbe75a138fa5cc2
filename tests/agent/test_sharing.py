"""What sessions of one day may cost together."""

from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Step
from tui_agent.agent import events
from tui_agent.agent.turn.guards import ledger_of_today
from tui_agent.settings import GivenValue

SETTINGS: dict[str, GivenValue] = {"model.id": "claude-opus-5-5", "limits.day_usd": 5.0}


async def test_a_call_that_waits_for_those_of_others_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AnthropicServer(lambda _: Step(text="Hello.")) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with talking(tmp_path, SETTINGS) as session:
            ledger = ledger_of_today(session.home, 5.0)
            theirs = ledger.reserve(0.0, 4.9)
            assert isinstance(theirs, int)
            told: list[events.Notice] = []
            async for event in session.agent.run("hello"):
                assert told or not isinstance(event, events.AssistantMessage), "it did not wait"
                if isinstance(event, events.Notice):
                    told.append(event)
                    ledger.settle(theirs, 0.01)
            assert [event.title for event in told] == ["The call waits for those of other sessions"]
            assert "more than is left of $5.00" in told[0].text
            assert not [event for event in await say(session, "again") if isinstance(event, events.Notice)]
