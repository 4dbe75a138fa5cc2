"""Dialogs with a text to read: one of any length, and the help. Typing closes them and goes on in the prompt."""

import asyncio
import re
from collections.abc import Callable
from textwrap import wrap
from typing import ClassVar, Final

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static
from typing_extensions import override

from tui_agent.text import clean, displayed, one_line
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title, framed
from tui_agent.tui.dialogs.row_list import ListRow, RowList, plain_row
from tui_agent.tui.painting.lines import breaks
from tui_agent.tui.painting.sections import FIRST_COLUMN

MAX_CHARS: Final = 400_000
"""The most characters shown; of a longer text, its beginning, or what is around the place that is looked for."""
ABOVE: Final = 3
"""Rows shown above the place that is looked for."""
AGAIN_S: Final = 1.0
"""Seconds between two updates of a growing text."""
LEAST_COLUMN: Final = 20
"""With fewer cells left for it, the second column continues below the first."""
HANGING: Final = "    "
_EXPLAINED: Final = re.compile(r"(.*?\S {2,})(\S.*)")
"""Matches a line of two columns: a command or key, and its description."""


class Reading(Dialog[None]):
    """A dialog that typing closes."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("reading")]
    CLICK_OUTSIDE_CLOSES = True

    def on_key(self, event: events.Key) -> None:
        """Close on a character that has no meaning here, and pass it on to the prompt."""
        if event.is_printable and event.character and self.is_current and event.key not in self.active_bindings:
            event.stop()
            self.post_message(self.Unused(events.Key(event.key, event.character)))
            self.dismiss(None)


class TextScreen(Reading):
    """Shows untrusted text."""

    def __init__(
        self,
        title: str,
        text: str,
        again: Callable[[], str | None] | None = None,
        *,
        at: int | None = None,
    ) -> None:
        """`again`: returns the current text of one that grows, None once it is complete; called in a thread.

        A growing text is shown from its end. `at`: the character whose line is marked, and in view at first.
        """
        super().__init__()
        self._title = one_line(title, 80)
        begin = max(0, at - MAX_CHARS // 2) if at is not None and at > MAX_CHARS // 2 and len(text) > MAX_CHARS else 0
        self._lines = _lines_of(text[begin : begin + MAX_CHARS])
        self._at = len(_lines_of(text[begin:at])) - 1 if at is not None else None
        self._begin, self._cut = begin, len(text) - begin - MAX_CHARS
        self._rows = RowList(in_dialog=True)
        self._width = 0
        self._again = again

    @override
    def compose(self) -> ComposeResult:
        more = f"the first {MAX_CHARS:,} characters, {self._cut:,} more are kept; " if self._cut > 0 else ""
        if self._begin:
            more = f"characters {self._begin:,} to {self._begin + MAX_CHARS + min(0, self._cut):,}; "
        keys = dialog_keys(f"{more}Up/Down scroll, {self.key('reading.close')} closes")
        yield framed([dialog_title(self._title)], self._rows, [keys])

    def on_mount(self) -> None:
        self._rows.focus()
        self.call_after_refresh(self._draw)
        if self._again is not None:
            self.run_worker(self._follow(self._again))

    async def _follow(self, again: Callable[[], str | None]) -> None:
        while (text := await asyncio.to_thread(again)) is not None:
            if (lines := _lines_of(text)) != self._lines:
                self._lines, self._width = lines, 0
                self._draw()
            await asyncio.sleep(AGAIN_S)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        width = self._rows.measure
        if width != self._width:
            to_end, first = self._again is not None and self._rows.is_vertical_scroll_end, not self._width
            self._width = width
            rows: list[ListRow] = []
            found = 0
            for number, line in enumerate(self._lines):
                if number == self._at:
                    found = len(rows)
                style = "accent" if number == self._at else "base"
                rows += [plain_row((row, style)) for row in hung(line, width)]
            self._rows.show(rows)
            if first and found:
                self._rows.scroll_to(y=max(0, found - ABOVE), animate=False, immediate=True, force=True)
            if to_end:
                self._rows.scroll_end(animate=False)


def hung(line: str, width: int) -> list[str]:
    """A line broken into rows of `width` cells; those after the first begin where its second column does."""
    first, *others = breaks(line, width)
    if not others:
        return [line[: first[1]]]
    column = FIRST_COLUMN.match(line)
    begin = column.end() if column is not None and column.end() <= width // 2 else 0
    rest = line[others[0][0] :]
    return [line[: first[1]], *(" " * begin + rest[start:end] for start, end, _ in breaks(rest, width - begin))]


def _lines_of(text: str) -> list[str]:
    return [displayed(line) for line in clean(text[:MAX_CHARS]).split("\n")]


class HelpScreen(Reading):
    """Shows sections of text, each under its title."""

    def __init__(self, sections: dict[str, str]) -> None:
        super().__init__()
        self.sections = sections

    @override
    def compose(self) -> ComposeResult:
        texts = (each for title in self.sections for each in (dialog_title(title), Static(classes="dialog-text")))
        yield framed([], VerticalScroll(*texts), [dialog_keys(f"{self.key('reading.close')} closes")])

    def on_resize(self) -> None:
        self.call_after_refresh(self._explain)

    def _explain(self) -> None:
        for place in self.query(VerticalScroll):
            width = place.scrollable_content_region.width
            for shown, text in zip(
                place.query("Static.dialog-text").results(Static), self.sections.values(), strict=False
            ):
                shown.update(explained(text, width))


def explained(text: str, width: int) -> Content:
    """Lines of two columns in `width` cells. A long second column is wrapped, in its column if that is wide enough."""
    lines: list[Content] = []
    for line in text.splitlines():
        parts = _EXPLAINED.fullmatch(line)
        if parts is None:
            lines.append(Content(line))
            continue
        begin = " " * len(parts[1])
        rest = begin if width - len(begin) >= LEAST_COLUMN else HANGING
        first, *others = wrap(parts[2], max(1, width), initial_indent=begin, subsequent_indent=rest)
        lines += [Content.assemble((parts[1], "$foreground"), first[len(begin) :]), *map(Content, others)]
    return Content("\n").join(lines)
