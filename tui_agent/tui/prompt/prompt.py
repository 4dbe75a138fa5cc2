"""The prompt: a multi-line text field with history, completion, and large pastes as chips."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import ClassVar

from rich.cells import get_character_cell_size, split_graphemes
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Offset, Size
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import TextArea
from textual.worker import Worker
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.keys import Keymap
from tui_agent.tui.painting.glyphs import glyphs_of
from tui_agent.tui.painting.lines import fit
from tui_agent.tui.painting.palette import Palette
from tui_agent.tui.prompt.completion import Completer, CompletionItem, CompletionList
from tui_agent.tui.prompt.drafts import MAX_CHARACTERS, Drafts
from tui_agent.tui.prompt.history import PromptHistory
from tui_agent.tui.prompt.mentions import ProjectFiles
from tui_agent.tui.prompt.pastes import Pastes
from tui_agent.tui.terminal.textual_internals import delete_as_typed, write_as_typed
from tui_agent.tui.wording import PLACEHOLDER

MAX_QUEUED_ROWS = 3
MAX_TODO_ROWS = 8
"""The most items of the task list that are shown at once, the current one among them."""
MAX_EDITED = 20_000
"""A longer text from an external editor is shown in the prompt as a chip."""

DRAFT_S = 0.5
"""Seconds after which what was typed is on disk."""

KEY_COMMAND = "/key "
"""What follows this at the beginning of a line is kept nowhere: it may contain an API key."""


class SteadyTextArea(TextArea):
    """A `TextArea` without a crash of Textual's when an undo makes the text shorter."""

    @override
    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        # Textual 8.2.8 calls this in the middle of an undo, when the cursor may be on a line that no longer exists.
        if self.cursor_location[0] >= self.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)


