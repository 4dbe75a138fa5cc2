"""What a session keeps for its next start, and closing it: all of it, whatever fails on the way."""

import asyncio
from pathlib import Path

import psutil
import pytest
from typing_extensions import override

from tests.agent.talking import saved, say, talking
from tests.tools.support import call
from tui_agent.models.offline.adapter import OfflineModel
from tui_agent.replay.replaying import Replay
from tui_agent.session import Session
from tui_agent.storage.recordings.reading import read_recording
from tui_agent.tools.sandbox.sandbox import JOURNALS
from tui_agent.tools.shell.run_command import RunCommand


class Clinging(OfflineModel):
    """Its connections cannot be released."""

    @override
    async def close(self) -> None:
        raise OSError("the connection hangs")


async def test_commands_end_and_files_are_free_also_where_a_model_cannot_be_closed(tmp_path: Path) -> None:
    started: list[psutil.Process] = []

    async def talk() -> None:
        async with talking(tmp_path) as session:
            await session.agent.swap_model(Clinging())
            await call(RunCommand(background=session.background), tmp_path, command="sleep 600", background=True)
            started.extend(
                each for each in psutil.Process().children(recursive=True) if "sleep 600" in " ".join(each.cmdline())
            )

    with pytest.raises(OSError, match="hangs"):
        await talk()
    assert started
    assert not [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert await saved(tmp_path)


async def test_a_window_set_for_one_start_stays_with_the_session(tmp_path: Path) -> None:
    def window_of(session: Session) -> int:
        return session.agent.context_stats().window

    async with talking(tmp_path, {"context.context_window": "30000"}) as session:
        assert window_of(session) == 30_000
        name = session.folder.name
        await say(session, "hello")
    async with talking(tmp_path, resume=name) as session:
        assert window_of(session) == 30_000
        assert session.agent.settings.source("context.context_window") == "the session"
        recording = await asyncio.to_thread(read_recording, str(session.folder), session.home)
        replay = Replay(recording, session.agent.settings)
        (outcome,) = replay.run(["none"], replay.profile("claude-opus-5-5"))
        assert outcome.window == 30_000
    async with talking(tmp_path) as other:
        assert window_of(other) != 30_000
    async with talking(tmp_path, {"context.context_window": "0"}, resume=name) as session:
        assert window_of(session) != 30_000
    async with talking(tmp_path, resume=name) as session:
        assert window_of(session) != 30_000


async def test_a_start_restores_what_commands_changed_when_the_program_was_killed(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        place = session.home / JOURNALS
    place.mkdir()
    (place / "1-0").write_bytes(b"damaged")
    async with talking(tmp_path) as session:
        assert [notice.level for notice in session.notices if notice.title == "Guarded files"] == ["warning"]
    assert list(place.iterdir()) == []
