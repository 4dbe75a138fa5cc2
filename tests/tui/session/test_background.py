"""Turns in the background: begun there, sent there, answered from the list of sessions, stopped by quitting."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from textual.widgets import OptionList, Static

from tests.tui.app_of_parts import OFFLINE, blocks, project_of_parts, running, send, until
from tui_agent.agent.presence import statuses
from tui_agent.settings import PermissionSettings, Settings
from tui_agent.storage.session_lock import SessionLock
from tui_agent.storage.sessions import list_sessions
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock
from tui_agent.tui.commands.elsewhere import answer, visit
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.sessions_screen import SessionsScreen
from tui_agent.tui.session.states import Phase


def said(app: TuiAgent) -> list[str]:
    return [block.title for block in blocks(app, NoticeBlock)]


async def waiting(home: Path) -> str:
    """The session that waits for an answer."""
    while True:
        for name, status in (await asyncio.to_thread(statuses, home)).items():
            if status.state == "waiting":
                return name


async def test_turns_go_on_unseen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arguments = project_of_parts(monkeypatch, tmp_path, 1)
    asking = PermissionSettings(mode="ask", allow=("run_command(sleep 60)",))
    async with running(arguments, Settings(model=OFFLINE.model, permissions=asking)) as (app, pilot):
        await app.run_command("/background")
        assert said(app)[-1] == "No turn runs"

        # The question of one begun there is said in its words, and answered here.
        await app.run_command('/background call ask_user {"question":"Which port?","choices":["80","81"]}')
        await until(pilot, lambda: said(app)[-1].endswith("asks: Which port?"))
        asks = await waiting(arguments.home)
        (info,) = [info for info in await list_sessions(arguments.home) if info.id == asks]
        looking = app.run_worker(visit(app, arguments.home, info))
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        options = app.screen.query_one(OptionList).options
        assert [str(option.prompt).strip(" •").split("  ")[0] for option in options] == [
            "Answer its question",
            "Look in",
            "Stop its turn",
        ]
        assert "Which port?" in str(options[0].prompt)
        assert str(app.screen.query(Static).first().render()).endswith(": asks you, in the background")
        await pilot.press("escape")
        assert await looking.wait() is False
        gone = msgspec.structs.replace(info, id="gone")
        assert await visit(app, arguments.home, gone) is False
        await send(app, pilot, "/sessions")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen) and not isinstance(app.screen, SessionsScreen))
        await pilot.press("enter")
        await until(pilot, lambda: app.permission.has_focus)
        assert app.permission._reason.endswith("” asks.")
        await pilot.press("1")
        await until(pilot, lambda: not app.background.running)
        assert "Something went wrong inside the program" not in said(app)

        # A turn that runs here is sent there: another session is opened, and the turn goes on.
        first = app.conductor.session
        assert first is not None
        app.conductor.send("run sleep 60")
        await until(pilot, lambda: app.conductor.phase is Phase.RUNNING)
        await app.run_command("/background")
        assert said(app)[-1].endswith("goes on in the background")
        assert app.conductor.session is not None
        assert app.conductor.session.id != first.id
        assert SessionLock.is_held(first.folder)

        # One begun there asks; its question is answered here.
        await app.run_command('/background write "x" to new.txt')
        await until(pilot, lambda: said(app)[-1].endswith("asks: Create new.txt"))
        asks = await waiting(arguments.home)
        answering = app.run_worker(answer(app, arguments.home, asks, "it"))
        await until(pilot, lambda: app.permission.has_focus)
        await pilot.press("1")
        await answering.wait()
        await until(pilot, lambda: said(app)[-1].startswith("“write"))
        assert (arguments.folder / "new.txt").read_text() == "x"
        await until(pilot, lambda: app.background.running == 1)
        await pilot.press("ctrl+c")
        assert app.status.status.hint == "Ctrl+C again to quit, which stops 1 session in the background"
        app.quit()
        assert app.is_running
    assert not SessionLock.is_held(first.folder)
    assert not list((arguments.home / "running").iterdir())
