"""Keys that come faster than a dialog can come or go: none is lost, it ends with the first, and the program goes on."""

from collections.abc import Callable
from pathlib import Path

import pytest
from textual import events
from textual.app import App

from tests.tui.app_of_parts import OFFLINE, project_of_parts, until
from tui_agent.agent.history.branches import Branch, Prompt
from tui_agent.arguments import Arguments
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.app.theme import UNICODE
from tui_agent.tui.dialogs.branch_pickers import rewind_picker, tree_picker
from tui_agent.tui.dialogs.dialog import Dialog
from tui_agent.tui.dialogs.dialogs import HelpScreen
from tui_agent.tui.dialogs.key_dialog import KeyScreen
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.dialogs.text_screen import TextScreen

OPTIONS = [Option(str(number), str(number)) for number in range(3)]
PROMPTS = (Prompt(3, "first", 0.0, 4), Prompt(7, "second", 0.0, 2))
BRANCHES = (Branch(9, 0, 4, "first", 0.0, True), Branch(6, 3, 3, "second", 0.0, False))


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, 1)


Made = Callable[[], Dialog[str | None] | Dialog[None]]


@pytest.mark.parametrize(
    ("make", "keys", "ends_with"),
    [
        (lambda: PickerScreen("Theme", OPTIONS), ["down"], "1"),
        (lambda: PickerScreen("Theme", OPTIONS, search=True), ["down"], "1"),
        (lambda: KeyScreen("ANTHROPIC_API_KEY", "Claude"), ["a", "b"], "ab"),
        (lambda: rewind_picker(PROMPTS, UNICODE), ["down"], "3"),
        (lambda: tree_picker(BRANCHES, UNICODE), ["down"], "6"),
        (lambda: HelpScreen({"Keys": "Enter  sends"}), [], None),
        (lambda: TextScreen("Text", "text", UNICODE), [], None),
    ],
)
@pytest.mark.parametrize("last", ["enter", "escape"])
async def test_a_key_pressed_thrice_ends_it_once(make: Made, keys: list[str], ends_with: str | None, last: str) -> None:
    app: App[None] = App()
    ended: list[str | None] = []
    async with app.run_test(size=(80, 24)) as pilot:
        app.push_screen(make(), ended.append)
        await pilot.pause()
        await pilot.press(*keys)
        for _ in range(3):
            app.simulate_key(last)
        await pilot.pause()
        assert ended == [ends_with if last == "enter" else None]
        assert len(app.screen_stack) == 1


@pytest.mark.parametrize("keys", [["down", "down"], ["2"]])
@pytest.mark.parametrize("by_way_of_the_prompt", [False, True])
async def test_keys_that_come_before_a_dialog_stands_are_taken_once_it_does(
    arguments: Arguments, keys: list[str], by_way_of_the_prompt: bool
) -> None:
    app = TuiAgent(arguments, OFFLINE)
    ended: list[str | None] = []
    async with app.run_test() as pilot:
        app.push_screen(PickerScreen("Theme", OPTIONS, search=True), ended.append)
        for key in (*keys, "enter"):
            event = events.Key(key, key if key.isdecimal() else None)
            if by_way_of_the_prompt:
                event._set_forwarded()
            await app.on_event(event)
        await until(pilot, lambda: bool(ended))
        assert ended == ["2"]
        assert app.entry.prompt.text == ""
