"""Files put back in the real app: the diff comes first, and what it says is done."""

from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from tests.tui.app_of_parts import project_of_parts, send, until
from tests.tui.commands.test_branches import ALLOW, agent_of, ask, done, notices, opened, picker, prompts
from tui_agent.arguments import Arguments
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import Level
from tui_agent.tui.commands.branches import REDO_HINT, UNDO_HINT
from tui_agent.tui.dialogs.files_screen import FilesScreen
from tui_agent.tui.dialogs.row_list import RowList


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, parts=2)


async def shown(app: TuiAgent, pilot: Pilot[object]) -> list[str]:
    """The rows of the dialog."""
    await until(pilot, lambda: isinstance(app.screen, FilesScreen))
    await pilot.pause()
    rows = app.screen.query_one(RowList)
    await until(pilot, lambda: rows.size.height > 1)
    return [text for y in range(rows.size.height) if (text := rows.render_line(y).text.strip())]


async def asked_to_rewind(app: TuiAgent, pilot: Pilot[object]) -> list[str]:
    await send(app, pilot, "/rewind")
    await picker(app, pilot)
    await pilot.press("enter")
    return await shown(app, pilot)


async def test_a_rewind_shows_the_diff_and_puts_both_back(arguments: Arguments) -> None:
    project = arguments.folder
    async with opened(arguments, ALLOW) as (app, pilot):
        await ask(app, pilot, "run echo more > new.txt; echo mine > own.txt")
        (project / "own.txt").write_text("changed by hand\n")
        rows = await asked_to_rewind(app, pilot)
        title = app.screen.query_one(".dialog-title", Static)
        assert str(title.content) == "Take back “run echo more > new.txt; echo mine > ow…” and all after it?"
        assert rows == [
            "1 file will be deleted, 1 changed by somebody else",
            "stays: own.txt (changed since by somebody else)",
            "new.txt: removed",
            "1 - more",
        ]
        await pilot.press("enter")
        await done(app, pilot)
        assert (prompts(app), (project / "new.txt").exists()) == ([], False)
        assert (project / "own.txt").read_text() == "changed by hand\n"
        rewound, files = notices(app)
        assert rewound.title.startswith("Rewound to before")
        assert files.title == "1 file put back"
        assert "own.txt: changed since by somebody else" in files.text
        assert app.entry.prompt.text == "run echo more > new.txt; echo mine > own.txt"


async def test_conversation_or_files_alone(arguments: Arguments) -> None:
    new = arguments.folder / "new.txt"
    async with opened(arguments, ALLOW) as (app, pilot):
        await ask(app, pilot, "run echo more > new.txt")
        await asked_to_rewind(app, pilot)
        await pilot.press("escape")
        await done(app, pilot)
        assert (len(prompts(app)), new.exists()) == (1, True)
        await send(app, pilot, f"/rewind {agent_of(app).branches.prompts()[0].seq} files")
        await shown(app, pilot)
        await pilot.press("f")
        await done(app, pilot)
        assert (len(prompts(app)), new.exists()) == (1, False)
        assert agent_of(app).engine.view.messages()[-1].role == "user"
        await send(app, pilot, "/undo-edits redo")
        await shown(app, pilot)
        await pilot.press("enter")
        await done(app, pilot)
        assert new.read_text() == "more\n"
        assert [each.hint for each in notices(app)[-2:]] == [REDO_HINT, UNDO_HINT]
        await asked_to_rewind(app, pilot)
        await pilot.press("c")
        await done(app, pilot)
        assert (prompts(app), new.exists()) == ([], True)
        # The message is in the prompt again.
        await pilot.press("ctrl+c")
        await send(app, pilot, "/undo-edits")
        await shown(app, pilot)
        await pilot.press("enter")
        await done(app, pilot)
        assert not new.exists()
        await send(app, pilot, "/undo-edits")
        await done(app, pilot)
        assert notices(app)[-1].title == "No turn has changed files that are still to be put back"


async def test_what_somebody_else_changed_is_put_back_where_that_is_asked_for(arguments: Arguments) -> None:
    own = arguments.folder / "own.txt"
    async with opened(arguments, ALLOW) as (app, pilot):
        await ask(app, pilot, "run echo more > own.txt")
        own.write_text("changed by hand\n")
        await send(app, pilot, "/undo-edits")
        assert "stays: own.txt (changed since by somebody else)" in await shown(app, pilot)
        # There is nothing else to be put back.
        await pilot.press("enter")
        assert isinstance(app.screen, FilesScreen)
        await pilot.press("o")
        rows = await shown(app, pilot)
        assert "own.txt: removed, changed since by somebody else" in rows
        assert "1 - changed by hand" in rows
        await pilot.press("enter")
        await done(app, pilot)
        assert not own.exists()
        assert notices(app)[-1].level == Level.INFO
        # A turn that runs is waited for.
        await send(app, pilot, "run sleep 30")
        await until(pilot, lambda: app.conductor.busy)
        await send(app, pilot, "/undo-edits")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        await pilot.press("escape")
        await until(pilot, lambda: not app.conductor.busy)
