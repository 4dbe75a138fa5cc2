"""The app with a real session and the offline model, driven by keys."""

import asyncio
from pathlib import Path

import pytest
from textual import events
from textual.pilot import Pilot
from textual.screen import ModalScreen
from textual.widgets import Static

from tests.bench.long_session import write_session
from tests.tui.app_of_parts import ALLOW, OFFLINE, blocks, prompts, running, said, until, workers_finished
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, Settings
from tui_agent.settings.trust import is_refused, is_trusted
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import session_to_resume
from tui_agent.tools.sandbox.sandbox import mechanism
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.app.welcome import DEMO_HINT, PROMISE
from tui_agent.tui.cards.blocks import Level, NoticeBlock, ProseBlock, ToolBlock, ToolState
from tui_agent.tui.context.steering import SLOW_S
from tui_agent.tui.dialogs.fields import KeyScreen
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.reading import HelpScreen, TextScreen
from tui_agent.tui.dialogs.sessions_screen import SessionsScreen
from tui_agent.tui.dialogs.trust import TrustScreen
from tui_agent.tui.session.states import Phase

__all__ = ["KEYS", "OFFLINE", "opened"]
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_HOST")


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "hello.txt").write_text("hello from the file\n")
    monkeypatch.chdir(folder)


@pytest.fixture
def arguments(tmp_path: Path) -> Arguments:
    folder = tmp_path / "project"
    return Arguments(folder=folder, home=tmp_path / "home", project=folder)


async def opened(app: TuiAgent, pilot: Pilot[object]) -> None:
    await until(pilot, lambda: app.conductor.session is not None and bool(app.status.status.model))


async def write(pilot: Pilot[object], text: str) -> None:
    await pilot.press(*("space" if character == " " else character for character in text))


async def send(pilot: Pilot[object], text: str) -> None:
    await write(pilot, text)
    await pilot.press("enter")


async def idle(app: TuiAgent, pilot: Pilot[object]) -> None:
    await until(pilot, lambda: not app.conductor.busy and app.status._timer is None)


