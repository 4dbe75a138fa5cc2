"""Bringing a long conversation to the screen without holding up the keys."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import RenderableType
from textual.app import App, ComposeResult
from textual.screen import Screen as TextualScreen
from textual.widgets import Input
from typing_extensions import override

from tests.bench.long_session import prompt, result, write_session
from tests.tui.app_of_parts import blocks, prompts, until
from tui_agent.agent import events
from tui_agent.agent.history.as_events import ending, replay
from tui_agent.arguments import Arguments
from tui_agent.conversation.entries import HeadMoved
from tui_agent.settings import ModelSettings, Settings
from tui_agent.storage.log import LogStore, log_file, read_entries
from tui_agent.storage.sessions import session_to_resume
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import Level, NoticeBlock, ToolBlock, UserBlock
from tui_agent.tui.pane.conversation import ConversationPane
from tui_agent.tui.pane.status_bar import GaugeMarks, StatusBar
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.session.past import EarlierEvents, show_earlier, show_past
from tui_agent.tui.session.turns import TurnView

MANY = 20_000
"""Turns after which a key press would have been far too late."""


class Nobody:
    """Nothing waits here."""

    def add(self, seq: int, text: str) -> None:
        """Cannot happen."""
        raise AssertionError(text)

    def remove(self, seq: int) -> None:
        """Nothing to do."""


class Screen(App[None]):
    """A pane, a status bar and a place to type."""

    CSS = "ConversationPane { height: 1fr; } StatusBar { height: 1; }"

    def __init__(self) -> None:
        super().__init__()
        self.transcript = Transcript()
        self.pane = ConversationPane(self.transcript)
        self.status = StatusBar(GaugeMarks(70, 90))

    @override
    def compose(self) -> ComposeResult:
        yield self.pane
        yield Input()
        yield self.status


def past_until(typed: Callable[[], bool]) -> Iterator[events.AgentEvent]:
    """Turns that end once something was typed."""
    for turn in range(MANY):
        if typed():
            return
        yield events.UserMessage(seq=turn, text=prompt(turn))
        yield events.ToolStarted(call_id=str(turn), name="read_file", arguments="{}")
        text = result(turn, 0)
        yield events.ToolFinished(
            call_id=str(turn), name="read_file", status="ok", text=text, size=len(text), tokens=1, duration_ms=1
        )


async def test_keys_are_answered_while_a_long_past_is_shown() -> None:
    app = Screen()
    async with app.run_test():
        entry = app.query_one(Input)
        entry.focus()
        past = past_until(lambda: entry.value == "ab")
        showing = asyncio.ensure_future(show_past(past, TurnView(app.transcript, app.status, Nobody()), app.pane))
        for key in "ab":
            app.simulate_key(key)
        await showing
        asked = [block.text for block in app.pane.transcript if isinstance(block, UserBlock)]
        assert 0 < len(asked) < MANY
        assert asked == [prompt(turn) for turn in range(len(asked))]
        assert app.pane.following
        assert app.pane.viewport.rows[-1].position.block == len(app.transcript) - 1


def turns(first: int, last: int) -> Iterator[events.AgentEvent]:
    for turn in range(first, last):
        yield events.UserMessage(seq=turn + 1, text=prompt(turn))


async def test_what_is_in_view_stays_there_when_what_came_before_is_put_above_it() -> None:
    app = Screen()
    async with app.run_test(size=(80, 20)) as pilot:
        await pilot.pause()
        app.transcript.add_notice(Level.INFO, "Welcome")
        view = TurnView(app.transcript, app.status, Nobody())
        await show_past(turns(500, 530), view, app.pane)
        app.pane.action_page(-1)
        app.pane.action_cursor(-1)
        marked = app.pane.cursor_block
        shown = [row.line.text for row in app.pane.viewport.rows]
        view.show(events.UserMessage(seq=531, text=prompt(530)))
        await show_earlier(EarlierEvents(turns(0, 500), 1), view, app.pane)
        await pilot.pause()
        assert [row.line.text for row in app.pane.viewport.rows] == shown
        assert app.pane.cursor_block is marked is not None
        assert not app.pane.following
        said = [block.plain_text for block in app.pane.transcript]
        assert said == ["Welcome", *(prompt(turn) for turn in range(531))]
        assert [block.index for block in app.pane.transcript] == list(range(532))
        view.show(events.UserMessage(seq=532, text="more"))
        app.pane.scroll_to_tail()
        assert app.pane.viewport.rows[-1].line.text.endswith("more")


async def test_a_conversation_that_went_on_elsewhere_gets_nothing_put_above_it() -> None:
    app = Screen()
    async with app.run_test():
        view = TurnView(app.transcript, app.status, Nobody())
        await show_past(turns(5, 6), view, app.pane)
        view.show(events.BranchChanged(seq=7, to=1, reason="rewind", before=1, after=1))
        await show_earlier(EarlierEvents(turns(0, 5), 0), view, app.pane)
        assert [block.plain_text for block in app.pane.transcript] == [prompt(5)]


async def test_the_end_of_a_session_is_known_before_it_is_open(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = await session_to_resume(home, await write_session(home, 40))
    whole = list(replay(read_entries(log_file(folder))))
    found = ending(folder, 20)
    assert found is not None
    assert found.shown == whole[-len(found.shown) :]
    assert 3 * 6 <= found.last - found.first <= 40
    path = [entry for entry in read_entries(log_file(folder)) if entry.seq < 30]
    store = await LogStore.open(folder)
    await store.load()
    await store.append([HeadMoved(seq=found.last + 1, parent=found.last, time=1, to=29, reason="rewind")])
    await store.close()
    rewound = ending(folder, 200)
    assert rewound is not None
    assert rewound.shown == list(replay(path))


async def test_the_end_of_a_session_is_painted_before_it_is_opened_and_all_of_it_comes_in_order(tmp_path: Path) -> None:
    session = await write_session(tmp_path / "home", 60)
    arguments = Arguments(folder=tmp_path, home=tmp_path / "home", project=tmp_path, resume=session)
    painted: list[str] = []

    class Painting(TuiAgent):
        @override
        def _display(self, screen: TextualScreen[object], renderable: RenderableType | None) -> None:
            super()._display(screen, renderable)
            if self.completed:
                painted[:] = [row.line.text for row in self.pane.viewport.rows]

    app = Painting(arguments, Settings(model=ModelSettings(id="offline")))
    before_opening: list[list[str]] = []
    app.before_opening = lambda: before_opening.append(list(painted))
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.status.status.model and len(app.pane.transcript) >= 60 * 6)
        assert isinstance(app.pane.transcript.blocks[0], NoticeBlock)
        assert prompts(app) == list(map(prompt, range(60)))
        tools = [block.result for block in blocks(app, ToolBlock)]
        assert tools == [result(turn, number) for turn in range(60) for number in range(3)]
    assert [any("All tests pass." in line for line in lines) for lines in before_opening] == [True]
