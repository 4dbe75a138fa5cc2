"""What the model saw at any call: a strip of all calls, and below it the view as it was at the chosen one."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from textual.app import ComposeResult
from textual.binding import BindingType
from typing_extensions import override

from tui_agent.agent.commands.context_text import changes, how_sent
from tui_agent.agent.history.calls import CallHistory, CallRecord, ViewAtCall
from tui_agent.system.durable import in_thread
from tui_agent.text import clock_text, money_text, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.context.drawing import SIGNS, Bar, Column, bar_line, strip_lines
from tui_agent.tui.context.rows import PanelRows, share_rows, title_rows, wrapped
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title, framed
from tui_agent.tui.dialogs.reading import TextScreen
from tui_agent.tui.dialogs.row_list import ListRow, RowList, plain_row
from tui_agent.tui.painting.glyphs import ASCII, glyphs_of
from tui_agent.tui.painting.lines import Line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.wording import model_label

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
STRIP_ROWS: Final = 4
READ_AT_ONCE: Final = 200
"""Calls whose signs the strip shows at once; those of more are read while their sizes are shown."""


class CallsScreen(Dialog[int | None]):
    """Its result is the number of the message to fork after, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("calls")]
    CLICK_OUTSIDE_CLOSES = True

    def __init__(self, past: CallHistory, number: int, excerpt: Callable[[int], str], window: int) -> None:
        """`number`: the call to begin with, from 1. `window`: of the model of the newest call, in tokens."""
        super().__init__()
        self._past = past
        self._number = number
        self._excerpt = excerpt
        self._window = window
        self._columns = [Column(tokens) for tokens in past.calls.tokens()]
        self._strip = RowList(in_dialog=True, keys_elsewhere=True, id="calls-strip")
        self._rows = RowList(in_dialog=True, id="calls-rows")
        self._keys_line = dialog_keys()
        self.seen: ViewAtCall | None = None
        """What is shown below the strip."""
        self._working = False

    @override
    def compose(self) -> ComposeResult:
        yield framed([dialog_title("What the model saw"), self._strip], self._rows, [self._keys_line])

    def on_mount(self) -> None:
        self._rows.focus()
        columns = partial(self._all_columns, plain=glyphs_of(self.app) is ASCII)
        if len(self._columns) <= READ_AT_ONCE:
            self._columns = columns()
        else:
            self.run_worker(self._read_columns(columns), name="strip")
        self.call_after_refresh(self._look)

    def _all_columns(self, *, plain: bool) -> list[Column]:
        return [_column(call, plain=plain) for call in self._past.calls]

    async def _read_columns(self, columns: Callable[[], list[Column]]) -> None:
        self._columns = await in_thread(columns)
        if self.is_attached:
            self._draw()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def action_move(self, step: int) -> None:
        self._number = min(max(1, self._number + step), len(self._past.calls))
        self._look()

    def action_edge(self, direction: int) -> None:
        self._number = 1 if direction < 0 else len(self._past.calls)
        self._look()

    def action_read(self) -> None:
        number = self._number
        self._show(f"The request of call {number:,}", lambda: self._past.request(number))

    def action_compare(self) -> None:
        """Show what differs from the request of the call before."""
        number = self._number
        if before := self._past.calls[number - 1].before:
            title = f"Call {number:,} compared with call {before:,}"
            self._show(title, lambda: self._past.difference(number, before) or "Nothing differs.")

    def action_fork(self) -> None:
        """Start another branch after the call's answer."""
        call = self._past.calls[self._number - 1]
        if call.present:
            self.dismiss(call.seq)
        else:
            self.app.bell()

    def _look(self) -> None:
        self._draw()
        if not self._working:
            self._go(self._follow())

    def _go(self, work: "Coroutine[None, None, None]") -> None:
        # One at a time: the views are folded one from another.
        self._working = True
        self.run_worker(work, name="calls")

    async def _follow(self) -> None:
        try:
            while self.seen is None or self.seen.call.number != self._number:
                self.seen = await in_thread(partial(self._past.at, self._number))
        finally:
            self._working = False
        if self.is_attached:
            self._draw()

    def _show(self, title: str, text: Callable[[], str]) -> None:
        async def show() -> None:
            try:
                shown = await in_thread(text)
            finally:
                self._working = False
            if self.is_current:
                await self.app.push_screen(TextScreen(title, shown))

        if not self._working:
            self._go(show())

    def _draw(self) -> None:
        self._strip.show([ListRow(partial(self._draw_strip, place)) for place in range(STRIP_ROWS)])
        if self.seen is not None:
            seen, width = self.seen, self._rows.measure
            figures = list(call_rows(seen, len(self._past.calls), self._window, width))
            if seen.items:
                figures += title_rows(f"In the conversation: {len(seen.items):,}", "tokens  age")
            self._rows.show(PanelRows(figures, seen.items, seen.call.time, self._excerpt, seen.scale))
        self._keys_line.update(self._keys_text())

    def _draw_strip(self, place: int, width: int, look: Look) -> Line:
        return strip_lines(self._columns, self._number - 1, width, look)[place]

    def _keys_text(self) -> str:
        key, call = self.key, self._past.calls[self._number - 1]
        keys = [f"{key('calls.before')}/{key('calls.after')} call by call", f"{key('calls.read')} reads the request"]
        keys += [f"{key('calls.compare')} compares"] if call.before else []
        keys += [f"{key('calls.fork')} forks"] if call.present else []
        return ", ".join([*keys, f"{key('calls.close')} closes"])


