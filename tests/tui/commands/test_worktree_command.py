"""`/worktree` in the app: leaving for a worktree, or saying why there is none."""

import subprocess
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.app_of_parts import OFFLINE, send, until
from tui_agent.arguments import Arguments, ExitCode
from tui_agent.settings import Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.worktrees import open_worktree

FIRST = ("-c", "user.name=x", "-c", "user.email=x@y.z", "commit", "-q", "--allow-empty", "-m", "first")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "shop"
    project.mkdir()
    for words in (("init", "-q"), FIRST):
        subprocess.run(["git", *words], cwd=project, check=True)
    return project


def app_in(project: Path, settings: Settings = OFFLINE) -> TuiAgent:
    return TuiAgent(Arguments(folder=project, home=project.parent / "home", project=project), settings)


def said(app: TuiAgent) -> str:
    return "\n".join(block.plain_text for block in app.pane.transcript.blocks)


async def opened(app: TuiAgent, pilot: Pilot[object]) -> None:
    await until(pilot, lambda: app.conductor.session is not None)


async def test_one_is_opened_with_the_model_and_the_mode(project: Path) -> None:
    app = app_in(project)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(app, pilot)
        await send(app, pilot, "/mode plan")
        await send(app, pilot, "/worktree open side")
        await until(pilot, lambda: not app.is_running)
    assert app.leaving.start_next == (
        "--worktree=side",
        "--set=model.id=offline:offline",
        "--set=permissions.mode=plan",
    )
    assert app.return_code == ExitCode.DONE
    assert not project.with_name("shop-worktrees").exists()  # the start makes it, with its hooks and its set-up


async def test_without_a_name_it_asks_which_and_lists_those_of_before(project: Path) -> None:
    open_worktree(project, "before")
    app = app_in(project)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(app, pilot)
        await send(app, pilot, "/worktree")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("down", "enter")
        await until(pilot, lambda: not app.is_running)
    assert app.leaving.start_next[0] == "--worktree=before"


@pytest.mark.parametrize(
    ("typed", "why"),
    [("/worktree open a/b", "is no name for a worktree"), ("/worktree merge", "is in no worktree")],
)
async def test_what_cannot_be_done_is_said_and_the_session_stays(project: Path, typed: str, why: str) -> None:
    app = app_in(project)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(app, pilot)
        await send(app, pilot, typed)
        await until(pilot, lambda: why in said(app))
        assert app.conductor.session is not None
    assert not app.leaving.start_next


async def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    app = app_in(tmp_path)
    async with app.run_test(size=(100, 30)) as pilot:
        await opened(app, pilot)
        await send(app, pilot, "/worktree open")
        await until(pilot, lambda: "is in no git repository" in said(app))