class Prompt(SteadyTextArea):
    """The text field of the prompt. Only sending it or the user's own keys remove its text."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("prompt")]

    @dataclass
    class Sent(Message):
        """The user sent `text`; `written` is the same text with its large pastes as chips."""

        text: str
        written: str

    @dataclass
    class PicturesPasted(Message):
        """The user pasted pictures; `Prompt.pictures_pasted` takes the answer.

        text: their paths, or their bytes in base64; empty: use the picture on the clipboard.
        """

        text: str

    class Begun(Message):
        """The user started to write to the model in an empty prompt."""

    class Recalled(Message):
        """The user pressed Up in an empty prompt while texts wait to be sent: the newest of those comes back first."""

    class Left(Message):
        """The user wants to quit."""

    def __init__(
        self,
        history: PromptHistory,
        completer: Completer,
        completions: CompletionList,
        files: ProjectFiles,
        keymap: Keymap,
        drafts: Drafts | None = None,
    ) -> None:
        super().__init__(
            soft_wrap=True, compact=True, highlight_cursor_line=False, placeholder=PLACEHOLDER, id="prompt"
        )
        self.cursor_blink = False
        self.last_key = 0.0
        self.recall_first = False
        self._awaited = 0
        self._begun = False
        self._send_then = False
        self._killed = ""
        self._pastes = Pastes()
        self._drafts = drafts
        self._draft_timer: Timer | None = None
        self.sent = history
        self._keymap = keymap
        self._completer = completer
        self._completions = completions
        self._offered = ""
        self._files = files

    def draft(self) -> str:
        return self._pastes.unfold(self.text)

    def replace_draft(self, text: str) -> None:
        """Replace the text; one that is too long or has control characters is shown as a chip."""
        self._replace_all(self._to_edit(text))
        self._completions.show(None)

    def begin(self, text: str) -> None:
        """Replace the text with one to edit and send, saving the old one in the history."""
        self.clear_draft()
        self.replace_draft(text)
        self.focus()

    def put(self, text: str) -> None:
        """Put a text that was not sent above what the user has written since."""
        written = self.text
        self.text = self._to_edit(text) + (f"\n{written}" if written.strip() else "")
        self.move_cursor(self.document.end)

    def _to_edit(self, text: str) -> str:
        text = self._pastes.fold_again(text)
        return text if len(text) <= MAX_EDITED and clean(text) == text else self._pastes.fold(text)

    def clear_draft(self) -> bool:
        """Empty the prompt, saving its text in the history. False if it was empty."""
        self._send_then = False
        if not self.text:
            return False
        self.keep_draft()
        self._replace_all("")
        return True

    def keep_draft(self) -> None:
        self.keep(self.text)

    def keep(self, text: str) -> None:
        if text := _to_be_kept(text).strip("\n"):
            self.sent.add(text, saved=self._pastes.unfold(text))

    def hold_draft(self) -> None:
        """Have what stands here as the draft that outlasts the program, once it is brought to the disk."""
        if self._draft_timer is not None:
            self._draft_timer.stop()
            self._draft_timer = None
        if self._drafts is not None:
            text = _to_be_kept(self.draft())
            self._drafts.hold(text if len(text) <= MAX_CHARACTERS else _to_be_kept(self.text)[:MAX_CHARACTERS])

    def _save_draft(self) -> None:
        self.hold_draft()
        if self._drafts is not None:
            self.run_worker(asyncio.to_thread(self._drafts.write), name="draft", group="draft")

    def type(self, text: str) -> None:
        """Insert text at the cursor as if it had been typed, behind a chip that the cursor is in."""
        self._leave_chip()
        write_as_typed(self, text, *self.selection)

    def paste(self, text: str) -> None:
        """Insert a pasted text; a large one as a chip, paths of pictures as mentions."""
        self.last_key = monotonic()
        mentions = self._files.dropped(text)
        if not mentions and self._files.holds_pictures(text):
            self._await_pictures(text)
        else:
            self.type(mentions or self._pastes.fold(text))
        self.focus()

    def pictures_pasted(self, text: str) -> None:
        """Answer `PicturesPasted` with chips, or the text if it is no picture. Sends if Enter was pressed meanwhile."""
        self.type(self._pastes.fold(text))
        self._awaited -= 1
        if self._send_then and not self._awaited:
            self._send_then = False
            self.action_send()

    def _await_pictures(self, text: str) -> None:
        self._awaited += 1
        self.post_message(self.PicturesPasted(text))

    @override
    async def _on_key(self, event: events.Key) -> None:
        self.last_key = monotonic()
        if event.key == "escape":
            self._send_then = False
        if self._completed(event.key) or self._stepped_in_history(event.key) or self._sent_or_broke_line(event.key):
            event.stop()
            event.prevent_default()
        elif not self.text and event.key in self._keymap.keys("prompt.help"):
            # It is bound to an action: keep the text area from inserting it.
            event.prevent_default()
        elif event.is_printable:
            self._leave_chip()
        elif event.character and _joins(event.character):
            # Textual inserts only what can be printed by itself.
            event.prevent_default()
            self.type(event.character)

    @override
    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def on_text_area_changed(self) -> None:
        begins, self._begun = not self._begun, bool(self.text)
        if begins and self.text and self.text[0] not in "/!":
            self.post_message(self.Begun())
        self.set_class(self.text.startswith("!"), "-shell")
        if self._draft_timer is None:
            self._draft_timer = self.set_timer(DRAFT_S, self._save_draft)
        self._offer(self._around_cursor()[0])

    def offer_anew(self) -> None:
        """Refresh the completions, after more became known."""
        if self.has_focus:
            self._offer(self._around_cursor()[0])

    def _offer(self, before: str) -> None:
        self._offered = before
        if self._files.wanted(before):
            # Keep the old list until the next one is found, so that it does not flicker.
            _: Worker[None] = self.run_worker(partial(self._offer_files, before), group="files", exclusive=True)
            return
        self.workers.cancel_group(self, "files")
        self._completions.show(self._completer(before) if self.cursor_location[0] == 0 else None)

    async def _offer_files(self, before: str) -> None:
        found = await self._files.complete(before)
        row, column = self.cursor_location
        if self.has_focus and self.document.get_line(row)[:column] == before:
            self._completions.show(found)

    def on_focus(self) -> None:
        self._offer(self._around_cursor()[0])

    def on_blur(self) -> None:
        """Hide the completions: they get no keys without the focus."""
        self._completions.show(None)

    @override
    def get_line(self, line_index: int) -> Text:
        line = super().get_line(line_index)
        chips = list(self._pastes.chips_in(line.plain))
        if chips:
            accent = Palette.from_theme(self.app.theme_variables).accent.color
            for start, end in chips:
                line.stylize(Style(color=accent), start, end)
        return line

    @override
    def render_line(self, y: int) -> Strip:
        # Textual fails to wrap its placeholder to a width of 0.
        return (
            _with_counted_width(super().render_line(y)) if self.content_size.width > 0 else Strip.blank(self.size.width)
        )

    @override
    def action_delete_left(self) -> None:
        if not self._deleted_chip(left=True):
            super().action_delete_left()

    @override
    def action_delete_right(self) -> None:
        if not self._deleted_chip(right=True):
            super().action_delete_right()

    @override
    def action_delete_to_end_of_line(self) -> None:
        self._leave_chip(back=True)
        self._kill(super().action_delete_to_end_of_line)

    @override
    def action_delete_to_start_of_line(self) -> None:
        self._leave_chip()
        self._kill(super().action_delete_to_start_of_line)

    @override
    def action_delete_word_left(self) -> None:
        delete = super().action_delete_word_left
        self._kill(lambda: self._deleted_chip(left=True) or delete())

    def _kill(self, delete: Callable[[], object]) -> None:
        """Delete, and keep what was deleted for `action_yank`."""
        before = self.text
        delete()
        if gone := len(before) - len(self.text):
            row, column = self.cursor_location
            start = column + sum(len(line) + len(self.document.newline) for line in self.document.lines[:row])
            self._killed = before[start : start + gone]

    def action_yank(self) -> None:
        """Insert what was last deleted by line or word; if nothing was, redo typing."""
        if self._killed:
            self.type(self._killed)
        else:
            self.action_redo()

    def action_newline(self) -> None:
        self.last_key = monotonic()
        self.type("\n")

    def action_paste_picture(self) -> None:
        self._await_pictures("")

    async def action_end_or_latest(self) -> None:
        """Go to the end of the line; in an empty prompt, to the end of the conversation."""
        if self.text:
            self.action_cursor_line_end()
        else:
            await self.run_action("app.latest")

    def action_delete_or_leave(self) -> None:
        """Delete a character, or quit if the prompt is empty, as Ctrl+D does in a shell."""
        if self.text:
            self.action_delete_right()
        else:
            self.post_message(self.Left())

    def _sent_or_broke_line(self, key: str) -> bool:
        # Handled here: through the bindings it would take effect after keys pressed later.
        if key in self._keymap.keys("prompt.send"):
            if not self._broke_line_at_backslash():
                self.action_send()
        elif key in self._keymap.keys("prompt.newline"):
            self.action_newline()
        else:
            return False
        return True

    def _broke_line_at_backslash(self) -> bool:
        """Replace a trailing backslash by a line break, as shells and other agents do; False if there is none."""
        before, after = self._around_cursor()
        backslashes = len(before) - len(before.rstrip("\\"))
        if after or not backslashes % 2:
            return False
        if not self.text.startswith("!"):  # a shell reads it itself
            super().action_delete_left()
        self.action_newline()
        return True

    def action_send(self) -> None:
        """Send the text, once pictures on their way are there."""
        if self._awaited:
            self._send_then = True
            return
        written = self.text
        if not written.strip():
            return
        text = self._pastes.unfold(written)
        # A chip cannot be unfolded in the next run, so the file gets the whole text.
        if not written.startswith(KEY_COMMAND):
            self.sent.add(written, saved=text)
        self._replace_all("")
        self._save_draft()
        self.post_message(self.Sent(text, written))

    def _completed(self, key: str) -> bool:
        before = self._around_cursor()[0]
        takes = self._keymap.action_of(key, "completion") in {"completion.take", "completion.choose"}
        if takes and before != self._offered and not self._files.wanted(before):
            # The change event of an earlier key may still be under way: never take a completion of an older text.
            self._offer(before)
        choice = self._completions.marked
        if choice is None:
            return False
        match self._keymap.action_of(key, "completion"):
            case "completion.up":
                self._completions.move(-1)
            case "completion.down":
                self._completions.move(1)
            case "completion.take":
                self._take(choice)
            case "completion.choose" if self._needs_no_completion(choice):
                self._completions.show(None)
                return False
            case "completion.choose":
                # Insert an ambiguous match without sending it; the next Enter sends.
                is_typed, after = self._is_typed(choice), self._around_cursor()[1]
                self._take(choice)
                if choice.final and is_typed and not after.strip():
                    self.action_send()
            case "completion.close":
                self._completions.show(None)
            case _:
                return False
        return True

    def _needs_no_completion(self, choice: CompletionItem) -> bool:
        """Whether Enter should send rather than complete: a path is already typed in full, or a command's optional
        argument is empty and the user has not moved through its choices.
        """
        completion = self._completions.completion
        if completion is None:
            return False
        typed = self._around_cursor()[0][completion.start :]
        return (not typed and not self._completions.moved) or (not choice.final and choice.insert.rstrip() == typed)

    def _is_typed(self, choice: CompletionItem) -> bool:
        """Whether the user moved to this choice, or typed what can mean only this."""
        completion = self._completions.completion
        typed = self._around_cursor()[0][completion.start :] if completion is not None else ""
        return self._completions.moved or (completion is not None and completion.means(choice, typed))

    def _take(self, choice: CompletionItem) -> None:
        completion = self._completions.completion
        if completion is not None:
            row, column = self.cursor_location
            self._completions.show(None)
            write_as_typed(self, choice.insert, (row, completion.start), (row, column))

    def _stepped_in_history(self, key: str) -> bool:
        if key in self._keymap.keys("prompt.earlier") and self.navigator.is_first_wrapped_line(self.cursor_location):
            if self.recall_first and not self.text:
                self.post_message(self.Recalled())
                return True
            text = self.sent.older(self.text)
        elif key in self._keymap.keys("prompt.later") and self.navigator.is_last_wrapped_line(self.cursor_location):
            text = self.sent.newer(self.text)
        else:
            if key not in {*self._keymap.keys("prompt.earlier"), *self._keymap.keys("prompt.later")}:
                self.sent.reset()
            return False
        if text is not None:
            self._replace_all(text)
            self._completions.show(None)
        return text is not None

    def _replace_all(self, text: str) -> None:
        write_as_typed(self, text, self.document.start, self.document.end)
        self.move_cursor(self.document.end)

    def _around_cursor(self) -> tuple[str, str]:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        return line[:column], line[column:]

    def _chip(self, *, left: bool = False, right: bool = False) -> tuple[int, int] | None:
        """Where the chip stands that the cursor is in, or that is next to it on the left or the right."""
        row, column = self.cursor_location
        chips = self._pastes.chips_in(self.document.get_line(row)) if self.selection.is_empty else ()
        return next((each for each in chips if each[0] + (not right) <= column <= each[1] - (not left)), None)

    def _deleted_chip(self, *, left: bool = False, right: bool = False) -> bool:
        """Delete a chip as one: a part of it would stand for nothing."""
        chip, row = self._chip(left=left, right=right), self.cursor_location[0]
        if chip is not None:
            delete_as_typed(self, (row, chip[0]), (row, chip[1]))
        return chip is not None

    def _leave_chip(self, *, back: bool = False) -> None:
        """Put the cursor behind the chip that it is in, or before it."""
        if (chip := self._chip()) is not None:
            self.move_cursor((self.cursor_location[0], chip[0] if back else chip[1]))


def _with_counted_width(strip: Strip) -> Strip:
    """Make a line as wide in every terminal as Textual counts it: of joined emoji, keep the first only."""
    if strip.text.isascii() and strip.text.isprintable():
        return strip
    return Strip([Segment(_separated(text), style, control) for text, style, control in strip], strip.cell_length)


def _separated(text: str) -> str:
    return "".join(_single(text[start:end], width) for start, end, width in split_graphemes(text)[0])


def _single(cluster: str, width: int) -> str:
    shown = "".join(sign for sign in displayed(cluster) if sign.isprintable())
    if sum(map(get_character_cell_size, shown)) > width:
        shown = shown[0]
    return shown + " " * (width - sum(map(get_character_cell_size, shown)))


class WaitingTexts(Widget):
    """Lists the texts that were sent and wait for the next step, newest last."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: tuple[str, ...] = ()
        self._held = False
        self.display = False

    def show(self, texts: tuple[str, ...], *, held: bool = False) -> None:
        """Show these texts, one on each line; `held`: they go with the user's next message."""
        if (texts, held) != (self.texts, self._held):
            self.texts, self._held = texts, held
            self.display = bool(texts)
            self.refresh(layout=True)

    @override
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return min(MAX_QUEUED_ROWS, len(self.texts))

    @override
    def render(self) -> Content:
        shown = self.texts[-max(1, self.size.height) :]
        hidden = len(self.texts) - len(shown)
        rows: list[Content] = []
        for text in shown:
            word = "goes with your next message" if self._held else "queued"
            label = f"{word} (+{hidden}): " if hidden and not rows else f"{word}: "
            room = max(1, self.size.width - len(label))
            rows.append(Content.assemble((label, "$foreground 68%"), (fit(one_line(text), room), "$foreground")))
        return Content("\n").join(rows)


