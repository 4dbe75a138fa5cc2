"""Lists to choose one from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import ClassVar, Final

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option as ListOption
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog, dialog_title
from tui_agent.tui.fuzzy import SCATTERED, ranked, score
from tui_agent.tui.painting.lines import fit

MAX_SHOWN: Final = 200
"""Characters of a title, a label or a description."""
OTHER_LINES: Final = 8
"""Lines of the dialog beside the list and the text over it, and of air around it."""
WIDTH: Final = 76
"""Cells of the dialog where the screen is wide enough."""
NARROW: Final = 80
"""Cells of a screen below which long labels are cut, so that what is said of them can be read."""
NARROW_LABEL: Final = 28
"""Cells of a label there, with the air behind it."""
AROUND: Final = 7
"""Cells beside the list: the dialog's edge and padding, and the scrollbar."""
LEAST_SENTENCE: Final = 16
"""Cells below which a description is not broken into lines."""
WHOLE: Final = SCATTERED + 1
"""How well a word fits an option that has it in its description alone."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing to choose; `value` is what the choice means to the program.

    heading: it only names those below it. folded: it shows where it is searched for.
    """

    value: str
    label: str
    description: str = ""
    heading: bool = False
    folded: bool = False

    def score(self, words: Sequence[str]) -> float | None:
        """How well what is shown fits these words, in lower case; None: one of them stands nowhere.

        In the label letters may be scattered; a description holds a word in one piece, and counts for less.
        """
        label, description = self.label.lower().lstrip("/"), self.description.lower()
        fits = [
            WHOLE if word in description and word not in label else score(label, word.lstrip("/")) for word in words
        ]
        known = [each for each in fits if each is not None]
        return min(known, default=0.0) if len(known) == len(fits) else None


class Choices(OptionList):
    """The choices. In a terminal so small that none of them shows, there is no page to move by; and a click on what has
    just been narrowed away chooses nothing.
    """

    @override
    async def _on_click(self, event: events.Click) -> None:
        # Textual's own handler follows, and looks up the choice that was painted there.
        place: int | None = event.style.meta.get("option")
        if place is not None and place >= self.option_count:
            event.prevent_default()

    @override
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ("page_up", "page_down") and not self.scrollable_content_region:
            return False
        return super().check_action(action, parameters)


