"""Rewinding, forking and going back to a branch, in the real app with the offline model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tests.gallery.conversations import record_entries
from tests.tui.app_of_parts import (
    ALLOW,
    OFFLINE,
    agent_of,
    answered,
    blocks,
    project_of_parts,
    prompts,
    running,
    send,
    until,
    workers_finished,
)
from tui_agent.arguments import Arguments
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, Queued, user_message
from tui_agent.settings import Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import CommandBlock, NoticeBlock, ToolBlock, ToolState, UserBlock
from tui_agent.tui.dialogs.branch_pickers import PlacePicker
from tui_agent.tui.dialogs.row_list import RowList
from tui_agent.tui.wording import WHILE_A_TURN_RUNS

__all__ = ["ALLOW", "agent_of", "ask", "done", "notices", "opened", "picker", "prompts"]


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, parts=4)


@asynccontextmanager
async def opened(
    arguments: Arguments, settings: Settings = OFFLINE, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    async with running(arguments, settings, size) as (app, pilot):
        await workers_finished(pilot)
        yield app, pilot


@asynccontextmanager
async def talked(
    arguments: Arguments, turns: int = 3, settings: Settings = OFFLINE
) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    """An app whose model has read some files."""
    async with opened(arguments, settings) as (app, pilot):
        for number in range(turns):
            await ask(app, pilot, f"read part{number}.txt")
        yield app, pilot


ask = answered


async def done(app: TuiAgent, pilot: Pilot[object]) -> None:
    """Until what was asked for is on the screen."""
    await workers_finished(pilot)
    await pilot.pause()


def user_block(app: TuiAgent, text: str) -> UserBlock:
    return next(block for block in blocks(app, UserBlock) if block.text == text)


def notices(app: TuiAgent) -> list[NoticeBlock]:
    return blocks(app, NoticeBlock)


async def picker(app: TuiAgent, pilot: Pilot[object]) -> PlacePicker:
    await until(pilot, lambda: isinstance(app.screen, PlacePicker))
    await pilot.pause()
    screen = app.screen
    assert isinstance(screen, PlacePicker)
    return screen


def rows_of(screen: PlacePicker) -> list[str]:
    rows = screen.query_one(RowList)
    return [rows.render_line(y).text[1:].rstrip() for y in range(rows.size.height)]


async def test_a_picker_rewinds_and_the_text_goes_to_the_prompt(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        full = app.status.status.tokens
        await send(app, pilot, "/rewind")
        screen = await picker(app, pilot)
        await until(pilot, lambda: isinstance(app.focused, Input))
        await pilot.press(*"part0")
        assert [row.split()[2] for row in rows_of(screen) if row] == ["part0.txt"]
        await pilot.press(*"zz")
        assert [row.strip() for row in rows_of(screen) if row] == ["nothing fits"]
        await pilot.press("enter")
        assert app.screen is screen
        await pilot.press("escape")
        await done(app, pilot)
        assert len(prompts(app)) == 3
        assert app.entry.prompt.text == ""
        await send(app, pilot, "/rewind")
        shown = rows_of(await picker(app, pilot))
        assert [row.split()[1:4] for row in shown] == [
            ["read", "part2.txt", "3"],
            ["read", "part1.txt", "6"],
            ["read", "part0.txt", "9"],
        ]
        assert all("just now" in row for row in shown)
        await pilot.press("down", "enter")
        await done(app, pilot)
        assert prompts(app) == ["read part0.txt"]
        assert app.entry.prompt.text == "read part1.txt"
        assert app.focused is app.entry.prompt
        assert [prompt.text for prompt in agent_of(app).branches.prompts()] == ["read part0.txt"]
        (notice,) = notices(app)
        assert (notice.title, notice.hint) == (
            "Rewound to before “read part1.txt”",
            "its text is in the prompt (Ctrl+C clears it); /tree brings it all back",
        )
        assert app.pane.following
        assert 0 < app.status.status.tokens == agent_of(app).context.fullness().tokens < full
        told = [block.plain_text for block in app.pane.transcript if not isinstance(block, NoticeBlock)]
        assert app.session_folder is not None
    async with opened(arguments._replace(resume=app.session_folder.name)) as (again, _):
        assert [block.plain_text for block in again.pane.transcript if not isinstance(block, NoticeBlock)] == told


def pane_rows(app: TuiAgent) -> list[str]:
    return [app.pane.render_line(y).text.rstrip() for y in range(app.pane.scrollable_content_region.height)]


async def test_the_keys_of_a_message_stand_below_it_and_do_nothing_on_another_block(arguments: Arguments) -> None:
    told = "  → r rewinds to before it · f forks after it"
    async with talked(arguments, 2) as (app, pilot):
        await pilot.press("tab", "left_square_bracket")
        rows = pane_rows(app)
        assert rows[rows.index("▎ read part1.txt") + 1] == told
        assert rows.count(told) == 1
        await pilot.press("pagedown", "pageup")
        assert told in pane_rows(app)
        await pilot.press("home")
        assert not any("rewinds" in row for row in pane_rows(app))
        await pilot.press("left_square_bracket", "right_square_bracket")
        assert told in pane_rows(app)
        await pilot.press("down")
        assert not any("rewinds" in row for row in pane_rows(app))
        await pilot.press("up", "tab")
        assert not any("rewinds" in row for row in pane_rows(app))
        await pilot.press("tab", "up", "r", "f")
        await done(app, pilot)
        assert not isinstance(app.pane.cursor_block, UserBlock)
        assert len(agent_of(app).branches.all()) == 1
        assert not notices(app)[1:]
        # A draft is kept in the history.
        app.entry.prompt.type("half a thought")
        app.pane._move_cursor(user_block(app, "read part1.txt").index)
        await pilot.press("r")
        await done(app, pilot)
        assert app.entry.prompt.text == "read part1.txt"
        await pilot.press("ctrl+c", "up")
        assert app.entry.prompt.text == "read part1.txt"
        await pilot.press("up")
        assert app.entry.prompt.text == "half a thought"


async def test_a_message_forks_and_the_tree_leads_back(arguments: Arguments) -> None:
    async with talked(arguments, 2) as (app, pilot):
        app.pane.focus()
        app.pane._move_cursor(user_block(app, "read part0.txt").index)
        await pilot.press("f")
        await done(app, pilot)
        assert prompts(app) == ["read part0.txt"]
        assert app.entry.prompt.text == ""
        (notice,) = notices(app)
        assert notice.title == "A new branch after “read part0.txt”"
        await ask(app, pilot, "read part3.txt")
        await send(app, pilot, "/tree")
        screen = await picker(app, pilot)
        present, other = rows_of(screen)
        assert present.split()[:4] == ["●", "read", "part3.txt", "·"]
        assert present.split()[-3:] == ["5", "just", "now"]
        assert other.split()[:4] == ["└", "read", "part1.txt", "·"]
        await pilot.press("down", "enter")
        await done(app, pilot)
        assert prompts(app) == ["read part0.txt", "read part1.txt"]
        (notice,) = notices(app)
        assert (notice.title, notice.hint) == ("Back on the branch with “read part1.txt”", "/tree leads back")


async def test_the_present_branch_is_gone_on_with_as_it_is(arguments: Arguments) -> None:
    async with talked(arguments, 2) as (app, pilot):
        await send(app, pilot, "/fork")
        await done(app, pilot)
        assert notices(app)[-1].title == "A new branch after “read part1.txt”"
        assert notices(app)[-1].hint.startswith("it begins with your next message")
        await send(app, pilot, "/tree")
        await done(app, pilot)
        assert notices(app)[-1].title == "There is one branch so far"
        await ask(app, pilot, "read part2.txt")
        shown = list(app.pane.transcript)
        await send(app, pilot, "/tree")
        await picker(app, pilot)
        await pilot.press("enter")
        await done(app, pilot)
        assert list(app.pane.transcript) == shown


async def test_one_branch_no_message_and_a_number_that_is_none_are_said(arguments: Arguments) -> None:
    async with opened(arguments) as (app, pilot):
        for command, title in (
            ("/rewind", "There is nothing to take back"),
            ("/tree", "There is one branch so far"),
            ("read part0.txt", ""),
            ("/rewind 99", "Nothing was taken back"),
            ("/rewind two", "/rewind takes the number of a message of yours"),
            ("/fork 99", "No branch was begun"),
            ("/fork two", "/fork takes the number of a message, or nothing for the newest"),
            ("/tree 99", "The conversation stays on its branch"),
            ("/tree two", "The conversation stays on its branch"),
        ):
            before = len(notices(app))
            await ask(app, pilot, command)
            await done(app, pilot)
            assert [notice.title for notice in notices(app)[before:]] == ([title] if title else [])
        assert len(prompts(app)) == 1


async def test_not_while_a_turn_runs(arguments: Arguments) -> None:
    async with talked(arguments, 1, ALLOW) as (app, pilot):
        await send(app, pilot, "run sleep 60")
        await until(pilot, lambda: any(each.name == "run_command" for each in blocks(app, ToolBlock)))
        for command in ("/rewind", "/rewind 3", "/tree", "/fork"):
            app.status.show(hint="")
            await send(app, pilot, command)
            await until(pilot, lambda: app.status.status.hint == WHILE_A_TURN_RUNS)
        app.status.show(hint="")
        app.pane.focus()
        app.pane._move_cursor(user_block(app, "read part0.txt").index)
        await pilot.press("r")
        await until(pilot, lambda: app.status.status.hint == WHILE_A_TURN_RUNS)
        assert len(prompts(app)) == 2
        await pilot.press("escape")
        await until(pilot, lambda: not app.conductor.busy)


async def test_a_command_of_ones_own_is_rewound_as_it_was_typed_and_keeps_its_card_while_it_runs(
    arguments: Arguments,
) -> None:
    async with talked(arguments, 2) as (app, pilot):
        await send(app, pilot, "!echo my own words")
        await until(pilot, lambda: any(each.state is ToolState.OK for each in blocks(app, CommandBlock)))
        await send(app, pilot, "/rewind")
        screen = await picker(app, pilot)
        assert "!echo my own words" in rows_of(screen)[0]
        await pilot.press("enter")
        await done(app, pilot)
        assert app.entry.prompt.text == "!echo my own words"
        assert notices(app)[-1].title == "Rewound to before “!echo my own words”"
        await pilot.press("ctrl+c")
        await send(app, pilot, "!echo begun; until [ -e go ]; do sleep 0.05; done; echo ended")
        await until(pilot, lambda: any("begun" in each.tail for each in blocks(app, ToolBlock)))
        await send(app, pilot, f"/rewind {agent_of(app).branches.prompts()[1].seq}")
        await until(pilot, lambda: prompts(app) == ["read part0.txt"])
        (arguments.folder / "go").touch()
        await until(pilot, lambda: any("ended" in each.result for each in blocks(app, ToolBlock)))
        await done(app, pilot)
        app.pane.flush()
        assert [prompt.text[:12] for prompt in agent_of(app).branches.prompts()] == ["read part0.t", "!echo begun;"]


async def test_what_waited_goes_back_to_the_prompt(arguments: Arguments) -> None:
    said: list[AnyEntry] = []
    for text in ("read part0.txt", "read part1.txt"):
        answer = Message(role="assistant", blocks=(Text("It is read."),), model="offline:offline")
        said += [user_message(text), answer]
    # As after a kill: what was sent during the last turn waits still.
    left = [ModelSwitched(model="offline:offline"), *said, Queued(blocks=(Text("and one thing more"),))]
    session = await record_entries(arguments.home, arguments.folder, left, age_s=60)
    async with opened(arguments._replace(resume=session)) as (app, pilot):
        assert list(app.entry.waiting.texts) == ["and one thing more"]
        await send(app, pilot, f"/rewind {agent_of(app).branches.prompts()[1].seq}")
        await done(app, pilot)
        assert list(app.entry.waiting.texts) == []
        assert app.entry.prompt.text == "read part1.txt\n\nand one thing more"
