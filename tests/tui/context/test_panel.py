"""The context panel, the previews and the boundaries, in the real app with the offline model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.events import Key
from textual.pilot import Pilot
from textual.widgets import Input, Static

from tests.bench.long_session import write_session
from tests.tui.app_of_parts import OFFLINE, agent_of, blocks, project_of_parts, running, send, until, workers_finished
from tui_agent.arguments import Arguments
from tui_agent.context.changes import StepPreview
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
    async with running(arguments, size=size) as (app, pilot):
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
    before = len(blocks(app, ToolBlock))
    await send(app, pilot, f"read part{number}.txt")
    await until(pilot, lambda: len(blocks(app, ToolBlock)) > before and not app.conductor.busy)


def boundaries(app: TuiAgent) -> list[BoundaryBlock]:
    return blocks(app, BoundaryBlock)


def titled(app: TuiAgent, title: str) -> list[NoticeBlock]:
    return [block for block in blocks(app, NoticeBlock) if block.title == title]


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
    return [item.seq for item in agent_of(app).context.items() if item.category == "results"][place]


def state_of(app: TuiAgent, seq: int) -> tuple[str, bool]:
    return next((item.state, item.pinned) for item in agent_of(app).context.items() if item.seq == seq)


async def cleared(app: TuiAgent, pilot: Pilot[object]) -> BoundaryBlock:
    before = len(boundaries(app))
    await send(app, pilot, "/clear-results!")
    await until(pilot, lambda: len(boundaries(app)) > before)
    return boundaries(app)[before]


async def test_f2_opens_and_closes_it_and_it_follows_what_happens(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await panel_of(app, pilot)
        assert panel.has_focus_within
        shown = text_of(panel)
        for words in ("Context", "of 32,768", "Tool results", "Newest, stays", "Room for answer", "Clearing", "Next"):
            assert words in shown
        assert panel.region.x > app.pane.region.x
        await pilot.pause(0.1)
        seen = panel.overview
        await pilot.pause(0.5)
        assert panel.overview is seen is not None, "nothing looks while nothing happens"
        await read(app, pilot, 0)
        await until(pilot, lambda: panel.overview and len(panel.overview.course) == len(seen.course) + 2)
        assert panel.overview is not None
        assert len(panel.overview.items) > len(seen.items)
        panel.take_keys()
        await pilot.press("i", "c")
        await until(pilot, lambda: any("can be cleared" in each.text for each in blocks(app, NoticeBlock)))
        await pilot.press("home")
        assert isinstance(panel.query_one(RowList).key, AheadKey)
        assert "previews it" in str(panel.query("Static").last().render())
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, PreviewScreen))
        await pilot.press("f2")
        await until(pilot, lambda: not app.query(ContextPanel))
        assert app.focused is app.entry.prompt
        app.pane.focus()
        await pilot.press("f2")
        await until(pilot, lambda: app.query(ContextPanel))
        await pilot.press("f2")
        await until(pilot, lambda: not app.query(ContextPanel))
        assert app.pane.has_focus, "who reads goes on reading"


async def test_it_takes_the_conversations_place_on_a_narrow_screen_and_the_text_form_stays(
    arguments: Arguments,
) -> None:
    async with opened(arguments, NARROW) as (app, pilot):
        await send(app, pilot, "/context text")
        await until(pilot, lambda: titled(app, "Context"))
        assert "Thresholds:" in titled(app, "Context")[0].text
        assert not app.query(ContextPanel)
        await send(app, pilot, "/context")
        await until(pilot, lambda: app.query(ContextPanel))
        assert not app.pane.display
        assert app.query_one(ContextPanel).region.width == NARROW[0]
        await pilot.press("escape")
        await until(pilot, lambda: app.pane.display)


async def test_keys_pin_clear_restore_and_open_items_and_undo_steps(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        panel = await panel_of(app, pilot)
        rows, seq = panel.query_one(RowList), result_number(app, 1)
        await go_to(pilot, rows, ItemKey(seq))
        await pilot.press("c")
        await until(pilot, lambda: state_of(app, seq) == ("cleared", False))
        await pilot.press("r")
        await until(pilot, lambda: state_of(app, seq) == ("restored", False))
        await pilot.press("p")
        await until(pilot, lambda: state_of(app, seq)[1])
        await until(pilot, lambda: "pinned" in text_of(panel))
        await pilot.press("p")
        await until(pilot, lambda: not state_of(app, seq)[1])
        assert rows.key == ItemKey(seq)
        boundary, first = await cleared(app, pilot), result_number(app, 0)
        panel.take_keys()
        await go_to(pilot, rows, ItemKey(first))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert "line of part 0" in await read_through(app, pilot)
        # Enter on a step says why it was taken, and x explains the words.
        await go_to(pilot, rows, StepKey(boundary.seq))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert boundary.text in await read_through(app, pilot)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        assert EXPLAINED.partition("\n")[0] in await read_through(app, pilot)
        await pilot.press("u")
        await until(pilot, lambda: boundary.undone and state_of(app, first)[0] == "verbatim")
        # A boundary is undone from the conversation, too.
        app.pane.focus()
        undo = boundaries(app)[-1]
        app.pane._move_cursor(undo.index)
        await pilot.press("u")
        await until(pilot, lambda: undo.undone)
        assert not boundary.undone
        assert state_of(app, first)[0] == "cleared"
        shown = [(block.kind, block.before, block.after, block.seq, block.undone) for block in boundaries(app)]
        assert app.session_folder is not None
    async with opened(arguments._replace(resume=app.session_folder.name)) as (app, _):
        again = [(block.kind, block.before, block.after, block.seq, block.undone) for block in boundaries(app)]
        assert again == shown


async def go_to(pilot: Pilot[object], rows: RowList, key: object) -> None:
    """Put the cursor on a row, once it is there."""

    def is_there() -> bool:
        rows.go_to(key)
        return rows.key == key

    await until(pilot, is_there)


async def read_through(app: TuiAgent, pilot: Pilot[object]) -> str:
    """The text of the open reading dialog, which is closed."""
    screen = app.screen
    assert isinstance(screen, TextScreen)
    await until(pilot, lambda: screen._lines)
    await pilot.press("escape")
    await until(pilot, lambda: app.screen is not screen)
    return "\n".join(screen._lines)


def kept(app: TuiAgent) -> dict[int, str]:
    return {each.seq: each.text for each in agent_of(app).engine.view.words()}


def shown_words(app: TuiAgent) -> set[int]:
    return {each.seq for each in agent_of(app).engine.view.shown_words().words}


def under_cursor(panel: ContextPanel) -> int:
    key = panel.query_one(RowList).key
    assert isinstance(key, WordsKey)
    return key.seq


async def test_the_users_words_are_read_edited_pinned_and_dropped_with_keys(arguments: Arguments) -> None:
    async with talked(arguments) as (app, pilot):
        await send(app, pilot, "/compact!")
        await until(pilot, lambda: boundaries(app))
        panel = await panel_of(app, pilot)
        await pilot.press("w")
        seq, before = under_cursor(panel), kept(app)
        assert seq == max(before)
        assert before[seq] in text_of(panel)
        assert f"Your own words: {len(before)}" in text_of(panel)
        await pilot.press("p")
        await until(pilot, lambda: state_of(app, seq)[1])
        await until(pilot, lambda: "pinned" in text_of(panel))
        assert seq not in shown_words(app), "it is pinned where it stood"
        await pilot.press("p")
        await until(pilot, lambda: not state_of(app, seq)[1])
        await until(pilot, lambda: seq in shown_words(app))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("escape", "e")
        await until(pilot, lambda: isinstance(app.screen, WordsScreen))
        await pilot.press(*"!", "escape")
        await until(pilot, lambda: not isinstance(app.screen, WordsScreen))
        assert kept(app) == before
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, WordsScreen))
        # In one burst with the key that keeps them.
        for character in " at once":
            app.post_message(Key("space" if character == " " else character, character))
        app.post_message(Key("ctrl+s", None))
        await until(pilot, lambda: kept(app) == before | {seq: f"{before[seq]} at once"})
        assert under_cursor(panel) == seq
        await until(pilot, lambda: not isinstance(app.screen, WordsScreen))
        await pilot.press("d")
        await until(pilot, lambda: kept(app) == {each: text for each, text in before.items() if each != seq})
        await until(pilot, lambda: f"Your own words: {len(before) - 1}" in text_of(panel))
        # A drop is a step like any other.
        await go_to(pilot, panel.query_one(RowList), StepKey(max(boundary.seq for boundary in boundaries(app))))
        await pilot.press("u")
        await until(pilot, lambda: seq in kept(app) and f"Your own words: {len(before)}" in text_of(panel))
        await pilot.press("w")
        await until(pilot, lambda: under_cursor(panel) == seq)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, WordsScreen))
        app.screen.query_one(EditedText).text = " "
        await until(
            pilot, lambda: any("none of this message" in str(each.render()) for each in app.screen.query(Static))
        )
        await pilot.press("ctrl+s")
        await until(pilot, lambda: seq not in kept(app))


def preview_of(app: TuiAgent) -> str:
    rows = app.screen.query_one(RowList)
    return "\n".join(rows.render_line(y).text for y in range(rows.size.height))


async def test_a_preview_can_be_left_and_what_is_accepted_happens(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "no-key")
    async with talked(arguments) as (app, pilot):
        before = app.status.status.model
        await send(app, pilot, "/model anthropic:claude-sonnet-5-5")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.pause()
        assert "nothing of it is cached yet" in preview_of(app)
        await pilot.press("escape")
        await workers_finished(pilot)
        assert app.status.status.model == before
        await send(app, pilot, "/clear-results")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.pause()
        assert "Leaves the view: 3" in preview_of(app)
        await pilot.press("escape")
        await workers_finished(pilot)
        assert not boundaries(app)
        assert state_of(app, result_number(app, 0)) == ("verbatim", False)
        agent, pinned = agent_of(app), result_number(app, 2)
        await send(app, pilot, "/clear-results")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.press("p")
        await until(pilot, lambda: state_of(app, pinned)[1])
        seen = await agent.context.preview("clear")
        assert isinstance(seen, StepPreview)
        await pilot.press("enter")
        await until(pilot, lambda: [each for each in boundaries(app) if "cleared" in each.kind])
        (boundary,) = (each for each in boundaries(app) if "cleared" in each.kind)
        assert (boundary.before, boundary.after) == (seen.preview.before, seen.preview.after)
        assert app.status.status.tokens == agent.context_stats().tokens
        assert state_of(app, pinned)[0] == "verbatim"


async def test_what_is_pinned_just_before_it_is_accepted_is_kept_and_a_focus_can_be_edited(
    arguments: Arguments,
) -> None:
    async with talked(arguments) as (app, pilot):
        await send(app, pilot, "/clear-results")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        pinned = result_number(app, 2)
        await pilot.press("p", "enter")
        await until(pilot, lambda: [each for each in boundaries(app) if "cleared" in each.kind])
        assert state_of(app, pinned) == ("verbatim", True)
        await send(app, pilot, "/compact the first")
        await until(pilot, lambda: isinstance(app.screen, PreviewScreen))
        await pilot.press("e")
        assert app.screen.query_one(Input).value == "the first"
        await pilot.press("space", "o", "n", "e", "enter")
        await until(pilot, lambda: isinstance(app.screen, DraftScreen))
        await pilot.pause()
        await pilot.press("enter")
        await until(pilot, lambda: [each for each in boundaries(app) if "summarised" in each.kind])
        assert agent_of(app).context_stats().last_compaction.note == "the first one"


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
        await go_to(pilot, panel.query_one(RowList), ItemKey(boundary.seq))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
