"""A list that paints only the rows in view, with a cursor that stops only at rows that can be chosen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import msgspec
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from typing_extensions import override

from tui_agent.conversation.items import LazySequence
from tui_agent.text import clean
from tui_agent.tui.actions import bindings
from tui_agent.tui.painting.lines import Line, Run, crop, fit, make_line
from tui_agent.tui.painting.palette import NO_LOOK, Look

Draw = Callable[[int, Look], Line]
"""Paints a row at a width in cells."""

MARGIN: Final = 1
"""Blank cells between a row and the scrollbar."""


class ListRow(msgspec.Struct, frozen=True):
    """One line. `key` identifies what it stands for; None: it cannot be chosen."""

    draw: Draw
    key: object = None


def plain_row(*pieces: tuple[str, str], key: object = None) -> ListRow:
    """A row of (text, style) pieces; a style is the name of a field of `Palette`."""
    return ListRow(partial(_draw_pieces, pieces), key)


def _draw_pieces(pieces: Sequence[tuple[str, str]], width: int, look: Look) -> Line:
    runs: list[Run] = []
    left = width
    for text, name in pieces:
        style = getattr(look.palette, name)
        shown = fit(clean(text).replace("\n", " "), left, look.glyphs.ellipsis)
        left -= cell_len(shown)
        if shown and isinstance(style, Style):
            runs.append(Run(shown, style))
    return make_line(runs or [Run(" ", look.palette.base)])


class Rows(LazySequence[ListRow]):
    """A sequence that can create its rows on access. This base class holds rows that exist already."""

    def __init__(self, rows: Sequence[ListRow] = ()) -> None:
        self._made = rows

    def place_of(self, key: object) -> int | None:
        """The index of the first row with this key, or None."""
        return next((place for place, row in enumerate(self._made) if row.key == key), None)

    @override
    def __len__(self) -> int:
        return len(self._made)

    @override
    def element(self, place: int) -> ListRow:
        return self._made[place]


class RowList(ScrollView, can_focus=True, inherit_bindings=False):
    """A widget with any number of rows. If none of them can be chosen, the arrow keys scroll."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("context", "list.")]

    @dataclass
    class Chosen(Message):
        """The row under the cursor was clicked a second time."""

        key: object

    class Moved(Message):
        """The cursor has moved to another row."""

    class Resized(Message):
        """Another number of rows, or of their cells, is in view."""

    def __init__(
        self,
        *,
        in_dialog: bool = False,
        keys_elsewhere: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> None:
        """`in_dialog`: use a dialog's background colour. `keys_elsewhere`: another widget has the focus and moves the
        cursor, so the cursor is always shown.
        """
        super().__init__(id=id)
        self.can_focus = not keys_elsewhere
        self._in_dialog = in_dialog
        self._look = NO_LOOK
        self._rows = Rows()
        self._cursor: int | None = None

    @property
    def measure(self) -> int:
        return max(1, self.scrollable_content_region.width - MARGIN)

    @property
    def key(self) -> object:
        return self._rows[self._cursor].key if self._cursor is not None else None

    def show(self, rows: Sequence[ListRow]) -> None:
        """Show other rows. The cursor stays on the row with the same key, if there is one, and in view if it was."""
        before, place = self.key, self._cursor
        was_in_view = place is not None and 0 <= place - round(self.scroll_y) < self.size.height
        self._rows = rows if isinstance(rows, Rows) else Rows(rows)
        self._cursor = None
        if before is not None:
            self._cursor = self._rows.place_of(before)
            if self._cursor is None and place is not None:
                self._cursor = self._nearest(min(place, len(rows) - 1), -1)
        self._measure()
        if was_in_view and self._cursor is not None:
            self._bring_into_view(self._cursor)
        self.refresh()

    @override
    def on_mount(self) -> None:
        """Use the theme's colours, now and whenever the theme changes."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._restyle())
        self._restyle()

    def on_unmount(self) -> None:
        """Unsubscribe: the signal would keep the list and its rows until the theme changes."""
        self.app.theme_changed_signal.unsubscribe(self)

    def go_to(self, key: object) -> None:
        """Put the cursor on the row with this key, and scroll that to the top."""
        place = self._rows.place_of(key)
        if place is not None:
            self.scroll_to(y=place - 1, animate=False, immediate=True)
            self._move_to(place)

    def on_resize(self) -> None:
        self._measure()
        self.refresh()
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the row; a second click chooses it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        place = offset.y + round(self.scroll_y)
        if place < len(self._rows) and self._rows[place].key is not None:
            if place == self._cursor:
                self.post_message(self.Chosen(self._rows[place].key))
            self._move_to(place)

    def action_cursor(self, step: int) -> None:
        """Go to the next row that can be chosen; if none is in view, scroll."""
        first = round(self.scroll_y)
        start = self._cursor
        if start is None or not first <= start < first + self.size.height:
            start = first - 1 if step > 0 else first + self.size.height
        place = self._next(start, step)
        if place is None or not first - 1 <= place <= first + self.size.height:
            self.scroll_to(y=first + step, animate=False, immediate=True)
            if place is None or abs(place - start) > self.size.height:
                return
        self._move_to(place)

    def action_page(self, direction: int) -> None:
        """Scroll by a page, and the cursor with it."""
        step = direction * max(1, self.size.height - 1)
        self.scroll_to(y=self.scroll_y + step, animate=False, immediate=True)
        if self._cursor is not None:
            goal = min(max(0, self._cursor + step), len(self._rows) - 1)
            place = self._nearest(goal, direction)
            if place is not None:
                self._move_to(place)

    def action_edge(self, direction: int) -> None:
        self.scroll_to(y=0 if direction < 0 else len(self._rows), animate=False, immediate=True)
        place = self._next(-1, 1) if direction < 0 else self._next(len(self._rows), -1)
        if place is not None:
            self._cursor = place
            self.post_message(self.Moved())
            self.refresh()

    @override
    def render_line(self, y: int) -> Strip:
        width, base = self.scrollable_content_region.width, self._look.palette.base
        place = y + round(self.scroll_y)
        if place >= len(self._rows):
            return Strip.blank(width, base)
        line = crop(self._rows[place].draw(self.measure, self._look), width)
        segments = line.segments
        unmarked = place != self._cursor or (self.can_focus and not self.has_focus)
        if unmarked or not segments or not segments[0].text.startswith(" "):
            return Strip(segments, line.width).adjust_cell_length(width, base)
        first, *others = segments
        cursor = Segment(self._look.glyphs.cursor, self._look.palette.accent)
        strip = Strip((cursor, Segment(first.text[1:], first.style), *others), line.width)
        ground = Style(bgcolor=self._look.palette.inline_code.bgcolor)
        return Strip(Segment.apply_style(strip.adjust_cell_length(width, base), post_style=ground), width)

    def _restyle(self) -> None:
        self._look = Look.of(self.app, in_dialog=self._in_dialog)
        self.refresh()

    def _measure(self) -> None:
        self.virtual_size = Size(max(1, self.scrollable_content_region.width), len(self._rows))

    def _move_to(self, place: int) -> None:
        self._cursor = place
        self.post_message(self.Moved())
        self._bring_into_view(place)
        self.refresh()

    def _bring_into_view(self, place: int) -> None:
        top, height = round(self.scroll_y), max(1, self.size.height)
        if place < top:
            self.scroll_to(y=place, animate=False, immediate=True)
        elif place >= top + height:
            self.scroll_to(y=place - height + 1, animate=False, immediate=True)

    def _next(self, start: int, step: int) -> int | None:
        # `start` may be below the last row of a short list.
        places = range(min(start, len(self._rows)) + step, len(self._rows) if step > 0 else -1, step)
        return next((place for place in places if self._rows[place].key is not None), None)

    def _nearest(self, place: int, direction: int) -> int | None:
        if not 0 <= place < len(self._rows):
            return None
        found = self._next(place - direction, direction)
        return found if found is not None else self._next(place + direction, -direction)
