"""The app at every moment: what is sent waits in sight and goes in order, Esc and Ctrl+C are answered at once."""

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.worker import WorkerState

from tests.agent.extensions.test_hooks import hook
from tests.agent.test_pictures import noise
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Fault, Step
from tests.tui.app_of_parts import OFFLINE, blocks, project_of_parts, prompts, running, said, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, PermissionSettings, Settings
from tui_agent.tui.app import leaving
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.app.leaving import ANSWER_S, StuckLoopGuard
from tui_agent.tui.cards.blocks import NoticeBlock
from tui_agent.tui.dialogs.reading import HelpScreen
from tui_agent.tui.session.states import Phase

CLAUDE: Final = Settings(model=ModelSettings(id="claude-opus-5-5"), permissions=PermissionSettings(unasked="known"))
TEXTS: Final = ["the first", "the second", "the third"]


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, 1)


slow_picture: Final = cache(lambda: noise((2_100, 1_500)))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, arguments: Arguments) -> Iterator[AnthropicServer]:
    """Claude's, with pictures in the project that take a while to be read."""
    picture = slow_picture()
    for number in range(3):
        (arguments.folder / f"{number}.png").write_bytes(picture)
    with in_thread(AnthropicServer(lambda _: Step(text="I see."))) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


PICTURES: Final = "what is on " + " ".join(f"@{number}.png" for number in range(3))


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


async def test_what_begins_a_turn_stays_in_sight_until_the_conversation_has_it(arguments: Arguments) -> None:
    opens = arguments.home / "opens"
    hook(arguments.home, f"cat {opens}", event="UserPromptSubmit")
    os.mkfifo(opens)
    async with running(arguments) as (app, pilot):
        await send(app, pilot, TEXTS[0])
        await until(pilot, lambda: app.entry.waiting.texts == (TEXTS[0],))
        assert not prompts(app)
        await asyncio.to_thread(opens.write_text, "")
        await until(pilot, lambda: prompts(app) == TEXTS[:1])
        assert app.entry.waiting.texts == ()
        await until(pilot, lambda: not app.conductor.busy)


async def test_texts_sent_while_pictures_are_read_wait_in_sight_and_are_delivered(
    arguments: Arguments, server: AnthropicServer
) -> None:
    async with running(arguments, CLAUDE) as (app, pilot):
        # All in one go, of which the inbox is emptied in one step, before any picture can have been read.
        for text in (PICTURES, *TEXTS):
            app.conductor.send(text)
        await asyncio.sleep(0)
        assert app.conductor.phase is Phase.PREPARING
        assert app.entry.waiting.texts == (PICTURES, *TEXTS)
        await until(pilot, lambda: len(prompts(app)) == 4 and not app.conductor.busy)
        assert [text.splitlines()[0].strip() for text in prompts(app)] == [PICTURES, *TEXTS]
        assert app.entry.waiting.texts == ()


async def test_escape_is_answered_while_the_pictures_of_a_second_text_are_read(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch, server: AnthropicServer
) -> None:
    """With a question open that nobody answers, which held up everything once."""
    asks = Step(calls=(Call(name="run_command", args={"command": "touch made"}),))
    server.script = lambda _: asks
    async with running(arguments, CLAUDE) as (app, pilot):
        await send(app, pilot, "go")
        await until(pilot, lambda: app.permission.asking)
        app.conductor.send(PICTURES)
        app.conductor.send("and more")
        await asyncio.sleep(0)
        assert app.entry.waiting.texts[-1] == "and more"
        await pilot.press("escape")
        await until(pilot, lambda: not app.conductor.busy)
        assert not app.permission.asking
        assert app.entry.prompt.text.split("\n")[0].strip() == PICTURES
        assert app.entry.prompt.text.endswith("and more")
        assert app.entry.waiting.texts == ()


