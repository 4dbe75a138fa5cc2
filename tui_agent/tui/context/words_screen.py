"""The dialog in which the user edits a text: the kept words of a message, or a plan."""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static
from typing_extensions import override

from tui_agent.text import clean, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.context.draft_screen import WHY_CELLS, EditedText
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title

EMPTY: Final = "Nothing is left of it: Ctrl+S keeps none of this message"


class WordsScreen(Dialog[str | None]):
    """Its result is the edited text, which may be empty, or None if it stays unchanged.

    empty: a sentence to show while nothing is left of the text.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("words")]

    def __init__(self, title: str, text: str, empty: str) -> None:
        super().__init__()
        self._title = title
        self._empty = empty
        self._shown = clean(text)
        self._area = EditedText(self._shown)
        self._problem = Static("", markup=False, classes="dialog-problem")

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield dialog_title(self._title)
            yield self._area
            yield self._problem
            keep, editor, cancel = map(self.key, ("words.keep", "words.editor", "words.cancel"))
            keys = f"{keep} keeps it, {editor} opens your editor, {cancel} cancels"
            yield dialog_keys(keys)

    def on_mount(self) -> None:
        """Put the cursor at the end of the text."""
        self._area.begin()
        self._area.move_cursor(self._area.document.end)
        self._area.focus()
        self._tell("")

    def on_text_area_changed(self) -> None:
        """Show what an empty text means."""
        self._tell("" if self._area.text.strip() else self._empty)

    def action_keep(self) -> None:
        """Close with the edited text."""
        text = self._area.text
        # An unedited text stays as it is, even if control characters were removed to show it.
        self.dismiss(None if text == self._shown else text.strip())

    def action_edit_outside(self) -> None:
        """Edit the text in the user's editor."""
        self.run_worker(self._edit_outside(), name="editor", exclusive=True, group="editor", exit_on_error=True)

    async def _edit_outside(self) -> None:
        if problem := await self._area.edit_outside():
            self._tell(problem)

    def _tell(self, problem: str) -> None:
        self._problem.update(one_line(problem, WHY_CELLS))
        self._problem.display = bool(problem)
