"""Lists to choose one from."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option as ListOption
from typing_extensions import override

from tui_agent.safe_text import one_line
from tui_agent.tui.transcript import compact_count

OTHER_LINES: Final = 8
"""Lines of the dialog beside the list and the text over it, and of air around it."""


@dataclass(frozen=True, slots=True)
class Option:
    """One thing to choose; `value` is what the choice means to the program."""

    value: str
    label: str
    description: str = ""


class PickerScreen(ModalScreen[str | None]):
    """A list over the screen; it ends with the value chosen, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c", "cancel", "Cancel", show=False)]

    def __init__(self, title: str, options: Iterable[Option], current: str = "", *, text: str = "") -> None:
        super().__init__()
        self._text = text
        self._title = title
        self._options = tuple(options)
        self._current = current

    @override
    def compose(self) -> ComposeResult:
        width = max((len(option.label) for option in self._options), default=0) + 2
        with Vertical(classes="dialog"):
            yield Static(Content.styled(self._title, "$accent bold"), classes="dialog-title")
            if self._text:
                yield Static(Content(self._text), classes="dialog-text")
            yield OptionList(*(ListOption(self._row(option, width)) for option in self._options), compact=True)
            yield Static(Content("Enter chooses, Esc leaves"), classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin at what holds now."""
        values = [option.value for option in self._options]
        choices = self.query_one(OptionList)
        choices.highlighted = values.index(self._current) if self._current in values else 0
        choices.focus()

    def on_resize(self) -> None:
        """As high as the list is, where there is room."""
        room = max(1, self.app.size.height - OTHER_LINES - len(self._text.splitlines()))
        self.query_one(OptionList).styles.height = min(len(self._options), room)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the choice."""
        self.dismiss(self._options[event.option_index].value)

    def action_cancel(self) -> None:
        """Leave everything as it is."""
        self.dismiss(None)

    def _row(self, option: Option, width: int) -> Content:
        here = "• " if option.value == self._current else "  "
        return Content.assemble(
            (here, "$accent"),
            one_line(option.label).ljust(width),
            (one_line(option.description), "$foreground 60%"),
        )


def model_options(current: str) -> tuple[Option, ...]:
    """The models known without asking anyone, the present one among them: tier, window, dollars per million tokens."""
    from tui_agent.models.catalogue import known_models

    options = []
    for profile in known_models():
        prices = profile.prices
        facts: list[str] = [profile.tier] if profile.tier != "unknown" else []
        facts += [compact_count(profile.window)] if profile.window else []
        facts += [f"${prices.input:g} / ${prices.output:g}"] if prices is not None else []
        options.append(Option(profile.name, profile.name, " · ".join(facts)))
    if current not in {option.value for option in options}:
        options.insert(0, Option(current, current))
    return tuple(options)
