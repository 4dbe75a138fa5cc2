"""Questions with a few answers: whether to trust a project, delete a session or stop a turn, and what to do about a
session that is in use.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tui_agent.settings.brought import Brought
from tui_agent.storage.sessions import SessionInfo
from tui_agent.text import clean, counted, displayed, money_text, one_line, short_path
from tui_agent.tui.dialogs.fields import MAX_TITLE
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.wording import age

TRUST, NO_TRUST = "trust", "no"
DELETE: Final = "delete"
NEW, CHOOSE, LEAVE = "new", "choose", "leave"
MAX_BROUGHT: Final = 8
"""The most files that the question about trust names."""
MAX_NAME: Final = 40
MAX_DOES: Final = 120


class TrustScreen(PickerScreen):
    """Asks whether a project's own settings and extensions may take effect.

    Its result is `TRUST`, `NO_TRUST`, or None if it was not answered.
    """

    def __init__(self, project: Path, found: Iterable[Brought] = (), current: str = NO_TRUST) -> None:
        brings = [_line(f"{one_line(each.name, MAX_NAME)}: {one_line(each.does, MAX_DOES)}") for each in found]
        more = len(brings) - MAX_BROUGHT
        lines = [_line(f"{one_line(short_path(project))} contains"), *brings[:MAX_BROUGHT]]
        lines += [f"and {more} more"] if more > 0 else []
        super().__init__(
            "Trust this project?",
            (
                Option(NO_TRUST, "No", "ignore it; settings count only where they are stricter"),
                Option(TRUST, "Yes, trust it", "use all of it"),
            ),
            current,
            text="\n".join((*lines, "Your answer is remembered for this folder; /trust changes it.")),
        )


def delete_question(info: SessionInfo) -> PickerScreen:
    """Asks whether to delete a session for good; any result but `DELETE` means no."""
    return PickerScreen(
        "Delete this session?",
        (Option("no", "Keep it"), Option(DELETE, "Delete it", "for good, with the files kept for it")),
        "no",
        text=f"{displayed(clean(one_line(info.title, MAX_TITLE) or info.id))}\n{_figures(info)}",
    )


def stop_question() -> PickerScreen:
    """Asks whether to stop the turn and switch to another session; any result but `LEAVE` means no."""
    return PickerScreen(
        "A turn runs. Stop it, and go on in another session?",
        (Option("no", "Stay here"), Option(LEAVE, "Stop it and go", "what was said so far is kept")),
        "no",
    )


def busy_question(message: str) -> PickerScreen:
    """Asks what to do about a session that another process has open; its result is `NEW`, `CHOOSE` or None."""
    return PickerScreen(
        "The session is in use",
        (Option(NEW, "A new session here"), Option(CHOOSE, "Choose another session")),
        NEW,
        text=displayed(clean(message)),
    )


def _line(text: str) -> str:
    return displayed(clean(text)).replace("\n", " ")


def _figures(info: SessionInfo) -> str:
    return f"{age(info.updated)}, {counted(info.messages, 'message')}, {money_text(info.cost_usd)}"
