"""The dialog before files are put back: which ones, and the diff of what would change."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

import msgspec
from textual.app import ComposeResult
from textual.binding import BindingType
from typing_extensions import override

from tui_agent.agent.files import DOES, plan_title
from tui_agent.text import clean, displayed, one_line
from tui_agent.tools.files.put_back import FileStep, PutBack
from tui_agent.tui.actions import bindings
from tui_agent.tui.dialogs.dialog import Dialog, dialog_keys, dialog_title, framed
from tui_agent.tui.dialogs.row_list import ListRow, RowList, plain_row
from tui_agent.tui.painting.diffs import DiffLines, visible_diff
from tui_agent.tui.painting.lines import breaks

OVERWRITING: Final = "!"
"""Suffix of an answer: also put back files that somebody else has changed since."""
MAX_ROWS: Final = 2_000
"""The most lines of diffs that are shown, in total."""
MAX_LINE: Final = 1_000
"""The most characters of a line that are shown."""


class Piece(msgspec.Struct, frozen=True):
    """A line of text in the style of this name in `Palette`; or a diff."""

    text: str
    style: str = "base"
    diff: DiffLines | None = None

    def rows(self, width: int) -> Iterator[ListRow]:
        if self.diff is not None:
            yield from (ListRow(partial(self.diff.draw, *place)) for place in self.diff.breaks(width))
            return
        line = displayed(clean(self.text)[:MAX_LINE])
        for start, end, _ in breaks(line, width):
            yield plain_row((line[start:end], self.style))


class ShownPlan(msgspec.Struct, frozen=True):
    """What the dialog shows of a plan: with files that somebody else changed left alone, and with them overwritten."""

    leaving: tuple[Piece, ...]
    overwriting: tuple[Piece, ...]

    @classmethod
    def of(cls, planned: PutBack) -> "ShownPlan":
        """Prepare both; slow for many diffs."""
        return cls(tuple(pieces(planned, overwrite=False)), tuple(pieces(planned, overwrite=True)))


class FilesScreen(Dialog[str | None]):
    """Its result is ``both``, ``files`` or ``conversation``, with the suffix `OVERWRITING` if that was chosen, or None.

    `rewinds`: the conversation can be rewound as well; else ``files`` is the only result.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("files")]
    CLICK_OUTSIDE_CLOSES = True

    def __init__(self, title: str, planned: PutBack, shown: ShownPlan, *, rewinds: bool) -> None:
        super().__init__()
        self._title = one_line(title, 80)
        self._planned = planned
        self._shown = shown
        self._rewinds = rewinds
        self._overwrite = False
        self._rows = RowList(in_dialog=True)
        self._keys_line = dialog_keys()
        self._drawn: tuple[int, bool] | None = None

    @override
    def compose(self) -> ComposeResult:
        yield framed([dialog_title(self._title)], self._rows, [self._keys_line])

    def on_mount(self) -> None:
        self._rows.focus()
        self.call_after_refresh(self._draw)

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def action_take(self, what: str) -> None:
        what = what or ("both" if self._rewinds else "files")
        if not self._rewinds and what != "files":
            return
        if what != "conversation" and not (self._planned.steps if self._overwrite else self._planned.ours):
            self.app.bell()
            return
        self.dismiss(what + OVERWRITING if self._overwrite else what)

    def action_overwrite(self) -> None:
        """Toggle whether files that somebody else changed are overwritten."""
        if self._planned.theirs:
            self._overwrite = not self._overwrite
            self._draw()

    def _draw(self) -> None:
        width = self._rows.measure
        if (width, self._overwrite) == self._drawn:
            return
        self._drawn = width, self._overwrite
        rows = [
            row
            for piece in (self._shown.overwriting if self._overwrite else self._shown.leaving)
            for row in piece.rows(width)
        ]
        self._rows.show(rows)
        theirs = f"\n{self._theirs_text()}" if self._planned.theirs else ""
        self._keys_line.update(self._keys_text() + theirs)

    def _keys_text(self) -> str:
        key = self.key
        done = f"{key('files.both')} puts them back"
        if self._rewinds:
            alone = f"{key('files.files')} the files, {key('files.conversation')} the conversation"
            done = f"{key('files.both')} takes both back, {alone}"
        return f"{done}, {key('files.cancel')} cancels"

    def _theirs_text(self) -> str:
        does = (
            "lets what somebody else changed stay" if self._overwrite else "puts back what somebody else changed, too"
        )
        return f"{self.key('files.theirs')} {does}"


def pieces(planned: PutBack, *, overwrite: bool) -> Iterator[Piece]:
    """What would be put back and what would not, then the diffs."""
    yield Piece(plan_title(planned), "strong")
    done = planned.steps if overwrite else planned.ours
    left = [] if overwrite else [(step.name, step.others) for step in planned.theirs]
    for name, why in (*left, *planned.impossible):
        yield Piece(f"stays: {name} ({why})", "warning")
    for gap in planned.gaps:
        yield Piece(gap, "warning")
    yield from _diffs(done)


def _diffs(steps: Sequence[FileStep]) -> Iterator[Piece]:
    shown = 0
    for step in steps:
        yield Piece("")
        theirs = f", {step.others}" if step.others else ""
        yield Piece(f"{step.name}: {DOES[step.does]}{theirs}", "accent")
        if shown >= MAX_ROWS:
            continue
        diff = DiffLines(visible_diff(step.diff), at_most=MAX_ROWS - shown)
        if diff.rows:
            yield Piece("", diff=diff)
        else:
            yield from (Piece(f"  {line}", "muted") for line in step.diff.split("\n")[2:])
        shown += len(diff.rows)
        if diff.cut:
            yield Piece("  the other diffs are not shown: there are too many", "muted")
            shown = MAX_ROWS
