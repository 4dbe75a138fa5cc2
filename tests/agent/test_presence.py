"""What an open session says of itself, and what it takes from another program."""

import asyncio
import time
from pathlib import Path

from tests.agent.talking import talking
from tui_agent.agent import events
from tui_agent.agent.presence import FOLDER, Instruction, SessionStatus, State, statuses, tell
from tui_agent.session import Session
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion


async def reached(home: Path, session: Session, state: State) -> SessionStatus:
    def look() -> SessionStatus:
        while (status := statuses(home).get(session.id)) is None or status.state != state:
            time.sleep(0.02)
        return status

    return await asyncio.to_thread(look)


async def taken(home: Path) -> None:
    def look() -> None:
        while list((home / FOLDER).glob("*.told")):
            time.sleep(0.02)

    await asyncio.to_thread(look)


async def test_a_session_is_answered_and_stopped_from_elsewhere(tmp_path: Path) -> None:
    withdrawn = asyncio.Event()

    async def nobody(question: PermissionQuestion) -> PermissionAnswer:
        try:
            never: asyncio.Future[PermissionAnswer] = asyncio.get_running_loop().create_future()
            return await never
        finally:
            withdrawn.set()

    async with talking(tmp_path, {"permissions.mode": "ask"}) as session, asyncio.timeout(60):
        home = session.home
        session.presence.ask_here = nobody
        assert (await reached(home, session, "idle")).turn == ""

        async def turn(prompt: str) -> list[events.AgentEvent]:
            return [event async for event in session.agent.run(prompt)]

        running = asyncio.create_task(turn('write "x" to new.txt'))
        asked = await reached(home, session, "waiting")
        assert asked.question is not None
        assert asked.question.preview.title == "Create new.txt"
        tell(home, session.id, Instruction("another", PermissionAnswer(allowed=True)))
        await taken(home)
        assert not withdrawn.is_set()
        tell(home, session.id, Instruction(asked.asked, PermissionAnswer(allowed=True)))
        await running
        assert withdrawn.is_set()
        assert (session.agent.folder / "new.txt").read_text() == "x"
        await reached(home, session, "idle")
        running = asyncio.create_task(turn('write "y" to other.txt'))
        tell(home, session.id, Instruction((await reached(home, session, "waiting")).turn))
        finished = [event for event in await running if isinstance(event, events.TurnFinished)]
        assert [event.stop_reason for event in finished] == ["interrupted"]
        await reached(home, session, "idle")
    assert not list((home / FOLDER).iterdir())


def test_what_a_killed_program_left_is_ignored(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "20260101-000000-0000.json").write_text('{"state":"waiting"}')
    assert statuses(tmp_path) == {}