async def test_a_key_between_disarms_ctrl_c_and_twice_quits_over_a_dialog(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        await pilot.press("ctrl+c", "x", "ctrl+c")
        assert "cleared" in app.status.status.hint
        assert app.is_running
        app.post_message(events.Paste("pasted"))
        await pilot.press("ctrl+c", "escape")
        assert "quits" not in app.status.status.hint
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("ctrl+c")
        assert app.is_running
        await pilot.press("ctrl+c")
        await gone(app, pilot)


def test_only_a_second_press_soon_after_the_first_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(leaving, "monotonic", lambda: now)
    key = leaving.DoublePress()
    told: list[bool] = []
    for now in (0.0, 0.9, 1.0, 2.1, 3.0, 4.0, 5.0):
        now *= leaving.AGAIN_S
        told.append(key.pressed())
    assert told == [False, True, False, False, True, False, False]


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
        # While a turn runs, the first one only empties the prompt.
        await pilot.press(*["ctrl+c"] * (2 if moment == "opening" else 3))
        await gone(app, pilot)
    assert "a draft" in (arguments.home / "history.jsonl").read_text()


async def test_who_insists_again_and_again_waits_no_longer_for_that(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tui_agent.tui.app.session_app.PATIENCE_S", 60.0)
    settings = Settings(model=ModelSettings(id="offline"), permissions=PermissionSettings(mode="allow", sandbox="off"))
    async with running(arguments, settings) as (app, pilot):
        await send(app, pilot, "run trap '' TERM INT; sleep 600")
        await until(pilot, lambda: "running" in app.status.status.activity)
        app.quit(hurry=True)
        leaving = next(worker for worker in app.workers if worker.name == "leave")
        await pilot.press("ctrl+c", "ctrl+c", "ctrl+q")
        await gone(app, pilot)
    assert leaving.state is not WorkerState.CANCELLED


async def test_escape_is_answered_while_a_command_of_ones_own_does_not_end(arguments: Arguments) -> None:
    app = TuiAgent(
        arguments, Settings(model=ModelSettings(id="offline"), permissions=PermissionSettings(sandbox="off"))
    )
    async with app.run_test() as pilot:
        await opened(app, pilot)
        await send(app, pilot, "!trap '' TERM INT; touch made; sleep 600")
        await until(pilot, (arguments.folder / "made").exists)
        await pilot.press("escape")
        assert app.status.status.hint == "stopping"
        await pilot.press("ctrl+c", "ctrl+c")
        await gone(app, pilot)


async def test_what_a_hook_refuses_comes_back(arguments: Arguments) -> None:
    arguments.home.mkdir()
    hook = {"type": "command", "command": "echo not so >&2; exit 2"}
    (arguments.home / "hooks.json").write_text(json.dumps({"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}}))
    async with running(arguments) as (app, pilot):
        await send(app, pilot, "a text of mine")
        await until(pilot, lambda: app.entry.prompt.text == "a text of mine")
        assert prompts(app) == []


def test_a_loop_that_does_not_answer_keeps_nobody_in_the_program() -> None:
    ended, over = threading.Event(), threading.Event()

    def end() -> None:
        ended.set()
        over.set()

    async def hangs() -> None:
        guard = StuckLoopGuard(asyncio.get_running_loop(), end)
        for insists in (True, False, True, True):
            guard.read(insists=insists)
        assert over.wait(60)

    asyncio.run(hangs())
    assert ended.is_set()


async def test_a_loop_that_answers_goes_on() -> None:
    ended = threading.Event()
    guard = StuckLoopGuard(asyncio.get_running_loop(), ended.set)
    guard.read(insists=True)
    guard.read(insists=True)
    guard.ask()
    assert not await asyncio.to_thread(ended.wait, 2 * ANSWER_S)


async def test_r_after_a_turn_that_failed_sends_its_text_once_more(
    arguments: Arguments, server: AnthropicServer
) -> None:
    fails = Step(fault=Fault(kind="bad_request", times=99, message="not today"))
    server.script = lambda _: fails
    async with running(arguments, CLAUDE) as (app, pilot):
        await send(app, pilot, "tell me")
        await until(pilot, lambda: not app.conductor.busy and notices_of(app))
        assert "not today" in notices_of(app)[-1]
        server.script = lambda _: Step(text="I see.")
        await send(app, pilot, "r")
        await until(pilot, lambda: "I see." in said(app) and not app.conductor.busy)
        sent = json.dumps(server.model_requests[-1].json)
        assert sent.count("tell me") == 1
        await send(app, pilot, "r")
        await until(pilot, lambda: prompts(app)[-1] == "r" and not app.conductor.busy)
        # Esc twice in an empty prompt offers to rewind.
        await pilot.press("x", "escape", "escape")
        assert not isinstance(app.screen, ModalScreen)
        await pilot.press("backspace", "escape")
        assert "again rewinds" in app.status.status.hint
        await pilot.press("x", "backspace", "escape")
        assert not isinstance(app.screen, ModalScreen)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, ModalScreen))


def notices_of(app: TuiAgent) -> list[str]:
    return [block.plain_text for block in blocks(app, NoticeBlock)]
