"""What the pane shows over its lines: matches of a search, spinners of running calls, how much is new below, and what
can be done with a message of the user's.
"""

from collections.abc import Sequence
from time import monotonic

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Region
from textual.strip import Strip
from textual.timer import Timer

from tui_agent.tui.app.theme import ASCII
from tui_agent.tui.cards.blocks import Block, ProseBlock, ReasoningBlock, ToolBlock, ToolState, UserBlock
from tui_agent.tui.cards.fences import fenced_code
from tui_agent.tui.pane.decorating import (
    SPIN_S,
    SPINNER,
    SPINNER_ASCII,
    with_hint,
    with_label,
    with_spinner,
    with_words,
)
from tui_agent.tui.pane.searching import Search, Typed
from tui_agent.tui.pane.transcript import message_number, plain_text
from tui_agent.tui.pane.transcript_view import TranscriptView
from tui_agent.tui.pane.viewport import Row


class PaneExtras:
    """Belongs to one pane; keeps nothing that the transcript knows."""

    def __init__(self, pane: TranscriptView) -> None:
        self._pane = pane
        self.search = Search()
        self._timer: Timer | None = None
        self._left_at: tuple[int, int] | None = None
        self._label = ""
        self._leads_to_end = False
        self._hint_at: int | None = None
        self._copied = (0, -1)

    def forget(self) -> None:
        """Another transcript is shown."""
        self._left_at = None
        self.leave_search()

    def cursor_moved(self) -> None:
        """The block cursor is on another block, or came or went."""
        self._show_label()

    # Lines

    def decorated(self, row: Row) -> Sequence[Segment]:
        """The segments of a line with what stands over them."""
        segments: Sequence[Segment] = row.line.segments
        pane = self._pane
        if row.line.header and self._timer is not None and self._spins(row):
            frames = SPINNER_ASCII if pane.look.glyphs is ASCII else SPINNER
            segments = with_spinner(segments, pane.look.glyphs.running, frames[int(monotonic() / SPIN_S) % len(frames)])
        if self.search.words:
            here = row.position == self.search.at
            style = pane.look.palette.accent + Style(reverse=here, underline=not here, bold=True)
            segments = with_words(segments, row.line.gutter, self.search.words, style)
        return segments

    def labelled(self, strip: Strip, y: int) -> Strip:
        """The last line of the view with the search, or with how much is new below it; and the line below a message."""
        if y == self._hint_at:
            strip = with_hint(strip, self._message_keys, self._pane.look)
        if not self._label or y != self._last_row:
            return strip
        return with_label(strip, self._label, self._pane.look.palette.inline_code, right=not self._searching)

    def shown(self) -> None:
        """The pane has other rows now."""
        self._remember_the_end()
        self._run_timer()
        self._show_label()

    # Search

    def begin_search(self) -> None:
        """Take words from the keyboard."""
        rows = self._pane.viewport.rows
        self.search.begin(rows[0].position if rows else None)
        self._show_label()

    def take_key(self, event: events.Key) -> bool:
        """Whether a key belongs to the search."""
        if not self.search.typing:
            if event.key == "escape" and self.search.words:
                self.leave_search()
                return True
            return False
        if event.character is None and event.key not in ("escape", "enter", "backspace"):
            return False
        typed = self.search.take(event)
        if typed is Typed.CHANGED and len(self._pane.transcript):
            place = self.search.first(self._pane.viewport)
            if place is not None:
                self._pane.go_to(place)
        self._show_label()
        self._pane.refresh()
        return True

    def search_next(self, *, forward: bool) -> None:
        """Go to the next line with the words, or to the one before."""
        if not self.search.words or not len(self._pane.transcript):
            return
        place = self.search.next(self._pane.viewport, forward=forward)
        if place is not None:
            self._pane.go_to(place)
        self._show_label()
        self._pane.refresh()

    def leave_search(self) -> None:
        """Search for nothing."""
        if self._searching:
            self.search.leave()
            self._show_label()
            self._pane.refresh()

    @property
    def _searching(self) -> bool:
        return self.search.typing or bool(self.search.words)

    # Code

    def next_code(self, block: Block | None) -> tuple[str, str]:
        """The code of a block to copy now, and which piece of it that is; the block itself where it is all code."""
        if block is None:
            return "", ""
        if not isinstance(block, (ProseBlock, ReasoningBlock, UserBlock)):
            code = [block.diff or block.result or block.tail] if isinstance(block, ToolBlock) else []
        else:
            code = fenced_code(plain_text(block))
        if not code:
            return "", ""
        last_block, last = self._copied
        number = (last + 1) % len(code) if last_block == block.id else 0
        self._copied = (block.id, number)
        return code[number], f"code {number + 1} of {len(code)}" if len(code) > 1 else "code"

    # What is new below

    def on_pill(self, offset: Offset) -> bool:
        """Whether a place on the pane is on the label that leads to the end."""
        if not self._label or not self._leads_to_end or offset.y != self._last_row:
            return False
        return offset.x >= self._pane.size.width - cell_len(self._label)

    def _remember_the_end(self) -> None:
        pane = self._pane
        if pane.following or not len(pane.transcript):
            self._left_at = None
        elif self._left_at is None:
            last = len(pane.transcript) - 1
            self._left_at = (last, pane.viewport.heights[last])

    def _new_lines(self) -> int:
        pane = self._pane
        if self._left_at is None or self._left_at[0] >= len(pane.viewport.heights):
            return 0
        index, height = self._left_at
        heights = pane.viewport.heights
        return max(0, heights.total - heights.start_of(index) - height)

    def _show_label(self) -> None:
        glyphs = self._pane.look.glyphs
        label, self._leads_to_end = "", False
        message_ends = self._end_of_message()
        hint_at = self._blank_below(message_ends) if message_ends is not None else None
        if hint_at != self._hint_at:
            for row in (self._hint_at, hint_at):
                if row is not None:
                    self._pane.refresh(Region(0, row, self._pane.size.width, 1))
            self._hint_at = hint_at
        if self._searching:
            label = self.search.label(glyphs)
        elif count := self._new_lines():
            label, self._leads_to_end = f" {count:,} new line{'s' if count > 1 else ''} {glyphs.dot} End ", True
        elif message_ends is not None and hint_at is None:
            label = f" {self._message_keys} "
        if label != self._label:
            self._label = label
            self._pane.refresh(Region(0, self._last_row, self._pane.size.width, 1))

    @property
    def _message_keys(self) -> str:
        """What can be done with a message of the user's."""
        return f"r rewinds to before it {self._pane.look.glyphs.dot} f forks after it"

    def _end_of_message(self) -> int | None:
        """The last row of the user's message under the block cursor; None: there is none in view."""
        block = self._pane.cursor_block
        if block is None or not self._pane.has_focus or not message_number(block):
            return None
        rows = enumerate(self._pane.viewport.rows)
        return max((number for number, row in rows if row.position.block == block.index), default=None)

    def _blank_below(self, row: int) -> int | None:
        """The row below this one, where it is in view and nothing stands on it."""
        rows, below = self._pane.viewport.rows, row + 1
        blank = below >= len(rows) or not rows[below].line.text.strip()
        return below if blank and below <= self._last_row else None

    @property
    def _last_row(self) -> int:
        return max(0, self._pane.scrollable_content_region.height - 1)

    # Spinners

    @property
    def spinning(self) -> bool:
        """Whether the timer runs."""
        return self._timer is not None

    def _spins(self, row: Row) -> bool:
        block = self._pane.transcript.blocks[row.position.block]
        return isinstance(block, ToolBlock) and block.state is ToolState.RUNNING

    def _run_timer(self) -> None:
        """A timer runs only while a running call is in view."""
        pane = self._pane
        spins = pane.app.animation_level != "none" and any(
            row.line.header and self._spins(row) for row in pane.viewport.rows
        )
        if spins and self._timer is None:
            self._timer = pane.set_interval(SPIN_S, self._spin)
        elif not spins and self._timer is not None:
            self._timer.stop()
            self._timer = None

    def _spin(self) -> None:
        for number, row in enumerate(self._pane.viewport.rows):
            if row.line.header and row.position.block < len(self._pane.transcript) and self._spins(row):
                self._pane.refresh(Region(0, number, self._pane.size.width, 1))
