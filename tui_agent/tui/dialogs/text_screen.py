"""A text to read over the screen, however long it is."""

from functools import partial
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.app.theme import Glyphs
from tui_agent.tui.cards.lines import Line, Run, breaks, make_line
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.dialogs.dialog import Dialog
from tui_agent.tui.dialogs.row_list import Row, RowList

MAX_CHARS: Final = 400_000
"""Characters that are shown; of a longer text its beginning."""


class TextScreen(Dialog[None]):
    """Shows untrusted text, and closes."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("reading")]

    def __init__(self, title: str, text: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._title = one_line(title, 80)
        self._lines = [displayed(line) for line in clean(text[:MAX_CHARS]).split("\n")]
        self._cut = len(text) - MAX_CHARS
        self._rows = RowList(glyphs, in_dialog=True)
        self._width = 0

    @override
    def compose(self) -> ComposeResult:
        more = f"the first {MAX_CHARS:,} characters, {self._cut:,} more are kept; " if self._cut > 0 else ""
        with Vertical(classes="dialog"):
            yield Static(Content.styled(self._title, "$accent bold"), classes="dialog-title")
            yield self._rows
            yield Static(Content(f"{more}Up/Down scroll, {self.key('reading.close')} closes"), classes="dialog-keys")

    def on_mount(self) -> None:
        """The keys are for the text."""
        self._rows.focus()
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        """Break the lines anew."""
        self.call_after_refresh(self._draw)

    def on_key(self, event: events.Key) -> None:
        """Who writes has read enough."""
        self.make_way(event)

    def on_click(self, event: events.Click) -> None:
        """A click beside the text closes it."""
        if event.widget is self:
            self.action_close()

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)

    def _draw(self) -> None:
        width = self._rows.measure
        if width != self._width:
            self._width = width
            self._rows.show(
                [
                    Row(partial(_draw_text, line[start:end]))
                    for line in self._lines
                    for start, end, _ in breaks(line, width)
                ]
            )


def _draw_text(text: str, width: int, look: Look) -> Line:
    return make_line([Run(text or " ", look.palette.base)])
