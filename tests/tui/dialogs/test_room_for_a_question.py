"""A question on a small screen: the answers can be read, and the prompt and the status bar stay."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tui.app_of_parts import OFFLINE, project_of_parts, until
from tui_agent.tools.base import PermissionQuestion, Preview
from tui_agent.tui.app.app import TuiAgent

LINES = "\n".join(f"echo line {number} of a long command" for number in range(60))
COMMAND = PermissionQuestion(
    "1", "run_command", "{}", (), Preview("Run a command", command=LINES), "It writes outside.", ("echo *", "ls *")
)
ASKED = PermissionQuestion(
    "2", "ask_user", "{}", (), Preview("Asks you", text=LINES), "", kind="question", choices=("a", "b", "c")
)


SMALL = (30, *range(24, 13, -1))


@pytest.mark.parametrize(
    ("question", "crowded", "heights"),
    [(COMMAND, False, range(40, 13, -1)), (COMMAND, True, SMALL), (ASKED, True, SMALL)],
    ids=["alone", "with a long draft", "of the model, with a long draft"],
)
async def test_everything_has_its_place_at_every_height(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, question: PermissionQuestion, crowded: bool, heights: Iterable[int]
) -> None:
    app = TuiAgent(project_of_parts(monkeypatch, tmp_path, 1), OFFLINE)
    async with app.run_test(size=(60, 40)) as pilot:
        await until(pilot, lambda: app.conductor.session)
        asking = asyncio.create_task(app.permission.ask(question))
        await until(pilot, lambda: app.permission.has_focus)
        if crowded:
            app.entry.prompt.type("a draft\n" * 20)
            app.entry.todo.show("1/2", "writes tests")
            app.entry.waiting.show(("one", "two", "three"))
        for height in heights:
            await pilot.resize_terminal(60, height)
            await pilot.pause()
            panel, choices = app.permission.region, app.permission.query_one("#permission-choices").region
            assert app.status.region.bottom == height
            assert app.entry.prompt.region.bottom == height - 1, height
            assert app.pane.region.height >= 1, height
            assert choices.height >= 1
            assert panel.contains_region(choices), (height, panel, choices)
            assert app.permission.query_one("#permission-preview").size.height >= 1, height
        asking.cancel()
