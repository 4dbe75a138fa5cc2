"""Lists to choose one from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option as ListOption
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.dialogs.dialog import Dialog
from tui_agent.tui.fuzzy import SCATTERED, fit, ranked

MAX_SHOWN: Final = 200
"""Characters of a title, a label or a description."""
OTHER_LINES: Final = 8
"""Lines of the dialog beside the list and the text over it, and of air around it."""


WHOLE: Final = SCATTERED + 1
"""How well a word fits an option that has it in its description alone."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing to choose; `value` is what the choice means to the program."""

    value: str
    label: str
    description: str = ""

    def fit(self, words: Sequence[str]) -> float | None:
        """How well what is shown fits these words, in lower case; None: one of them stands nowhere.

        In the label letters may be scattered; a description holds a word in one piece, and counts for less.
        """
        label, description = self.label.lower().lstrip("/"), self.description.lower()
        fits = [WHOLE if word in description and word not in label else fit(label, word.lstrip("/")) for word in words]
        known = [score for score in fits if score is not None]
        return min(known, default=0.0) if len(known) == len(fits) else None


class Choices(OptionList):
    """The choices. In a terminal so small that none of them shows, there is no page to move by."""

    @override
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("page_up", "page_down") and not self.scrollable_content_region:
            return False
        return super().check_action(action, parameters)


class PickerScreen(Dialog[str | None]):
    """A list over the screen; it ends with the value chosen, or None.

    `search`: typing narrows the list. `preview` is told each value that is marked.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Cancel", show=False, priority=True),
        Binding("up", "mark('cursor_up')", "Up", show=False),
        Binding("down", "mark('cursor_down')", "Down", show=False),
        Binding("pageup", "mark('page_up')", "Page up", show=False),
        Binding("pagedown", "mark('page_down')", "Page down", show=False),
    ]

    def __init__(
        self,
        title: str,
        options: Iterable[Option],
        current: str = "",
        *,
        text: str = "",
        search: bool = False,
        preview: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._text = text
        self._title = _shown(title)
        self._options = tuple(
            replace(option, label=_shown(option.label), description=_shown(option.description)) for option in options
        )
        self._shown = self._options
        self._current = current
        self._search = search
        self._preview = preview

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content.styled(self._title, "$accent bold"), classes="dialog-title")
            if self._text:
                yield Static(Content(self._text), classes="dialog-text")
            if self._search:
                field = Input(placeholder="type to search", compact=True, classes="dialog-search")
                field.cursor_blink = False
                yield field
            yield Choices(*self._rows(), compact=True)
            keys = "Enter chooses, Esc cancels"
            yield Static(Content(f"Type to search, {keys}" if self._search else keys), classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin at what holds now."""
        values = [option.value for option in self._options]
        choices = self.query_one(OptionList)
        choices.highlighted = values.index(self._current) if self._current in values else 0
        self.query_one(Input if self._search else OptionList).focus()

    def on_resize(self) -> None:
        """As high as the list is, where there is room."""
        room = max(1, self.app.size.height - OTHER_LINES - 2 * self._search - len(self._text.splitlines()))
        # A dialog that is just going has no list any more.
        for choices in self.query(OptionList):
            choices.styles.height = min(len(self._options), room)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep what holds every word that was typed."""
        words = event.value.lower().split()
        fitting = ((score, option) for option in self._options if (score := option.fit(words)) is not None)
        self._shown = ranked(fitting) if words else self._options
        choices = self.query_one(OptionList)
        choices.clear_options()
        choices.add_options(self._rows() or [ListOption(Content.styled("  nothing fits", "$foreground 68%"))])
        choices.highlighted = 0

    def on_input_submitted(self) -> None:
        """Take the marked choice."""
        self._choose(self.query_one(OptionList).highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the choice."""
        self._choose(event.option_index)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show what the marked choice would be like."""
        if self._preview is not None and event.option_index < len(self._shown):
            self._preview(self._shown[event.option_index].value)

    def action_mark(self, movement: str) -> None:
        """Mark another choice, from the search field too."""
        choices = self.query_one(OptionList)
        match movement:
            case "cursor_up":
                choices.action_cursor_up()
            case "cursor_down":
                choices.action_cursor_down()
            case _:
                pages = -1 if movement == "page_up" else 1
                last = max(0, len(self._shown) - 1)
                here = choices.highlighted or 0
                choices.highlighted = min(last, max(0, here + pages * max(1, choices.size.height - 1)))

    def action_cancel(self) -> None:
        """Leave everything as it is."""
        self.dismiss(None)

    def _choose(self, index: int | None) -> None:
        if index is not None and index < len(self._shown):
            self.dismiss(self._shown[index].value)

    def _rows(self) -> list[ListOption]:
        width = max((cell_len(option.label) for option in self._options), default=0) + 2
        return [ListOption(self._row(option, width)) for option in self._shown]

    def _row(self, option: Option, width: int) -> Content:
        here = "• " if option.value == self._current else "  "
        return Content.assemble(
            (here, "$accent"),
            option.label + " " * (width - cell_len(option.label)),
            (_flat(option.description), "$foreground 68%"),
        )


def _flat(text: str) -> str:
    """A description on one line; the blanks that align its columns stay."""
    return " ".join(one_line(part) for part in text.split(" "))


def _shown(text: str) -> str:
    """Text from anywhere as it is painted on one line; the spaces of its columns stay."""
    return displayed(clean(text[: 4 * MAX_SHOWN]).replace("\n", " "))[:MAX_SHOWN]
