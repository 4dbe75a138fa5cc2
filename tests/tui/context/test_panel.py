"""The context panel, the previews and the boundaries, in the real app with the offline model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tests.bench.long_session import write_session
from tests.tui.app_of_parts import OFFLINE, project_of_parts, send, until, workers_finished
from tui_agent.arguments import Arguments
from tui_agent.context.changes import StepPreview
from tui_agent.conversation.view import View
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import session_to_resume
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import BoundaryBlock, NoticeBlock, ToolBlock
from tui_agent.tui.context.draft_screen import DraftScreen, EditedText, WordsScreen
from tui_agent.tui.context.panel import ContextPanel
from tui_agent.tui.context.previews import PreviewScreen
from tui_agent.tui.context.rows import EXPLAINED, AheadKey, ItemKey, StepKey, WordsKey
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.reading import TextScreen
from tui_agent.tui.dialogs.row_list import RowList
from tui_agent.tui.session.states import Phase

WIDE, NARROW = (120, 40), (80, 24)


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, parts=6)


@asynccontextmanager
async def opened(arguments: Arguments, size: tuple[int, int] = WIDE) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: app.conductor.session is not None and bool(app.status.status.model))
        await workers_finished(pilot)
        yield app, pilot


@asynccontextmanager
async def talked(arguments: Arguments, size: tuple[int, int] = WIDE) -> AsyncIterator[tuple[TuiAgent, Pilot[object]]]:
    """An app whose model has read six files."""
    async with opened(arguments, size) as (app, pilot):
        for number in range(6):
            await read(app, pilot, number)
        yield app, pilot


async def read(app: TuiAgent, pilot: Pilot[object], number: int) -> None:
    before = len(tools(app))
    await send(app, pilot, f"read part{number}.txt")
    await until(pilot, lambda: len(tools(app)) > before and not app.conductor.busy)


def tools(app: TuiAgent) -> list[ToolBlock]:
    return [block for block in app.pane.transcript if isinstance(block, ToolBlock)]


def boundaries(app: TuiAgent) -> list[BoundaryBlock]:
    return [block for block in app.pane.transcript if isinstance(block, BoundaryBlock)]


def titled(app: TuiAgent, title: str) -> list[NoticeBlock]:
    return [block for block in app.pane.transcript if isinstance(block, NoticeBlock) and block.title == title]


async def panel_of(app: TuiAgent, pilot: Pilot[object]) -> ContextPanel:
    await pilot.press("f2")
    await until(pilot, lambda: app.steering.panel is not None and app.steering.panel.overview is not None)
    panel = app.steering.panel
    assert panel is not None
    if app.entry.prompt.has_focus:
        await pilot.press("tab")
        await until(pilot, lambda: panel.has_focus_within)
    return panel


def text_of(panel: ContextPanel) -> str:
    rows = panel.query_one(RowList)
    return "\n".join(rows.render_line(y).text for y in range(rows.size.height))


def result_number(app: TuiAgent, place: int) -> int:
    assert app.conductor.session is not None
    return [item.seq for item in app.conductor.session.agent.context.items() if item.category == "results"][place]


def state_of(app: TuiAgent, seq: int) -> tuple[str, bool]:
    assert app.conductor.session is not None
    return next((item.state, item.pinned) for item in app.conductor.session.agent.context.items() if item.seq == seq)


async def cleared(app: TuiAgent, pilot: Pilot[object]) -> BoundaryBlock:
    await send(app, pilot, "/clear-results!")
    await until(pilot, lambda: boundaries(app))
    return boundaries(app)[0]


async def test_f2_opens_and_closes_it(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await panel_of(app, pilot)
        assert panel.has_focus_within
        shown = text_of(panel)
        for words in ("Context", "of 32,768", "Tool results", "Newest, stays", "Room for answer", "Clearing", "Next"):
            assert words in shown
        assert panel.region.x > app.pane.region.x
        await pilot.press("f2")
        await until(pilot, lambda: not app.query(ContextPanel))
        assert app.focused is app.entry.prompt
        app.pane.focus()
        await pilot.press("f2")
        await until(pilot, lambda: app.query(ContextPanel))
        await pilot.press("f2")
        await until(pilot, lambda: not app.query(ContextPanel))
        assert app.pane.has_focus, "who reads goes on reading"


async def test_it_takes_the_conversations_place_on_a_narrow_screen(arguments: Arguments) -> None:
    async with opened(arguments, NARROW) as (app, pilot):
        await send(app, pilot, "/context")
        await until(pilot, lambda: app.query(ContextPanel))
        assert not app.pane.display
        assert app.query_one(ContextPanel).region.width == NARROW[0]
        await pilot.press("escape")
        await until(pilot, lambda: app.pane.display)


async def test_the_text_form_stays(arguments: Arguments) -> None:
    async with opened(arguments) as (app, pilot):
        await send(app, pilot, "/context text")
        await until(pilot, lambda: titled(app, "Context"))
        assert "Thresholds:" in titled(app, "Context")[0].text
        assert not app.query(ContextPanel)


async def test_it_follows_what_happens(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await panel_of(app, pilot)
        assert panel.overview is not None
        before, calls = len(panel.overview.items), len(panel.overview.course)
        await read(app, pilot, 0)
        await until(pilot, lambda: panel.overview is not None and len(panel.overview.course) == calls + 2)
        assert len(panel.overview.items) > before


async def test_nothing_looks_while_nothing_happens(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await panel_of(app, pilot)
        await pilot.pause(0.1)
        seen = panel.overview
        await pilot.pause(0.5)
        assert panel.overview is seen


async def test_keys_pin_unpin_clear_and_restore_an_item(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await panel_of(app, pilot)
        seq = result_number(app, 1)
        panel.query_one(RowList).go_to(ItemKey(seq))
        await pilot.press("c")
        await until(pilot, lambda: state_of(app, seq) == ("cleared", False))
        await pilot.press("r")
        await until(pilot, lambda: state_of(app, seq) == ("restored", False))
        await pilot.press("p")
        await until(pilot, lambda: state_of(app, seq)[1])
        await until(pilot, lambda: "pinned" in text_of(panel))
        await pilot.press("p")
        await until(pilot, lambda: not state_of(app, seq)[1])
        assert panel.query_one(RowList).key == ItemKey(seq)


async def test_what_cannot_be_done_is_said(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await panel_of(app, pilot)
        await pilot.press("i", "c")
        await until(
            pilot,
            lambda: any("can be cleared" in b.text for b in app.pane.transcript if isinstance(b, NoticeBlock)),
        )


async def test_enter_opens_the_original(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await cleared(app, pilot)
        panel = await panel_of(app, pilot)
        panel.query_one(RowList).go_to(ItemKey(result_number(app, 0)))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.pause()
        rows = app.screen.query_one(RowList)
        assert "line of part 0" in "\n".join(rows.render_line(y).text for y in range(10))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, TextScreen))


async def test_a_step_is_undone_from_the_panel(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        boundary = await cleared(app, pilot)
        seq = result_number(app, 0)
        assert state_of(app, seq)[0] == "cleared"
        panel = await panel_of(app, pilot)
        panel.query_one(RowList).go_to(StepKey(boundary.seq))
        await pilot.press("u")
        await until(pilot, lambda: state_of(app, seq)[0] == "verbatim")
        assert boundary.undone


async def test_enter_on_a_step_says_why_it_was_taken_and_x_explains_the_words(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        boundary = await cleared(app, pilot)
        panel = await panel_of(app, pilot)
        panel.query_one(RowList).go_to(StepKey(boundary.seq))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert boundary.text in await read_through(app, pilot)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert EXPLAINED.partition("\n")[0] in await read_through(app, pilot)


async def read_through(app: TuiAgent, pilot: Pilot[object]) -> str:
    """The text of the open reading dialog, which is closed."""
    screen = app.screen
    assert isinstance(screen, TextScreen)
    await until(pilot, lambda: screen._lines)
    await pilot.press("escape")
    await until(pilot, lambda: app.screen is not screen)
    return "\n".join(screen._lines)


async def test_enter_on_what_comes_next_previews_it(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await panel_of(app, pilot)
        rows = panel.query_one(RowList)
        await pilot.press("home")
        ahead = rows.key
        assert isinstance(ahead, AheadKey)
        keys = str(panel.query("Static").last().render())
        assert "previews it" in keys
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))


async def compacted(app: TuiAgent, pilot: Pilot[object]) -> ContextPanel:
    """The panel after a summary, its cursor on the newest of the user's words."""
    await send(app, pilot, "/compact!")
    await until(pilot, lambda: boundaries(app))
    panel = await panel_of(app, pilot)
    await pilot.press("w")
    return panel


