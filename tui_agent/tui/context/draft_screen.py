"""Dialogs with a text to edit: a written summary with its exact figures, kept words of a message, or a plan."""

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.geometry import Offset
from textual.screen import ScreenResultType
from textual.timer import Timer
from textual.widgets import Static
from typing_extensions import override

from tui_agent.context.changes import StepPreview
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.effects import Refusal
from tui_agent.text import clean, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.context.drawing import before_after_line
from tui_agent.tui.context.previews import fact_row, price_rows
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title
from tui_agent.tui.dialogs.row_list import ListRow, RowList, plain_row
from tui_agent.tui.prompt.prompt import SteadyTextArea
from tui_agent.tui.terminal.editor import EditorFailure, edited_outside

if TYPE_CHECKING:
    from tui_agent.agent.agent import Agent

EMPTY: Final = "Nothing is left of it: Ctrl+S keeps none of this message"
TITLES: Final = {"summary": "Use this summary?", "checkpoint": "Use this record?"}
COUNT_AFTER_S: Final = 0.2
"""Seconds without a key until an edited text is counted again."""
WHY_CELLS: Final = 200


class EditedText(SteadyTextArea):
    """A text that is read-only at first, with the arrow keys scrolling it, and can then be edited."""

    def __init__(self, text: str) -> None:
        super().__init__(
            text, soft_wrap=True, compact=True, highlight_cursor_line=False, read_only=True, show_cursor=False
        )
        self.cursor_blink = False
        # Textual sets this class only when the state changes later.
        self.add_class("-read-only")

    def begin(self) -> None:
        """Start editing, with the cursor on the first line in view."""
        if self.read_only:
            self.read_only, self.show_cursor = False, True
            self.move_cursor(self.wrapped_document.offset_to_location(Offset(0, round(self.scroll_y))))

    def end(self) -> None:
        """Stop editing."""
        self.read_only, self.show_cursor = True, False

    async def edit_outside(self) -> str:
        """Edit the text in the user's editor. Returns why that failed, or nothing."""
        try:
            self.text = clean(await edited_outside(self.app, f"{self.text}\n")).removesuffix("\n")
        except EditorFailure as failure:
            return str(failure)
        return ""


class EditingDialog(Dialog[ScreenResultType]):
    """A dialog with a text, and a line that says what is wrong with it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._shown = clean(text)
        self._area = EditedText(self._shown)
        self._problem = Static("", markup=False, classes="dialog-problem")

    def judge(self) -> None:
        """Say what follows from the text as it is."""
        raise NotImplementedError

    def action_edit_outside(self) -> None:
        self.run_worker(self._edit_outside(), name="editor", exclusive=True, group="editor")

    async def _edit_outside(self) -> None:
        if problem := await self._area.edit_outside():
            self._tell(problem)
        else:
            self.judge()

    def _tell(self, problem: str) -> None:
        self._problem.update(one_line(problem, WHY_CELLS))
        self._problem.display = bool(problem)


class WordsScreen(EditingDialog[str | None]):
    """Its result is the edited text, which may be empty, or None if it stays unchanged.

    empty: a sentence to show while nothing is left of the text.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("words")]

    def __init__(self, title: str, text: str, empty: str) -> None:
        super().__init__(text)
        self._title = title
        self._empty = empty

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield dialog_title(self._title)
            yield self._area
            yield self._problem
            keep, editor, cancel = map(self.key, ("words.keep", "words.editor", "words.cancel"))
            yield dialog_keys(f"{keep} keeps it, {editor} opens your editor, {cancel} cancels")

    def on_mount(self) -> None:
        self._area.begin()
        self._area.move_cursor(self._area.document.end)
        self._area.focus()
        self._tell("")

    def on_text_area_changed(self) -> None:
        """Show what an empty text means."""
        self.judge()

    @override
    def judge(self) -> None:
        self._tell("" if self._area.text.strip() else self._empty)

    def action_keep(self) -> None:
        text = self._area.text
        # An unedited text stays as it is, even if control characters were removed to show it.
        self.dismiss(None if text == self._shown else text.strip())