def _column(call: CallRecord, *, plain: bool) -> Column:
    signs = (
        ("lost", bool(call.lost), "error"),
        ("summarised", call.summarised, "warning"),
        ("cleared", call.cleared > 0, "success"),
        ("moved", bool(call.moved), "muted"),
    )
    name, style = next(((name, style) for name, holds, style in signs if holds), ("", "muted"))
    return Column(call.usage.input_tokens, SIGNS[name][plain] if name else " ", style, call.present)


def call_rows(seen: ViewAtCall, count: int, window: int, width: int) -> Iterator[ListRow]:
    """The figures of a call: its cost, its cache, what changed since the call before, and what filled the window."""
    call, used = seen.call, seen.call.usage
    branch = "" if call.present else "  on another branch"
    yield plain_row(
        (f"  Call {call.number:,}", "heading"),
        (f" of {count:,}", "base"),
        (f"  {clock_text(call.time)}  {one_line(model_label(call.model), 40)}{branch}", "muted"),
    )
    cost = money_text(call.cost_usd)
    writing = f", and {money_text(call.writing_usd)} for summaries" if call.writing_usd else ""
    yield plain_row((f"  {cost}", "base"), (f" for {used.output_tokens:,} tokens of answer{writing}", "muted"))
    read, written = used.cache_read_tokens, used.cache_write_tokens
    fresh = max(0, used.input_tokens - read - written)
    told = f", {written:,} written to it" if written else ""
    fits = len(f"  {read:,} from the cache, {fresh:,} at full price{told}") <= width
    yield plain_row(
        (f"  {read:,}", "base"),
        (" from the cache, ", "muted"),
        (f"{fresh:,}", "base"),
        (f" at full price{told if fits else ''}", "muted"),
    )
    if written and not fits:
        yield plain_row((f"  {written:,}", "base"), (" written to it", "muted"))
    if call.lost:
        yield from wrapped(f"Cache lost, {money_text(call.lost_usd)} more: {call.lost}", width, "error")
    yield plain_row()
    yield plain_row((f"  Since call {call.before:,}" if call.before else "  The first call", "heading"))
    for line in changes(seen):
        yield from wrapped(line, width, "base")
    if not seen.exact:
        yield from wrapped(how_sent(seen), width)
    yield plain_row()
    whole = sum(seen.categories.values())
    of = f" of {window:,}" if window >= whole else ""
    yield plain_row(("  Context", "heading"), (f"  {whole:,}{of}", "base"))
    yield ListRow(partial(bar_line, Bar(categories=seen.categories, tokens=whole, window=window if of else 0)))
    yield from share_rows(seen.categories, window if of else whole)