def kept(app: TuiAgent) -> dict[int, str]:
    assert app.conductor.session is not None
    return {each.seq: each.text for each in app.conductor.session.agent.engine.view.words()}


def under_cursor(panel: ContextPanel) -> int:
    key = panel.query_one(RowList).key
    assert isinstance(key, WordsKey)
    return key.seq


async def test_the_users_words_are_read_edited_and_dropped_with_keys(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await compacted(app, pilot)
        seq, before = under_cursor(panel), kept(app)
        assert seq == max(before)
        assert before[seq] in text_of(panel)
        assert f"Your own words: {len(before)}" in text_of(panel)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("escape", "e")
        await until(pilot, lambda: isinstance(app.screen, WordsScreen))
        await pilot.press(*"!", "escape")
        await until(pilot, lambda: not isinstance(app.screen, WordsScreen))
        assert kept(app) == before
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, WordsScreen))
        await pilot.press(*" once", "ctrl+s")
        await until(pilot, lambda: kept(app) == before | {seq: f"{before[seq]} once"})
        assert under_cursor(panel) == seq
        await pilot.press("d")
        await until(pilot, lambda: kept(app) == {each: text for each, text in before.items() if each != seq})
        await until(pilot, lambda: f"Your own words: {len(before) - 1}" in text_of(panel))
        # A drop is a step like any other.
        panel.query_one(RowList).go_to(StepKey(max(boundary.seq for boundary in boundaries(app))))
        await pilot.press("u")
        await until(pilot, lambda: seq in kept(app))


