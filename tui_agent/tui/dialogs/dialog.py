"""What every dialog is: a screen over the screen, which loses no key that comes before it stands, and ends once."""

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType
from typing_extensions import override


class Dialog(ModalScreen[ScreenResultType]):
    """Ends with the first answer; keys that came in the same moment find it gone."""

    def __init__(self) -> None:
        super().__init__()
        self._early: list[events.Event] | None = []

    def holds(self, event: events.Key | events.Paste) -> bool:
        """Whether it is kept until there is something that could take it."""
        if self._early is None:
            return False
        # What has been somewhere else already goes nowhere again.
        anew = events.Paste(event.text) if isinstance(event, events.Paste) else events.Key(event.key, event.character)
        self._early.append(anew)
        return True

    def on_screen_resume(self) -> None:
        """Take what came early."""
        early, self._early = self._early, None
        for event in early or ():
            self.app.post_message(event)

    @override
    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        # Textual would take whatever screen is on top away, and where there is none but the app's, end the program.
        return super().dismiss(result) if self.is_current else AwaitComplete()
