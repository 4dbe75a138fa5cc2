"""The app at every moment: what is sent waits in sight and goes in order, Esc and Ctrl+C are answered at once."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from textual import events
from textual.pilot import Pilot

from tests.agent.test_pictures import noise
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Step
from tests.tui.app_of_parts import OFFLINE, project_of_parts, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import Model, Permissions, Settings
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.app.states import Phase
from tui_agent.tui.cards.blocks import UserBlock
from tui_agent.tui.dialogs.dialogs import HelpScreen

CLAUDE: Final = Settings(model=Model(id="claude-opus-5-5"))
TEXTS: Final = ["the first", "the second", "the third"]


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, 1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, arguments: Arguments) -> Iterator[AnthropicServer]:
    """Claude's, with pictures in the project that take a while to be read."""
    for number in range(3):
        (arguments.folder / f"{number}.png").write_bytes(noise((2_100, 1_500)))
    with in_thread(AnthropicServer(lambda _: Step(text="I see."))) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


PICTURES: Final = "what is on " + " ".join(f"@{number}.png" for number in range(3))


def prompts(app: TuiAgent) -> list[str]:
    return [block.text for block in app.pane.transcript if isinstance(block, UserBlock)]


async def opened(app: TuiAgent, pilot: Pilot[object]) -> None:
    await until(pilot, lambda: app.conductor.phase is Phase.IDLE)


async def gone(app: TuiAgent, pilot: Pilot[object]) -> None:
    """The program ends, by itself."""
    await until(pilot, lambda: not app.is_running)


async def test_texts_sent_before_the_session_is_open_stay_in_sight_and_go_in_order(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test() as pilot:
        assert app.conductor.phase is Phase.OPENING
        for text in TEXTS:
            app.conductor.send(text)
        await asyncio.sleep(0)
        assert app.entry.waiting.texts == tuple(TEXTS)
        await until(pilot, lambda: len(prompts(app)) == 3 and not app.conductor.busy)
        assert prompts(app) == TEXTS
        assert app.entry.waiting.texts == ()


async def test_texts_sent_while_pictures_are_read_wait_in_sight_and_are_delivered(
    arguments: Arguments, server: AnthropicServer
) -> None:
    app = TuiAgent(arguments, CLAUDE)
    async with app.run_test() as pilot:
        await opened(app, pilot)
        await send(app, pilot, PICTURES + " ")
        await until(pilot, lambda: app.conductor.phase is Phase.PREPARING)
        for text in TEXTS:
            app.conductor.send(text)
        await pilot.pause()
        assert app.conductor.phase is Phase.PREPARING
        assert [text.strip() for text in app.entry.waiting.texts] == [PICTURES, *TEXTS]
        await until(pilot, lambda: len(prompts(app)) == 4 and not app.conductor.busy)
        assert [text.splitlines()[0].strip() for text in prompts(app)] == [PICTURES, *TEXTS]
        assert app.entry.waiting.texts == ()


async def test_escape_is_answered_while_the_pictures_of_a_second_text_are_read(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, server: AnthropicServer
) -> None:
    """With a question open that nobody answers, which held up everything once."""
    asks = Step(calls=(Call(name="run_command", args={"command": "touch made"}),))
    server.script = lambda _: asks
    app = TuiAgent(arguments, CLAUDE)
    async with app.run_test() as pilot:
        await opened(app, pilot)
        await send(app, pilot, "go")
        await until(pilot, lambda: app.permission.asking)
        await send(app, pilot, PICTURES + " ")
        app.conductor.send("and more")
        await pilot.pause()
        assert app.entry.waiting.texts[-1] == "and more"
        await pilot.press("escape")
        await until(pilot, lambda: not app.conductor.busy)
        assert not app.permission.asking
        assert app.entry.prompt.text.split("\n")[0].strip() == PICTURES
        assert app.entry.prompt.text.endswith("and more")
        assert app.entry.waiting.texts == ()


async def test_a_key_between_disarms_ctrl_c(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test() as pilot:
        await opened(app, pilot)
        await pilot.press("ctrl+c", "x", "ctrl+c")
        assert "emptied" in app.status.status.hint
        assert app.is_running
        app.post_message(events.Paste("pasted"))
        await pilot.press("ctrl+c", "escape")
        assert app.status.status.hint == ""
        await pilot.press("ctrl+c")
        assert app.is_running
        await pilot.press("ctrl+c")
        await gone(app, pilot)


async def test_ctrl_c_twice_quits_over_a_dialog(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test() as pilot:
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("ctrl+c", "ctrl+c")
        await gone(app, pilot)


@pytest.mark.parametrize("moment", ["opening", "preparing", "running", "asking"])
async def test_ctrl_c_twice_quits_at_every_moment(arguments: Arguments, server: AnthropicServer, moment: str) -> None:
    if moment == "asking":
        server.script = lambda _: Step(calls=(Call(name="run_command", args={"command": "touch made"}),))
    app = TuiAgent(arguments, CLAUDE)
    async with app.run_test() as pilot:
        if moment != "opening":
            await opened(app, pilot)
            await send(app, pilot, PICTURES + " " if moment == "preparing" else "go")
            await until(pilot, lambda: app.permission.asking or moment != "asking")
        app.entry.prompt.type("a draft")
        await pilot.press("ctrl+c", "ctrl+c")
        await gone(app, pilot)
    assert "a draft" in (arguments.home / "history.jsonl").read_text()


async def test_who_insists_need_not_wait_for_the_end(arguments: Arguments) -> None:
    """A command that will not end keeps nobody in the program."""
    settings = Settings(model=Model(id="offline"), permissions=Permissions(mode="allow", sandbox="off"))
    app = TuiAgent(arguments, settings)
    async with app.run_test() as pilot:
        await opened(app, pilot)
        await send(app, pilot, "run trap '' TERM INT; sleep 600")
        await until(pilot, lambda: "running" in app.status.status.activity)
        app.quit()
        await pilot.press("ctrl+c", "ctrl+c")
        await gone(app, pilot)