async def test_the_first_frame_takes_keys_and_a_question_is_answered_with_a_tool_card(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test() as pilot:
        await send(pilot, "read hello.txt")
        await until(pilot, lambda: blocks(app, ProseBlock))
        await idle(app, pilot)
        assert prompts(app) == ["read hello.txt"]
        (tool,) = blocks(app, ToolBlock)
        assert (tool.name, tool.state, tool.summary) == ("read_file", ToolState.OK, "hello.txt")
        assert "hello from the file" in tool.result
        assert app.status.status.tokens > 0
        assert app.status.status.measured
        assert tool.collapsed
        await pilot.press("ctrl+o")
        assert not tool.collapsed


async def test_a_command_asks_and_its_answer_is_remembered_taken_back_and_shown_on_its_card(
    arguments: Arguments,
) -> None:
    async with running(arguments) as (app, pilot):
        app.say(Level.INFO, "Long", "\n".join(map(str, range(100))))
        await send(pilot, "run seq 3")
        await until(pilot, lambda: app.permission.has_focus)
        (tool,) = blocks(app, ToolBlock)
        assert tool.state is ToolState.ASKING
        # The conversation is read by pages while a short question is open.
        end = app.pane.scroll_y
        await pilot.press("pageup")
        await until(pilot, lambda: app.pane.scroll_y < end)
        await pilot.press("pagedown", "pagedown", "2")
        await until(pilot, lambda: tool.state is ToolState.OK)
        await idle(app, pilot)
        assert app.focused is app.entry.prompt
        await send(pilot, "run seq 3")
        await until(pilot, lambda: [each.state for each in blocks(app, ToolBlock)] == [ToolState.OK] * 2)
        assert not app.permission.display
        await idle(app, pilot)
        await send(pilot, "/permissions")
        await until(pilot, lambda: isinstance(app.screen, PickerScreen))
        await pilot.press("enter")
        await until(pilot, lambda: "You will be asked again" in said(app))
        await send(pilot, "run seq 3")
        await until(pilot, lambda: app.permission.has_focus)
        await pilot.press("5", *"why", "enter")
        await idle(app, pilot)
        refused = blocks(app, ToolBlock)[-1]
        assert (refused.state, refused.note) == (ToolState.DENIED, "You declined it: why")


async def test_what_a_command_says_is_seen_where_the_panel_has_the_conversations_place(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        for command in ("/cost", "!echo seen"):
            await pilot.press("f2")
            await until(pilot, lambda: not app.pane.display)
            await send(pilot, command)
            await until(pilot, lambda: app.pane.display)


async def test_a_text_sent_during_a_turn_waits_and_comes_back_when_it_is_stopped(arguments: Arguments) -> None:
    async with running(arguments, ALLOW) as (app, pilot):
        await send(pilot, "run sleep 60")
        await until(pilot, lambda: blocks(app, ToolBlock))
        assert app.status._timer is not None
        await send(pilot, "and then this")
        await until(pilot, lambda: app.entry.waiting.texts == ("and then this",))
        await pilot.press("up")
        await until(pilot, lambda: app.entry.prompt.text == "and then this")
        assert app.entry.waiting.texts == ()
        await pilot.press("enter")
        await until(pilot, lambda: app.entry.waiting.texts == ("and then this",))
        await pilot.press("escape")
        await idle(app, pilot)
        await until(pilot, lambda: app.entry.prompt.text == "and then this")
        assert app.entry.waiting.texts == ()
        assert blocks(app, ToolBlock)[0].state is ToolState.INTERRUPTED
        assert "Stopped" in said(app)
        # Ctrl+C empties first, then stops, and does not quit.
        await pilot.press("ctrl+c")
        assert app.entry.prompt.text == ""
        await send(pilot, "run sleep 61")
        await until(pilot, lambda: len(blocks(app, ToolBlock)) == 2)
        await write(pilot, "draft")
        await pilot.press("ctrl+c")
        assert app.entry.prompt.text == ""
        assert app.conductor.busy
        await pilot.press("ctrl+c")
        await idle(app, pilot)
        assert app.is_running
        # What waits is delivered to the turn.
        await send(pilot, "run sleep 1")
        await until(pilot, lambda: len(blocks(app, ToolBlock)) == 3)
        await send(pilot, "read hello.txt")
        await until(pilot, lambda: "hello from the file" in said(app))
        await idle(app, pilot)
        assert app.entry.waiting.texts == ()


async def test_ctrl_c_empties_first_and_quits_when_pressed_again_and_an_unused_session_leaves_nothing(
    arguments: Arguments,
) -> None:
    async with running(arguments) as (app, pilot):
        await write(pilot, "draft")
        await pilot.press("ctrl+c")
        assert app.entry.prompt.text == ""
        assert "again to quit" in app.status.status.hint
        assert app.is_running
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.is_running)
    assert app.return_code == 0
    assert app.session_folder is not None
    assert not app.session_folder.exists()


async def test_a_hint_stands_its_time_whatever_was_said_before_it(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test() as pilot:
        over = asyncio.Event()
        app.hint("the first", 0.01)
        app.hint("the second", 60)
        app.set_timer(0.03, over.set)
        await over.wait()
        assert app.status.status.hint == "the second"
        app.hint("the second", 0.01)
        await until(pilot, lambda: not app.status.status.hint)


async def test_a_resumed_session_shows_what_was_said(arguments: Arguments) -> None:
    first = TuiAgent(arguments._replace(prompt="read hello.txt"), OFFLINE)
    async with first.run_test() as pilot:
        await until(pilot, lambda: "hello from the file" in said(first))
        await idle(first, pilot)
        folder, shown = first.session_folder, [type(block) for block in first.pane.transcript]
        assert folder is not None
        await pilot.press("ctrl+d")
        await until(pilot, lambda: not first.is_running)
    async with running(arguments._replace(resume=folder.name)) as (again, _):
        assert [type(block) for block in again.pane.transcript] == shown
        assert "hello from the file" in said(again)


async def test_a_session_that_there_is_not_leads_to_the_list(arguments: Arguments) -> None:
    await write_session(arguments.home, 3)
    app = TuiAgent(arguments._replace(resume="20200101-000000-dead"), OFFLINE)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))
        await until(pilot, lambda: bool(app.screen.query(".dialog-text")))
        why, keys = str(app.screen.query_one(".dialog-text", Static).content).splitlines()
        assert why == "There is no session '20200101-000000-dead'."
        assert "renames" in keys
        await pilot.press("escape")
        await opened(app, pilot)
        assert "a new one begins" in said(app)
        await until(pilot, lambda: PROMISE in said(app) and DEMO_HINT in said(app))


