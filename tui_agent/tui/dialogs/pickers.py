"""Pickers: dialogs with a list of options."""

from collections.abc import Callable, Iterable, Sequence
from textwrap import wrap
from typing import ClassVar, Final

import msgspec
from msgspec.structs import replace
from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option as ListOption
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title, framed
from tui_agent.tui.dialogs.fields import Field
from tui_agent.tui.fuzzy import SCATTERED, ranked, score
from tui_agent.tui.painting.lines import fit

MAX_SHOWN: Final = 200
"""The most characters shown of a title, a label or a description."""
WIDTH: Final = 76
"""Width of the dialog in cells, if the screen is wide enough."""
NARROW: Final = 80
"""On screens with fewer cells, descriptions are wrapped, and stand below long labels."""
NARROW_LABEL: Final = 28
"""Cells of a label with a description beside it on such a screen, including the gap after it."""
FRAME_CELLS: Final = 7
"""Cells of the dialog besides the list: border, padding and scrollbar."""
MIN_WRAPPED: Final = 16
"""With fewer cells than this, a description is not wrapped."""
MIN_COLUMN: Final = 10
"""With fewer cells than this, a cut last column is left out."""
DESCRIPTION_SCORE: Final = SCATTERED + 1
"""The score of a word that an option has only in its description."""


class Option(msgspec.Struct, frozen=True):
    """One option of a picker; `value` is the result if it is chosen.

    heading: a title of the options below, which cannot be chosen. folded: shown only if a search finds it. whole: what
    a search looks at in place of a label that is cut.
    """

    value: str
    label: str
    description: str = ""
    heading: bool = False
    folded: bool = False
    whole: str = ""

    def score(self, words: Sequence[str]) -> float | None:
        """The score of the option for these words, in lower case; None if a word is missing.

        In the label, letters may be scattered; the description must contain the word as a whole, and scores lower.
        """
        label, description = (self.whole or self.label).lower().lstrip("/"), self.description.lower()
        fits = [
            DESCRIPTION_SCORE if word in description and word not in label else score(label, word.lstrip("/"))
            for word in words
        ]
        known = [each for each in fits if each is not None]
        return min(known, default=0.0) if len(known) == len(fits) else None


class ChoiceList(OptionList):
    """An `OptionList` without two crashes of Textual's: paging in a list of no height, and clicking an option that a
    filter has just removed.
    """

    @override
    async def _on_click(self, event: events.Click) -> None:
        # Textual's own handler follows, and looks up the option that was painted at the mouse.
        place: int | None = event.style.meta.get("option")
        if place is not None and place >= self.option_count:
            event.prevent_default()

    @override
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("page_up", "page_down") and not self.scrollable_content_region:
            return False
        return super().check_action(action, parameters)


