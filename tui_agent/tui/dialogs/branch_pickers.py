"""Lists to choose a place of the conversation from: the user's messages, and the branches."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar, Final, NamedTuple

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from typing_extensions import override

from tui_agent.agent.branches import Branch, Prompt
from tui_agent.agent.user_shell import read_note
from tui_agent.text import one_line
from tui_agent.tui.app.theme import Glyphs
from tui_agent.tui.cards.lines import Line, Run, fit, make_line
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.dialogs.row_list import Draw, Row, RowList
from tui_agent.tui.wording import age

SEARCHED_CHARS: Final = 400
"""Characters of a message that are searched and shown."""
OTHER_LINES: Final = 10
"""Lines of the dialog beside its rows, and of air around it."""


class Place(NamedTuple):
    """A place to go to: `value` is its number, `words` what it can be found by; `draw` paints its row."""

    value: str
    words: str
    draw: Draw


class PlacePicker(ModalScreen[str | None]):
    """Any number of places over the screen; typing narrows them. It ends with the value of one, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "cancel", "Cancel", show=False, priority=True),
        Binding("up", "mark(-1)", "Up", show=False),
        Binding("down", "mark(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("ctrl+home", "edge(-1)", "First", show=False),
        Binding("ctrl+end", "edge(1)", "Last", show=False),
    ]

    def __init__(self, title: str, places: Iterable[Place], keys: str, glyphs: Glyphs) -> None:
        super().__init__()
        self._title = title
        self._places = tuple(places)
        self._keys = keys
        self._rows = RowList(glyphs, in_dialog=True, keys_elsewhere=True)

    @override
    def compose(self) -> ComposeResult:
        field = Input(placeholder="type to search", compact=True, classes="dialog-search")
        field.cursor_blink = False
        with Vertical(classes="dialog"):
            yield Static(Content.styled(self._title, "$accent bold"), classes="dialog-title")
            yield field
            yield self._rows
            yield Static(Content(f"Type to search, {self._keys}, Esc cancels"), classes="dialog-keys")

    def on_mount(self) -> None:
        """Begin at the first place."""
        self._show(self._places)
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        """As high as the list is, where there is room."""
        room = max(1, self.app.size.height - OTHER_LINES)
        self._rows.styles.height = min(max(1, len(self._places)), room)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Keep what holds every word that was typed."""
        words = event.value.lower().split()
        self._show([place for place in self._places if all(word in place.words for word in words)])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to the marked place."""
        event.stop()
        self._choose(self._rows.key)

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        """A second click goes to the place."""
        self._choose(message.key)

    def on_click(self, event: events.Click) -> None:
        """A click beside the dialog leaves everything as it is."""
        if event.widget is self:
            self.dismiss(None)

    def action_mark(self, step: int) -> None:
        """Mark another place."""
        self._rows.action_cursor(step)

    def action_page(self, direction: int) -> None:
        """Mark a place a page away."""
        self._rows.action_page(direction)

    def action_edge(self, direction: int) -> None:
        """Mark the first place, or the last."""
        self._rows.action_edge(direction)

    def action_cancel(self) -> None:
        """Leave everything as it is."""
        self.dismiss(None)

    def _show(self, places: Sequence[Place]) -> None:
        self._rows.show([Row(place.draw, place.value) for place in places] or [Row(_draw_nothing)])
        self._rows.action_edge(-1)

    def _choose(self, value: object) -> None:
        if isinstance(value, str):
            self.dismiss(value)


def rewind_picker(prompts: Sequence[Prompt], glyphs: Glyphs) -> PlacePicker:
    """The user's messages, the newest first; it ends with the number of one."""
    places = [
        Place(str(prompt.seq), f"{prompt.seq} {words.lower()}", partial(_draw_prompt, prompt, words))
        for prompt in reversed(prompts)
        for words in (_typed(prompt.text),)
    ]
    return PlacePicker("Rewind to before: messages taken back, how long ago", places, "Enter rewinds", glyphs)


def tree_picker(branches: Sequence[Branch], glyphs: Glyphs) -> PlacePicker:
    """The branches, the present one first and the others below it; it ends with the tip of one."""
    places = [
        Place(str(branch.tip), words.lower(), partial(_draw_branch, branch, words, branch is branches[-1]))
        for branch in branches
        for words in (_typed(branch.text),)
    ]
    return PlacePicker("Go on with a branch: messages, last used", places, "Enter goes there", glyphs)


def _typed(text: str) -> str:
    """The beginning of a message of the user's, as they typed it; untrusted."""
    own = read_note(text) if text.startswith("<") else None
    return (f"!{own.command}" if own is not None else text)[:SEARCHED_CHARS]


def _draw_prompt(prompt: Prompt, words: str, width: int, look: Look) -> Line:
    palette = look.palette
    start = [Run("  ", palette.base), Run(f"{prompt.seq:>6}  ", palette.muted)]
    return _row(start, words, f"{prompt.messages:>6,}", prompt.time, width, look)


def _draw_branch(branch: Branch, words: str, last: bool, width: int, look: Look) -> Line:
    palette, glyphs = look.palette, look.glyphs
    sign = Run(glyphs.ok, palette.accent) if branch.present else Run(_limb(last, glyphs), palette.faint)
    start = [Run("  ", palette.base), sign, Run("  ", palette.base)]
    return _row(start, words, f"{branch.messages:>6,}", branch.time, width, look, marked=branch.present)


def _limb(last: bool, glyphs: Glyphs) -> str:
    return glyphs.nested if last else glyphs.limb


def _row(
    start: Sequence[Run], words: str, count: str, time: float, width: int, look: Look, *, marked: bool = False
) -> Line:
    """A row of a list of places: what it is about on the left, figures in columns on the right."""
    palette = look.palette
    right = f"{count}  {age(time):>10}"
    room = width - sum(cell_len(run.text) for run in start) - 2 - len(right)
    if room < 8:
        right, room = "", width - sum(cell_len(run.text) for run in start)
    told = fit(one_line(words) or "(no words)", max(1, room), look.glyphs.ellipsis)
    pad = " " * max(0, room - cell_len(told) + 2)
    style = palette.strong if marked else palette.base
    return make_line([*start, Run(told, style), *([Run(pad + right, palette.muted)] if right else [])])


def _draw_nothing(width: int, look: Look) -> Line:
    return make_line([Run("  nothing fits", look.palette.muted)])
