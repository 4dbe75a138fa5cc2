"""Searching, copying code, what is new below, and spinners, in the pane of a small app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from typing_extensions import override

from tui_agent.tui.cards.blocks import ToolState
from tui_agent.tui.cards.prose import fenced_code
from tui_agent.tui.painting.glyphs import ASCII, UNICODE, Glyphs
from tui_agent.tui.painting.themes import register_themes
from tui_agent.tui.pane.conversation import ConversationPane
from tui_agent.tui.pane.transcript import Transcript

CODE = "Two pieces:\n\n```python\nfirst = 1\n```\n\nand\n\n- in a list:\n  ```\n  second = 2\n    deeper\n  ```\n"


class PaneApp(App[None]):
    def __init__(self, transcript: Transcript, glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        self.pane = ConversationPane(transcript, glyphs=glyphs)
        self.copied: list[ConversationPane.Copied] = []

    @override
    def compose(self) -> ComposeResult:
        yield self.pane

    def on_mount(self) -> None:
        register_themes(self)
        self.theme = "dusk"
        self.pane.focus()

    def on_conversation_pane_copied(self, message: ConversationPane.Copied) -> None:
        self.copied.append(message)


@asynccontextmanager
async def running(transcript: Transcript, glyphs: Glyphs = UNICODE) -> AsyncIterator[tuple[PaneApp, Pilot[None]]]:
    app = PaneApp(transcript, glyphs)
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        yield app, pilot


def screen_of(app: PaneApp) -> list[str]:
    return [app.pane.render_line(y).text.rstrip() for y in range(app.pane.size.height)]


def told(turns: int) -> Transcript:
    transcript = Transcript()
    for turn in range(turns):
        transcript.add_user(f"prompt {turn}")
        tool = transcript.add_tool(f"call-{turn}", "read_file", summary=f"file_{turn}.py")
        transcript.finish_tool(tool, ToolState.OK, "\n".join(f"row {turn}.{row}" for row in range(30)))
        transcript.add_prose(f"answer {turn}")
    return transcript


async def write(pilot: Pilot[None], text: str) -> None:
    await pilot.press(*("full_stop" if sign == "." else "space" if sign == " " else sign for sign in text))


async def test_words_are_found_as_they_are_typed_and_the_card_that_holds_them_opens() -> None:
    transcript = told(6)
    async with running(transcript) as (app, pilot):
        await pilot.press("slash")
        await write(pilot, "ROW 3.20")
        assert any("row 3.20" in line for line in screen_of(app))
        assert screen_of(app)[-1].startswith("  /ROW 3.20")
        assert app.pane.cursor_block is transcript.tool("call-3")
        await pilot.press("enter")
        assert "n next" in screen_of(app)[-1]
        await pilot.press("escape")
        assert "ROW" not in "\n".join(screen_of(app))


async def test_next_and_previous_go_round() -> None:
    transcript = told(4)
    async with running(transcript) as (app, pilot):
        await pilot.press("home", "slash")
        await write(pilot, "answer")
        await pilot.press("enter")
        places = []
        for key in ("n", "n", "n", "n", "N", "N"):
            block = app.pane.cursor_block
            assert block is not None
            places.append(block.index)
            await pilot.press(key)
        assert places == [2, 5, 8, 11, 2, 11]
        assert screen_of(app)[-1].startswith("  /answer  3 of 4 · n next")


async def test_nothing_found_is_said_and_moves_nothing() -> None:
    async with running(told(4)) as (app, pilot):
        before = screen_of(app)
        await pilot.press("slash")
        await write(pilot, "zzz")
        assert "nothing found" in screen_of(app)[-1]
        # The search has a line of its own, above which the end is still seen.
        assert screen_of(app)[:-1] == before[1:]
        await pilot.press("enter", "n", "escape", "n", "c")
        assert screen_of(app) == before


async def test_what_is_new_below_is_counted_and_a_click_goes_there() -> None:
    transcript = told(4)
    async with running(transcript) as (app, pilot):
        await pilot.press("pageup")
        assert "new line" not in screen_of(app)[-1]
        transcript.add_prose("one more")
        app.pane.flush()
        assert screen_of(app)[-1].endswith("2 new lines · End")
        await pilot.click(offset=(app.size.width - 4, 11))
        assert app.pane.following
        assert screen_of(app)[-1].strip() == "one more"


async def test_code_is_copied_piece_by_piece() -> None:
    transcript = Transcript()
    transcript.add_user("no code here")
    transcript.add_prose(CODE)
    async with running(transcript) as (app, pilot):
        await pilot.press("up", "c", "c", "c")
        assert [message.text for message in app.copied] == ["first = 1", "second = 2\n  deeper", "first = 1"]
        assert [message.what for message in app.copied] == ["code 1 of 2", "code 2 of 2", "code 1 of 2"]
        assert app.clipboard == "first = 1"
        await pilot.press("up", "c")
        assert len(app.copied) == 3


@pytest.mark.parametrize("text", ["", "plain", "``inline``", "    indented, not a fence"])
def test_no_fence_no_code(text: str) -> None:
    assert fenced_code(text) == []


def test_an_open_fence_counts_to_the_end() -> None:
    assert fenced_code("```\na\n\nb") == ["a\n\nb"]


async def test_a_running_card_spins_in_one_cell_without_layout_and_stops() -> None:
    transcript = Transcript()
    tool = transcript.add_tool("1", "run_command", summary="sleep", state=ToolState.RUNNING)
    async with running(transcript, ASCII) as (app, pilot):
        pictures: set[str] = set()
        while len(pictures) < 4:
            pictures.add(screen_of(app)[0])
            await pilot.pause(0.02)
        assert {picture.replace(picture[2], "?", 1) for picture in pictures} == {"  ? Run sleep  running"}
        transcript.finish_tool(tool, ToolState.OK, "done")
        app.pane.flush()
        assert screen_of(app)[0].startswith("  * Run")
        assert not app.pane.spinning
