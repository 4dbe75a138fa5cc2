"""The widget that paints a transcript: lines as they come into view, scrolling, and updates after changes."""

from collections.abc import Sequence
from itertools import zip_longest
from math import ceil
from time import monotonic
from typing import Final

from rich.segment import Segment
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget
from typing_extensions import override

from tui_agent.tui.cards.base import Block
from tui_agent.tui.painting.glyphs import BEAT_S, until_beat
from tui_agent.tui.painting.lines import MAX_MEASURE, Line
from tui_agent.tui.painting.palette import NO_LOOK, Look
from tui_agent.tui.pane.overlays import with_cursor, with_selection
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.viewport import Follower, Position, Viewport, ViewportLine, encode_line
from tui_agent.tui.terminal.textual_internals import SteadyScrollView

_EIGHTHS: Final = 8
"""Steps per cell in which Textual can draw a scrollbar."""
KEPT_SCREENS: Final = 4
"""The strip cache holds this many screens of lines at most."""


class TranscriptView(SteadyScrollView, can_focus=True, inherit_bindings=False):
    """A transcript in one line-API widget, with a block cursor while it has the focus.

    It follows the end until it is scrolled up.
    """

    def __init__(self, transcript: Transcript, *, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._follower = Follower(Viewport(transcript, NO_LOOK), self._on_change)
        self._cursor: int | None = None
        self._flush_timer: Timer | None = None
        self._flushed_at = 0.0
        self._held = False
        self._shown: list[ViewportLine] = []
        self._strips: dict[Position, tuple[Line, Strip]] = {}
        self._kept_free = 0
        self._thumb = (0, 0), 0
        self.paintings = 0
        """How often it has been painted."""

    @property
    def transcript(self) -> Transcript:
        return self._viewport.transcript

    @property
    def following(self) -> bool:
        """Whether the pane stays at the end as the transcript grows."""
        return self._viewport.following

    @property
    def cursor_block(self) -> Block | None:
        blocks = self.transcript.blocks
        return blocks[self._cursor] if self._cursor is not None and self._cursor < len(blocks) else None

    @property
    def viewport(self) -> Viewport:
        """The viewport, up to date with the transcript."""
        return self._view

    @property
    def look(self) -> Look:
        return self._viewport.look

    def follower(self, transcript: Transcript) -> Follower:
        """Measure another transcript while it is filled, so that `show` need only paint what is in view."""
        viewport = Viewport(transcript, self._viewport.look)
        viewport.resize(*self._measure)
        return Follower(viewport)

    def show(self, shown: Transcript | Follower) -> None:
        """Show another transcript from its end."""
        self.transcript.listen(None)
        self._take(self.follower(shown) if isinstance(shown, Transcript) else shown)
        self.flush()

    def _take(self, follower: Follower) -> None:
        look = self._viewport.look
        self._follower = follower
        self._follower.when_changed = self._on_change
        if self._viewport.look is not look:
            self._viewport.restyle(look)
        self._viewport.resize(*self._measure)
        self._cursor = None
        # An app that ends takes the pane off its screen, perhaps while a branch is being filled.
        if self.is_attached and self.text_selection is not None:
            self.screen.clear_selection()

    def show_more(self, follower: Follower, above: int) -> None:
        """Show a longer version of this transcript without moving what is in view.

        It begins with copies of this one's first `above` blocks, then earlier history, then the remaining blocks.
        """
        before, cursor = self._view, self.cursor_block
        rows = [(before.transcript.blocks[row.position.block], row.position) for row in before.rows]
        following = before.following
        before.transcript.listen(None)
        self._take(follower)
        blocks = self.transcript.blocks
        self._cursor = cursor.index if cursor is not None and _stands(cursor, blocks) else None
        if rows and not following:
            number = next((number for number, (block, _) in enumerate(rows) if _stands(block, blocks)), 0)
            block, position = rows[number]
            self._view.place(position._replace(block=block.index), at_row=number)
        self.flush()

    # Moving

    def scroll_to_tail(self) -> None:
        self._view.move_to_end()
        self._show()

    def go_to(self, position: Position) -> None:
        """Scroll a line into view, a third from the top, and put the block cursor on its block."""
        self._set_cursor(position.block)
        self._view.show_line(position, at_row=self._viewport.height // 3)
        self._show()

    # Events

    @override
    def on_mount(self) -> None:
        """Use the theme's colours, now and whenever the theme changes."""
        self.app.theme_changed_signal.subscribe(self, lambda _theme: self._restyle())
        self._restyle()
        self.flush()

    def on_resize(self) -> None:
        """Repaint for the new size; the line at the top stays at the top."""
        self._view.resize(*self._measure)
        self.flush()
        self.refresh()

    @override
    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        # Set by the wheel, the scrollbar and a dragged selection; the pane's own moves do not call this. A layout
        # sets it too, when estimated heights put it past the end: that must not stop following the end.
        if self._viewport.following and new_value >= self.max_scroll_y:
            return
        self._view.move_to_line(round(new_value))
        self._show()

    # Painting

    @override
    def render_lines(self, crop: Region) -> list[Strip]:
        # Like Textual's own for a widget without border and padding, but with our cached strips: a strip caches its
        # rendering, so a line that has only moved costs next to nothing.
        if self.styles.gutter or self.opacity < 1 or self.styles.tint.a:
            return super().render_lines(crop)
        self.paintings += 1
        self._check_size()
        _, background = self.background_colors
        selection, focused = self.text_selection, self.has_focus
        strips = [self._strip(y, selection, focused=focused) for y in crop.line_range]
        strips = [strip.adjust_cell_length(self.region.width) for strip in strips]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        if crop.column_span == (0, self.region.width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    @override
    def render_line(self, y: int) -> Strip:
        self._check_size()
        return self._strip(y, self.text_selection, focused=self.has_focus)

    def _check_size(self) -> None:
        """Notice a change of size before its resize event arrives."""
        if (self._viewport.width, self._viewport.height) != self._measure:
            self._view.resize(*self._measure)
            self._viewport.settle()

    def _strip(self, y: int, selection: Selection | None, *, focused: bool) -> Strip:
        viewport = self._viewport
        base = viewport.look.palette.base
        if not viewport.rows:
            return Strip.blank(self.size.width, base)
        if y >= len(viewport.rows):
            blank = Strip.blank(self.size.width, base).apply_offsets(0, encode_line(*viewport.rows[-1].position))
            return self._labelled(blank, y)
        position, line = viewport.rows[y]
        segments = self._decorated(viewport.rows[y])
        cursor = focused and position.block == self._cursor and line.gutter > 1
        if segments is line.segments and selection is None and not cursor:
            return self._labelled(self._plain_strip(viewport.rows[y]), y)
        encoded = encode_line(*position)
        if selection is not None:
            segments = with_selection(
                segments, line.gutter, selection.get_span(encoded), viewport.look.palette.selected
            )
        if cursor:
            segments = with_cursor(segments, viewport.look.glyphs.cursor, viewport.look.palette.accent)
        strip = Strip(segments, line.width).adjust_cell_length(self.size.width, base).apply_offsets(0, encoded)
        return self._labelled(strip, y)

    def _plain_strip(self, row: ViewportLine) -> Strip:
        """A line without overlays. Its strip is cached while in view, since Textual caches the rendering in it."""
        position, line = row
        width = self.size.width
        known, strip = self._strips.get(position, (None, None))
        if strip is None or known is not line or strip.cell_length != width:
            strip = Strip(line.segments, line.width).adjust_cell_length(width, self._viewport.look.palette.base)
            strip = strip.apply_offsets(0, encode_line(*position))
            self._strips[position] = line, strip
        return strip

    def _decorated(self, row: ViewportLine) -> Sequence[Segment]:
        return row.line.segments

    def _labelled(self, strip: Strip, y: int) -> Strip:
        """A row of the view with the label that covers part of it, if any."""
        return strip

    def _after_show(self) -> None:
        """Called when other rows came into view."""

    def _restyle(self) -> None:
        self._view.restyle(Look.of(self.app))
        self._viewport.settle()
        self._strips.clear()
        self.refresh()

    # Changes

    def _on_change(self) -> None:
        if self._flush_timer is None and self.is_mounted and not self._held:
            rested = monotonic() - self._flushed_at >= BEAT_S
            self._flush_timer = self.set_timer(0.001 if rested else until_beat(), self.flush)

    def flush(self) -> None:
        """Bring the screen up to date with the transcript."""
        if self._flush_timer is not None:
            self._flush_timer.stop()
            self._flush_timer = None
        self._flushed_at, self._held = monotonic(), False
        self._view.settle()
        self._show()

    def hold(self) -> None:
        """Stop painting until `flush`, before many changes at once."""
        self._held = True

    def take_in(self) -> None:
        """Measure the changes so far, so that the final paint costs only what is in view."""
        _ = self._view

    @property
    def _measure(self) -> tuple[int, int]:
        """Width of a line in cells and number of lines in view; one cell before the scrollbar stays blank."""
        width, height = self.scrollable_content_region.size
        return max(1, min(width - 1, MAX_MEASURE)), max(1, height - self._kept_free)

    def _keep_free(self, lines: int) -> None:
        """Reserve this many lines below the transcript for something else."""
        if self._kept_free != lines:
            self._kept_free = lines
            self.on_resize()

    @property
    def _view(self) -> Viewport:
        """The viewport, up to date with the transcript."""
        viewport = self._follower.take_in()
        if self._cursor is not None and self._cursor >= len(viewport.transcript):
            self._cursor = None
        return viewport

    @property
    def _viewport(self) -> Viewport:
        """The viewport without the latest changes."""
        return self._follower.viewport

    def _show(self) -> None:
        """Move the scrollbar to the viewport's place and repaint the rows that differ from those on the screen."""
        viewport = self._viewport
        self._place_scrollbar(Size(viewport.width, max(1, viewport.heights.total)), viewport.top_line)
        rows, shown = viewport.rows, self._shown
        changed = [
            number
            for number, (new, old) in enumerate(zip_longest(rows, shown))
            if new is None or old is None or new.line is not old.line or new.position != old.position
        ]
        self._shown = rows
        if len(self._strips) > KEPT_SCREENS * viewport.height:
            self._strips = {row.position: self._strips[row.position] for row in rows if row.position in self._strips}
        if changed:
            self.refresh(Region(0, changed[0], self.size.width, changed[-1] - changed[0] + 1))
        self._after_show()

    def _place_scrollbar(self, size: Size, top: int) -> None:
        # Setting the reactive attributes would lay out the whole screen and call back into this pane.
        self.set_reactive(Widget.scroll_y, float(top))
        self.set_reactive(Widget.scroll_target_y, float(top))
        if size != self.virtual_size:
            self.set_reactive(Widget.virtual_size, size)
        if not self.show_vertical_scrollbar:
            return
        window = self._viewport.height
        # Painting the bar costs as much as painting the text beside it, so it is updated only for visible changes; in
        # whole cells while following the end of a growing text.
        thumb = _thumb(size.height, window, top, parts=1 if self._viewport.following else _EIGHTHS)
        if (thumb, window) != self._thumb:
            self._thumb = thumb, window
            bar = self.vertical_scrollbar
            bar.window_virtual_size, bar.window_size, bar.position = size.height, window, top

    # The block cursor

    def _set_cursor(self, index: int) -> None:
        before, self._cursor = self._cursor, index
        self._refresh_block(before)
        self._refresh_block(index)

    def _move_cursor(self, index: int) -> None:
        self._set_cursor(index)
        self._view.bring_into_view(index)
        self._show()

    def _refresh_block(self, index: int | None) -> None:
        places = [number for number, row in enumerate(self._viewport.rows) if row.position.block == index]
        if places:
            self.refresh(Region(0, places[0], self.size.width, len(places)))


def _stands(block: Block, blocks: Sequence[Block]) -> bool:
    return block.index < len(blocks) and blocks[block.index] is block


def _thumb(lines: int, window: int, top: int, *, parts: int) -> tuple[int, int]:
    """Start and length of the thumb of a scrollbar that is `window` cells high, in 1/`parts` of a cell."""
    size = max(1.0, window * window / max(1, lines))
    place = (window - size) * top / max(1, lines - window)
    return int(place * parts), ceil(size * parts)
