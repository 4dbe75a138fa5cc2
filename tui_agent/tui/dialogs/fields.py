"""Dialogs with one text field: for a provider's API key, shown as dots, and for a session's title."""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title

MAX_TITLE: Final = 200
"""The longest title a user can give, in characters."""


class Field(Input):
    """A field of one line in a dialog."""

    def __init__(self, value: str = "", placeholder: str = "", *, password: bool = False, max_length: int = 0) -> None:
        form = "dialog-search"
        super().__init__(value, placeholder, password=password, max_length=max_length, compact=True, classes=form)
        self.cursor_blink = False


class KeyField(Field):
    """A field that shows dots and cannot be copied from."""

    @override
    def action_copy(self) -> None:
        self.app.bell()

    @override
    def action_cut(self) -> None:
        self.app.bell()


class KeyScreen(Dialog[str | None]):
    """Asks for an API key; its result is the key, or None. `where`: the web page on which keys are created."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("field")]

    def __init__(self, purpose: str, where: str = "") -> None:
        super().__init__()
        self._where = one_line(where, 200)
        self._purpose = one_line(purpose, 80)

    @override
    def compose(self) -> ComposeResult:
        where = f"\nKeys are made at {displayed(clean(self._where))}" if self._where else ""
        with Vertical(classes="dialog"):
            yield dialog_title(f"API key for {self._purpose}")
            yield Static(
                Content(f"It is used at once, and written nowhere. You are asked next whether to keep it.{where}"),
                classes="dialog-text",
            )
            yield KeyField(placeholder="paste or type the key", password=True)
            problem = Static(id="key-problem", classes="dialog-problem")
            problem.display = False
            yield problem
            yield dialog_keys(f"Enter uses it, {self.key('field.cancel')} cancels")

    def on_mount(self) -> None:
        """Begin to write."""
        self.query_one(KeyField).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept the text if it can be a key."""
        event.stop()
        key = event.value.strip()
        problem = key_problem(key)
        if problem:
            told = self.query_one("#key-problem", Static)
            told.update(Content(problem))
            told.display = True
        else:
            self.dismiss(key)


class TitleScreen(Dialog[str | None]):
    """Asks for a session's title; its result is None if the title stays."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("field")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield dialog_title("Rename the session")
            yield Field(displayed(clean(self._title)), max_length=MAX_TITLE)
            yield dialog_keys(f"Enter renames, {self.key('field.cancel')} cancels")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Accept the title, unless it is empty."""
        self.dismiss(one_line(event.value, MAX_TITLE) or None)


def key_problem(key: str) -> str:
    """Why a text cannot be an API key; empty if it can. Keys go into an HTTP header: one word of printable ASCII."""
    if not key:
        return "Nothing was entered."
    if not key.isascii() or not key.isprintable() or " " in key:
        return "This cannot be a key: it has blanks or special characters in it."
    if key.startswith("/"):
        return "This is a command, and no key: Esc leaves the question."
    return ""
