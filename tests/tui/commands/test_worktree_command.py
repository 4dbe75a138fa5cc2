"""`/worktree` in the app: leaving for a worktree, or saying why there is none."""

import subprocess
from pathlib import Path

import pytest

from tests.tui.app_of_parts import running, said, send, until
from tui_agent.arguments import Arguments, ExitCode
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


def at(project: Path) -> Arguments:
    return Arguments(folder=project, home=project.parent / "home", project=project)


async def test_one_is_opened_with_the_model_and_the_mode(project: Path) -> None:
    async with running(at(project)) as (app, pilot):
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
    async with running(at(project)) as (app, pilot):
        await send(app, pilot, "/worktree")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("down", "enter")
        await until(pilot, lambda: not app.is_running)
    assert app.leaving.start_next[0] == "--worktree=before"


async def test_what_cannot_be_done_is_said_and_the_session_stays(project: Path) -> None:
    async with running(at(project)) as (app, pilot):
        for typed, why in (("open a/b", "is no name for a worktree"), ("merge", "is in no worktree")):
            await send(app, pilot, f"/worktree {typed}")
            await until(pilot, lambda why=why: why in said(app))  # type: ignore[misc]
        assert app.conductor.session is not None
    assert not app.leaving.start_next


async def test_outside_of_a_repository_there_is_none(tmp_path: Path) -> None:
    async with running(at(tmp_path)) as (app, pilot):
        await send(app, pilot, "/worktree open")
        await until(pilot, lambda: "is in no git repository" in said(app))