class PickerScreen(Dialog[str | None]):
    """A list over the screen; it ends with the value chosen, or None.

    It begins at the value `marked`, else at the `current` one. `search`: typing narrows the list. `preview` is told
    each value that is marked. `told` is what the list says over itself where keys are named in it, and is given the way
    to name one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("picker")]

    def __init__(
        self,
        title: str,
        options: Iterable[Option],
        current: str = "",
        *,
        text: str = "",
        told: Callable[[Callable[[str], str]], str] | None = None,
        marked: str = "",
        search: bool = False,
        preview: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._text = text
        self._says = told
        self._title = _shown(title)
        self._options = tuple(
            replace(option, label=_shown(option.label), description=_shown(option.description)) for option in options
        )
        self._shown = self._at_rest = tuple(option for option in self._options if not option.folded)
        self._current = current
        self._first = marked or current
        self._search = search
        self._typed = ""
        self._preview = preview

    @override
    def compose(self) -> ComposeResult:
        if self._says is not None:
            self._text = self._says(self.key)
        with Vertical(classes="dialog"):
            yield dialog_title(self._title)
            if self._text:
                yield Static(Content(self._text), classes="dialog-text")
            if self._search:
                field = Input(placeholder="type to search", compact=True, classes="dialog-search")
                field.cursor_blink = False
                yield field
            yield Choices(compact=True)
            keys = f"{self.key('picker.choose')} chooses, {self.key('picker.cancel')} cancels"
            folded = len(self._options) - len(self._at_rest)
            search = f"Type to search ({folded} more), " if folded else "Type to search, "
            yield Static(Content(search + keys if self._search else keys), classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin at what was marked before, or holds now."""
        self._fill(next((place for place, option in enumerate(self._shown) if option.value == self._first), 0))
        self.query_one(Input if self._search else OptionList).focus()

    def on_resize(self) -> None:
        """As high as the list is, where there is room; sentences are broken anew where the width is another one."""
        room = max(1, self.app.size.height - OTHER_LINES - 2 * self._search - len(self._text.splitlines()))
        # A dialog that is just going has no list any more.
        for choices in self.query(OptionList):
            if not self._search:
                self._fill(choices.highlighted or 0)
            shown = map(choices.get_option_at_index, range(choices.option_count))
            choices.styles.height = min(sum(str(option.prompt).count("\n") + 1 for option in shown), room)

    def _fill(self, marked: int) -> None:
        """Show what is to be shown now, with one of it marked: the next that is no heading."""
        choices = self.query_one(OptionList)
        choices.clear_options()
        choices.add_options(self._rows() or [ListOption(Content.styled("  nothing fits", "$foreground 68%"))])
        choices.highlighted = next(
            (place for place in range(marked, len(self._shown)) if not self._shown[place].heading), 0
        )

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep what holds every word that was typed."""
        self._narrow(event.value)

    def catch_up(self) -> None:
        """Narrow the list to what stands in the field: a key can come before the news of the letters before it."""
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
        """Take the marked choice."""
        self.action_choose()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the choice."""
        self._choose(event.option_index)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show what the marked choice would be like."""
        if self._preview is not None and event.option_index < len(self._shown):
            self._preview(self._shown[event.option_index].value)

    def action_choose(self) -> None:
        """Take the marked choice."""
        self.catch_up()
        self._choose(self.query_one(OptionList).highlighted)

    def action_mark(self, step: int) -> None:
        """Mark another choice, from the search field too."""
        choices = self.query_one(OptionList)
        if step < 0:
            choices.action_cursor_up()
        else:
            choices.action_cursor_down()

    def action_page(self, direction: int) -> None:
        """Mark a choice a page away."""
        choices = self.query_one(OptionList)
        self._mark((choices.highlighted or 0) + direction * max(1, choices.size.height - 1))

    def action_edge(self, direction: int) -> None:
        """Mark the first choice, or the last."""
        self._mark(0 if direction < 0 else len(self._shown))

    def _mark(self, place: int) -> None:
        place = min(max(0, len(self._shown) - 1), max(0, place))
        heading = bool(self._shown[place : place + 1]) and self._shown[place].heading
        self.query_one(OptionList).highlighted = place + heading

    def action_cancel(self) -> None:
        """Leave everything as it is."""
        self.dismiss(None)

    def _choose(self, index: int | None) -> None:
        if index is not None and index < len(self._shown) and not self._shown[index].heading:
            self.dismiss(self._shown[index].value)

    def _rows(self) -> list[ListOption]:
        width = max((cell_len(option.label) for option in self._options if not option.heading), default=0) + 2
        if self.app.size.width < NARROW and any(option.description for option in self._options):
            width = min(width, NARROW_LABEL)
        return [
            ListOption(Content.styled(option.label, "$foreground bold"), disabled=True)
            if option.heading
            else ListOption(self._row(option, width))
            for option in self._shown
        ]

    def _row(self, option: Option, width: int) -> Content:
        here, told = "• " if option.value == self._current else "  ", _flat(option.description)
        list_width = max(LEAST_SENTENCE, min(WIDTH, self.app.size.width * 96 // 100) - AROUND) - len(here)
        room = list_width - width
        label = option.label
        if told and room < LEAST_SENTENCE:
            # There is no room beside the label: it stands below.
            width, room = 2, list_width - 2
            label = f"{fit(label, list_width)}\n" + " " * (len(here) + width)
        elif told:
            label = fit(label, width - 2) if cell_len(label) > width - 2 else label
            label += " " * (width - cell_len(label))
        if told and not self._search:
            # What is said of a few choices is said whole; a long list keeps to a line for each.
            told = ("\n" + " " * (len(here) + width)).join(wrap(told, room)) if cell_len(told) > room else told
        return Content.assemble((here, "$accent"), label, (told, "$foreground 68%"))


def _flat(text: str) -> str:
    """A description on one line; the blanks that align its columns stay."""
    return " ".join(one_line(part) for part in text.split(" "))


def _shown(text: str) -> str:
    """Text from anywhere as it is painted on one line; the spaces of its columns stay."""
    return displayed(clean(text[: 4 * MAX_SHOWN]).replace("\n", " "))[:MAX_SHOWN]
