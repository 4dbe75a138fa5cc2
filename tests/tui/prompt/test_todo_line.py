"""The task list in the real app: the line over the prompt, the card and `/todo`, at every turn of the conversation."""

from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.tui.app_of_parts import project_of_parts, until, workers_finished
from tests.tui.commands.test_branches import ask, opened
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, Settings
from tui_agent.settings.schema import UiSettings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import NoticeBlock, TodoBlock

FIRST = 'todo "[>] read it", "mend it"'
SECOND = 'todo "[x] read it", "[>] mend it", "run the tests"'
ALL_DONE = 'todo "[x] read it", "[x] mend it"'


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, parts=1)


def line(app: TuiAgent) -> str:
    """The line over the prompt as it is painted; hidden, what it would show; empty where there is no room for it."""
    widget = app.entry.todo
    if not widget.display:
        return widget.text
    return str(widget.render()) if widget.size.height else ""


async def shows(app: TuiAgent, pilot: Pilot[object], text: str) -> None:
    await until(pilot, lambda: line(app) == text)


async def test_it_stands_over_the_prompt_while_its_turn_runs_and_ctrl_t_shows_it_whole(
    arguments: Arguments,
) -> None:
    async with opened(arguments) as (app, pilot):
        await pilot.press("ctrl+t")
        assert app.status.status.hint == "there is no task list"
        await shows(app, pilot, "")
        await ask(app, pilot, FIRST)
        await shows(app, pilot, "0/2 · read it")
        assert not app.entry.todo.display, "its turn has ended"
        app.entry.todo.goes_on(goes_on=True)
        await until(pilot, lambda: app.entry.todo.size.height == 1)
        assert app.entry.todo.region.bottom == app.entry.prompt.region.y
        assert app.entry.todo.content_region.x == app.entry.prompt.content_region.x
        await ask(app, pilot, SECOND)
        await shows(app, pilot, "1/3 · mend it")
        await app.run_command("/todo")
        notice = app.pane.transcript.blocks[-1]
        assert isinstance(notice, NoticeBlock)
        assert notice.title == "Task list: 1 of 3 done"
        assert notice.text == "[x] read it\n[>] mend it\n[ ] run the tests"
        await pilot.press("ctrl+t")
        await shows(app, pilot, "1/3 · mend it\n[x] read it\n[>] mend it\n[ ] run the tests")
        await until(pilot, lambda: app.entry.todo.size.height == 4)
        await pilot.press("ctrl+t")
        await until(pilot, lambda: not app.entry.todo.display)
        await ask(app, pilot, ALL_DONE)
        await shows(app, pilot, "")
        card = next(block for block in reversed(app.pane.transcript.blocks) if isinstance(block, TodoBlock))
        assert [item.line for item in card.todo] == ["[x] read it", "[x] mend it"]
        assert card.summary == ""
        steps = ", ".join(f'"{"[>] " * (number == 9)}step {number}"' for number in range(20))
        await ask(app, pilot, f"todo {steps}")
        await pilot.press("ctrl+t")
        await until(pilot, lambda: app.entry.todo.size.height == 9)
        assert "[>] step 9" in line(app)
        await pilot.press("ctrl+t")
        await ask(app, pilot, 'todo "[>] [red]re\x1b[2Jad\x1b]0;t\x07[/] ' + "very " * 60 + 'long"')
        app.entry.todo.goes_on(goes_on=True)
        await until(pilot, lambda: line(app).startswith("0/1 · [red]read[/] very very"))
        assert app.entry.todo.size.height == 1
        assert line(app).endswith("…")
        assert "\x1b" not in line(app)


async def test_it_follows_a_rewind_and_comes_back_with_the_session(arguments: Arguments) -> None:
    async with opened(arguments) as (app, pilot):
        await ask(app, pilot, FIRST)
        await ask(app, pilot, SECOND)
        agent = await app.agent()
        await app.run_command(f"/rewind {agent.branches.prompts()[-1].seq}")
        await workers_finished(pilot)
        await shows(app, pilot, "0/2 · read it")
        session = app.session_folder
    assert session is not None
    async with opened(arguments._replace(resume=session.name)) as (app, pilot):
        await shows(app, pilot, "0/2 · read it")
        card = next(block for block in app.pane.transcript.blocks if isinstance(block, TodoBlock))
        assert [item.line for item in card.todo] == ["[>] read it", "[ ] mend it"]


async def test_a_tiny_screen_has_no_room_for_it(arguments: Arguments) -> None:
    settings = Settings(model=ModelSettings(id="offline"), ui=UiSettings(glyphs="ascii"))
    async with opened(arguments, settings, (20, 5)) as (app, pilot):
        await ask(app, pilot, FIRST)
        await workers_finished(pilot)
        app.entry.todo.goes_on(goes_on=True)
        for size, shown in (((20, 5), ""), ((40, 10), "0/2 - read it")):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            assert line(app) == shown
