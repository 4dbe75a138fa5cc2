"""What a prompt can do beside being sent, in the app with a real session, driven by keys."""

import base64
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest
from textual import events
from textual.pilot import Pilot

from tests.agent.test_pictures import SLOWEST_S, longest_wait, noise, photograph
from tests.servers.anthropic import AnthropicServer
from tests.servers.running import in_thread
from tests.servers.script import Step
from tests.tui.app.test_terminal_app import Terminal
from tests.tui.app_of_parts import blocks, running, said, send, until
from tui_agent.arguments import Arguments
from tui_agent.settings import ModelSettings, Settings
from tui_agent.tui.actions import DIALOGS, TITLES
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.cards.blocks import ToolBlock, ToolState, UserBlock
from tui_agent.tui.dialogs.fields import KeyScreen
from tui_agent.tui.dialogs.pickers import PickerScreen
from tui_agent.tui.dialogs.reading import HelpScreen, TextScreen

CLAUDE: Final = Settings(model=ModelSettings(id="claude-opus-5-5"))
SECRET: Final = "sk-ant-do-not-keep-me"
PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "GOOGLE_API_KEY", "OLLAMA_HOST"):
        # Set first, so that what a test puts there is taken out again after it.
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    monkeypatch.setenv("TUI_AGENT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")
    folder = tmp_path / "project"
    (folder / "notes").mkdir(parents=True)
    (folder / "hello.txt").write_text("hello from the file\n")
    (folder / "notes" / "to do.md").write_text("nothing\n")


@pytest.fixture
def arguments(tmp_path: Path) -> Arguments:
    folder = tmp_path / "project"
    return Arguments(folder=folder, home=tmp_path / "home", project=folder)


def cards(app: TuiAgent) -> list[ToolBlock]:
    return blocks(app, ToolBlock)


async def write(app: TuiAgent, pilot: Pilot[object], text: str) -> None:
    app.entry.prompt.type(text)
    await pilot.pause()


@contextmanager
def claude(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnthropicServer]:
    """Answers for Claude, and has no rule of its protocol broken."""
    with in_thread(AnthropicServer(lambda _: Step(text="I see."))) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server
        assert server.violations == []


async def until_screen(app: TuiAgent, pilot: Pilot[object], kind: type[object]) -> None:
    await until(pilot, lambda: isinstance(app.screen, kind))
    await pilot.pause()


