"""The prompt under keys that `test_walk_of_prompt` does not press, and under what others do to it."""

from pathlib import Path
from typing import cast

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import TextArea
from typing_extensions import override

from tui_agent.system.resources import styles_folder
from tui_agent.tui.keys import Keymap
from tui_agent.tui.prompt.completion import Completion, CompletionItem
from tui_agent.tui.prompt.history import PromptHistory
from tui_agent.tui.prompt.mentions import ProjectFiles
from tui_agent.tui.prompt.prompt import Prompt, PromptArea
from tui_agent.tui.terminal.driver import InputParser
from tui_agent.tui.terminal.textual_internals import delete_as_typed, write_as_typed


def complete(before: str) -> Completion | None:
    choices = (
        CompletionItem("/help", "/help", "all commands"),
        CompletionItem("/model ", "/model <name>", "who answers", final=False),
    )
    found = tuple(choice for choice in choices if before and choice.label.split()[0].startswith(before))
    return Completion(0, found) if found else None


class PromptApp(App[None]):
    CSS_PATH = styles_folder() / "prompt.tcss"

    def __init__(self, home: Path, keymap: Keymap | None = None) -> None:
        super().__init__()
        history = PromptHistory(home / "history.jsonl")
        self.area = PromptArea(history, complete, ProjectFiles(home), keymap=keymap or Keymap())
        self.sent: list[tuple[str, str]] = []
        self.left = 0

    @override
    def compose(self) -> ComposeResult:
        yield self.area

    def on_mount(self) -> None:
        self.area.prompt.focus()

    def on_prompt_sent(self, message: Prompt.Sent) -> None:
        self.sent.append((message.text, message.written))

    def on_prompt_left(self) -> None:
        self.left += 1


@pytest.fixture
def app(tmp_path: Path) -> PromptApp:
    return PromptApp(tmp_path)


async def write(pilot: Pilot[None], text: str) -> None:
    await pilot.press(*("space" if character == " " else character for character in text))


async def paste(app: PromptApp, pilot: Pilot[None], text: str) -> None:
    app.area.prompt.post_message(events.Paste(text))
    await pilot.pause()


async def test_what_waited_for_its_pictures_is_not_sent_once_it_is_called_off(app: PromptApp) -> None:
    async with app.run_test() as pilot:
        for called_off in ("escape", "emptied"):
            await write(pilot, "look")
            app.area.prompt.action_paste_picture()
            await pilot.press("enter")
            if called_off == "escape":
                await pilot.press("escape")
            else:
                app.area.prompt.clear_draft()
            app.area.prompt.pictures_pasted("here")
            await pilot.pause()
            assert app.sent == []
            app.area.prompt.clear_draft()


async def test_ten_megabytes_are_sent_as_they_are(app: PromptApp) -> None:
    text = ("x" * 99 + "\n") * 100_000
    async with app.run_test() as pilot:
        await paste(app, pilot, text)
        assert app.area.prompt.text == "[pasted 100,000 lines]"
        await pilot.press("enter")
        assert app.sent[0][0] == text


async def test_another_textual_replaces_as_a_program_does(app: PromptApp) -> None:
    class Elsewhere:
        """What is left of a text area without the private methods."""

        def __init__(self, area: TextArea) -> None:
            self.replace, self.delete = area.replace, area.delete

    async with app.run_test():
        area = cast("TextArea", Elsewhere(app.area.prompt))
        write_as_typed(area, "abc", (0, 0), (0, 0))
        delete_as_typed(area, (0, 0), (0, 1))
        assert app.area.prompt.text == "bc"


CHIP = "[pasted 5,000 characters]"
INSIDE_A_CHIP = {
    ("backspace",): "a b",
    ("delete",): "a b",
    ("ctrl+w",): "a b",
    ("ctrl+k",): "a ",
    ("ctrl+u",): "b",
    ("ctrl+k", "ctrl+y"): f"a {CHIP}b",
    ("ctrl+w", "ctrl+y"): f"a {CHIP}b",
    ("c",): f"a {CHIP}cb",
    ("ctrl+j",): f"a {CHIP}\nb",
}


async def test_inside_a_chip_no_key_breaks_it(app: PromptApp) -> None:
    async with app.run_test() as pilot:
        for keys, left in INSIDE_A_CHIP.items():
            await write(pilot, "a ")
            await paste(app, pilot, "x" * 5_000)
            await write(pilot, "b")
            await pilot.press("home", *["right"] * 6, *keys)
            assert app.area.prompt.text == left
            await pilot.press("enter")
            assert app.sent.pop() == (left.replace(CHIP, "x" * 5_000), left)


async def test_the_keys_of_the_list_can_be_others(tmp_path: Path) -> None:
    keys = ("take=f5", "choose=f6", "up=ctrl+l", "down=ctrl+n", "close=f7")
    keymap = Keymap([f"completion.{key}" for key in keys])
    assert keymap.problems == ()
    app = PromptApp(tmp_path, keymap)
    async with app.run_test() as pilot:
        await write(pilot, "/")
        await pilot.press("ctrl+n", "ctrl+n", "ctrl+l", "f5")
        assert app.area.prompt.text == "/model "
        await pilot.press("ctrl+u", "/", "f7")
        assert not app.area.completions.display
        await pilot.press("backspace", "/", "h", "e", "f6")
        assert app.sent == [("/help", "/help")]


