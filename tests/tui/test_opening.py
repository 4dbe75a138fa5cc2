"""Bringing a long conversation to the screen without holding up the keys."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from textual.app import App, ComposeResult
from textual.widgets import Input
from typing_extensions import override

from tests.bench.long_session import prompt, result, write_session
from tui_agent.agent import events
from tui_agent.arguments import Arguments
from tui_agent.settings import Model, Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.app.opening import show_past
from tui_agent.tui.app.status_bar import StatusBar, Thresholds
from tui_agent.tui.app.theme import UNICODE
from tui_agent.tui.app.turns import TurnView
from tui_agent.tui.cards.blocks import ToolBlock, UserBlock
from tui_agent.tui.pane.conversation import ConversationPane
from tui_agent.tui.pane.transcript import Transcript

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

    def __init__(self) -> None:
        super().__init__()
        self.transcript = Transcript()
        self.pane = ConversationPane(self.transcript)
        self.status = StatusBar(UNICODE, Thresholds(70, 90))

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
        prompts = [block.text for block in app.pane.transcript if isinstance(block, UserBlock)]
        assert 0 < len(prompts) < MANY
        assert prompts == [prompt(turn) for turn in range(len(prompts))]
        assert app.pane.following
        assert app.pane.viewport.rows[-1].position.block == len(app.transcript) - 1


async def test_a_resumed_session_is_whole_and_in_order(tmp_path: Path) -> None:
    session = await write_session(tmp_path / "home", 60)
    arguments = Arguments(folder=tmp_path, home=tmp_path / "home", project=tmp_path, resume=session)
    app = TuiAgent(arguments, Settings(model=Model(id="offline")))
    async with app.run_test() as pilot, asyncio.timeout(30):
        while not app.status.status.model:
            await pilot.pause()
        assert [block.text for block in app.pane.transcript if isinstance(block, UserBlock)] == list(
            map(prompt, range(60))
        )
        tools = [block.result for block in app.pane.transcript if isinstance(block, ToolBlock)]
        assert tools == [result(turn, number) for turn in range(60) for number in range(3)]