async def test_lines_are_begun_and_files_mentioned_with_a_few_keys(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        prompt, completions = app.entry.prompt, app.entry.completions
        for key in ("ctrl+j", "shift+enter", "alt+enter"):
            await pilot.press("a", key, "b")
            await until(pilot, lambda: prompt.text == "a\nb")
            prompt.clear_draft()
        await write(app, pilot, "read @hel")
        await until(pilot, lambda: completions.display)
        await pilot.press("tab")
        assert prompt.text == "read @hello.txt "
        await pilot.pause()
        assert not completions.display
        await pilot.press("enter")
        await until(pilot, lambda: "hello from the file" in said(app) and not app.conductor.busy)
        (asked,) = blocks(app, UserBlock)
        assert "@hello.txt" in asked.plain_text
        # A folder leads to its files, and Enter sends a path that is whole.
        await write(app, pilot, "list @not")
        await until(pilot, lambda: completions.display)
        await pilot.press("enter")
        assert prompt.text == "list @notes/"
        await until(pilot, lambda: completions.display)
        await pilot.press("escape")
        assert not completions.display
        await pilot.press("enter")
        await until(pilot, lambda: "to do.md" in said(app) and not app.conductor.busy)


async def test_a_shell_command_has_a_card_which_is_there_again_after_a_restart(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        await send(app, pilot, "!echo my own words; exit 3")
        await until(pilot, lambda: bool(cards(app)) and cards(app)[0].state is ToolState.ERROR)
        assert "my own words" in cards(app)[0].result
        assert not app.permission.asking
        await until(pilot, lambda: app.status.status.activity == "")
        await send(app, pilot, "!echo begun; sleep 60")
        await until(pilot, lambda: "begun\n" in said(app))
        assert app.status.status.activity == "running your command"
        await pilot.press("escape")
        await until(pilot, lambda: cards(app)[1].state is ToolState.INTERRUPTED)
        await until(pilot, lambda: app.status.status.activity == "")
        await send(app, pilot, "!sleep 60")
        await until(pilot, lambda: len(cards(app)) == 3)
        app.quit()
        await until(pilot, lambda: not app.is_running)
    assert app.crash == ""
    assert app.session_folder is not None
    async with running(arguments._replace(resume=app.session_folder.name)) as (app, pilot):
        card, *_ = cards(app)
        assert (card.state, card.summary) == (ToolState.ERROR, "echo my own words; exit 3")
        assert "my own words" in card.result


async def test_the_palette_and_pickers_run_what_is_chosen(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        await pilot.press("ctrl+p")
        await until_screen(app, pilot, PickerScreen)
        await pilot.press(*"tools", "enter")
        await until_screen(app, pilot, TextScreen)
        await pilot.press("escape", "ctrl+p")
        await until_screen(app, pilot, PickerScreen)
        await pilot.press(*"recall", "enter")
        await until(pilot, lambda: app.entry.prompt.text == "/recall ")
        await pilot.press("ctrl+p")
        await until_screen(app, pilot, PickerScreen)
        await pilot.press(*"zzzz", "enter")
        assert isinstance(app.screen, PickerScreen), "nothing fits, and Enter waits"
        await pilot.press("ctrl+u", *"f1", "enter")
        await until_screen(app, pilot, HelpScreen)
        await pilot.press("escape", "ctrl+c")
        await send(app, pilot, f"/key {SECRET}")
        await until(pilot, lambda: "takes no argument" in said(app))
        await pilot.press("up")
        assert app.entry.prompt.text == "/recall ", "a key after the command is not remembered"
        assert SECRET not in said(app)
        await pilot.press("ctrl+c")
        await send(app, pilot, "/model ")
        await until_screen(app, pilot, PickerScreen)
        await pilot.press(*"haiku")
        await pilot.press("pagedown", "up", "down", "pageup", "enter")
        await until_screen(app, pilot, KeyScreen)
        await pilot.press("escape")
        await until(pilot, lambda: "There is no key for anthropic:claude-haiku" in said(app))


async def test_help_is_about_where_the_keyboard_is(arguments: Arguments) -> None:
    async with running(arguments) as (app, pilot):
        for focus, words in ((app.entry.prompt, "Keys in the prompt"), (app.pane, "Keys in the conversation")):
            focus.focus()
            await pilot.press("f1")
            await until_screen(app, pilot, HelpScreen)
            assert isinstance(app.screen, HelpScreen)
            titles = list(app.screen.sections)
            assert titles[:3] == [words, "Commands", "The line at the bottom"]
            assert {TITLES[place] for place in DIALOGS} <= set(titles)
            await pilot.press("escape")
            await until(pilot, lambda: not isinstance(app.screen, HelpScreen))


async def test_a_picture_the_model_cannot_see_and_what_is_none_is_told(arguments: Arguments) -> None:
    (arguments.folder / "shot.png").write_bytes(PNG)
    async with running(arguments) as (app, pilot):
        app.entry.prompt.post_message(events.Paste(str(arguments.folder / "shot.png")))
        await until(pilot, lambda: app.entry.prompt.text == "@shot.png")
        await pilot.press("enter")
        await until(pilot, lambda: "cannot see pictures" in said(app) and not app.conductor.busy)
        await send(app, pilot, "look at @gone.png ")
        await until(pilot, lambda: "gone.png: there is no such file" in said(app))
        await until(pilot, lambda: not app.conductor.busy)
        prompt = app.entry.prompt
        prompt.post_message(events.Paste("data:image/png;base64,AAAA"))
        await until(pilot, lambda: "cannot be sent" in said(app))
        assert prompt.text == "data:image/png;base64,AAAA"
        prompt.clear_draft()
        prompt.post_message(events.Paste("data:image/png;base64," + "A" * 3_000))
        await until(pilot, lambda: prompt.text.startswith("[pasted "))


async def test_pasted_pictures_are_chips_that_can_be_deleted_and_are_sent(
    arguments: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my shot.png").write_bytes(PNG)
    with claude(monkeypatch) as server:
        app = TuiAgent(arguments, CLAUDE)
        async with app.run_test() as pilot:
            prompt = app.entry.prompt
            prompt.post_message(events.Paste(f"data:image/png;base64,{base64.b64encode(PNG).decode()}"))
            await until(pilot, lambda: prompt.text == "[picture 1: PNG, 70 B]")
            await pilot.press("backspace")
            assert prompt.text == ""
            await pilot.press("ctrl+underscore")
            assert prompt.text == "[picture 1: PNG, 70 B]"
            await pilot.press("alt+shift+z")
            assert prompt.text == ""
            # Sent before the picture is read: it waits for it.
            await write(app, pilot, "what is on ")
            prompt.post_message(events.Paste(str(tmp_path / "my shot.png").replace(" ", "\\ ")))
            await pilot.press("enter")
            await until(pilot, lambda: "I see." in said(app) and not app.conductor.busy)
            assert "what is on [picture 2: my shot.png, 70 B]\n[1 image]" in said(app)
        (request,) = server.model_requests
        assert base64.b64encode(PNG) in request.body


async def test_twenty_large_pictures_and_what_is_none(arguments: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number}.jpg" for number in range(20)]
    for number, name in enumerate(names):
        # Too large to be sent, and each another; those of a camera's size are tried without a screen.
        (arguments.folder / name).write_bytes(photograph(number % 2, (2_100, 400)) + bytes((number,)))
    (arguments.folder / "none.jpg").write_bytes(b"\xff\xd8\xff" + bytes(500))
    with claude(monkeypatch):
        async with running(arguments, CLAUDE) as (app, pilot):
            await send(app, pilot, "what is on " + " ".join(f"@{name}" for name in [*names, "none.jpg"]) + " ")
            await until(pilot, lambda: "I see." in said(app) and not app.conductor.busy)
            assert "[20 images]" in said(app)
            assert "none.jpg: it is damaged, or not a picture" in said(app)
            assert "The originals of 20 are kept" in said(app)
            await send(app, pilot, "and now?")
            await until(pilot, lambda: said(app).count("I see.") == 2 and not app.conductor.busy)


async def test_a_paste_of_forty_megabytes_of_pictures(arguments: Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    data = noise((1_300, 1_000))
    pasted = [f"data:image/png;base64,{base64.b64encode(data + bytes([number])).decode()}" for number in range(8)]
    pasted.insert(4, "data:image/png;base64,AAAA")
    text = "\n".join(pasted)
    assert len(text) > 40_000_000
    with claude(monkeypatch):
        async with running(arguments, CLAUDE) as (app, pilot):
            held_up = 0.0

            async def paste() -> None:
                app.entry.prompt.post_message(events.Paste(text))
                await until(pilot, lambda: app.entry.prompt.text.count("[picture ") == 8)

            held_up = await longest_wait(paste)
            assert "cannot be sent" in said(app)
            await pilot.press("enter")
            await until(pilot, lambda: "I see." in said(app) and not app.conductor.busy)
            await send(app, pilot, "and now?")
            await until(pilot, lambda: said(app).count("I see.") == 2 and not app.conductor.busy)
    assert held_up < 2 * SLOWEST_S


async def test_the_clipboard_says_why_it_has_no_picture_and_an_editor_needs_a_terminal(
    arguments: Arguments, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    async with running(arguments) as (app, pilot):
        for key in ("ctrl+v", "alt+v"):
            app.pane.transcript.truncate(0)
            await pilot.press(key)
            await until(pilot, lambda: "paste its path" in said(app))
        app.copy_to_clipboard("copied here")
        await pilot.press("ctrl+v")
        await until(pilot, lambda: app.entry.prompt.text == "copied here")
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "The draft stays as it was" in said(app))
        assert "an editor" in said(app)
        assert app.entry.prompt.text == "copied here"


def test_an_editor_and_a_shell_have_the_terminal_and_give_it_back(tmp_path: Path) -> None:
    project, seen = tmp_path / "project", tmp_path / "seen"
    script = tmp_path / "editor"
    script.write_text(
        f'#!/bin/sh\n[ -e {seen} ] && printf "not this" > "$1" && exit 3\n'
        f'stat -c %a "$1" > {seen}\nenv >> {seen}\ncat "$1" >> {seen}\nprintf "edited by hand\\n" > "$1"\n'
    )
    script.chmod(0o755)
    environment = {"VISUAL": str(script), "ANTHROPIC_API_KEY": SECRET}
    with closing(Terminal(project, tmp_path / "home", "--model", "offline", environment=environment)) as terminal:
        terminal.shows("ready")
        terminal.process.send("my draft\x07")
        terminal.shows("edited by hand")
        told = seen.read_text()
        assert told.startswith("600\n")
        assert told.endswith("my draft")
        assert SECRET not in told
        terminal.process.send(" and more")
        terminal.shows("edited by hand and more")
        # One that fails gives the terminal back all the same.
        terminal.process.send("\x07")
        terminal.shows("ended with 3")
        terminal.shows("Ctrl+R finds what was written there")
        terminal.process.send(", and on")
        terminal.shows("edited by hand and more, and on")
        terminal.process.send("\x03!cd /\r")
        terminal.shows("cd / has no effect on what follows")
        terminal.process.send("!PS1=in''side sh\r")
        terminal.shows("inside")
        terminal.process.send("test -t 0 && echo it-is-a-terminal > told; exit 4\r")
        terminal.shows("ended with 4")
        assert (project / "told").read_text() == "it-is-a-terminal\n"
        terminal.process.send("hello again")
        terminal.shows("hello again")
