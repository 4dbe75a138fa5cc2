"""A summary that is asked for: previewed, written, shown with its exact size, edited, and used or dropped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import pytest
from textual.pilot import Pilot
from typing_extensions import override

from tests.agent.talking import put
from tests.tui.app_of_parts import agent_of, answered, blocks, project_of_parts, running, send, until, workers_finished
from tui_agent.agent import events
from tui_agent.arguments import Arguments
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.compaction.plan import CHANGED
from tui_agent.conversation.entries import Checkpointed, Pinned, Summarized, UnattributedCall
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import StreamEvent
from tui_agent.models.offline.adapter import OfflineModel
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import BoundaryBlock, ToolBlock
from tui_agent.tui.context.draft_screen import DraftScreen, EditedText
from tui_agent.tui.context.previews import PreviewScreen
from tui_agent.tui.dialogs.dialog import QUIET_S
from tui_agent.tui.dialogs.row_list import RowList

WIDE, NARROW = (120, 40), (80, 24)


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, parts=4)


@asynccontextmanager
async def talked(arguments: Arguments, size: tuple[int, int] = WIDE) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    """An app whose model has read four files."""
    async with running(arguments, size=size) as (app, pilot):
        for number in range(4):
            await answered(app, pilot, f"read part{number}.txt")
        yield app, pilot


async def looked(app: TuiAgent, pilot: Pilot[object], command: str = "/compact ") -> None:
    await send(app, pilot, command)
    await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
    await pilot.pause()


async def written(app: TuiAgent, pilot: Pilot[object], command: str = "/compact ") -> None:
    await looked(app, pilot, command)
    await pilot.press("enter")
    await until(pilot, lambda: isinstance(app.screen, DraftScreen))
    await pilot.pause()


def log_of(app: TuiAgent) -> list[object]:
    """The entries of the conversation, without those that only tell what a call has cost."""
    return [entry for entry in agent_of(app).engine.view.log if not isinstance(entry, UnattributedCall)]


def rows_of(app: TuiAgent) -> str:
    rows = app.screen.query_one(RowList)
    return "\n".join(rows.render_line(y).text for y in range(rows.size.height))


def area_of(app: TuiAgent) -> EditedText:
    return app.screen.query_one(EditedText)


async def test_what_is_shown_is_what_happens(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        length = len(log_of(app))
        await written(app, pilot)
        assert len(log_of(app)) == length
        assert app.status.status.activity == ""
        shown, text = rows_of(app), area_of(app).text
        await pilot.press("enter")
        await until(pilot, lambda: blocks(app, BoundaryBlock))
        (boundary,) = blocks(app, BoundaryBlock)
        assert boundary.before is not None
        assert boundary.after is not None
        assert f"{boundary.before:,}" in shown
        assert f"{boundary.after:,}" in shown
        assert f"{boundary.before - boundary.after:,} tokens" in shown
        assert text in boundary.text
        await workers_finished(pilot)
        assert app.focused is app.entry.prompt


async def test_an_edited_text_is_counted_and_used(arguments: Arguments) -> None:
    async with talked(arguments, NARROW) as (app, pilot):
        await written(app, pilot)
        before = rows_of(app)
        await pilot.press("e", *"Mind_the_gap", "enter")
        await pilot.press("escape")
        assert isinstance(app.screen, DraftScreen)
        assert area_of(app).text.startswith("Mind_the_gap\n")
        assert rows_of(app) != before
        shown = rows_of(app)
        await pilot.press("enter")
        await until(pilot, lambda: blocks(app, BoundaryBlock))
        (boundary,) = blocks(app, BoundaryBlock)
        assert "\nMind_the_gap\n" in boundary.text
        assert "edited" in boundary.reason
        assert f"{boundary.after:,}" in shown
        (entry,) = (entry for entry in log_of(app) if isinstance(entry, Summarized))
        assert "Mind_the_gap" in entry.text
        app.pane.focus()
        app.pane._move_cursor(boundary.index)
        await pilot.press("u")
        await until(pilot, lambda: boundary.undone)
        # It is counted while it is edited, fits every screen, and is used from there.
        await written(app, pilot)
        before = rows_of(app)
        await pilot.press("e", *"abc")
        await until(pilot, lambda: rows_of(app) != before)
        for width, height in ((20, 5), (40, 12), (200, 60)):
            await pilot.resize_terminal(1, 1)
            await pilot.resize_terminal(width, height)
            await pilot.pause()
            place = area_of(app).region
            assert place.height >= 1
            assert place.right <= width
            assert place.bottom <= height
        await pilot.press("ctrl+s")
        await until(pilot, lambda: len(blocks(app, BoundaryBlock)) == 3)
        assert "\nabc#" in blocks(app, BoundaryBlock)[-1].text


async def test_a_draft_that_cannot_be_used_says_why_can_be_dropped_and_its_writing_stopped(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    async with talked(arguments) as (app, pilot):
        length, calls = len(log_of(app)), agent_of(app).tracker.session.calls
        await written(app, pilot)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: isinstance(app.screen, DraftScreen) and "cannot be handed" in problem_of(app))
        await pilot.press("e")
        area_of(app).text = "much more " * 5_000
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "the turns it replaces only" in problem_of(app))
        await pilot.press("escape", "escape")
        await workers_finished(pilot)
        assert len(log_of(app)) == length
        assert agent_of(app).tracker.session.calls == calls + 1
        assert not blocks(app, BoundaryBlock)
        await agent_of(app).swap_model(OfflineModel(delay_s=5))
        length = len(log_of(app))
        await looked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: app.status.status.activity == "summarising older turns")
        await pilot.press("escape")
        await until(pilot, lambda: not app.status.status.activity)
        await workers_finished(pilot)
        assert not isinstance(app.screen, DraftScreen)
        assert len(log_of(app)) == length
        await agent_of(app).swap_model(OfflineModel())
        await send(app, pilot, "/compact!")
        await until(pilot, lambda: blocks(app, BoundaryBlock))
        assert not isinstance(app.screen, PreviewScreen | DraftScreen)


def problem_of(app: TuiAgent) -> str:
    return str(app.screen.query_one(".dialog-problem").render())


async def test_what_prevents_it_is_shown_and_no_edit_is_lost(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await written(app, pilot)
        await pilot.press("e", *"abc", "escape")
        first = next(item.seq for item in agent_of(app).context.items() if item.category == "results")
        first_screen = app.screen
        # As nothing in the app can while the dialog is open.
        draft = first_screen._draft  # type: ignore[attr-defined]
        assert isinstance(draft, Draft)
        assert app.conductor.session is not None
        await put(app.conductor.session, Pinned(items=(first,)))
        first_screen.dismiss(draft)
        await until(pilot, lambda: isinstance(app.screen, DraftScreen) and app.screen is not first_screen)
        await pilot.pause()
        assert CHANGED[:40] in problem_of(app)
        assert area_of(app).text.startswith("abc")
        await pilot.press("escape")
        await workers_finished(pilot)
        assert not [entry for entry in log_of(app) if isinstance(entry, Summarized)]


class Held(OfflineModel):
    """Answers from when it may."""

    def __init__(self) -> None:
        super().__init__(delay_s=0)
        self.answers = asyncio.Event()

    @override
    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        await self.answers.wait()
        async for event in super().stream(request):
            yield event


async def test_a_prompt_sent_meanwhile_waits_for_the_decision(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        model = Held()
        await agent_of(app).swap_model(model)
        await looked(app, pilot)
        await pilot.press("enter")
        await until(pilot, lambda: app.status.status.activity == "summarising older turns")
        await send(app, pilot, "read part1.txt")
        await until(pilot, agent_of(app).turns.queued)
        assert app.status.status.activity == "summarising older turns"
        model.answers.set()
        await until(pilot, lambda: isinstance(app.screen, DraftScreen))
        assert len(blocks(app, ToolBlock)) == 4
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: len(blocks(app, ToolBlock)) == 5 and not app.conductor.busy)
        kinds = [type(block) for block in app.pane.transcript if isinstance(block, BoundaryBlock | ToolBlock)]
        assert kinds == [*[ToolBlock] * 4, BoundaryBlock, ToolBlock]


async def test_a_prompt_stopped_while_it_waits_is_given_back_and_not_sent_twice(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        model = Held()
        await agent_of(app).swap_model(model)
        told: list[events.AgentEvent] = []
        agent_of(app).listen(told.append)
        await send(app, pilot, "/compact!")
        await until(pilot, lambda: told)
        await send(app, pilot, "read part1.txt")
        await until(pilot, agent_of(app).turns.queued)
        await pilot.press("escape")
        await until(pilot, lambda: not app.conductor.busy and app.entry.prompt.text)
        assert app.entry.prompt.text == "read part1.txt"
        assert agent_of(app).turns.queued() == ()
        model.answers.set()
        app.entry.prompt.focus()
        await pilot.press("enter")
        await until(pilot, lambda: len(blocks(app, ToolBlock)) == 5 and not app.conductor.busy)
        heard = [event.text for event in agent_of(app).branches.history() if isinstance(event, events.UserMessage)]
        assert heard[4:] == ["read part1.txt"]


async def test_a_record_goes_the_same_way_and_takes_no_key_that_was_meant_for_the_prompt(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await looked(app, pilot, "/done all is read")
        typed = app.entry.prompt.last_key = monotonic() + 0.5
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, DraftScreen))
        assert monotonic() >= typed + QUIET_S
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: blocks(app, BoundaryBlock))
        (entry,) = (entry for entry in log_of(app) if isinstance(entry, Checkpointed))
        assert entry.note == "all is read"


async def test_hostile_text_is_shown_safely_and_used_as_it_was_written(arguments: Arguments) -> None:
    hostile = "# Current state\n\x1b[31mred\x1b]0;title\x07 and \u202eturned \x9b2J[/] \x00"
    async with talked(arguments) as (app, pilot):
        agent = agent_of(app)
        draft = await agent.context.draft()
        assert isinstance(draft, Draft)
        draft = agent.context.revise(draft, hostile)
        assert isinstance(draft, Draft)
        used: list[Draft | None] = []
        app.push_screen(DraftScreen(draft, await agent.context.preview_draft(draft), agent), used.append)
        await until(pilot, lambda: isinstance(app.screen, DraftScreen) and app.screen.is_mounted)
        assert area_of(app).text == "# Current state\nred and turned [/] "
        await pilot.press("enter")
        assert used == [draft]
