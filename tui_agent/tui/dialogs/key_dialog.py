"""Asking for a provider's key: shown as dots."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog


class KeyField(Input):
    """A line of dots that cannot be copied from."""

    def __init__(self) -> None:
        super().__init__(password=True, compact=True, placeholder="paste or type the key", classes="dialog-search")
        self.cursor_blink = False

    @override
    def action_copy(self) -> None:
        self.app.bell()

    @override
    def action_cut(self) -> None:
        self.app.bell()


class KeyScreen(Dialog[str | None]):
    """Asks for a key; it ends with that, or None. `where`: the page keys are made at."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("field")]

    def __init__(self, purpose: str, where: str = "") -> None:
        super().__init__()
        self._where = one_line(where, 200)
        self._purpose = one_line(purpose, 80)

    @override
    def compose(self) -> ComposeResult:
        where = f"\nKeys are made at {displayed(clean(self._where))}" if self._where else ""
        with Vertical(classes="dialog"):
            yield Static(Content.styled(f"A key for {self._purpose}", "$accent bold"), classes="dialog-title")
            yield Static(
                Content(f"It is used at once, and written nowhere. You are asked next whether to keep it.{where}"),
                classes="dialog-text",
            )
            yield KeyField()
            problem = Static(id="key-problem", classes="dialog-problem")
            problem.display = False
            yield problem
            yield Static(Content(f"Enter uses it, {self.key('field.cancel')} cancels"), classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin to write."""
        self.query_one(KeyField).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the key, where it can be one."""
        event.stop()
        key = event.value.strip()
        problem = key_problem(key)
        if problem:
            told = self.query_one("#key-problem", Static)
            told.update(Content(problem))
            told.display = True
        else:
            self.dismiss(key)

    def action_cancel(self) -> None:
        """Go on without."""
        self.dismiss(None)


def key_problem(key: str) -> str:
    """Why a text can be no key; empty: it can. Keys travel in a header line: one word of printable ASCII."""
    if not key:
        return "Nothing was entered."
    if not key.isascii() or not key.isprintable() or " " in key:
        return "This cannot be a key: it has blanks or special characters in it."
    if key.startswith("/"):
        return "This is a command, and no key: Esc leaves the question."
    return ""
