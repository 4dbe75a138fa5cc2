"""The conversation pane: key and mouse handling for a transcript, and the overlays drawn on its lines: search hits,
spinners of running calls, the count of new lines below, and the keys that act on a message of the user's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Offset, Region
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.timer import Timer
from typing_extensions import override

from tui_agent.tui.actions import bindings
from tui_agent.tui.cards.blocks import Block, BoundaryBlock, ProseBlock
from tui_agent.tui.keys import Keymap
from tui_agent.tui.painting.glyphs import SPIN_S, spinner
from tui_agent.tui.pane.overlays import with_hint, with_label, with_spinner
from tui_agent.tui.pane.search import PaneSearch, Typed, with_words
from tui_agent.tui.pane.transcript import Transcript
from tui_agent.tui.pane.transcript_view import TranscriptView
from tui_agent.tui.pane.viewport import Follower, ViewportLine, encode_line, selected_text

_COUNT_S: Final = 0.001
"""Seconds of pause between two slices of counting hits, so that keys are handled."""


class ConversationPane(TranscriptView, inherit_bindings=False):
    """Lets the user read, open, copy and search the transcript. The End key returns to its end."""

    ALLOW_SELECT = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("conversation")]

    @dataclass
    class Copied(Message):
        """Text was copied to the clipboard; `what` names the part, empty for a whole block."""

        text: str
        what: str = ""

    @dataclass
    class UndoAsked(Message):
        """The user wants a context step undone."""

        block: BoundaryBlock

    @dataclass
    class RewindAsked(Message):
        """The user wants to rewind to before the message with this number."""

        seq: int

    @dataclass
    class ForkAsked(Message):
        """The user wants to fork the conversation after the message with this number."""

        seq: int

    def __init__(
        self,
        transcript: Transcript,
        *,
        keymap: Keymap | None = None,
        id: str | None = None,  # noqa: A002
    ) -> None:
        super().__init__(transcript, id=id)
        self._keymap = keymap or Keymap()
        self._search = PaneSearch()
        self._spinner: Timer | None = None
        self._counting: Timer | None = None
        self._left_at: tuple[int, int] | None = None
        self._label = ""
        self._leads_to_end = False
        self._hint_at: int | None = None
        self._copied = (0, -1)

    # Called by the app

    @override
    def show(self, shown: Transcript | Follower) -> None:
        """Show another transcript from its end."""
        self._left_at = None
        self._leave_search()
        super().show(shown)

    @override
    def show_more(self, follower: Follower, above: int) -> None:
        self._left_at = None
        self._search.forget_places()
        super().show_more(follower, above)
        if self._search.missing:
            place = self._search.first(self._view)
            if place is not None:
                self.go_to(place)
        if self._search.active:
            self._search_changed()

    def toggle_all(self) -> None:
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
        if (block := self.cursor_block) is not None:
            self.toggle_block(block.index)

    def action_copy_block(self) -> None:
        self._copy(self.screen.get_selected_text() or (self.cursor_block.plain_text if self.cursor_block else ""))

    def action_undo_step(self) -> None:
        block = self.cursor_block
        if isinstance(block, BoundaryBlock) and block.seq and not block.undone:
            self.post_message(self.UndoAsked(block))

    def action_rewind(self) -> None:
        if self.cursor_block is not None and (seq := self.cursor_block.message):
            self.post_message(self.RewindAsked(seq))

    def action_fork(self) -> None:
        if self.cursor_block is not None and (seq := self.cursor_block.message):
            self.post_message(self.ForkAsked(seq))

    def action_copy_code(self) -> None:
        """Copy the first piece of code in the block under the cursor; pressed again, the next piece."""
        self._copy(*self._next_code(self.cursor_block))

    def copy_answer(self, *, code: bool = False) -> bool:
        """Copy the model's last answer, or the next piece of code in it; False if there is none."""
        answer = next((block for block in reversed(self.transcript.blocks) if isinstance(block, ProseBlock)), None)
        if code:
            return self._copy(*self._next_code(answer))
        return self._copy(answer.plain_text if answer is not None else "", "the last answer")

    def _copy(self, text: str, what: str = "") -> bool:
        if text:
            self.app.copy_to_clipboard(text)
            self.post_message(self.Copied(text, what))
        return bool(text)

    def action_search(self) -> None:
        rows = self._view.rows
        self._search.begin(rows[0].position if rows else None)
        self._keep_free(1)

    def action_search_next(self, forward: bool) -> None:
        if not self._search.words or not len(self.transcript):
            return
        place = self._search.next(self._view, forward=forward)
        if place is not None:
            self.go_to(place)
        self._search_changed()

    def action_page(self, direction: int) -> None:
        """Scroll by a screen less two lines, so that some context stays in view."""
        self._view.move(direction * max(1, self._viewport.height - 2))
        self._show()

    def action_top(self) -> None:
        self._view.move_to_start()
        self._show()

    def action_tail(self) -> None:
        self._cursor = None
        self.scroll_to_tail()
        self.refresh()

    def action_prompt(self, direction: int) -> None:
        rows = self._view.rows
        in_view = {row.position.block for row in rows}
        at = self._cursor if self._cursor in in_view else None
        if at is None:
            at = len(self.transcript) if self.following or not rows else rows[0].position.block
        index = self.transcript.prompt_beside(at, direction)
        if index is None:
            if direction > 0:
                self.action_tail()
            return
        self._set_cursor(index)
        self._view.show_block(index)
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

    # Mouse and focus

    def on_click(self, event: events.Click) -> None:
        """Put the block cursor where the mouse is; open or close a card by its header."""
        if event.chain > 1 or self.text_selection is not None:
            return
        offset = event.get_content_offset(self)
        if offset is not None and self._on_label(offset):
            self.action_tail()
            return
        if offset is None or offset.y >= len(self._viewport.rows):
            return
        row = self._viewport.rows[offset.y]
        index = row.position.block
        self._set_cursor(index)
        block = self.transcript.blocks[index]
        if block.can_open and (row.line.header or (block.collapsed and row.line.gutter > 1)):
            self.toggle_block(index)

    @override
    async def _on_key(self, event: events.Key) -> None:
        if self._handled_by_search(event):
            event.stop()
            event.prevent_default()

    def on_blur(self) -> None:
        self._leave_search()

    @override
    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self._show_label()

    # Selection

    @override
    def text_select_all(self) -> None:
        # Textual calls this on a double click; select the block under the mouse, not the whole transcript.
        if self._cursor is not None:
            start, end = encode_line(self._cursor, 0, 0), encode_line(self._cursor + 1, 0, 0) - 1
            self.screen.selections = {self: Selection(Offset(0, start), Offset(0, end))}

    @override
    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selected_text(self._viewport, selection), "\n"

    @override
    def _set_cursor(self, index: int) -> None:
        super()._set_cursor(index)
        self._show_label()

    # Search

    def _handled_by_search(self, event: events.Key) -> bool:
        """Handle a key that belongs to the search; False if it does not."""
        event = self._as_search_key(event)
        if not self._search.typing:
            if event.key == "escape" and self._search.words:
                self._leave_search()
                return True
            return False
        if event.character is None and event.key not in ("escape", "enter", "backspace"):
            return False
        match self._search.take(event):
            case Typed.LEFT:
                self._leave_search()
            case Typed.DONE:
                pass
            case Typed.CHANGED if len(self.transcript):
                place = self._search.first(self._view)
                if place is not None:
                    self.go_to(place)
        self._search_changed()
        return True

    def _as_search_key(self, event: events.Key) -> events.Key:
        """Translate a remapped key to the search's default key with the same action."""
        for action, key in (("search.close", "escape"), ("search.keep", "enter")):
            if event.key in self._keymap.keys(action):
                return events.Key(key, None)
        return event

    def _search_changed(self) -> None:
        """Show the new hit or hits; count the remaining ones between keys."""
        if self._counting is not None:
            self._counting.stop()
            self._counting = None
        if self._search.count(self.transcript):
            self._counting = self.set_timer(_COUNT_S, self._search_changed)
            self._refresh_row(self._viewport.height)
            return
        self.refresh()

    def _leave_search(self) -> None:
        self._search.leave()
        self._keep_free(0)

    # Code

    def _next_code(self, block: Block | None) -> tuple[str, str]:
        """The piece of code to copy now, and its label such as "2 of 3"; empty label if the block is all code."""
        code = block.code if block is not None else []
        if block is None or not code:
            return "", ""
        last_block, last = self._copied
        number = (last + 1) % len(code) if last_block == block.id else 0
        self._copied = (block.id, number)
        return code[number], f"code {number + 1} of {len(code)}" if len(code) > 1 else "code"

    # Overlays

    @override
    def _decorated(self, row: ViewportLine) -> Sequence[Segment]:
        segments: Sequence[Segment] = row.line.segments
        if row.line.header and self._spinner is not None and self._spins(row):
            glyphs = self.look.glyphs
            segments = with_spinner(segments, glyphs.running, spinner(glyphs, monotonic()))
        if self._search.words:
            here = row.position == self._search.at
            style = self.look.palette.accent + Style(reverse=here, underline=not here, bold=True)
            segments = with_words(segments, row.line.gutter, self._search.words, style)
        return segments

    @override
    def _labelled(self, strip: Strip, y: int) -> Strip:
        if y == self._hint_at:
            strip = with_hint(strip, self._message_keys, self.look)
        if y == self._viewport.height and self._search.active:
            label = self._search.label(self.look.glyphs)
            return with_label(strip, label, self.look.palette.inline_code, right=False)
        if not self._label or y != self._last_row:
            return strip
        return with_label(strip, self._label, self.look.palette.inline_code, right=True)

    @override
    def _after_show(self) -> None:
        if self.following or not len(self.transcript):
            self._left_at = None
        elif self._left_at is None:
            last = len(self.transcript) - 1
            self._left_at = (last, self._viewport.heights[last])
        self._run_spinner()
        self._show_label()

    def _show_label(self) -> None:
        glyphs = self.look.glyphs
        label, self._leads_to_end = "", False
        message_ends = self._end_of_message()
        hint_at = self._blank_below(message_ends) if message_ends is not None else None
        if hint_at != self._hint_at:
            for row in (self._hint_at, hint_at):
                if row is not None:
                    self._refresh_row(row)
            self._hint_at = hint_at
        if count := self._new_lines():
            words = (
                f"{count:,} new line{'s' if count > 1 else ''} {glyphs.dot} {self._keymap.text('conversation.tail')}"
            )
            label, self._leads_to_end = f" {words} ", True
        elif message_ends is not None and hint_at is None:
            label = f" {self._message_keys} "
        if label != self._label:
            self._label = label
            self._refresh_row(self._last_row)

    @property
    def _last_row(self) -> int:
        return max(0, self._viewport.height - 1)

    def _refresh_row(self, row: int) -> None:
        self.refresh(Region(0, row, self.size.width, 1))

    # What is new below

    def _on_label(self, offset: Offset) -> bool:
        """Whether an offset in the pane is on the "new lines" label, which leads to the end."""
        if not self._label or not self._leads_to_end or offset.y != self._last_row:
            return False
        return offset.x >= self.size.width - cell_len(self._label)

    def _new_lines(self) -> int:
        heights = self._viewport.heights
        if self._left_at is None or self._left_at[0] >= len(heights):
            return 0
        index, height = self._left_at
        return max(0, heights.total - heights.start_of(index) - height)

    # The hint below a message of the user's

    @property
    def _message_keys(self) -> str:
        rewind, fork = map(self._keymap.text, ("conversation.rewind", "conversation.fork"))
        return f"{rewind} rewinds to before it {self.look.glyphs.dot} {fork} forks after it"

    def _end_of_message(self) -> int | None:
        """The last row of the user's message under the block cursor; None if it is not in view."""
        block = self.cursor_block
        if block is None or not self.has_focus or not block.message:
            return None
        rows = enumerate(self._viewport.rows)
        return max((number for number, row in rows if row.position.block == block.index), default=None)

    def _blank_below(self, row: int) -> int | None:
        """The row below this one, if it is in view and blank."""
        rows, below = self._viewport.rows, row + 1
        blank = below >= len(rows) or not rows[below].line.text.strip()
        return below if blank and below <= self._last_row else None

    # Spinners

    def _spins(self, row: ViewportLine) -> bool:
        return row.position.block < len(self.transcript) and self.transcript.blocks[row.position.block].spins

    def _run_spinner(self) -> None:
        """Start or stop the timer: it runs only while a running call is in view."""
        spins = self.app.animation_level != "none" and any(
            row.line.header and self._spins(row) for row in self._viewport.rows
        )
        if spins and self._spinner is None:
            self._spinner = self.set_interval(SPIN_S, self._spin)
        elif not spins and self._spinner is not None:
            self._spinner.stop()
            self._spinner = None

    def _spin(self) -> None:
        for number, row in enumerate(self._viewport.rows):
            if row.line.header and self._spins(row):
                self._refresh_row(number)