class TodoLine(Widget):
    """Progress of the model's task list, and its current item: ``2/5 · rename the parser``; also the whole of it."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.whole = False
        self._over = True
        self._items: tuple[str, ...] = ()
        self._first = 0
        self.display = False

    def show(self, progress: str, current: str, items: tuple[str, ...] = (), place: int = 0) -> None:
        """Show the progress; hide if `current` is empty. `items`: the whole list, with the current one at `place`."""
        text = f"{progress} {glyphs_of(self.app).dot} {one_line(current)}" if current else ""
        if (text, items) != (self.text, self._items):
            self.text, self._items = text, items
            self._first = max(0, min(place - 1, len(items) - MAX_TODO_ROWS))
            self._show()

    def toggle(self) -> bool:
        """Show the whole list below the line, or the line alone; False if there is no list."""
        if not self.text:
            return False
        self.whole = not self.whole
        self._show()
        return True

    def goes_on(self, *, goes_on: bool) -> None:
        """Note whether a turn works on the list; without one, only `toggle` shows it."""
        self._over, self.whole = not goes_on, self.whole and goes_on
        self._show()

    def _show(self) -> None:
        self.display = bool(self.text) and (self.whole or not self._over)
        self.refresh(layout=True)

    @property
    def _rows(self) -> tuple[str, ...]:
        listed = self._items[self._first : self._first + MAX_TODO_ROWS] if self.whole else ()
        return (self.text, *map(one_line, listed))

    @override
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Its lines. Not set in the styles: a height there makes Textual ignore the prompt's maximum height."""
        return len(self._rows)

    @override
    def render(self) -> Content:
        room = max(1, self.size.width)
        return Content("\n".join(fit(row, room, glyphs_of(self.app).ellipsis) for row in self._rows))


class PromptArea(Vertical):
    """The prompt with the lines above it: task list, waiting texts, and completions."""

    class Resized(Message):
        """Its height changed."""

    def __init__(
        self,
        history: PromptHistory,
        completer: Completer,
        files: ProjectFiles,
        *,
        keymap: Keymap | None = None,
        drafts: Drafts | None = None,
    ) -> None:
        super().__init__()
        self.todo = TodoLine()
        self.waiting = WaitingTexts()
        self.completions = CompletionList()
        self.prompt = Prompt(history, completer, self.completions, files, keymap or Keymap(), drafts)

    @override
    def compose(self) -> ComposeResult:
        yield from (self.todo, self.waiting, self.completions, self.prompt)

    def on_resize(self) -> None:
        self.post_message(self.Resized())


def _joins(sign: str) -> bool:
    """Whether a sign makes one of those beside it, as in emoji and in Persian, and has no width of its own."""
    return sign in "\u200c\u200d" or "\U000e0020" <= sign <= "\U000e007f"


def _to_be_kept(text: str) -> str:
    """A text up to where an API key may stand in it: what was sent before may be put back above that."""
    return f"\n{text}".partition(f"\n{KEY_COMMAND}")[0][1:]
