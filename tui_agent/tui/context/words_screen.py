"""A text to be changed by the user: what is kept of a message of theirs, or a plan."""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static
from typing_extensions import override

from tui_agent.text import clean, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.context.draft_screen import WHY_CELLS, EditedText
from tui_agent.tui.dialogs.dialog import Dialog, dialog_title
from tui_agent.tui.terminal.editor import EditorFailure, edited_outside

EMPTY: Final = "Nothing is left of it: Ctrl+S keeps none of this message"


class WordsScreen(Dialog[str | None]):
    """Ends with the text as it was changed (empty: nothing is left, which `empty` says in words), or None: it stays as
    it is.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("words")]

    def __init__(self, title: str, text: str, empty: str) -> None:
        super().__init__()
        self._title = title
        self._empty = empty
        self._text = text
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
            yield Static(keys, markup=False, classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin to write, at the end of what is kept."""
        self._area.begin()
        self._area.move_cursor(self._area.document.end)
        self._area.focus()
        self._tell("")

    def on_text_area_changed(self) -> None:
        """Say what it means where nothing is left."""
        self._tell("" if self._area.text.strip() else self._empty)

    def action_keep(self) -> None:
        """Keep what is written."""
        text = self._area.text
        # What was cleaned of control characters and not edited stays as it was said.
        self.dismiss(None if text == self._shown else text.strip())

    def action_leave(self) -> None:
        """Leave everything as it is."""
        self.dismiss(None)

    def action_edit_outside(self) -> None:
        """Change the words in the user's own editor."""
        self.run_worker(self._edit_outside(), name="editor", exclusive=True, group="editor", exit_on_error=True)

    async def _edit_outside(self) -> None:
        try:
            edited = await edited_outside(self.app, f"{self._area.text}\n")
        except EditorFailure as failure:
            self._tell(str(failure))
        else:
            self._area.text = clean(edited).removesuffix("\n")

    def _tell(self, problem: str) -> None:
        self._problem.update(one_line(problem, WHY_CELLS))
        self._problem.display = bool(problem)
