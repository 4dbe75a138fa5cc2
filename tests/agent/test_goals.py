"""A goal: turns follow each other until its command succeeds, or a bound is reached."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.agent.serving import Serve
from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Fault, Script, Step, Turn
from tui_agent.agent import events
from tui_agent.agent.turn.goals import Goal
from tui_agent.session import Session
from tui_agent.settings import GivenValue
from tui_agent.tools.base import ToolFailure

MAKE = Step(calls=(Call("write_file", {"path": "made.txt", "content": "x"}),))
OPUS: Final[dict[str, GivenValue]] = {
    "model.id": "claude-opus-5-5",
    "permissions.mode": "allow",
    "checkpoints.enabled": True,
}


@pytest.fixture
def server(serve: Serve) -> AnthropicServer:
    return serve(AnthropicServer(Script((Turn((MAKE,), when="failed with exit code 1"),), Step(text="Done."))))


async def pursue(session: Session, argument: str) -> list[events.AgentEvent]:
    commands = session.agent.own_commands
    prompt = await commands.named("goal")
    assert prompt is not None
    text = await commands.expand(prompt, argument)
    return [event async for event in session.agent.run(text, typed=f"/goal {argument}")]


def told(seen: list[events.AgentEvent]) -> list[str]:
    lines = [event.title if isinstance(event, events.Notice) else getattr(event, "message", "") for event in seen]
    return [line for line in lines if "goal" in line or "Not there" in line or line.startswith("It ")]


@pytest.mark.parametrize(
    ("argument", "goal"),
    [
        ("don't break it", Goal("don't break it")),
        ('mend it --until "pytest -q" --max-usd $5', Goal("mend it", "pytest -q", 5.0)),
        ("--max-turns=3 mend --until make it", Goal("mend it", "make", None, 3)),
        ("räum auf --until 'test -f \"a b\"' now", Goal("räum auf now", 'test -f "a b"')),
    ],
)
def test_what_is_typed(argument: str, goal: Goal) -> None:
    assert Goal.of(argument) == goal


@pytest.mark.parametrize(
    "argument", ["", "--until x", "do --until", "--max-turns", "do --max-usd x", "do --max-usd 0", "do --max-turns 0"]
)
def test_what_is_typed_wrongly_is_refused(argument: str) -> None:
    with pytest.raises(ToolFailure):
        Goal.of(argument)


async def test_it_goes_on_until_the_command_succeeds(server: AnthropicServer, tmp_path: Path) -> None:
    async with talking(tmp_path, OPUS) as session:
        seen = await pursue(session, 'make it --until "test -f made.txt"')
        not_yet, reached = told(seen)
        assert not_yet.startswith("Not there yet after 1 turn, $0.")
        assert not_yet.endswith(": test -f made.txt fails (exit code 1)")
        assert reached.startswith("The goal is reached after 2 turns, $0.")
        assert sum(isinstance(event, events.GoalCheck) for event in seen) == 2
        ended = [event.stop_reason for event in seen if isinstance(event, events.TurnFinished)]
        assert ended == ["end_turn", "end_turn"]
        # The next turn is one like any other.
        assert told(await say(session, "and now")) == []


async def test_it_ends_at_its_bounds(server: AnthropicServer, tmp_path: Path) -> None:
    async with talking(tmp_path, OPUS) as session:
        seen = await pursue(session, "wait --until false --max-turns 2")
        assert len(told(seen)) == 2
        assert told(seen)[-1].startswith("It is not reached after 2 turns")
        seen = await pursue(session, "wait --until false --max-usd 0.000001")
        assert told(seen)[-1].startswith("It has cost")
        assert any(isinstance(event, events.TurnFailed) and "--max-usd allows more" in event.hint for event in seen)
        seen = await pursue(session, "wait --max-turns 1")
        assert told(seen) == [told(seen)[0]]
        assert "the model has not said that it is done" in told(seen)[0]


async def test_it_ends_once_the_watchdog_objects(server: AnthropicServer, tmp_path: Path) -> None:
    async with talking(tmp_path, {**OPUS, "watchdog.tools_without_text": 1}) as session:
        seen = await pursue(session, "make it --until 'test -f other.txt'")
    assert [event.signal for event in seen if isinstance(event, events.Alert)] == ["tools-without-text"]
    assert "The watchdog objects: " in told(seen)[-1]
    assert sum(isinstance(event, events.GoalCheck) for event in seen) == 2


async def test_it_ends_with_a_turn_that_fails(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = lambda _: Step(fault=Fault(kind="bad_request", message="no"))
    async with talking(tmp_path, OPUS) as session:
        assert told(await pursue(session, "make it --until false"))[-1] == "The goal has ended too"


async def test_stopping_it_ends_it(server: AnthropicServer, tmp_path: Path) -> None:
    async with talking(tmp_path, OPUS) as session:
        commands = session.agent.own_commands
        prompt = await commands.named("goal")
        assert prompt is not None
        seen = []
        async for event in session.agent.run(await commands.expand(prompt, "wait --until 'sleep 600'")):
            seen.append(event)
            if isinstance(event, events.TurnFinished):
                with pytest.raises(ToolFailure, match="running"):
                    await commands.expand(prompt, "another --until true")
                asyncio.get_running_loop().call_later(0.1, session.agent.interrupt)
        assert told(seen) == ["The goal has ended: its command was stopped"]
        assert told(await say(session, "go on")) == []
