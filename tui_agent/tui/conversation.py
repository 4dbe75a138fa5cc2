"""The conversation pane: one widget that paints the blocks in view, however long the transcript is."""

from itertools import zip_longest
from time import monotonic
from typing import ClassVar, Final

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from typing_extensions import override

from tui_agent.tui.blocks import Block, BoundaryBlock
from tui_agent.tui.decorating import with_cursor
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.pane_extras import PaneExtras
from tui_agent.tui.selecting import encode_line, selected_text, with_selection
from tui_agent.tui.theme import UNICODE, Glyphs
from tui_agent.tui.transcript import Transcript, can_open, plain_text
from tui_agent.tui.viewport import Position, Row, Viewport

MAX_MEASURE: Final = 112
"""Cells of the column of text at most: longer lines are hard to read."""
UPDATES_PER_SECOND: Final = 15
"""How often a changing transcript is painted at most."""


class ConversationPane(ScrollView, can_focus=True, inherit_bindings=False):
    """A transcript in one line-API widget.

    It stays at the end until the user scrolls up, and returns there with End. With the focus it has a block cursor.
    """

    ALLOW_SELECT = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "cursor(-1)", "Previous block", show=False),
        Binding("down,j", "cursor(1)", "Next block", show=False),
        Binding("enter", "toggle_card", "Open or close", show=False),
        Binding("y", "copy_block", "Copy block", show=False),
        Binding("u", "undo_step", "Undo the context step", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "top", "First line", show=False),
        Binding("end", "tail", "Latest line", show=False),
        Binding("left_square_bracket", "prompt(-1)", "Previous prompt", show=False),
        Binding("right_square_bracket", "prompt(1)", "Next prompt", show=False),
        Binding("c", "copy_code", "Copy code", show=False),
        Binding("slash", "search", "Search", show=False),
        Binding("n", "search_next(True)", "Next match", show=False),
        Binding("N", "search_next(False)", "Previous match", show=False),
    ]

    class Copied(Message):
        """Text of a block was copied to the clipboard; `what` names it where it is not the whole block."""

        def __init__(self, text: str, what: str = "") -> None:
            super().__init__()
            self.text = text
            self.what = what

    class UndoAsked(Message):
        """The user wants a context step undone."""

        def __init__(self, block: BoundaryBlock) -> None:
            super().__init__()
            self.block = block

    class FollowingChanged(Message):
        """The pane left the end of the transcript, or came back to it."""

        def __init__(self, *, following: bool) -> None:
            super().__init__()
            self.following = following

    def __init__(self, transcript: Transcript, *, glyphs: Glyphs = UNICODE, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._viewport = Viewport(transcript, Look(Palette.from_theme({}), glyphs))
        self._cursor: int | None = None
        self._changed: set[int] = set()
        self._rebuild = True
        self._flush_timer: Timer | None = None
        self._flushed_at = 0.0
        self._shown: list[Row] = []
        self._was_following = True
        self._extras = PaneExtras(self)
        transcript.listen(self._on_change)

    @property
    def transcript(self) -> Transcript:
        """What is shown."""
        return self._viewport.transcript

    @property
    def following(self) -> bool:
        """Whether the pane stays at the end as the transcript grows."""
        return self._viewport.following

    @property
    def lines_below(self) -> int:
        """How many lines are below the view, as far as heights are known."""
        return max(0, self._viewport.heights.total - self._viewport.top_line - self._viewport.height)

    @property
    def cursor_block(self) -> Block | None:
        """The block under the block cursor."""
        blocks = self.transcript.blocks
        return blocks[self._cursor] if self._cursor is not None and self._cursor < len(blocks) else None

    @property
    def viewport(self) -> Viewport:
        """What is in view, after every change of the transcript so far."""
        return self._view

    @property
    def spinning(self) -> bool:
        """Whether a running call is in view."""
        return self._extras.spinning

    @property
    def look(self) -> Look:
        """Colours and symbols."""
        return self._viewport.look

    @property
    def painted_lines(self) -> int:
        """Painted lines held in memory."""
        return self._viewport.painted_lines

    def show(self, transcript: Transcript) -> None:
        """Show another transcript from its end."""
        self.transcript.listen(None)
        self._viewport = Viewport(transcript, self._viewport.look)
        self._viewport.resize(*self._measure)
        self._cursor = None
        transcript.listen(self._on_change)
        self._on_change(None)

    def set_glyphs(self, glyphs: Glyphs) -> None:
        """Draw with other symbols."""
        self._glyphs = glyphs
        self._restyle()

    # What the app asks for

    def toggle_all(self) -> None:
        """Open every card, or collapse every card."""
        self.transcript.toggle_all()
        self.flush()

    def toggle_block(self, index: int) -> None:
        """Open or collapse one card; its header stays where it is on the screen."""
        row = self._view.row_of(index)
        if self.transcript.toggle(self.transcript.blocks[index]):
            if row is None:
                self._view.settle()
            else:
                self._view.show_block(index, at_row=row)
            self._show()

    def reveal(self, block_id: int) -> None:
        """Put the block cursor on a block and scroll it into view."""
        if block := self.transcript.get(block_id):
            self._move_cursor(block.index)

    def scroll_to_tail(self) -> None:
        """Go to the end and stay there."""
        self._view.move_to_end()
        self._show()

    # Keys

    def action_cursor(self, step: int) -> None:
        """Move the block cursor; inside a block that is taller than the view, scroll first."""
        if not self.transcript.blocks:
            return
        if self._cursor is None:
            rows = self._view.rows
            self._move_cursor(rows[-1].position.block if rows else len(self.transcript) - 1)
            return
        if self._scrolled_inside(step):
            return
        self._move_cursor(min(max(0, self._cursor + step), len(self.transcript) - 1))

    def action_toggle_card(self) -> None:
        """Open or collapse the block under the cursor."""
        if (block := self.cursor_block) is not None:
            self.toggle_block(block.index)

    def action_copy_block(self) -> None:
        """Copy the selection, or else the whole block under the cursor."""
        text = self.screen.get_selected_text() or (plain_text(self.cursor_block) if self.cursor_block else "")
        if text:
            self.app.copy_to_clipboard(text)
            self.post_message(self.Copied(text))

    def action_undo_step(self) -> None:
        """Undo the context step under the cursor."""
        block = self.cursor_block
        if isinstance(block, BoundaryBlock) and block.seq and not block.undone:
            self.post_message(self.UndoAsked(block))

    def action_copy_code(self) -> None:
        """Copy the code in the block under the cursor; pressed again, the next piece of it."""
        code, what = self._extras.next_code(self.cursor_block)
        if code:
            self.app.copy_to_clipboard(code)
            self.post_message(self.Copied(code, what))

    def action_search(self) -> None:
        """Search in the conversation."""
        self._extras.begin_search()

    def action_search_next(self, forward: bool) -> None:
        """Go to the next or the previous line with the words."""
        self._extras.search_next(forward=forward)

    def go_to(self, position: Position) -> None:
        """Scroll a line into view, a third from the top, and put the block cursor on its block."""
        self._set_cursor(position.block)
        self._view.show_line(position, at_row=self._viewport.height // 3)
        self._show()

    def action_page(self, direction: int) -> None:
        """Scroll by a screen, less two lines to keep the place."""
        self._view.move(direction * max(1, self._viewport.height - 2))
        self._show()

    def action_top(self) -> None:
        """Scroll to the first line."""
        self._view.move_to_start()
        self._show()

    def action_tail(self) -> None:
        """Scroll to the last line and follow it."""
        self._cursor = None
        self.scroll_to_tail()
        self.refresh()

    def action_prompt(self, direction: int) -> None:
        """Jump to the previous or the next prompt."""
        rows = self._view.rows
        in_view = {row.position.block for row in rows}
        at = self._cursor if self._cursor in in_view else None
        if at is None:
            at = len(self.transcript) if self.following or not rows else rows[0].position.block
        find = self.transcript.previous_prompt if direction < 0 else self.transcript.next_prompt
        index = find(at)
        if index is None:
            if direction > 0:
                self.action_tail()
            return
        self._set_cursor(index)
        self._view.show_block(index)
        self._show()

    # Events

    @override
    def on_mount(self) -> None:
        """Take the theme's colours, now and whenever the theme changes."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._restyle())
        self._restyle()
        self.flush()

    def on_resize(self) -> None:
        """Paint for another size; the line at the top stays at the top."""
        self._view.resize(*self._measure)
        self.flush()
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Put the block cursor where the mouse is; open or close a card by its header."""
        if event.chain > 1 or self.text_selection is not None:
            return
        offset = event.get_content_offset(self)
        if offset is not None and self._extras.on_pill(offset):
            self.action_tail()
            return
        if offset is None or offset.y >= len(self._viewport.rows):
            return
        row = self._viewport.rows[offset.y]
        index = row.position.block
        self._set_cursor(index)
        block = self.transcript.blocks[index]
        if can_open(block) and (row.line.header or (block.collapsed and row.line.gutter > 1)):
            self.toggle_block(index)

    @override
    async def _on_key(self, event: events.Key) -> None:
        if self._extras.take_key(event):
            event.stop()
            event.prevent_default()

    def on_focus(self) -> None:
        """The block cursor appears."""
        self._refresh_block(self._cursor)

    def on_blur(self) -> None:
        """The block cursor goes, and so does a search."""
        self._extras.leave_search()
        self._refresh_block(self._cursor)

    @override
    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # Only the wheel, the scrollbar and a dragged selection set this; the pane's own moves go the other way.
        self._view.move_to_line(round(new_value))
        self._show()

    # Selection

    @override
    def text_select_all(self) -> None:
        # A double click: the block under the mouse, not the whole transcript.
        if self._cursor is not None:
            start, end = encode_line(self._cursor, 0, 0), encode_line(self._cursor + 1, 0, 0) - 1
            self.screen.selections = {self: Selection(Offset(0, start), Offset(0, end))}

    @override
    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selected_text(self._viewport, selection), "\n"

    @override
    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    # Painting

    @override
    def render_line(self, y: int) -> Strip:
        viewport = self._viewport
        if (viewport.width, viewport.height) != self._measure:
            self._view.resize(*self._measure)
            viewport.settle()
        base = viewport.look.palette.base
        if not viewport.rows:
            return Strip.blank(self.size.width, base)
        if y >= len(viewport.rows):
            blank = Strip.blank(self.size.width, base).apply_offsets(0, encode_line(*viewport.rows[-1].position))
            return self._extras.labelled(blank, y)
        position, line = viewport.rows[y]
        segments = self._extras.decorated(viewport.rows[y])
        encoded = encode_line(*position)
        if (selection := self.text_selection) is not None:
            style = self.screen.get_component_rich_style("screen--selection")
            segments = with_selection(segments, line.gutter, selection.get_span(encoded), style)
        if position.block == self._cursor and self.has_focus and line.gutter > 1:
            segments = with_cursor(segments, self._glyphs.cursor, viewport.look.palette.accent)
        strip = Strip(segments, line.width).adjust_cell_length(self.size.width, base).apply_offsets(0, encoded)
        return self._extras.labelled(strip, y)

    def _restyle(self) -> None:
        self._view.restyle(Look(Palette.from_theme(self.app.theme_variables), self._glyphs))
        self._viewport.settle()
        self.refresh()

    # Changes

    def _on_change(self, index: int | None) -> None:
        if index is None:
            self._rebuild = True
        else:
            self._changed.add(index)
        if self._flush_timer is None and self.is_mounted:
            waited = monotonic() - self._flushed_at
            self._flush_timer = self.set_timer(max(0.001, 1 / UPDATES_PER_SECOND - waited), self.flush)

    def flush(self) -> None:
        """Bring the screen up to date with the transcript."""
        if self._flush_timer is not None:
            self._flush_timer.stop()
            self._flush_timer = None
        self._flushed_at = monotonic()
        self._view.settle()
        self._show()

    @property
    def _measure(self) -> tuple[int, int]:
        """Cells of a line and lines in view; one cell of air stays free before the scrollbar."""
        width, height = self.scrollable_content_region.size
        return max(1, min(width - 1, MAX_MEASURE)), max(1, height)

    @property
    def _view(self) -> Viewport:
        """The viewport, after every change of the transcript so far has reached it."""
        if self._rebuild:
            self._viewport.rebuild()
            if self._cursor is not None and self._cursor >= len(self.transcript):
                self._cursor = None
        else:
            for index in sorted(self._changed):
                self._viewport.update(index)
        self._rebuild = False
        self._changed.clear()
        return self._viewport

    def _show(self) -> None:
        """Move the scrollbar to where the viewport is, and paint the rows that differ from those on the screen."""
        viewport = self._viewport
        self._place_scrollbar(Size(viewport.width, max(1, viewport.heights.total)), viewport.top_line)
        rows, shown = viewport.rows, self._shown
        changed = [
            number
            for number, (new, old) in enumerate(zip_longest(rows, shown))
            if new is None or old is None or new.line is not old.line or new.position != old.position
        ]
        self._shown = rows
        if changed:
            self.refresh(Region(0, changed[0], self.size.width, changed[-1] - changed[0] + 1))
        self._extras.shown()
        if viewport.following != self._was_following:
            self._was_following = viewport.following
            self.post_message(self.FollowingChanged(following=viewport.following))

    def _place_scrollbar(self, size: Size, top: int) -> None:
        # The reactive attributes would lay out the whole screen and call back into this pane.
        _set_quietly(self, Widget.scroll_y, float(top))
        _set_quietly(self, Widget.scroll_target_y, float(top))
        if size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)
            if self.show_vertical_scrollbar:
                self.vertical_scrollbar.window_virtual_size = size.height
                self.vertical_scrollbar.window_size = self._viewport.height
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = top

    # The block cursor

    def _set_cursor(self, index: int) -> None:
        before, self._cursor = self._cursor, index
        self._refresh_block(before)
        self._refresh_block(index)

    def _move_cursor(self, index: int) -> None:
        self._set_cursor(index)
        self._view.bring_into_view(index)
        self._show()

    def _scrolled_inside(self, step: int) -> bool:
        rows = self._view.rows
        edge = rows[-1 if step > 0 else 0].position
        first = self._viewport.first_line(edge.block)
        if edge.block != self._cursor or (step < 0 and edge <= first):
            return False
        top = self._viewport.top_line
        self._viewport.move(step * max(1, self._viewport.height // 2))
        self._show()
        return self._viewport.top_line != top

    def _refresh_block(self, index: int | None) -> None:
        places = [number for number, row in enumerate(self._viewport.rows) if row.position.block == index]
        if places:
            self.refresh(Region(0, places[0], self.size.width, len(places)))


def _set_quietly(widget: Widget, reactive: Reactive[float], value: float) -> None:
    widget.set_reactive(reactive, value)
