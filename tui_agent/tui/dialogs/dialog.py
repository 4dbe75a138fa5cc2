"""The base class of dialogs: modal screens that take keys only once they are composed, and close only once."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Final

from textual import events
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Static
from typing_extensions import override

from tui_agent.tui.keys import Keymap

LOW_SCREEN: Final = 14
"""On a screen with fewer lines, dialogs leave out margins and the names of keys."""
QUIET_S: Final = 0.3
"""Seconds without a key press before a question takes the focus."""

_LOOK_INSIDE = (events.Mount, events.Resize, events.ScreenResume)
"""Events whose handlers access the dialog's widgets."""


class Dialog(ModalScreen[ScreenResultType]):
    """Closes with the first answer; keys that arrive just after it have no effect on it.

    stands: it is composed and can take keys.
    """

    CLICK_OUTSIDE_CLOSES: ClassVar[bool] = False
    """Whether a click outside closes it without a result."""

    class Stands(Message):
        """A dialog is composed and can take keys."""

    @dataclass
    class Unused(Message):
        """A key that closed a dialog and is meant for the screen below, ahead of all later keys."""

        key: events.Key

    def __init__(self) -> None:
        super().__init__()
        self.stands = False

    @override
    async def on_event(self, event: events.Event) -> None:
        # A dialog that was closed while it was being composed has no widgets.
        if not isinstance(event, _LOOK_INSIDE) or (self.children and self in self.app.screen_stack):
            await super().on_event(event)

    def on_screen_resume(self) -> None:
        """Tell the app that the dialog can take keys."""
        if not self.stands:
            self.stands = True
            self.post_message(self.Stands())

    def on_click(self, event: events.Click) -> None:
        if self.CLICK_OUTSIDE_CLOSES and event.widget is self:
            self.dismiss(None)

    def action_leave(self) -> None:
        self.dismiss(None)

    def key(self, identity: str) -> str:
        """The first key of an action, as shown to the user."""
        keymap = getattr(self.app, "keymap", None)
        return (keymap if isinstance(keymap, Keymap) else Keymap()).text(identity)

    @override
    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        # Textual pops whichever screen is on top, and ends the program if only the app's own is left. `is_current` does
        # not help: it also holds for a dialog that is visible behind another one.
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


def framed(head: Iterable[Widget], body: Widget, foot: Iterable[Widget]) -> Vertical:
    """A dialog as high as what is in it, if there is room: else `body` scrolls between `head` and `foot`."""
    body.add_class("dialog-body")
    top, bottom = Vertical(*head, classes="dialog-head"), Vertical(*foot, classes="dialog-foot")
    return Vertical(top, body, bottom, classes="dialog")


def dialog_title(title: str) -> Static:
    return Static(Content.styled(title, "$accent bold"), classes="dialog-title")


def dialog_keys(text: str = "") -> Static:
    """The line at the bottom of a dialog, which says what its keys do."""
    return Static(text, markup=False, classes="dialog-keys")