class PickerScreen(Dialog[str | None]):
    """A dialog with a list of options; its result is the chosen value, or None.

    It starts at the value `marked`, else at the `current` one. `search`: typing filters the list. `preview` is called
    with each marked value. `text` is shown above the list; `describe` makes that text where it names keys; it is
    given the function that returns the key of an action.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("picker")]

    def __init__(
        self,
        title: str,
        options: Iterable[Option],
        current: str = "",
        *,
        text: str = "",
        describe: Callable[[Callable[[str], str]], str] | None = None,
        marked: str = "",
        search: bool = False,
        preview: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._text = text
        self._says = describe
        self._title = _shown(title)
        self._options = _cleaned(options)
        self._shown = self._at_rest = tuple(option for option in self._options if not option.folded)
        self._current = current
        self._first = marked or current
        self._search = search
        self._typed = ""
        self._preview = preview

    def use(self, options: Iterable[Option]) -> None:
        """Show these options instead; the marked one stays marked."""
        found = _cleaned(options)
        if found == self._options:
            return
        place = self.query_one(OptionList).highlighted
        marked = self._shown[place].value if place is not None and place < len(self._shown) else ""
        self._options = found
        self._at_rest = tuple(option for option in found if not option.folded)
        typed, self._typed, self._shown = self._typed, "", self._at_rest
        self._narrow(typed)
        self._fill(next((place for place, option in enumerate(self._shown) if option.value == marked), 0))

    @override
    def compose(self) -> ComposeResult:
        if self._says is not None:
            self._text = self._says(self.key)
        head: list[Widget] = [dialog_title(self._title)]
        if self._text:
            head.append(Static(Content(self._text), classes="dialog-text"))
        if self._search:
            head.append(Field(placeholder="type to search"))
        keys = f"{self.key('picker.choose')} chooses, {self.key('picker.cancel')} cancels"
        folded = len(self._options) - len(self._at_rest)
        search = f"Type to search ({folded} more), " if folded else "Type to search, "
        yield framed(head, ChoiceList(compact=True), [dialog_keys(search + keys if self._search else keys)])

    def on_mount(self) -> None:
        self._fill(next((place for place, option in enumerate(self._shown) if option.value == self._first), 0))
        self.query_one(Input if self._search else OptionList).focus()

    def on_resize(self) -> None:
        """Wrap descriptions for a new width. The dialog stays as high while a search finds less."""
        # A dialog that is being removed has no list any more.
        for choices in self.query(OptionList):
            self._fill(choices.highlighted or 0)
            shown = map(choices.get_option_at_index, range(choices.option_count))
            choices.styles.height = sum(str(option.prompt).count("\n") + 1 for option in shown)

    def _fill(self, marked: int) -> None:
        """Fill the list with the options shown now, and mark the next one from index `marked` that is no heading."""
        choices = self.query_one(OptionList)
        choices.clear_options()
        choices.add_options(self._rows() or [ListOption(Content.styled("  nothing fits", "$foreground 68%"))])
        choices.highlighted = next(
            (place for place in range(marked, len(self._shown)) if not self._shown[place].heading), 0
        )

    def on_input_changed(self, event: Input.Changed) -> None:
        self._narrow(event.value)

    def catch_up(self) -> None:
        """Filter the list by the field's present text: a key can arrive before the change event of earlier letters."""
        if self._search and (typed := self.query_one(Input).value) != self._typed:
            self._narrow(typed)

    def _narrow(self, typed: str) -> None:
        if typed == self._typed:
            return
        self._typed = typed
        words = typed.lower().split()
        named = (option for option in self._options if not option.heading)
        fitting = ((well, option) for option in named if (well := option.score(words)) is not None)
        self._shown = ranked(fitting) if words else self._at_rest
        self._fill(0)

    def on_input_submitted(self) -> None:
        self.action_choose()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self._choose(event.option_index)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if self._preview is not None and event.option_index < len(self._shown):
            self._preview(self._shown[event.option_index].value)

    def action_choose(self) -> None:
        self.catch_up()
        self._choose(self.query_one(OptionList).highlighted)

    def action_mark(self, step: int) -> None:
        """Move the mark; works from the search field too."""
        choices = self.query_one(OptionList)
        if step < 0:
            choices.action_cursor_up()
        else:
            choices.action_cursor_down()

    def action_page(self, direction: int) -> None:
        choices = self.query_one(OptionList)
        self._mark((choices.highlighted or 0) + direction * max(1, choices.size.height - 1))

    def action_edge(self, direction: int) -> None:
        self._mark(0 if direction < 0 else len(self._shown))

    def _mark(self, place: int) -> None:
        place = min(max(0, len(self._shown) - 1), max(0, place))
        heading = bool(self._shown[place : place + 1]) and self._shown[place].heading
        self.query_one(OptionList).highlighted = place + heading

    def _choose(self, index: int | None) -> None:
        if index is not None and index < len(self._shown) and not self._shown[index].heading:
            self.dismiss(self._shown[index].value)

    def _rows(self) -> list[ListOption]:
        width = max((cell_len(option.label) for option in self._options if not option.heading), default=0) + 2
        narrow = self.app.size.width < NARROW and any(option.description for option in self._options)
        column = min(width, NARROW_LABEL) if narrow else width
        # A long list keeps to one line for each option, if there is room for it.
        one_line_each = self._search and not narrow
        return [
            ListOption(Content.styled(option.label, "$foreground bold"), disabled=True)
            if option.heading
            else ListOption(self._row(option, column, one_line_each=one_line_each))
            for option in self._shown
        ]

    def _row(self, option: Option, column: int, *, one_line_each: bool) -> Content:
        here, description = "• " if option.value == self._current else "  ", _flat(option.description)
        list_width = max(MIN_WRAPPED, min(WIDTH, self.app.size.width * 96 // 100) - FRAME_CELLS) - len(here)
        beside = list_width - column
        cramped = not one_line_each and beside < min(column, cell_len(description))
        if description and (cramped or beside < MIN_WRAPPED or cell_len(option.label) > column - 2):
            # Little room beside the label: put the description below it.
            column = 2
            label = f"{fit(option.label, list_width)}\n" + " " * (len(here) + column)
        else:
            label = option.label + " " * (column - cell_len(option.label)) * bool(description)
        room = max(1, list_width - column)
        if one_line_each:
            description = _without_stubs(description, room)
        elif cell_len(description) > room:
            description = f"\n{' ' * (len(here) + column)}".join(wrap(description, room))
        return Content.assemble((here, "$accent"), label, (description, "$foreground 68%"))


def _without_stubs(description: str, room: int) -> str:
    """The description without last columns that would be cut to almost nothing."""
    while cell_len(description) > room:
        before, gap, last = description.rpartition("  ")
        if not gap or not before.strip() or room - cell_len(before) - len(gap) >= min(MIN_COLUMN, cell_len(last)):
            break
        description = before.rstrip()
    return description


def _flat(text: str) -> str:
    """A description on one line, keeping the spaces that align its columns."""
    return " ".join(one_line(part) for part in text.split(" "))


def _cleaned(options: Iterable[Option]) -> tuple[Option, ...]:
    return tuple(replace(each, label=_shown(each.label), description=_shown(each.description)) for each in options)


def _shown(text: str) -> str:
    """Untrusted text made safe for one line, keeping the spaces of its columns."""
    return displayed(clean(text[: 4 * MAX_SHOWN]).replace("\n", " "))[:MAX_SHOWN]
