"""The first frame: the welcome, an empty prompt, and the status bar below them.

The first two are only drawn here. The real widgets, which look the same, replace them as soon as they are imported
(`Host.complete_screen`).
"""

from collections.abc import Sequence
from typing import Final

from textual.content import Content
from textual.events import Key
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget
from typing_extensions import override

from tui_agent.tui.cards.base import Block
from tui_agent.tui.painting.lines import MAX_MEASURE
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.pane.block_painting import all_lines
from tui_agent.tui.wording import PLACEHOLDER

_MARGIN: Final = 2
"""Cells beside the text of the conversation: a blank one and the scrollbar."""


class FirstPicture(Widget):
    """A drawing of a widget, shown until the real one is mounted."""

    # Textual accesses the parent of a selected widget, which this one no longer has while it is being removed.
    ALLOW_SELECT = False


class DrawnPane(FirstPicture):
    """A drawing of the empty conversation."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self._blocks = blocks

    @override
    def render_lines(self, crop: Region) -> list[Strip]:
        look = Look.of(self.app)
        width, height = self.size
        lines = all_lines(self._blocks, max(1, min(width - _MARGIN, MAX_MEASURE)), look)[-height:]
        strips = [Strip(line.segments, line.width).adjust_cell_length(width, look.palette.base) for line in lines]
        strips += [Strip.blank(width, look.palette.base)] * (height - len(strips))
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, self.background_colors[1]) for strip in strips]
        return [strips[y].crop(*crop.column_span) for y in crop.line_range]


class DrawnPrompt(FirstPicture):
    """A drawing of the empty prompt, and of the letters typed before the real one is there, which gets them then."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = ""
        self._follows = True

    def type(self, key: Key) -> None:
        """Show a letter, or one less; what follows any other key is seen only in the real prompt."""
        self._follows = self._follows and (key.is_printable or key.key == "backspace")
        if self._follows:
            self.letters = self.letters[:-1] if key.key == "backspace" else self.letters + (key.character or "")
            self.refresh()

    @override
    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return 1

    @override
    def render(self) -> Content:
        """The placeholder, with the cursor on its first letter."""
        theme = self.app.current_theme
        cursor = "$input-cursor-foreground on $input-cursor-background"
        if theme.ansi:
            cursor += " reverse"
        elif not theme.dark:
            cursor = "$text 90% on $foreground 70%"
        if self.letters:
            return Content.assemble(self.letters[1 - self.content_size.width :], (" ", cursor))
        text = PLACEHOLDER[: max(0, self.content_size.width)]
        return Content.assemble((text[:1], cursor), (text[1:], "$text 40%"))
