"""Dialogs over the screen: help, and the question whether a project may be trusted."""

from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static
from typing_extensions import override

from tui_agent.safe_text import one_line
from tui_agent.tui.pickers import Option, PickerScreen

TRUST, NO_TRUST = "trust", "no"


def short_path(path: Path) -> str:
    """The path with ``~`` for the user's own folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path)


class HelpScreen(ModalScreen[None]):
    """Text to read; any key that does not scroll closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c,f1,q,enter", "close", "Close", show=False)]

    def __init__(self, sections: dict[str, str]) -> None:
        super().__init__()
        self.sections = sections

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            with VerticalScroll():
                for title, text in self.sections.items():
                    yield Static(Content.styled(title, "$accent bold"), classes="dialog-title")
                    yield Static(Content(text), classes="dialog-text")
            yield Static(Content("Esc closes"), classes="dialog-keys")

    def on_click(self, event: events.Click) -> None:
        """A click beside the dialog closes it."""
        if event.widget is self:
            self.action_close()

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)


class TrustScreen(PickerScreen):
    """Asks whether what a project brings may take effect; it ends with `TRUST`, or something else."""

    def __init__(self, project: Path) -> None:
        super().__init__(
            "Trust this project?",
            (
                Option(NO_TRUST, "Not now", "they can only make the rules stricter"),
                Option(TRUST, "Trust it", "they take effect"),
            ),
            NO_TRUST,
            text=f"{one_line(short_path(project))}\nbrings its own settings, instructions or tools.",
        )