async def test_keys_in_one_go_take_nothing_that_was_offered_before_them(app: PromptApp) -> None:
    async with app.run_test() as pilot:
        await write(pilot, "/")
        assert app.area.completions.display
        for key in (*"model", "enter"):
            app.area.prompt.post_message(events.Key(key, key if len(key) == 1 else None))
        await pilot.pause()
        assert app.sent == [("/model", "/model")]


async def test_what_was_only_guessed_at_is_completed_first_and_run_by_the_next_enter(app: PromptApp) -> None:
    def guess(before: str) -> Completion:
        return Completion(
            0, (CompletionItem("/compact", "/compact", names=("/summarize",)), CompletionItem("/config", "/config"))
        )

    app.area.prompt._completer = guess
    async with app.run_test() as pilot:
        for typed in ("/cmpact", "/co", "/"):
            await write(pilot, typed)
            await pilot.press("enter")
            assert (app.area.prompt.text, app.sent) == ("/compact", [])
            await pilot.press("enter")
            assert app.sent.pop() == ("/compact", "/compact")
        for typed in ("/summ", "/summarize", "/comp", "/COMPACT"):
            await write(pilot, typed)
            await pilot.press("enter")
            assert app.sent.pop() == ("/compact", "/compact")
        await write(pilot, "/co")
        await pilot.press("down", "enter")
        assert app.sent.pop() == ("/config", "/config")


async def test_a_slash_behind_a_text_that_was_given_back_is_a_slash(app: PromptApp) -> None:
    async with app.run_test() as pilot:
        prompt = app.area.prompt
        for give in (prompt.begin, prompt.put):
            give("look in src")
            await write(pilot, "/core")
            assert prompt.text == "look in src/core"
            prompt.clear_draft()


async def test_what_was_typed_around_a_paste_comes_back_as_text(app: PromptApp) -> None:
    typed = "point\n" * 14
    async with app.run_test() as pilot:
        await paste(app, pilot, "line\n" * 300)
        sent = f"{app.area.prompt.draft()}why?\n{typed}"
        app.area.prompt.clear_draft()
        app.area.prompt.put(sent)
        assert app.area.prompt.text == f"[pasted 300 lines]why?\n{typed}"
        assert app.area.prompt.draft() == sent


async def test_a_cleared_draft_can_be_had_back(app: PromptApp) -> None:
    async with app.run_test() as pilot:
        await write(pilot, "draft")
        assert app.area.prompt.clear_draft()
        assert app.area.prompt.text == ""
        await pilot.press("up")
        assert app.area.prompt.text == "draft"
        assert not PromptApp(Path("/nowhere")).area.prompt.clear_draft()


async def test_waiting_texts_are_listed(app: PromptApp) -> None:
    async with app.run_test() as pilot:
        assert not app.area.waiting.display
        app.area.waiting.show(("one", "two", "three", "four"))
        await pilot.pause()
        shown = app.area.waiting.render().plain.splitlines()
        assert shown == ["queued (+1): two", "queued: three", "queued: four"]
        app.area.waiting.show(())
        await pilot.pause()
        assert not app.area.waiting.display


async def test_an_undo_that_needs_no_scrollbar_any_more(app: PromptApp) -> None:
    async with app.run_test(size=(40, 8)) as pilot:
        prompt = app.area.prompt
        await paste(app, pilot, "line\n" * 11)
        assert prompt.show_vertical_scrollbar
        await pilot.press("ctrl+underscore")
        assert (prompt.text, prompt.cursor_location) == ("", (0, 0))
        await pilot.press("ctrl+y")
        assert prompt.text == "line\n" * 11


async def test_a_key_below_a_text_that_was_put_back_is_kept_nowhere(tmp_path: Path, app: PromptApp) -> None:
    async with app.run_test():
        app.area.prompt.type("/key sk-secret")
        app.area.prompt.put("sent and taken back")
        assert app.area.prompt.text == "sent and taken back\n/key sk-secret"
        app.area.prompt.clear_draft()
    assert (tmp_path / "history.jsonl").read_text() == '"sent and taken back"\n'


async def test_signs_that_join_others_are_written_as_they_are_typed(app: PromptApp) -> None:
    text = "👨\u200d👩\u200d👧 می\u200cخواهم e\u0301"
    async with app.run_test() as pilot:
        for key in InputParser().feed(text):
            app.post_message(key)
        await pilot.pause()
        assert app.area.prompt.text == text


async def test_completions_come_back_with_the_focus(app: PromptApp) -> None:
    async with app.run_test() as pilot:
        await write(pilot, "/he")
        app.set_focus(None)
        await pilot.pause()
        assert app.area.completions.completion is None
        app.area.prompt.focus()
        await pilot.pause()
        assert app.area.completions.marked is not None
