"""Keys that come faster than a dialog can come or go: none is lost, it ends with the first, and the program goes on."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.app import App
from textual.widgets import Input

from tests.tui.app_of_parts import OFFLINE, project_of_parts, until
from tests.tui.dialogs.test_pickers import StyledApp
from tui_agent.agent.branches import Branch, EarlierPrompt
from tui_agent.agent.context import SwitchPreview
from tui_agent.arguments import Arguments
from tui_agent.tools.files.put_back import PutBack
from tui_agent.tui.app.app import TuiAgent
from tui_agent.tui.context.calls_screen import CallsScreen
from tui_agent.tui.context.draft_screen import DraftScreen, EditingDialog, WordsScreen
from tui_agent.tui.context.previews import PreviewScreen
from tui_agent.tui.dialogs.branch_pickers import PlacePicker, rewind_picker, tree_picker
from tui_agent.tui.dialogs.dialog import Dialog
from tui_agent.tui.dialogs.fields import KeyScreen, LineScreen, TitleScreen
from tui_agent.tui.dialogs.files_screen import FilesScreen, ShownPlan
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.dialogs.reading import HelpScreen, Reading, TextScreen
from tui_agent.tui.dialogs.row_list import RowList
from tui_agent.tui.dialogs.sessions_screen import SessionsScreen
from tui_agent.tui.dialogs.trust import TrustScreen

OPTIONS = [Option(str(number), str(number)) for number in range(3)]
PROMPTS = (EarlierPrompt(3, "first", 0.0, 4), EarlierPrompt(7, "second", 0.0, 2))
BRANCHES = (Branch(9, 0, 4, "first", 0.0, True), Branch(6, 3, 3, "second", 0.0, False))


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Arguments:
    return project_of_parts(monkeypatch, tmp_path, 1)


Made = Callable[[], Dialog[Any]]


ENDS: tuple[tuple[Made, list[str], str | None], ...] = (
    (lambda: PickerScreen("Theme", OPTIONS), [], "0"),
    (lambda: PickerScreen("Theme", OPTIONS), ["down"], "1"),
    (lambda: PickerScreen("Theme", OPTIONS, search=True), ["down"], "1"),
    (lambda: KeyScreen("ANTHROPIC_API_KEY", "Claude"), ["a", "b"], "ab"),
    (lambda: rewind_picker(PROMPTS), ["down"], "3"),
    (lambda: tree_picker(BRANCHES), ["down"], "6"),
    (lambda: HelpScreen({"Keys": "Enter  sends"}), [], None),
    (lambda: TextScreen("Text", "text"), [], None),
)


async def test_a_key_pressed_thrice_ends_it_once() -> None:
    app: App[None] = App()
    async with app.run_test(size=(80, 24)) as pilot:
        for last in ("enter", "escape"):
            for make, keys, ends_with in ENDS:
                ended: list[str | None] = []
                app.push_screen(make(), ended.append)
                await pilot.pause()
                await pilot.press(*keys)
                for _ in range(3):
                    app.simulate_key(last)
                await pilot.pause()
                assert ended == [ends_with if last == "enter" else None]
                assert len(app.screen_stack) == 1


EVERY: tuple[Made, ...] = (
    lambda: PickerScreen("Theme", OPTIONS),
    lambda: PickerScreen("Theme", OPTIONS, search=True),
    lambda: TrustScreen(Path("project")),
    lambda: SessionsScreen([], {}, Path("project")),
    lambda: TitleScreen("title"),
    lambda: KeyScreen("ANTHROPIC_API_KEY", "Claude"),
    lambda: rewind_picker(PROMPTS),
    lambda: HelpScreen({"Keys": "Enter  sends"}),
    lambda: TextScreen("Text", "text"),
    lambda: FilesScreen("Undo?", PutBack(1), ShownPlan.of(PutBack(1)), rewinds=True),
    lambda: PreviewScreen(SwitchPreview("a", "b", 10, 0, 0, (), "", None, None, None, 0)),
    lambda: WordsScreen("Words", "text", "nothing is left"),
)
STEPS = (0, 1, 2, 3, 5, 8, 13, 21)
"""Steps of the event loop that a dialog is given before it has to go."""


def kinds(kind: type[Dialog[Any]]) -> set[type[Dialog[Any]]]:
    below = kind.__subclasses__()
    return {*below, *(each for one in below for each in kinds(one))}


async def test_a_dialog_that_goes_before_it_stands_does_no_harm() -> None:
    app: App[None] = App()
    async with app.run_test(size=(80, 24)) as pilot:
        shown: set[type[object]] = set()
        for make in EVERY:
            for steps in STEPS:
                dialog = make()
                shown.add(type(dialog))
                app.push_screen(dialog)
                for _ in range(steps):
                    await asyncio.sleep(0)
                dialog.dismiss(None)
                assert len(app.screen_stack) == 1
            await pilot.pause()
    # A draft and calls are of a session: `test_drafting` and `test_calls_screen` show them.
    assert shown | {CallsScreen, DraftScreen, EditingDialog, LineScreen, PlacePicker, Reading} == kinds(Dialog)


AT_ONCE: tuple[tuple[list[str], Callable[[TuiAgent], bool]], ...] = (
    (["f1", "escape", *"/theme", "enter"], lambda app: isinstance(app.screen, PickerScreen)),
    (["f1", *"hello"], lambda app: app.entry.prompt.text == "hello" and not isinstance(app.screen, Dialog)),
    (["f1", "escape", *"hello"], lambda app: app.entry.prompt.text == "hello"),
    (["tab", "slash", *"Line 12"], lambda app: "Line 12" in app.pane.render_line(app.pane.size.height - 1).text),
    (["tab", "slash", *"No", "escape", "tab", *"on"], lambda app: app.entry.prompt.text == "on"),
)


async def test_keys_that_come_at_once_go_where_the_ones_before_them_lead(arguments: Arguments) -> None:
    app = TuiAgent(arguments, OFFLINE)
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.conductor.session)

        async def cleared() -> None:
            await until(pilot, lambda: app.screen.is_mounted)
            while isinstance(app.screen, Dialog):
                await pilot.press("escape")
            app.entry.prompt.clear_draft()
            app.entry.prompt.focus()
            await pilot.pause()

        app.entry.prompt.sent.add("sent before")
        for keys, true in AT_ONCE:
            for key in keys:
                app.simulate_key(key)
            await until(pilot, partial(true, app))
            await cleared()

        dialog = PickerScreen("Theme", OPTIONS)
        app.push_screen(dialog)
        for key in "on":
            await app.on_event(events.Key(key, key))
        dialog.dismiss(None)
        await until(pilot, lambda: app.entry.prompt.text == "on")
        await cleared()

        for keys in (["down", "down"], ["2"]):
            for by_way_of_the_prompt in (False, True):
                ended: list[str | None] = []
                app.push_screen(PickerScreen("Theme", OPTIONS, search=True), ended.append)
                for key in (*keys, "enter"):
                    event = events.Key(key, key if key.isdecimal() else None)
                    if by_way_of_the_prompt:
                        event._set_forwarded()
                    await app.on_event(event)
                await until(pilot, partial(bool, ended))
                assert ended == ["2"]
                assert app.entry.prompt.text == ""


async def test_a_choice_is_of_what_was_typed_though_the_list_has_not_heard_of_it() -> None:
    app: App[None] = App()
    ended: list[str | None] = []
    async with app.run_test() as pilot:
        dialog = PickerScreen("Theme", OPTIONS, search=True)
        await app.push_screen(dialog, ended.append)
        await pilot.pause()
        field = dialog.query_one(Input)
        with field.prevent(Input.Changed):
            field.value = "2"
        dialog.action_choose()
        await pilot.pause()
    assert ended == ["2"]


async def test_a_dialog_under_another_one_waits_for_its_turn() -> None:
    app: App[None] = App()
    ended: list[str | None] = []
    async with app.run_test() as pilot:
        below, above = PickerScreen("Below", OPTIONS), PickerScreen("Above", OPTIONS)
        app.push_screen(below, ended.append)
        app.push_screen(above, ended.append)
        await pilot.pause()
        below.dismiss("0")
        await pilot.pause()
        assert (app.screen, ended) == (above, [])
        await pilot.press("enter", "escape")
        assert ended == ["0", None]
        assert len(app.screen_stack) == 1


async def test_a_click_beside_a_text_closes_it() -> None:
    app = StyledApp()
    async with app.run_test(size=(80, 24)) as pilot:
        reading, question = TextScreen("Text", "text\n" * 30), PickerScreen("why", [Option("", "this")])
        app.push_screen(reading)
        await pilot.pause()
        await pilot.click(RowList)
        assert reading in app.screen_stack
        await pilot.click(offset=(0, 0))
        await pilot.pause()
        assert reading not in app.screen_stack
        app.push_screen(question)
        await pilot.pause()
        await pilot.click(offset=(0, 0))
        await pilot.pause()
        assert question in app.screen_stack
