"""Pickers for a place in the conversation: one of the user's messages, or a branch."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec
from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input
from typing_extensions import override

from tui_agent.agent.branches import Branch, EarlierPrompt
from tui_agent.text import one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title, framed
from tui_agent.tui.dialogs.fields import Field
from tui_agent.tui.dialogs.row_list import ListRow, RowList, Rows, plain_row
from tui_agent.tui.fuzzy import holds
from tui_agent.tui.painting.lines import Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.wording import age

SEARCHED_CHARS: Final = 400
"""Characters of a message that are searched and shown."""
LEAST_EXTRA: Final = 8
"""The fewest cells in which further text is shown beside the words."""


class Columns(msgspec.Struct, frozen=True):
    """Widths in cells of the columns beside the words."""

    number: int
    messages: int
    age: int = len("59 min ago")

    @classmethod
    def wide_enough(cls, numbers: Iterable[int], messages: Iterable[int]) -> "Columns":
        return cls(len(str(max(numbers, default=0))), len(f"{max(messages, default=0):,}"))


class PlaceRows(Rows):
    """A row for each place number, created when it comes into view."""

    def __init__(self, places: Sequence[int], row: Callable[[int], ListRow]) -> None:
        super().__init__()
        self._places = places
        self._row = row

    @override
    def place_of(self, key: object) -> int | None:
        return None

    @override
    def __len__(self) -> int:
        return len(self._places)

    @override
    def element(self, place: int) -> ListRow:
        return self._row(self._places[place])


class PlacePicker(Dialog[str | None]):
    """A dialog with any number of places; typing filters them. Its result is the key of a row, or None.

    `row` and `words` return the row and the searchable text, in lower case, of the place with a number from 0 up to
    `count`. `does` says what choosing one does.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("picker")]
    CLICK_OUTSIDE_CLOSES = True

    def __init__(
        self,
        title: str,
        count: int,
        row: Callable[[int], ListRow],
        words: Callable[[int], str],
        *,
        does: str,
    ) -> None:
        super().__init__()
        self._title = title
        self._count = count
        self._row = row
        self._words = words
        self._does = does
        self._rows = RowList(in_dialog=True, keys_elsewhere=True)

    @override
    def compose(self) -> ComposeResult:
        keys = f"{self.key('picker.choose')} {self._does}, {self.key('picker.cancel')} cancels"
        # It stays as high while the search finds less.
        self._rows.styles.height = max(1, self._count)
        head = (dialog_title(self._title), Field(placeholder="type to search"))
        yield framed(head, self._rows, [dialog_keys(f"Type to search, {keys}")])

    def on_mount(self) -> None:
        self._show(range(self._count))
        self.query_one(Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        asked = event.value.lower().split()
        fits = (place for place in range(self._count) for words in (self._words(place),) if holds(words, asked))
        self._show(list(fits) if asked else range(self._count))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_choose()

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        self._choose(message.key)

    def action_choose(self) -> None:
        self._choose(self._rows.key)

    def action_mark(self, step: int) -> None:
        self._rows.action_cursor(step)

    def action_page(self, direction: int) -> None:
        self._rows.action_page(direction)

    def action_edge(self, direction: int) -> None:
        self._rows.action_edge(direction)

    def _show(self, places: Sequence[int]) -> None:
        self._rows.show(PlaceRows(places, self._row) if places else [plain_row(("  nothing fits", "muted"))])
        self._rows.action_edge(-1)

    def _choose(self, value: object) -> None:
        if isinstance(value, str):
            self.dismiss(value)


def rewind_picker(prompts: Sequence[EarlierPrompt]) -> PlacePicker:
    """A picker of the user's messages, newest first; its result is the number of one."""
    newest_first = prompts[::-1]
    columns = Columns.wide_enough((prompt.seq for prompt in prompts), (prompt.messages for prompt in prompts))

    def row(place: int) -> ListRow:
        return ListRow(partial(_draw_prompt, newest_first[place], columns), str(newest_first[place].seq))

    def words(place: int) -> str:
        return f"{newest_first[place].seq} {newest_first[place].text[:SEARCHED_CHARS].lower()}"

    title = "Rewind to before: messages taken back, when"
    return PlacePicker(title, len(prompts), row, words, does="rewinds")


def tree_picker(branches: Sequence[Branch]) -> PlacePicker:
    """A picker of branches, the current one first; its result is the number of the branch's last entry."""
    columns = Columns.wide_enough((), (branch.messages for branch in branches))

    def row(place: int) -> ListRow:
        branch, is_last = branches[place], place == len(branches) - 1
        return ListRow(partial(_draw_branch, branch, columns, is_last), str(branch.tip))

    def words(place: int) -> str:
        branch = branches[place]
        return f"{branch.text[:SEARCHED_CHARS]} {branch.answer[:SEARCHED_CHARS]}".lower()

    title = "Go on with a branch: messages, last used"
    return PlacePicker(title, len(branches), row, words, does="goes there")


def _draw_prompt(prompt: EarlierPrompt, columns: Columns, width: int, look: Look) -> Line:
    palette = look.palette
    start = [Run("  ", palette.base), Run(f"{prompt.seq:>{columns.number}}  ", palette.muted)]
    right = f"{prompt.messages:>{columns.messages},}  {age(prompt.time):>{columns.age}}"
    return _row(start, prompt.text, right, width, look)


def _draw_branch(branch: Branch, columns: Columns, last: bool, width: int, look: Look) -> Line:
    palette, glyphs = look.palette, look.glyphs
    limb = glyphs.nested if last else glyphs.limb
    sign = Run(glyphs.ok, palette.accent) if branch.present else Run(limb, palette.faint)
    right = f"{branch.messages:>{columns.messages},}  {age(branch.time):>{columns.age}}"
    start = [Run("  ", palette.base), sign, Run(" ", palette.base)]
    text = branch.text if branch.messages else "nothing said yet"
    return _row(start, text, right, width, look, marked=branch.present, more=branch.answer)


def _row(
    start: Sequence[Run], text: str, right: str, width: int, look: Look, *, marked: bool = False, more: str = ""
) -> Line:
    """A row of a picker: the text on the left, `more` if there is room, figures on the right."""
    palette = look.palette
    room = width - sum(cell_len(run.text) for run in start) - 2 - len(right)
    if room < 8:
        right, room = "", width - sum(cell_len(run.text) for run in start)
    typed = fit(one_line(text[:SEARCHED_CHARS]) or "(no words)", max(1, room), look.glyphs.ellipsis)
    left = room - cell_len(typed) - 3
    extra = f" {look.glyphs.dot} {fit(one_line(more[:SEARCHED_CHARS]), left, look.glyphs.ellipsis)}" if more else ""
    extra = extra if left >= LEAST_EXTRA else ""
    pad = " " * max(0, room - cell_len(typed) - cell_len(extra) + 2)
    style = palette.strong if marked else palette.base
    return make_line(
        [*start, Run(typed, style), Run(extra, palette.muted), *([Run(pad + right, palette.muted)] if right else [])]
    )
