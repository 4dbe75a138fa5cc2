"""The conversation pane: what keys and the mouse do with a transcript on the screen."""

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Offset
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from typing_extensions import override

from tui_agent.tui.actions import bindings
from tui_agent.tui.app.theme import UNICODE, Glyphs
from tui_agent.tui.cards.blocks import BoundaryBlock
from tui_agent.tui.pane.pane_extras import PaneExtras
from tui_agent.tui.pane.selecting import encode_line, selected_text
from tui_agent.tui.pane.transcript import Transcript, can_open, message_number, plain_text
from tui_agent.tui.pane.transcript_view import TranscriptView
from tui_agent.tui.pane.viewport import Follower, Row


class ConversationPane(TranscriptView, inherit_bindings=False):
    """Reads, opens, copies and searches the transcript. End returns to its end."""

    ALLOW_SELECT = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("conversation")]

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

    class RewindAsked(Message):
        """The user wants to go on before the message with this number."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.seq = seq

    class ForkAsked(Message):
        """The user wants to go on after the message with this number, in another branch."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.seq = seq

    def __init__(self, transcript: Transcript, *, glyphs: Glyphs = UNICODE, id: str | None = None) -> None:  # noqa: A002
        super().__init__(transcript, glyphs=glyphs, id=id)
        self._extras = PaneExtras(self)

    @property
    def spinning(self) -> bool:
        """Whether a running call is in view."""
        return self._extras.spinning

    # What the app asks for

    @override
    def show(self, shown: Transcript | Follower) -> None:
        """Show another transcript from its end."""
        self._extras.forget()
        super().show(shown)

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

    def action_rewind(self) -> None:
        """Go on before the message of the user under the cursor."""
        if seq := message_number(self.cursor_block):
            self.post_message(self.RewindAsked(seq))

    def action_fork(self) -> None:
        """Go on after the message of the user under the cursor, in another branch."""
        if seq := message_number(self.cursor_block):
            self.post_message(self.ForkAsked(seq))

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
    def watch_has_focus(self, _has_focus: bool) -> None:
        super().watch_has_focus(_has_focus)
        self._extras.cursor_moved()

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
    def _set_cursor(self, index: int) -> None:
        super()._set_cursor(index)
        self._extras.cursor_moved()

    # What stands over the lines

    @override
    def _decorated(self, row: Row) -> Sequence[Segment]:
        return self._extras.decorated(row)

    @override
    def _labelled(self, strip: Strip, y: int) -> Strip:
        return self._extras.labelled(strip, y)

    @override
    def _after_show(self) -> None:
        self._extras.shown()
