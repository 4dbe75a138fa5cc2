"""Dialogs over the screen: help, and the question whether a project may be trusted."""

import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static
from typing_extensions import override

from tui_agent.settings.brought import Brought
from tui_agent.text import clean, displayed, one_line, short_path
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog
from tui_agent.tui.dialogs.permission import LOW_SCREEN
from tui_agent.tui.dialogs.pickers import Option, PickerScreen

TRUST, NO_TRUST = "trust", "no"
MAX_BROUGHT: Final = 8
"""Files that a question about trust names."""
MAX_NAME: Final = 40
MAX_DOES: Final = 120
OTHER_LINES: Final = 4
"""Lines of the help beside its text: padding, the keys, and a blank line before those."""
MAX_SHARE: Final = 96
"""Percent of the screen's height that a dialog may take."""
LEAST_COLUMN: Final = 20
"""Cells that the second column of a line needs at least."""
HANGING: Final = "    "
_EXPLAINED: Final = re.compile(r"(.*?\S {2,})(\S.*)")
"""What can be typed, and what it does."""


class HelpScreen(Dialog[None]):
    """Text to read; whoever goes on writing closes it with that."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("reading")]

    def __init__(self, sections: dict[str, str]) -> None:
        super().__init__()
        self.sections = sections

    @override
    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            with VerticalScroll():
                for title in self.sections:
                    yield Static(Content.styled(title, "$accent bold"), classes="dialog-title")
                    yield Static(classes="dialog-text")
            yield Static(Content(f"{self.key('reading.close')} closes"), classes="dialog-keys")

    def on_resize(self) -> None:
        """As high as the text, where there is room."""
        height = self.app.size.height
        others = OTHER_LINES if height >= LOW_SCREEN else 0
        # A dialog that is just going has no text any more.
        for place in self.query(VerticalScroll):
            place.styles.max_height = max(1, height * MAX_SHARE // 100 - others)
        self.call_after_refresh(self._explain)

    def _explain(self) -> None:
        for place in self.query(VerticalScroll):
            width = place.scrollable_content_region.width
            for shown, text in zip(
                place.query("Static.dialog-text").results(Static), self.sections.values(), strict=False
            ):
                shown.update(explained(text, width))

    def on_key(self, event: events.Key) -> None:
        """Who writes has read enough."""
        self.make_way(event)

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


def explained(text: str, width: int) -> Content:
    """Lines of two columns, in `width` cells; what does not fit goes on below, in its column where that has room."""
    lines: list[Content] = []
    for line in text.splitlines():
        parts = _EXPLAINED.fullmatch(line)
        if parts is None:
            lines.append(Content(line))
            continue
        begin = " " * len(parts[1])
        rest = begin if width - len(begin) >= LEAST_COLUMN else HANGING
        first, *others = wrap(parts[2], max(1, width), initial_indent=begin, subsequent_indent=rest)
        lines += [Content.assemble((parts[1], "$foreground"), first[len(begin) :]), *map(Content, others)]
    return Content("\n").join(lines)
