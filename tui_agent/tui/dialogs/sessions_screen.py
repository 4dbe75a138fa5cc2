"""The picker of sessions, in which a session can be opened, renamed, forked or deleted."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from textual.binding import BindingType
from textual.widgets import OptionList

from tui_agent.storage.sessions import SessionInfo, noted_folder
from tui_agent.text import money_text, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.wording import age

Verb: TypeAlias = Literal["open", "rename", "fork", "delete"]
TITLE_SHOWN: Final = 28
"""Characters of a title: with its figures it fits a screen of 60 columns."""
WORDS_SHOWN: Final = 80


class Chosen(NamedTuple):
    """The user's choice: what to do with which session."""

    verb: Verb
    session: str


class SessionsScreen(PickerScreen):
    """Lists the sessions of `folder` first, then others with their folders' names.

    Its result is the two words of a `Chosen`, or None. `last`: the last words of each session, by id. `current`: the
    session the user is in.
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
            marked=marked,
            search=True,
        )

    def action_end_with(self, verb: Verb) -> None:
        """Close with this choice for the marked session."""
        self.catch_up()
        place = self.query_one(OptionList).highlighted
        if place is not None and place < len(self._shown):
            self.dismiss(f"{verb} {self._shown[place].value}")


def chosen(answer: str | None) -> Chosen | None:
    """Parse the screen's result."""
    verb, _, session = (answer or "").rpartition(" ")
    if not session:
        return None
    match verb:
        case "rename" | "fork" | "delete":
            return Chosen(verb, session)
        case _:
            return Chosen("open", session)


def _option(info: SessionInfo, last: str, *, here: bool) -> Option:
    place = "" if here else f"  in {one_line(Path(info.cwd).name or info.cwd, 20)}"
    words = f"  {one_line(last, WORDS_SHOWN)}" if last else ""
    figures = f"{age(info.updated):<10} {info.messages:>3,} {money_text(info.cost_usd):>7}"
    return Option(info.id, one_line(info.title, TITLE_SHOWN) or info.id, f"{figures}{place}{words}")