async def test_words_typed_in_one_burst_with_the_key_that_keeps_them_are_kept(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        seq = under_cursor(await compacted(app, pilot))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, WordsScreen))
        for character in " at once":
            app.post_message(Key("space" if character == " " else character, character))
        app.post_message(Key("ctrl+s", None))
        await until(pilot, lambda: not isinstance(app.screen, WordsScreen))
        await until(pilot, lambda: kept(app)[seq].endswith(" at once"))


async def test_an_emptied_message_says_what_that_means(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        seq = under_cursor(await compacted(app, pilot))
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, WordsScreen))
        app.screen.query_one(EditedText).text = " "
        await until(
            pilot, lambda: any("none of this message" in str(each.render()) for each in app.screen.query(Static))
        )
        await pilot.press("ctrl+s")
        await until(pilot, lambda: seq not in kept(app))


async def test_a_message_of_the_user_is_pinned_where_it_stood(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await compacted(app, pilot)
        seq = under_cursor(panel)
        await pilot.press("p")
        await until(pilot, lambda: state_of(app, seq)[1])
        await until(pilot, lambda: "pinned" in text_of(panel))
        assert seq not in {each.seq for each in app_view(app).shown_words().words}
        await pilot.press("p")
        await until(pilot, lambda: not state_of(app, seq)[1])
        await until(pilot, lambda: seq in {each.seq for each in app_view(app).shown_words().words})


def app_view(app: TuiAgent) -> View:
    assert app.conductor.session is not None
    return app.conductor.session.agent.engine.view


async def test_a_preview_comes_first_and_can_be_left(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await send(app, pilot, "/clear-results")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.pause()
        rows = app.screen.query_one(RowList)
        shown = "\n".join(rows.render_line(y).text for y in range(rows.size.height))
        assert "Leaves the view: 3" in shown
        await pilot.press("escape")
        await workers_finished(pilot)
        assert not boundaries(app)
        assert state_of(app, result_number(app, 0)) == ("verbatim", False)


async def test_an_accepted_preview_is_what_happens(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        assert app.conductor.session is not None
        agent = app.conductor.session.agent
        await send(app, pilot, "/clear-results")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.press("p")
        kept = result_number(app, 2)
        await until(pilot, lambda: state_of(app, kept)[1])
        seen = await agent.context.preview("clear")
        assert isinstance(seen, StepPreview)
        await pilot.press("enter")
        await until(pilot, lambda: [b for b in boundaries(app) if "cleared" in b.kind])
        (boundary,) = (block for block in boundaries(app) if "cleared" in block.kind)
        assert (boundary.before, boundary.after) == (seen.preview.before, seen.preview.after)
        assert app.status.status.tokens == agent.context_stats().tokens
        assert state_of(app, kept)[0] == "verbatim"


async def test_what_is_pinned_just_before_it_is_accepted_is_kept(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await send(app, pilot, "/clear-results")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        kept = result_number(app, 2)
        await pilot.press("p", "enter")
        await until(pilot, lambda: [b for b in boundaries(app) if "cleared" in b.kind])
        assert state_of(app, kept) == ("verbatim", True)


async def test_the_focus_of_a_summary_can_be_edited(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await send(app, pilot, "/compact the first")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.press("e")
        field = app.screen.query_one(Input)
        assert field.value == "the first"
        await pilot.press("space", "o", "n", "e", "enter")
        await until(pilot, lambda: isinstance(app.screen, DraftScreen))
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: [b for b in boundaries(app) if "summarised" in b.kind])
        assert app.conductor.session is not None
        assert app.conductor.session.agent.context_stats().last_compaction.note == "the first one"


async def test_another_model_is_looked_at_first(arguments: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "no-key")
    async with talked(arguments) as (app, pilot):
        before = app.status.status.model
        await send(app, pilot, "/model anthropic:claude-sonnet-5-5")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.pause()
        rows = app.screen.query_one(RowList)
        shown = "\n".join(rows.render_line(y).text for y in range(rows.size.height))
        assert "nothing of it is cached yet" in shown
        await pilot.press("escape")
        await workers_finished(pilot)
        assert app.status.status.model == before


async def test_a_boundary_is_undone_from_the_conversation(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        boundary = await cleared(app, pilot)
        app.pane.focus()
        app.pane.reveal(boundary.id)
        await pilot.press("u")
        await until(pilot, lambda: boundary.undone)
        assert state_of(app, result_number(app, 0))[0] == "verbatim"
        undo = boundaries(app)[-1]
        app.pane.reveal(undo.id)
        await pilot.press("u")
        await until(pilot, lambda: undo.undone)
        assert not boundary.undone
        assert state_of(app, result_number(app, 0))[0] == "cleared"


async def test_a_resumed_session_shows_its_boundaries(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await cleared(app, pilot)
        shown = [(block.kind, block.before, block.after, block.seq, block.undone) for block in boundaries(app)]
        assert app.conductor.session is not None
        session = app.conductor.session.id
    async with opened(arguments._replace(resume=session)) as (app, _):
        again = [(block.kind, block.before, block.after, block.seq, block.undone) for block in boundaries(app)]
        assert again == shown


async def test_f2_without_a_session_says_so(arguments: Arguments) -> None:
    session = await write_session(arguments.home, 3)
    held = await LogStore.open(await session_to_resume(arguments.home, session))
    app = TuiAgent(arguments._replace(resume=session), OFFLINE)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.conductor.phase is Phase.VACANT)
        await pilot.press("f2")
        await until(pilot, lambda: titled(app, "There is no session, so there is no context to show"))
    await held.close()


async def test_an_original_that_is_gone_says_so(arguments: Arguments) -> None:
    (arguments.folder / "large.txt").write_text("".join(f"line {number} of many\n" for number in range(20_000)))
    async with opened(arguments) as (app, pilot):
        await send(app, pilot, "run cat large.txt")
        await until(pilot, lambda: boundaries(app) and not app.conductor.busy)
        (boundary,) = boundaries(app)
        assert boundary.restores
        assert app.session_folder is not None
        for path in (app.session_folder / "large_tool_results").rglob("*"):
            if path.is_file():
                path.unlink()
        panel = await panel_of(app, pilot)
        panel.query_one(RowList).go_to(ItemKey(boundary.seq))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