class DraftScreen(EditingDialog[Draft | None]):
    """Its result is the draft as edited, to be used, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("draft")]

    def __init__(self, draft: Draft, preview: StepPreview, agent: "Agent", *, problem: str = "") -> None:
        super().__init__(draft.text)
        self._agent = agent
        self._written = draft
        self._draft: Draft | Refusal = draft
        self._preview = preview
        self._rows = RowList(in_dialog=True)
        self._rows.can_focus = False
        self._failed = problem
        self._keys_line = dialog_keys()
        self._counting: Timer | None = None

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield dialog_title(TITLES[self._written.step])
            yield self._rows
            yield self._area
            yield self._problem
            yield self._keys_line

    def on_mount(self) -> None:
        self._area.focus()
        self._tell(self._failed)
        self._draw()

    def on_text_area_changed(self) -> None:
        """Count the text again once the user pauses."""
        if self._counting is not None:
            self._counting.stop()
        self._counting = self.set_timer(COUNT_AFTER_S, self.judge)

    def action_accept(self) -> None:
        self.judge()
        if isinstance(self._draft, Draft):
            self.dismiss(self._draft)

    @override
    def action_leave(self) -> None:
        """Stop editing; when not editing, drop the draft."""
        if self._area.read_only:
            self.dismiss(None)
            return
        self._area.end()
        self.judge()
        self.run_worker(self._look_again(), name="preview", exclusive=True, group="preview")

    def action_edit(self) -> None:
        self._area.begin()
        self._draw()

    async def _look_again(self) -> None:
        if isinstance(self._draft, Draft):
            self._preview = await self._agent.context.preview_draft(self._draft)
        self._draw()

    @override
    def judge(self) -> None:
        """Update the figures from the text."""
        if self._counting is not None:
            self._counting.stop()
        text = self._area.text
        # An unedited draft is used as written, even if control characters were removed to show it.
        self._draft = self._written if text == self._shown else self._agent.context.revise(self._written, text)
        self._tell(self._draft.reason if isinstance(self._draft, Refusal) else "")
        self._draw()

    def _draw(self) -> None:
        if isinstance(self._draft, Draft):
            self._rows.show(draft_rows(self._draft, self._preview))
        self._keys_line.update(self._keys_text())

    def _keys_text(self) -> str:
        cancel = self.key("draft.cancel")
        if self._area.read_only:
            accept = self.key("draft.accept")
            edit, editor = self.key("draft.edit"), self.key("draft.editor")
            return f"{accept} uses it, {edit} edits, {editor} opens your editor, {cancel} cancels"
        return f"{self.key('draft.accept-edited')} uses it, {cancel} stops editing"


def draft_rows(draft: Draft, preview: StepPreview) -> list[ListRow]:
    """The exact sizes before and after, the cost, the facts below the text, and the writer."""
    before, after = draft.before, draft.after
    largest = max(before, after)
    rows = [
        ListRow(partial(before_after_line, "now", before, largest, f"{before:,}")),
        ListRow(partial(before_after_line, "after", after, largest, f"{after:,}")),
        plain_row(),
        fact_row("Frees", f"{before - after:,} tokens"),
        *price_rows(preview.price, exact=True),
        fact_row("Facts", _facts(draft)),
        fact_row("Written by", draft.model.partition(":")[2] or "no model: extracts of the turns"),
    ]
    if draft.failures:
        rows.append(fact_row("Failed before", one_line(draft.failures[-1], WHY_CELLS)))
    return rows


def _facts(draft: Draft) -> str:
    left_out = f"{draft.facts_left_out:,} left out" if draft.facts_left_out else ""
    appended = f"{draft.facts_appended:,} appended word for word" if draft.facts_appended else ""
    return ", ".join(part for part in (appended, left_out) if part) or "none is missing"
