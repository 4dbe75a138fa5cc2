"""Choosing a session to go on with; there too one is renamed, forked or deleted."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static
from typing_extensions import override

from tui_agent.storage.sessions import SessionInfo, noted_folder
from tui_agent.text import clean, counted, displayed, money_text, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.wording import age

Verb: TypeAlias = Literal["open", "rename", "fork", "delete"]
TITLE_SHOWN: Final = 28
"""Characters of a title: with the figures beside it they fit a screen of 60 columns."""
WORDS_SHOWN: Final = 80
MAX_TITLE: Final = 200
"""Characters of a title that the user gives."""
DELETE: Final = "delete"
NEW, CHOOSE, LEAVE = "new", "choose", "leave"


class Chosen(NamedTuple):
    """What is to be done with which session."""

    verb: Verb
    session: str


class SessionsScreen(PickerScreen):
    """The sessions of `folder` first, the others with the names of theirs. It ends with `Chosen`'s two words, or None.

    `last` has what was said last, by id. `current` is the session the user is in.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("sessions")]

    def __init__(
        self,
        sessions: Iterable[SessionInfo],
        last: Mapping[str, str],
        folder: Path,
        current: str = "",
        marked: str = "",
    ) -> None:
        here = noted_folder(folder)
        ordered = sorted(sessions, key=lambda info: info.cwd != here)
        options = [_option(info, last.get(info.id, ""), here=info.cwd == here) for info in ordered]
        super().__init__(
            "Sessions: last used, messages, cost, last words",
            options,
            current,
            told=lambda key: (
                f"{key('sessions.rename')} renames, {key('sessions.fork')} forks, {key('sessions.delete')} deletes"
            ),
            search=True,
        )
        self._marked = marked

    @override
    def on_mount(self) -> None:
        super().on_mount()
        values = [option.value for option in self._options]
        if self._marked in values:
            self.query_one(OptionList).highlighted = values.index(self._marked)

    def action_end_with(self, verb: Verb) -> None:
        """Do this with the session that is marked."""
        self.catch_up()
        place = self.query_one(OptionList).highlighted
        if place is not None and place < len(self._shown):
            self.dismiss(f"{verb} {self._shown[place].value}")


def chosen(answer: str | None) -> Chosen | None:
    """The screen's answer in its two parts."""
    verb, _, session = (answer or "").rpartition(" ")
    if not session:
        return None
    match verb:
        case "rename" | "fork" | "delete":
            return Chosen(verb, session)
        case _:
            return Chosen("open", session)


def delete_question(info: SessionInfo) -> PickerScreen:
    """Asks whether a session is to go for good; it ends with `DELETE`, or something else."""
    return PickerScreen(
        "Delete this session?",
        (Option("no", "Keep it"), Option(DELETE, "Delete it", "for good, with the files kept for it")),
        "no",
        text=f"{displayed(clean(one_line(info.title, MAX_TITLE) or info.id))}\n{_figures(info)}",
    )


def stop_question() -> PickerScreen:
    """Asks whether a turn is to be stopped for another session; it ends with `LEAVE`, or something else."""
    return PickerScreen(
        "A turn runs. Stop it, and go on in another session?",
        (Option("no", "Stay here"), Option(LEAVE, "Stop it and go", "what was said so far is kept")),
        "no",
    )


def busy_question(message: str) -> PickerScreen:
    """Asks what to do about a session that another process has open; it ends with `NEW`, `CHOOSE` or None."""
    return PickerScreen(
        "The session is in use",
        (Option(NEW, "A new session here"), Option(CHOOSE, "Choose another session")),
        NEW,
        text=displayed(clean(message)),
    )


class TitleScreen(Dialog[str | None]):
    """Asks for a session's title; None: it keeps the one it has."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("field")]

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(Content.styled("Rename the session", "$accent bold"), classes="dialog-title")
            field = Input(displayed(clean(self._title)), max_length=MAX_TITLE, compact=True, classes="dialog-search")
            field.cursor_blink = False
            yield field
            yield Static(Content(f"Enter renames, {self.key('field.cancel')} cancels"), classes="dialog-keys")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the title, unless there is none."""
        self.dismiss(one_line(event.value, MAX_TITLE) or None)

    def action_cancel(self) -> None:
        """Keep the title."""
        self.dismiss(None)


def _option(info: SessionInfo, last: str, *, here: bool) -> Option:
    place = "" if here else f"  in {one_line(Path(info.cwd).name or info.cwd, 20)}"
    words = f"  {one_line(last, WORDS_SHOWN)}" if last else ""
    figures = f"{age(info.updated):<9} {info.messages:>3,} {money_text(info.cost_usd):>7}"
    return Option(info.id, one_line(info.title, TITLE_SHOWN) or info.id, f"{figures}{place}{words}")


def _figures(info: SessionInfo) -> str:
    return f"{age(info.updated)}, {counted(info.messages, 'message')}, {money_text(info.cost_usd)}"