@pytest.mark.parametrize(
    ("named", "why", "key", "begins"),
    [
        ("nonsense:1", "There is no", "enter", "offline"),
        ("nonsense:1", "There is no", "escape", "offline"),
        ("gemini-3", "several models", "enter", "gemini:gemini-3."),
    ],
)
async def test_an_unknown_model_leads_to_a_list_of_models_with_the_reason(
    arguments: Arguments, named: str, why: str, key: str, begins: str
) -> None:
    app = TuiAgent(arguments, Settings(model=ModelSettings(id=named)))
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, PickerScreen) and app.screen.stands)
        told = str(app.screen.query_one(".dialog-text", Static).content)
        assert why in told
        assert told.endswith("Esc begins with the offline one.")
        listed = [str(label.content) for label in app.screen.query(Static)]
        assert any("claude" in text for text in listed) is (named == "nonsense:1")
        await pilot.press(key)
        await opened(app, pilot)
        assert app.status.status.model.startswith(begins)
        assert "could not be opened" not in said(app)


async def test_help_tools_and_mistakes(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        await send(pilot, "/help")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await send(pilot, "/tools ")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("q")
        await until(pilot, lambda: not isinstance(app.screen, TextScreen))
        assert app.entry.prompt.text == ""
        await send(pilot, "/tools ")
        await until(pilot, lambda: isinstance(app.screen, TextScreen))
        await pilot.press("full_stop")
        await until(pilot, lambda: app.entry.prompt.text == ".")
        # Help takes keys from the app while it is open.
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not isinstance(app.screen, HelpScreen))
        assert (app.entry.prompt.text, app.status.status.hint) == (".", "")
        await pilot.press("backspace")
        for text, told in (
            ("/modle ", "did you mean /mode"),
            ("/settings ", "/config lists every setting"),
            ("/mode nonsense", "no mode nonsense"),
        ):
            await send(pilot, text)
            await until(pilot, lambda told=told: told in said(app))  # type: ignore[misc]
        assert not prompts(app)
        await send(pilot, "/model haiku ")
        await until(pilot, lambda: isinstance(app.screen, KeyScreen))
        await pilot.press("escape")
        await until(pilot, lambda: "There is no key for anthropic:claude-haiku-" in said(app))
        assert app.status.status.model.startswith("offline")
        app.pane.focus()
        await pilot.press("f9", "é")  # one that is for nothing, and one to write
        app.pane.focus()
        await pilot.pause()
        app.post_message(events.Paste("pasted"))
        await until(pilot, lambda: app.entry.prompt.text == "épasted")
        assert app.focused is app.entry.prompt


async def test_without_a_key_the_window_is_that_of_the_catalogue(arguments: Arguments) -> None:
    app = TuiAgent(arguments, Settings(model=ModelSettings(id="claude-sonnet-5-5")))
    async with app.run_test() as pilot:
        await until(pilot, lambda: "There is no key for anthropic:claude-sonnet-5-5" in said(app))
        assert app.status.status.window == 1_000_000


@pytest.mark.skipif(mechanism().kind != "namespaces", reason="there is no sandbox that confines")
async def test_the_status_bar_says_that_commands_run_in_the_sandbox(arguments: Arguments) -> None:
    app = TuiAgent(arguments, Settings(model=ModelSettings(id="offline")))
    async with app.run_test() as pilot:
        await until(pilot, lambda: "sandboxed" in app.status.render_line(0).text)


async def test_the_badge_over_the_conversation_works_from_the_prompt(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test(size=(60, 12)) as pilot:
        app.pane.transcript.add_prose("\n".join(f"- {number}" for number in range(40)))
        await pilot.press("pageup")
        app.pane.transcript.add_prose("the newest")
        app.pane.flush()
        assert "new lines · End" in app.pane.render_line(app.pane.size.height - 1).text
        await write(pilot, "ab")
        await pilot.press("home", "end")
        assert (app.entry.prompt.cursor_location, app.pane.following) == ((0, 2), False)
        await pilot.press("backspace", "backspace", "end")
        assert app.pane.following
        assert app.entry.prompt.has_focus


@pytest.mark.parametrize(
    ("keys", "trusted"), [(("down", "enter"), True), (("up", "enter"), False), (("escape",), False)]
)
async def test_trust_is_asked_before_the_session_opens(
    arguments: Arguments, keys: tuple[str, ...], trusted: bool
) -> None:
    app = TuiAgent(arguments._replace(ask_trust=True), OFFLINE)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, TrustScreen))
        assert app.session_folder is None
        await pilot.press(*keys)
        await opened(app, pilot)
        assert is_trusted(arguments.folder, arguments.home) is trusted
        assert is_refused(arguments.folder, arguments.home) is (keys == ("up", "enter"))


