"""A conversation told again after a restart looks as it did while it happened."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.session_parts import REMEMBERED_FILE
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


EACH = [
    "read calc.py",
    "run echo out; exit 3",
    "find def in .",
    "read missing.py",
    'replace "return" with "yield" in calc.py everywhere',
    'write "new" to calc.py',
]


async def no(question: PermissionQuestion) -> PermissionAnswer:
    return PermissionAnswer(allowed=False)


def shown(told: list[AgentEvent]) -> list[tuple[str, str, str, str]]:
    return [(each.name, each.status, each.summary, each.diff) for each in told if isinstance(each, events.ToolFinished)]


@pytest.mark.parametrize("prompt", EACH)
async def test_results_have_the_same_line(tmp_path: Path, prompt: str) -> None:
    async with talking(tmp_path) as session:
        live = shown(await say(session, prompt))
        assert live
        assert any(diff for *_, diff in live) == prompt.startswith(("replace", "write"))
        name = session.folder.name
    async with talking(tmp_path, resume=name) as session:
        assert shown(list(session.agent.branches.history())) == live


async def test_what_was_declined_is_not_a_failure(tmp_path: Path) -> None:
    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=no) as session:
        await say(session, "run echo never")
        name = session.folder.name
    async with talking(tmp_path, resume=name) as session:
        ((_, status, _, _),) = shown(list(session.agent.branches.history()))
        assert status == "denied"


async def test_an_always_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    async def always(question: PermissionQuestion) -> PermissionAnswer:
        return PermissionAnswer(allowed=True, always=True)

    async with talking(tmp_path, {"permissions.mode": "ask"}, ask=always) as session:
        (tmp_path / "home" / REMEMBERED_FILE).write_text("{")
        told = await say(session, "run echo once")
    (notice,) = (each for each in told if isinstance(each, events.Notice) and "remembered" in each.title)
    assert "only for this session" in notice.text
    assert "damaged" in notice.text


async def test_what_was_stopped_is_not_a_failure(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        begun = asyncio.Event()

        def listen(event: AgentEvent) -> None:
            if isinstance(event, events.ToolProgress) and "begun" in event.text:
                begun.set()

        turn = asyncio.create_task(_each(session.agent.run("run echo begun; sleep 60"), listen))
        await asyncio.wait_for(begun.wait(), 60)
        session.agent.interrupt()
        await turn
        name = session.folder.name
    async with talking(tmp_path, resume=name) as session:
        ((_, status, _, _),) = shown(list(session.agent.branches.history()))
        assert status == "interrupted"


async def _each(told: AsyncIterator[AgentEvent], listen: Callable[[AgentEvent], None]) -> None:
    async for event in told:
        listen(event)
