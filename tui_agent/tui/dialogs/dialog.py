"""What every dialog is: a screen over the screen, which takes keys once it stands, and ends once."""

from typing import ClassVar, Final

from textual import events
from textual.await_complete import AwaitComplete
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Static
from typing_extensions import override

from tui_agent.tui.keys import Keymap

LOW_SCREEN: Final = 14
"""A screen with fewer lines has none to spare for air and for the names of keys."""
QUIET_S: Final = 0.3
"""Seconds without a key press before a question takes the keyboard."""

_LOOK_INSIDE = (events.Mount, events.Resize, events.ScreenResume)
"""What handlers answer by looking at what the dialog is made of."""


class Dialog(ModalScreen[ScreenResultType]):
    """Ends with the first answer; keys that came in the same moment find it gone.

    stands: there is something in it that could take a key.
    """

    CLICK_BESIDE_CLOSES: ClassVar[bool] = False
    """Whether a click beside it leaves everything as it is."""

    class Stands(Message):
        """A dialog is there to take keys."""

    class Unused(Message):
        """A key that a dialog has closed at: it is for what is under it, before any key behind it."""

        def __init__(self, key: events.Key) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__()
        self.stands = False

    @override
    async def on_event(self, event: events.Event) -> None:
        # One that was sent away while it was composed has nothing in it to be looked at.
        if not isinstance(event, _LOOK_INSIDE) or (self.children and self in self.app.screen_stack):
            await super().on_event(event)

    def on_screen_resume(self) -> None:
        """Let the app know."""
        if not self.stands:
            self.stands = True
            self.post_message(self.Stands())

    def on_click(self, event: events.Click) -> None:
        """Close at a click beside it, where that loses nothing."""
        if self.CLICK_BESIDE_CLOSES and event.widget is self:
            self.dismiss(None)

    def key(self, identity: str) -> str:
        """The first key of an action, as a person reads it."""
        keymap = getattr(self.app, "keymap", None)
        return (keymap if isinstance(keymap, Keymap) else Keymap()).text(identity)

    def make_way(self, event: events.Key) -> None:
        """Close for a sign that means nothing here, and have it written where the user meant it to be."""
        if event.is_printable and event.character is not None and self.is_current:
            event.stop()
            self.post_message(self.Unused(events.Key(event.key, event.character)))
            self.dismiss(None)

    @override
    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        # Textual would take whatever screen is on top away, and where there is none but the app's, end the program. It
        # calls a dialog that shows through another one current, too.
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


def dialog_title(title: str) -> Static:
    """The line at the top of a dialog."""
    return Static(Content.styled(title, "$accent bold"), classes="dialog-title")