async def test_of_a_session_that_cannot_be_opened_nothing_stays_and_trust_is_asked_once(arguments: Arguments) -> None:
    session = await write_session(arguments.home, 3)
    held = await LogStore.open(await session_to_resume(arguments.home, session))
    app = TuiAgent(arguments._replace(ask_trust=True, resume=session), OFFLINE)
    async with app.run_test() as pilot:
        await until(pilot, lambda: isinstance(app.screen, TrustScreen))
        await pilot.press("down", "enter")
        await until(pilot, lambda: isinstance(app.screen, ModalScreen) and not isinstance(app.screen, TrustScreen))
        await pilot.press("escape")
        await until(pilot, lambda: app.conductor.phase is Phase.VACANT and "could not be opened" in said(app))
        await until(pilot, lambda: not prompts(app))
        assert (app.arguments.trusted, app.arguments.ask_trust) == (True, False)
        await send(pilot, "/new")
        await opened(app, pilot)
    await held.close()


@pytest.mark.parametrize("size", [(20, 5), (40, 12)])
async def test_every_part_fits_on_every_screen(arguments: Arguments, size: tuple[int, int]) -> None:
    async with running(arguments, size=size) as (app, pilot):
        await send(pilot, "run seq 5")
        await until(pilot, lambda: app.permission.has_focus)
        await pilot.pause()
        for part in (app.permission, app.entry.prompt, app.status):
            assert app.screen.region.contains_region(part.region)
            assert part.region.height >= 1
        assert app.status.region.bottom == size[1]
        await pilot.press("4")
        await idle(app, pilot)
        await write(pilot, "/")
        await pilot.pause()
        assert app.screen.region.contains_region(app.entry.prompt.region)
        assert app.entry.prompt.region.height >= 1


async def test_resizing_at_any_moment(arguments: Arguments) -> None:
    app = TuiAgent(arguments._replace(prompt="read hello.txt"), OFFLINE)
    async with app.run_test() as pilot:
        for size in [(1, 1), (20, 5), (200, 60), (7, 3), (2, 30), (80, 24)] * 2:
            await pilot.resize_terminal(*size)
            await pilot.pause()
        await until(pilot, lambda: "hello from the file" in said(app))
        await idle(app, pilot)
        await write(pilot, "still here")
        assert app.entry.prompt.text == "still here"


async def test_an_error_nobody_expected_is_a_card_with_a_log(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test() as pilot:
        await pilot.pause()
        app.report(ZeroDivisionError("division by zero with sk-ant-api03-abcdef"))
        (card,) = (block for block in blocks(app, NoticeBlock) if "wrong" in block.title)
        assert "Traceback" not in card.plain_text
        assert "division by zero with [key]" in card.plain_text
        (log,) = (arguments.home / "logs").iterdir()
        assert "ZeroDivisionError" in log.read_text()


async def test_a_key_press_lays_nothing_out_and_a_layout_leaves_the_scrollbar_alone(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        # What the welcome learns of the session adds lines, too.
        await workers_finished(pilot)
        app.say(Level.INFO, "long", "\n".join(map(str, range(100))))
        await write(pilot, "a")
        await until(pilot, lambda: app.pane.max_scroll_y and app.status._timer is None)
        layouts: list[object] = []
        app.screen.screen_layout_refresh_signal.subscribe(app, layouts.append)
        await write(pilot, "bc d")
        await pilot.pause()
        assert app.entry.prompt.text == "abc d"
        assert not layouts
        app.screen.refresh(layout=True)
        await until(pilot, lambda: layouts)
        painted: list[object] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(app.pane.vertical_scrollbar, "refresh", lambda *parts, **how: painted.append(parts))
            app.screen.refresh(layout=True)
            await until(pilot, lambda: len(layouts) > 1)
        assert not painted


def activity(app: TuiAgent) -> str:
    return app.status.status.activity


async def test_a_long_look_is_told_of_until_something_else_goes_on(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        with app.steering.notice_if_slow("looking"):
            await until(pilot, lambda: activity(app) == "looking")
        assert activity(app) == ""
        with app.steering.notice_if_slow("looking"):
            await until(pilot, lambda: activity(app) == "looking")
            app.working("reading")
        assert activity(app) == "reading"
        app.working("")
        with app.steering.notice_if_slow("looking"):
            pass
        await pilot.pause(2 * SLOW_S)
        assert activity(app) == ""
