"""The window's title, and desktop notifications while the terminal does not have the focus."""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from tui_agent.text import one_line
from tui_agent.tui.terminal.sequences import through_tmux

LONG_TURN_S: Final = 10.0
"""Turns of at least this many seconds end with a notification."""
MAX_TITLE: Final = 60
SAVE_TITLE: Final = "\x1b[22;2t"
RESTORE_TITLE: Final = "\x1b[23;2t"
"""xterm's window operations 22 and 23: push the window's title onto a stack, and pop it."""


class Attention:
    """Sets the title, and notifies while the terminal does not have the focus.

    `write`: sends a control sequence to the terminal. `environ`: identifies the terminal.
    """

    def __init__(
        self, write: Callable[[str], None], environ: Mapping[str, str], *, place: str, notifications: bool = True
    ) -> None:
        self._write = write
        self._environ = environ
        self._place = place
        self._notifications = notifications
        self._began: float | None = None
        self._asking = False
        self._shown = ""
        self.name = ""

    def show(self, *, working: bool, focused: bool) -> None:
        """Update the title after a turn began or ended, or the conversation got a topic."""
        now = monotonic()
        if working and self._began is None:
            self._began = now
        elif not working and self._began is not None:
            took, self._began = now - self._began, None
            if took > LONG_TURN_S and not focused:
                self.notify("The answer is there")
        self._show_title()

    def question(self, tool: str, *, focused: bool) -> None:
        self._asking = True
        self._show_title()
        if not focused:
            self.notify(f"{tool} needs your answer")

    def answered(self) -> None:
        self._asking = False
        self._show_title()

    def again(self) -> None:
        """Set the title again, after another program had the terminal."""
        self._shown = ""
        self._show_title()

    def notify(self, text: str) -> None:
        """Show a line as a desktop notification, if the terminal supports that."""
        if self._notifications:
            self._write(notification(f"tui-agent: {text}", self.name or self._place, self._environ))

    def _show_title(self) -> None:
        sign = "? " if self._asking else "* " if self._began is not None else ""
        title = one_line(f"{sign}{self.name or self._place} - tui-agent", MAX_TITLE)
        if title != self._shown:
            self._shown = title
            self._write(f"\x1b]2;{title}\x07")


def notification(title: str, text: str, environ: Mapping[str, str]) -> str:
    """The control sequence for a notification.

    OSC 777 for terminals based on VTE, foot and rxvt, which do not support OSC 9; OSC 9 for the others (iTerm2, kitty,
    WezTerm, Ghostty). tmux passes it on with `allow-passthrough`.
    """
    title, text = one_line(title, MAX_TITLE), one_line(text, MAX_TITLE).replace(";", ",")
    takes_777 = "VTE_VERSION" in environ or environ.get("TERM", "").startswith(("rxvt", "foot"))
    sequence = f"\x1b]777;notify;{title.replace(';', ',')};{text}\x07" if takes_777 else f"\x1b]9;{title} ({text})\x07"
    return through_tmux(sequence) if "TMUX" in environ else sequence
