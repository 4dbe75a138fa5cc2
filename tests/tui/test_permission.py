"""The permission question under real key presses."""

import asyncio
from time import monotonic

import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Input, Static
from typing_extensions import override

from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, Preview
from tui_agent.tui.dialogs.permission import PermissionPanel

COMMAND = PermissionQuestion(
    call_id="1",
    tool="run_command",
    arguments='{"command": "make test"}',
    accesses=(),
    preview=Preview("Run a command", command="make test\x1b]0;x\x07"),
    reason="It runs a command.",
    pattern="run_command(make *)",
)
EDIT = PermissionQuestion(
    call_id="2",
    tool="edit_file",
    arguments="{}",
    accesses=(),
    preview=Preview("Edit a.py", diff="--- a.py\n+++ a.py\n@@ -1 +1 @@\n-[bold]old\n+new"),
    reason="",
    pattern="",
)


class PanelApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.typed_at = 0.0
        self.panel = PermissionPanel(lambda: self.typed_at)
        self.typed: list[str] = []

    @override
    def compose(self) -> ComposeResult:
        yield Input(id="elsewhere")
        yield self.panel

    def on_permission_panel_typed(self, message: PermissionPanel.Typed) -> None:
        self.typed.append(message.character)

    def ask(self, question: PermissionQuestion) -> asyncio.Task[PermissionAnswer]:
        return asyncio.create_task(self.panel.ask(question))

    def shown(self, part: str) -> str:
        return str(self.panel.query_one(f"#permission-{part}", Static).render())


async def until_focused(app: PanelApp, pilot: Pilot[None]) -> None:
    while not app.panel.has_focus:
        await pilot.pause(0.02)


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["1"], PermissionAnswer(allowed=True)),
        (["enter"], PermissionAnswer(allowed=True)),
        (["2"], PermissionAnswer(allowed=True, always=True)),
        (["down", "enter"], PermissionAnswer(allowed=True, always=True)),
        (["3"], PermissionAnswer(allowed=False)),
        (["4", "n", "o", "1", "enter"], PermissionAnswer(allowed=False, feedback="no1")),
        (["4", "escape", "3"], PermissionAnswer(allowed=False)),
    ],
)
async def test_answers(keys: list[str], answer: PermissionAnswer) -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        asked = app.ask(COMMAND)
        await until_focused(app, pilot)
        await pilot.press(*keys)
        assert await asked == answer
        await pilot.pause()
        assert not app.panel.display


async def test_keys_in_the_first_moment_still_belong_to_whoever_had_them() -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        app.query_one("#elsewhere", Input).focus()
        asked = app.ask(COMMAND)
        await pilot.pause()
        await pilot.press("1", "2")
        assert not asked.done()
        assert app.query_one("#elsewhere", Input).value == "12"
        await until_focused(app, pilot)
        await pilot.press("3")
        assert not (await asked).allowed


async def test_it_waits_until_nobody_types() -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        app.query_one("#elsewhere", Input).focus()
        asked = app.ask(COMMAND)
        began = monotonic()
        while monotonic() - began < 0.6:
            app.typed_at = monotonic()
            await pilot.pause(0.05)
            assert not app.panel.has_focus
        await until_focused(app, pilot)
        asked.cancel()


async def test_a_letter_that_answers_nothing_goes_back() -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        asked = app.ask(COMMAND)
        await until_focused(app, pilot)
        await pilot.press("x", "5")
        assert app.typed == ["x", "5"]
        assert not asked.done()
        asked.cancel()


async def test_what_is_asked_is_shown_safely() -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        asked = app.ask(COMMAND)
        await until_focused(app, pilot)
        assert app.shown("text") == "make test"
        assert "Run a command" in app.shown("title")
        assert "run_command(make *)" in app.shown("choices")
        asked.cancel()
        await pilot.pause()
        asked = app.ask(EDIT)
        await until_focused(app, pilot)
        assert "- [bold]old" in app.shown("text")
        await pilot.press("2")
        assert not asked.done()
        asked.cancel()


async def test_questions_come_one_after_the_other() -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        first, second = app.ask(COMMAND), app.ask(EDIT)
        await until_focused(app, pilot)
        await pilot.press("1")
        assert (await first).allowed
        await until_focused(app, pilot)
        assert "Edit a.py" in app.shown("title")
        await pilot.press("3")
        assert not (await second).allowed


async def test_a_stopped_turn_takes_the_question_away() -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        asked = app.ask(COMMAND)
        await until_focused(app, pilot)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await pilot.pause()
        assert not app.panel.display
        assert not app.panel.asking


async def test_the_choices_stay_in_view_under_a_long_preview() -> None:
    app = PanelApp()
    long = PermissionQuestion("3", "run_command", "{}", (), Preview("Run", command="x\n" * 500), "", "")
    async with app.run_test(size=(80, 24)) as pilot:
        asked = app.ask(long)
        await until_focused(app, pilot)
        await pilot.pause()
        choices = app.panel.query_one("#permission-choices", Static)
        assert choices.region.bottom <= 24
        assert app.panel.region.contains_region(choices.region)
        asked.cancel()


async def test_a_long_pattern_is_wrapped_under_itself_and_all_choices_stay_in_view() -> None:
    app = PanelApp()
    pattern = f"run_command({'python -m build --wheel ' * 6}*)"
    long = PermissionQuestion("3", "run_command", "{}", (), Preview("Run", command="x\n" * 500), "", pattern)
    async with app.run_test(size=(80, 24)) as pilot:
        asked = app.ask(long)
        await until_focused(app, pilot)
        await pilot.pause()
        first, second, *rest = app.shown("choices").splitlines()[1:]
        assert first.startswith("2  Yes, always for")
        assert second.startswith("   ")
        assert rest[-1].startswith("4  ")
        for part in ("#permission-choices", "#permission-keys"):
            assert app.panel.region.contains_region(app.panel.query_one(part).region)
        assert app.panel.query_one("#permission-preview").region.height > 3
        asked.cancel()


async def test_on_the_smallest_screen_all_four_answers_are_seen() -> None:
    app = PanelApp()
    async with app.run_test(size=(20, 5)) as pilot:
        asked = app.ask(COMMAND)
        await until_focused(app, pilot)
        await pilot.pause()
        assert app.shown("title") == "? make test"
        assert app.shown("choices").split() == ["1", "yes", "2", "always", "3", "no", "4", "why"]
        asked.cancel()


async def test_a_reason_that_says_nothing_more_is_left_out() -> None:
    app = PanelApp()
    async with app.run_test() as pilot:
        asked = app.ask(COMMAND)
        await until_focused(app, pilot)
        assert "It runs a command." not in app.shown("title")
        asked.cancel()
