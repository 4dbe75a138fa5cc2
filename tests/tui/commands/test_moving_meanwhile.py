"""What happens while a conversation is being brought to the screen from another place: nothing of it is lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from tests.bench.long_session import prompt, write_session
from tests.tui.app_of_parts import agent_of, blocks, project_of_parts, prompts, running, send, until, workers_finished
from tui_agent.agent.agent import Agent
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import Level, NoticeBlock, ProseBlock, UserBlock
from tui_agent.tui.dialogs.branch_pickers import PlacePicker
from tui_agent.tui.session import past

TURNS, KEPT = 24, 10


@asynccontextmanager
async def resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> AsyncIterator[tuple[TuiAgent, Pilot[object], Agent]]:
    """An app on a long session, which looks for keys after each event it shows."""
    monkeypatch.setattr(past, "SLICE_S", -1.0)
    arguments = project_of_parts(monkeypatch, tmp_path, parts=1)
    session = await write_session(arguments.home, TURNS, cwd=arguments.folder)
    async with running(arguments._replace(resume=session)) as (app, pilot):
        await workers_finished(pilot)
        yield app, pilot, agent_of(app)


def notices(app: TuiAgent) -> list[str]:
    return [block.title for block in blocks(app, NoticeBlock)]


def first(count: int) -> list[str]:
    return [prompt(turn) for turn in range(count)]


async def test_a_turn_and_a_notice_stand_below_what_was_said_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with resumed(monkeypatch, tmp_path) as (app, pilot, agent):
        before = app.pane.transcript
        await agent.branches.rewind(agent.branches.prompts()[KEPT].seq)
        assert app.pane.transcript is before
        app.say(Level.INFO, "a word meanwhile")
        app.conductor.send("read part0.txt")
        await until(pilot, lambda: app.pane.transcript is not before and not app.conductor.busy)
        assert prompts(app) == [*first(KEPT), "read part0.txt"]
        assert notices(app) == [f"Rewound to before “{prompt(KEPT)[:39]}…”", "a word meanwhile"]
        shown = app.pane.transcript.blocks
        assert [block.index for block in shown] == list(range(len(shown)))
        assert [block.id for block in shown] == sorted({block.id for block in shown})
        asked = next(block for block in blocks(app, UserBlock) if block.text == "read part0.txt")
        (answer,) = (block for block in shown[asked.index + 1 :] if isinstance(block, ProseBlock))
        assert "part0.txt" in answer.plain_text
        assert not answer.streaming
        assert app.pane.following
        app.pane.flush()
        assert app.pane.viewport.rows[-1].position.block == len(shown) - 1


async def test_of_two_moves_the_last_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with resumed(monkeypatch, tmp_path) as (app, pilot, agent):
        tip = agent.branches.all()[0].tip
        await agent.branches.rewind(agent.branches.prompts()[KEPT].seq)
        await agent.branches.rewind(agent.branches.prompts()[3].seq)
        await agent.branches.switch(tip)
        await workers_finished(pilot)
        assert prompts(app) == first(TURNS)
        # One that is shown before the next, as on a slow disk, is told of, too.
        assert 1 <= len(notices(app)) <= 3
        before = len(agent.branches.all())
        await send(app, pilot, "/rewind")
        await until(pilot, lambda: isinstance(app.screen, PlacePicker))
        for _ in range(3):
            app.simulate_key("enter")
        await until(pilot, lambda: len(prompts(app)) == TURNS - 1)
        await workers_finished(pilot)
        assert len(agent.branches.all()) == before + 1, "three times Enter chooses once"


async def test_keys_sizes_and_themes_change_meanwhile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with resumed(monkeypatch, tmp_path) as (app, pilot, agent):
        before = app.pane.transcript
        await agent.branches.rewind(agent.branches.prompts()[KEPT].seq)
        app.entry.prompt.type("a draft")
        app.use_theme("paper")
        app.pane.action_toggle_card()
        app.action_toggle_cards()
        await pilot.resize_terminal(50, 12)
        await pilot.press("escape", "ctrl+o", "pageup", "tab", "up", "y", "tab")
        await until(pilot, lambda: app.pane.transcript is not before)
        await pilot.resize_terminal(100, 30)
        await workers_finished(pilot)
        assert prompts(app) == first(KEPT)
        assert app.entry.prompt.text == "a draft"
        app.pane.action_tail()
        await pilot.pause()
        rows = [app.pane.render_line(y).text.strip() for y in range(app.pane.size.height)]
        assert [row for row in rows if row][-1].endswith("/tree brings it all back")
        ground = app.pane.render_line(0)._segments[-1].style
        assert ground is not None
        assert ground.bgcolor is not None
        assert ground.bgcolor.name == app.theme_variables["background"].lower()


async def test_the_keys_of_a_message_work_once_however_often_pressed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with resumed(monkeypatch, tmp_path) as (app, pilot, agent):
        app.pane.focus()
        wanted = next(b for b in app.pane.transcript if isinstance(b, UserBlock) and b.text == prompt(KEPT))
        app.pane._move_cursor(wanted.index)
        await pilot.pause()
        for key in "rrfr":
            app.simulate_key(key)
        await until(pilot, lambda: len(prompts(app)) == KEPT)
        await workers_finished(pilot)
        assert len(notices(app)) == 1
        assert len(agent.branches.all()) == 2
        assert app.entry.prompt.text == prompt(KEPT)
        before = app.pane.transcript
        await agent.branches.fork()
        await workers_finished(pilot)
        assert not len(before), "the old conversation is let go"
