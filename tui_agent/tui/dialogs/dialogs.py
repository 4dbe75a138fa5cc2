"""Dialogs over the screen: help, and the question whether a project may be trusted."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static
from typing_extensions import override

from tui_agent.settings.brought import Brought
from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.dialogs.dialog import Dialog
from tui_agent.tui.dialogs.permission import LOW_SCREEN
from tui_agent.tui.dialogs.pickers import Option, PickerScreen
from tui_agent.tui.wording import short_path

TRUST, NO_TRUST = "trust", "no"
MAX_BROUGHT: Final = 8
"""Files that a question about trust names."""
MAX_NAME: Final = 40
MAX_DOES: Final = 120
OTHER_LINES: Final = 4
"""Lines of the help beside its text: padding, the keys, and a blank line before those."""
MAX_SHARE: Final = 96
"""Percent of the screen's height that a dialog may take."""
_EXPLAINED: Final = re.compile(r"(.*?\S {2,})(\S.*)")
"""What can be typed, and what it does."""


class HelpScreen(Dialog[None]):
    """Text to read; any key that does not scroll closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+c,f1,q,enter", "close", "Close", show=False)]

    def __init__(self, sections: dict[str, str]) -> None:
        super().__init__()
        self.sections = sections

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            with VerticalScroll():
                for title, text in self.sections.items():
                    yield Static(Content.styled(title, "$accent bold"), classes="dialog-title")
                    yield Static(_explained(text), classes="dialog-text")
            yield Static(Content("Esc closes"), classes="dialog-keys")

    def on_resize(self) -> None:
        """As high as the text, where there is room."""
        height = self.app.size.height
        others = OTHER_LINES if height >= LOW_SCREEN else 0
        self.query_one(VerticalScroll).styles.max_height = max(1, height * MAX_SHARE // 100 - others)

    def on_click(self, event: events.Click) -> None:
        """A click beside the dialog closes it."""
        if event.widget is self:
            self.action_close()

    def action_close(self) -> None:
        """Go back."""
        self.dismiss(None)


class TrustScreen(PickerScreen):
    """Asks whether what a project brings may take effect; it ends with `TRUST`, `NO_TRUST`, or None: not answered."""

    def __init__(self, project: Path, found: Iterable[Brought] = (), current: str = NO_TRUST) -> None:
        brings = [_line(f"{one_line(each.name, MAX_NAME)}: {one_line(each.does, MAX_DOES)}") for each in found]
        more = len(brings) - MAX_BROUGHT
        lines = [_line(f"{one_line(short_path(project))} brings"), *brings[:MAX_BROUGHT]]
        lines += [f"and {more} more"] if more > 0 else []
        super().__init__(
            "Trust this project?",
            (
                Option(NO_TRUST, "No", "its settings can only make the rules stricter"),
                Option(TRUST, "Trust it", "all of it takes effect"),
            ),
            current,
            text="\n".join((*lines, "The answer is kept for this folder; /trust changes it.")),
        )


def _line(text: str) -> str:
    return displayed(clean(text)).replace("\n", " ")


def _explained(text: str) -> Content:
    lines: list[Content] = []
    for line in text.splitlines():
        parts = _EXPLAINED.fullmatch(line)
        lines.append(Content.assemble((parts[1], "$foreground"), parts[2]) if parts else Content(line))
    return Content("\n").join(lines)
