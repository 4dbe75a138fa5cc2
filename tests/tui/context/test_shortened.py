"""What was too large to send: its step in the conversation, its word in the context panel, and taking it back."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

import pytest
from textual.pilot import Pilot

from tests.gallery.conversations import record_entries
from tests.tui.app_of_parts import OFFLINE, agent_of, blocks, project_of_parts, running, send, until, workers_finished
from tui_agent.agent.agent import Agent
from tui_agent.agent.events import STEPS
from tui_agent.context.effects import StepName
from tui_agent.context.layers.shortening import TOO_LARGE
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import AnyEntry, Message, ModelSwitched, Prefix, Shortened, Usage, user_message
from tui_agent.conversation.states import ItemState
from tui_agent.settings import ContextSettings, ModelSettings, Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import BoundaryBlock, NoticeBlock
from tui_agent.tui.context.rows import STATES, ItemKey
from tui_agent.tui.dialogs.row_list import RowList

MODEL = "offline:offline"
PASTED = "a line that was pasted\n" * 400
SHOWN = "a line that was pasted\n[... 9,000 characters left out ...]\na line that was pasted\n"


def cut(*, before: int = 2_900, after: int = 300) -> list[AnyEntry]:
    """A pasted text that was shortened before it was answered."""
    return [
        ModelSwitched(model=MODEL),
        Prefix(system="You are helpful."),
        user_message(PASTED),
        Shortened(items=(3,), blocks=((Text(SHOWN),),), reason=TOO_LARGE, before=before, after=after),
        Message(
            role="assistant",
            blocks=(Text("It is pasted."),),
            model=MODEL,
            usage=Usage(after, output_tokens=9),
            cost_usd=0.0,
        ),
    ]


@asynccontextmanager
async def resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entries: list[AnyEntry], settings: Settings = OFFLINE
) -> AsyncIterator[tuple[TuiAgent, Pilot[object], Agent]]:
    arguments = project_of_parts(monkeypatch, tmp_path, parts=1)
    session = await record_entries(arguments.home, arguments.folder, entries, age_s=60)
    async with running(arguments._replace(resume=session), settings) as (app, pilot):
        await workers_finished(pilot)
        yield app, pilot, agent_of(app)


def steps(app: TuiAgent) -> list[BoundaryBlock]:
    return blocks(app, BoundaryBlock)


def state_of(agent: Agent, seq: int) -> str:
    return next(item.state for item in agent.context.items() if item.seq == seq)


async def test_the_step_says_what_was_shortened_and_u_takes_it_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with resumed(monkeypatch, tmp_path, cut()) as (app, pilot, agent):
        (step,) = steps(app)
        assert (step.kind, step.before, step.after, step.reason) == ("1 message shortened", 2_900, 300, TOO_LARGE)
        assert step.text == f"Message 3:\n{SHOWN}"
        assert state_of(agent, 3) == "shortened"
        app.pane.focus()
        app.pane._move_cursor(step.index)
        await pilot.press("u")
        await until(pilot, lambda: step.undone)
        assert state_of(agent, 3) == "verbatim"
        app.pane._move_cursor(steps(app)[-1].index)
        await pilot.press("u")
        await until(pilot, lambda: not step.undone)
        await pilot.press("f2")
        await until(pilot, lambda: app.steering.panel is not None and app.steering.panel.overview is not None)
        assert app.steering.panel is not None
        app.steering.panel.take_keys()
        rows = app.steering.panel.query_one(RowList)
        rows.go_to(ItemKey(3))
        await pilot.pause()
        shown = [rows.render_line(y).text for y in range(rows.size.height)]
        assert [row.split()[-3] for row in shown if row.startswith("▎")] == ["shortened"]
        await pilot.press("r")
        await until(pilot, lambda: state_of(agent, 3) == "restored")


async def test_it_is_told_as_it_happens_and_why_it_cannot_be_undone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Three texts, each small enough for the window, none of them answered: together they are too large.
    texts: list[AnyEntry] = [user_message(f"{number}\n" + "words of a long text " * 700) for number in range(3)]
    entries = [ModelSwitched(model=MODEL), Prefix(system="You are helpful."), *texts]
    settings = Settings(model=ModelSettings(id="offline"), context=ContextSettings(context_window=12_000))
    async with resumed(monkeypatch, tmp_path, entries, settings) as (app, pilot, agent):
        await send(app, pilot, "list .")
        await until(pilot, lambda: any("shortened" in step.kind for step in steps(app)) and not app.conductor.busy)
        step = next(step for step in steps(app) if "shortened" in step.kind)
        assert step.before is not None
        assert step.after is not None
        assert step.before > 12_000 > step.after > 0
        assert "Message 3:\n" in step.text
        assert "shortened" in {item.state for item in agent.context.items()}
        app.pane.focus()
        app.pane._move_cursor(step.index)
        await pilot.press("u")
        await until(pilot, lambda: any("can be sent" in block.text for block in blocks(app, NoticeBlock)))
        assert not step.undone


def test_every_state_and_every_step_has_its_word() -> None:
    assert set(STATES) == set(get_args(ItemState))
    assert set(STEPS) == set(get_args(StepName))
