"""Dialogs with one text field: for a provider's API key, shown as dots, a session's title, and a setting."""

from collections.abc import Callable
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

    action_cut = action_copy


class LineScreen(Dialog[str | None]):
    """Asks for one line; its result is the line, or None. `problem` says why a line cannot be taken; empty: it can."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("field")]

    def __init__(
        self,
        title: str,
        field: Field,
        problem: Callable[[str], str] = lambda _: "",
        *,
        text: str = "",
        does: str = "Enter keeps it",
    ) -> None:
        super().__init__()
        self._title, self._text, self._does = title, text, does
        self._field = field
        self._problem_of = problem
        self._problem = Static(classes="dialog-problem")
        self._problem.display = False

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield dialog_title(self._title)
            if self._text:
                yield Static(Content(self._text), classes="dialog-text")
            yield self._field
            yield self._problem
            yield dialog_keys(f"{self._does}, {self.key('field.cancel')} cancels")

    def on_mount(self) -> None:
        self._field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        line = event.value.strip()
        if problem := self._problem_of(line):
            self._problem.update(Content(displayed(clean(problem))))
            self._problem.display = True
        else:
            self.dismiss(line)


class KeyScreen(LineScreen):
    """Asks for an API key. `where`: the web page on which keys are created."""

    def __init__(self, purpose: str, where: str = "") -> None:
        made = f"\nKeys are made at {displayed(clean(one_line(where, 200)))}" if where else ""
        super().__init__(
            f"API key for {one_line(purpose, 80)}",
            KeyField(placeholder="paste or type the key", password=True),
            key_problem,
            text=f"It is used at once, and written nowhere. You are asked next whether to keep it.{made}",
            does="Enter uses it",
        )


class TitleScreen(LineScreen):
    """Asks for a session's title; its result is empty or None if the title stays."""

    def __init__(self, title: str) -> None:
        field = Field(displayed(clean(title)), max_length=MAX_TITLE)
        super().__init__("Rename the session", field, does="Enter renames")


def key_problem(key: str) -> str:
    """Why a text cannot be an API key; empty if it can. Keys go into an HTTP header: one word of printable ASCII."""
    if not key:
        return "Nothing was entered."
    if not key.isascii() or not key.isprintable() or " " in key:
        return "This cannot be a key: it has blanks or special characters in it."
    if key.startswith("/"):
        return "This is a command, and no key: Esc leaves the question."
    return ""
