"""A place to write, which uses parts of Textual as `textual_internals` does: as if typed, and with an undo that ends no
program.
"""

from textual.geometry import Offset
from textual.widgets import TextArea
from typing_extensions import override

from tui_agent.tui.textual_internals import is_known


class SteadyTextArea(TextArea):
    """A place to write whose text may become shorter by an undo."""

    @override
    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        # Textual 8.2.8 follows the cursor in the middle of an undo, where it can stand on a line that is gone already.
        if self.cursor_location[0] >= self.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)


def write_as_typed(area: TextArea, text: str, start: tuple[int, int], end: tuple[int, int]) -> None:
    """Put a text in place of what is between two places, so that it is undone like something typed."""
    if is_known():
        area._replace_via_keyboard(text, start, end)
    else:
        area.replace(text, start, end)
