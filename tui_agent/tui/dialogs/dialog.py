"""What every dialog is: a screen over the screen, which ends once."""

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType
from typing_extensions import override


class Dialog(ModalScreen[ScreenResultType]):
    """Ends with the first answer; keys that came in the same moment find it gone."""

    @override
    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        # Textual would take whatever screen is on top away, and where there is none but the app's, end the program.
        return super().dismiss(result) if self.is_current else AwaitComplete()
