"""The card of a tool call: one quiet line, a short preview, all of it when opened. The cards of particular tools derive
from it.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct
from rich.cells import cell_len
from rich.style import Style
from typing_extensions import override

from tui_agent.conversation.entries import NO_OUTCOME, Outcome
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.text import compact_count
from tui_agent.tui.cards.base import Block, Card, packed, unpacked
from tui_agent.tui.painting.diffs import counts, diff_sections, draw_diff_start
from tui_agent.tui.painting.lines import GUTTER, Line, Run, fit, make_line
from tui_agent.tui.painting.palette import Look
from tui_agent.tui.painting.sections import Section, blank_section, estimate_lines, faint, muted, text_sections
from tui_agent.tui.wording import duration
from tui_agent.visible import visible, visible_line

if TYPE_CHECKING:
    from tui_agent.tools.base import SubtaskProgress

PREVIEW_LINES: Final = 3
"""Lines of a result shown under the header of a collapsed card."""
DIFF_LINES: Final = 10
"""Lines of a diff shown there: with three lines of context, most edits fit whole."""
LARGE_TOKENS: Final = 5_000
"""A result of at least this many tokens shows its size even on a collapsed card."""
BODY_INDENT: Final = GUTTER + 2
"""Indent of the lines under a header, in cells."""
NOTE_PARTS: Final = " · "
"""Separates the parts of a tool's summary."""
_PREVIEW_SEARCH: Final = 2000
_MAX_NAME: Final = 32
_MAX_NOTE: Final = 48
_MIN_ARGUMENT: Final = 24
"""The argument keeps at least this many cells; the note on the result gives way first."""


class ToolState(StrEnum):
    """The stages of a tool call, from the model's request to the result."""

    PENDING = "pending"
    ASKING = "asking"
    RUNNING = "running"
    OK = "ok"
    ERROR = "error"
    DENIED = "denied"
    INTERRUPTED = "interrupted"

    @property
    def finished(self) -> bool:
        return self not in (ToolState.PENDING, ToolState.ASKING, ToolState.RUNNING)


_WORDS: Final = {
    ToolState.ASKING: "needs your answer",
    ToolState.RUNNING: "running",
    ToolState.ERROR: "failed",
    ToolState.DENIED: "denied",
    ToolState.INTERRUPTED: "interrupted",
}


class ResultSize(Struct, frozen=True, gc=False):
    """The size of a tool result; None: unknown. `tokens` may be an estimate."""

    lines: int = 0
    tokens: int | None = None
    bytes: int | None = None

    @classmethod
    def of(cls, result: str) -> "ResultSize":
        return cls(lines=result.count("\n") + (not result.endswith("\n") if result else 0), bytes=len(result.encode()))


class ToolBlock(Card, eq=False, kw_only=True):
    """One tool call and, later, its result.

    summary, arguments: the arguments on one line, and in full.
    tail: the last lines printed while it runs; `above`: how many lines came before them.
    held: the result, as `packed` returns it; `length`: its characters.
    diff: a unified diff, for edits. note: one line on the outcome, or on why it was denied or failed.
    facts: about the result, for the program. seconds: how long it ran.
    seq: for a command of the user's own, the number of the message it became; else 0.
    """

    TOOLS: ClassVar[frozenset[str]] = frozenset()
    """Names of the tools that use this class."""

    call_id: str
    name: str
    summary: str = ""
    arguments: str = ""
    state: ToolState = ToolState.PENDING
    tail: str = ""
    above: int = 0
    held: str | bytes = ""
    length: int = 0
    size: ResultSize = ResultSize()
    diff: str = ""
    note: str = ""
    facts: Outcome = NO_OUTCOME
    seconds: float | None = None
    seq: int = 0

    @classmethod
    def is_for(cls, tool: str) -> bool:
        return tool in cls.TOOLS

    @property
    def result(self) -> str:
        return unpacked(self.held)

    @result.setter
    def result(self, text: str) -> None:
        self.held, self.length = packed(text), len(text)

    @property
    def display_name(self) -> str:
        return facts_of(self.name).title

    @property
    @override
    def can_open(self) -> bool:
        return True

    @property
    @override
    def message(self) -> int:
        return self.seq

    @property
    @override
    def said(self) -> str:
        return f"!{self.summary}"

    @property
    @override
    def spins(self) -> bool:
        return self.state is ToolState.RUNNING

    @override
    def follows(self, before: Block) -> bool:
        return isinstance(before, ToolBlock)

    @property
    @override
    def plain_text(self) -> str:
        return "\n".join(part for part in self.text_parts() if part)

    def show_progress(self, text: str, above: int, subtask: "SubtaskProgress | None") -> None:
        """Set the progress of the running call: its last lines, clean text, how many came before them, and how the
        subtask stands that works for it.
        """
        self.tail, self.above = text, above

    def text_parts(self) -> tuple[str, ...]:
        """The parts of `plain_text`: the call, its note, its result."""
        call = f"{self.display_name} {self.arguments or self.summary}".rstrip()
        return call, self.note, self.diff or self.result or self.tail

    @property
    @override
    def code(self) -> list[str]:
        code = self.diff or self.result or self.tail
        return [code] if code else []

    def state_word(self) -> str:
        """A word for states that the sign in the header does not make clear; the argument leaves room for it."""
        return _WORDS.get(self.state, "")

    # Sections

    @override
    def sections(self) -> list[Section]:
        header = Section(partial(_draw_header, self))
        if not self.collapsed:
            return [header, *self.open_sections()]
        height = self.preview_height()
        return [header, Section(self.draw_preview, breaks=height - 1)] if height else [header]

    @override
    def estimate(self, width: int, *, collapsed: bool) -> int:
        if self.state is ToolState.OK and self.size.lines and not self.diff:
            # Use known sizes, so that opening all cards of a long conversation reads no text.
            if collapsed:
                return 1 + min(PREVIEW_LINES, self.size.lines)
            return 1 + estimate_lines(self.length, min(self.size.lines, self.length) - 1, width)
        if collapsed:
            return 1 + self.preview_height()
        body = self.diff or self.result or self.tail
        return 1 + (estimate_lines(len(body), body.count("\n"), width) if body else 0)

    # What cards of particular tools override

    def preview_height(self) -> int:
        if self.shows_diff:
            return min(DIFF_LINES, max(1, self.diff.count("\n") - 2))
        return len(self.preview_lines())

    def draw_preview(self, width: int, look: Look) -> list[Line]:
        if self.shows_diff:
            return draw_diff_start(self.diff, DIFF_LINES, width, look, indent=BODY_INDENT)
        margin = Run(" " * BODY_INDENT, look.palette.base)
        room = max(1, width - BODY_INDENT)
        return [
            make_line([margin, Run(fit(line, room, look.glyphs.ellipsis), look.palette.faint)], gutter=BODY_INDENT)
            for line in self.preview_lines()
        ]

    def preview_lines(self) -> list[str]:
        """The lines of the result, or of the output so far, that a preview shows."""
        if not self.state.finished:
            return [line for line in self.tail[-_PREVIEW_SEARCH:].split("\n") if line.strip()][-PREVIEW_LINES:]
        lines = [line for line in self.result[:_PREVIEW_SEARCH].split("\n") if line.strip()]
        if self.state is ToolState.OK:
            in_header = self.note.split(NOTE_PARTS)
            return [line for line in lines if line.strip(" []") not in in_header][:PREVIEW_LINES]
        if self.state is ToolState.DENIED and self.note:
            # The result is for the model.
            return [self.note]
        if self.state is ToolState.INTERRUPTED and self.facts.notes:
            # They repeat what the header says.
            lines = lines[: -self.facts.notes]
        reason = [self.note] if self.note and self.note not in lines[:PREVIEW_LINES] else []
        return [*reason, *lines][:PREVIEW_LINES]

    def open_sections(self) -> list[Section]:
        sections: list[Section] = []
        shown = all(part in self.result for part in self.note.split(NOTE_PARTS))
        if self.note and self.state is not ToolState.OK and not shown:
            sections += text_sections(self.note, muted, indent=BODY_INDENT)
        if arguments := "" if self.diff else self.other_arguments():
            sections += text_sections(arguments, faint, indent=BODY_INDENT)
            if self.length or self.tail:
                sections.append(blank_section())
        if self.diff:
            sections += diff_sections(self.diff, indent=BODY_INDENT)
            sections += text_sections(self.notes, muted, indent=BODY_INDENT) if self.notes else []
        body = self.result or self.tail
        if body and not (self.diff and self.state is ToolState.OK):
            sections += text_sections(body, muted, indent=BODY_INDENT)
        return sections

    def outcome(self, look: Look) -> list[Run]:
        """What the header says of the result, the most important part first."""
        quiet = look.palette.faint
        runs: list[Run] = []
        if self.diff:
            added, removed = counts(self.diff)
            runs.append(Run(f"+{added} -{removed}", quiet))
            if self.notes:
                runs.append(Run(self.note.rpartition(NOTE_PARTS)[2], look.palette.warning))
        elif self.state is ToolState.OK and self.note:
            note = f" {look.glyphs.dot} ".join(self.note.split(NOTE_PARTS))
            runs.append(Run(fit(note, _MAX_NOTE, look.glyphs.ellipsis), quiet))
        elif self.state is ToolState.OK and self.size.lines:
            runs.append(Run(f"{self.size.lines:,} line{'s' if self.size.lines != 1 else ''}", quiet))
        return [*runs, *self.figures(look)]

    def figures(self, look: Look) -> list[Run]:
        """How long it took, unless the open card says it below, and its tokens if it is large or the card is open."""
        quiet = look.palette.faint
        said = not self.collapsed and self.facts.exit_code is not None
        runs = (
            [Run(duration(self.seconds), quiet)] if self.seconds is not None and self.seconds >= 1 and not said else []
        )
        tokens = self.size.tokens if self.state.finished else None
        if tokens and (tokens >= LARGE_TOKENS or not self.collapsed):
            runs.append(Run(f"{compact_count(tokens)} tokens", quiet))
        return runs

    @property
    def notes(self) -> str:
        """What the result of an edit ends with."""
        count = self.facts.notes if self.diff and self.state is ToolState.OK else 0
        return "\n".join(self.result.split("\n")[-count:]) if count else ""

    @property
    def shows_diff(self) -> bool:
        """Whether the card shows the diff in place of the result."""
        return bool(self.diff) and self.state in (ToolState.OK, ToolState.ASKING, ToolState.RUNNING)

    def other_arguments(self) -> str:
        """The arguments that are not in the header, each with its name; the raw text if it is not a JSON object."""
        import json

        try:
            values = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            return "" if self.arguments.strip() == self.summary else self.arguments
        arguments = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in values.items()
        }
        shown = {visible_line(name): visible(text) for name, text in arguments.items()}
        return "\n".join(f"{name}: {text}" for name, text in shown.items() if text not in self.summary)


def _draw_header(block: ToolBlock, width: int, look: Look) -> list[Line]:
    palette, glyphs = look.palette, look.glyphs
    sign, colour = _sign(block.state, look)
    start = [Run(" " * GUTTER, palette.faint), Run(f"{sign} ", colour)]
    room = width - cell_len(start[0].text) - 2
    name = fit(block.display_name, max(1, min(_MAX_NAME, room)), glyphs.ellipsis)
    room -= cell_len(name)
    status = _status(block, room, look)
    left = room - sum(cell_len(run.text) for run in status) - 1
    summary = fit(block.summary, left, glyphs.ellipsis) if left > 3 else ""
    runs = [*start, Run(name, palette.strong)]
    if summary:
        runs.append(Run(f" {summary}", palette.muted))
    return [make_line([*runs, *status], gutter=len(start[0].text) + len(start[1].text), header=True)]


def _status(block: ToolBlock, room: int, look: Look) -> list[Run]:
    """The part of the header after the argument: the state, then as much of the outcome as there is room for."""
    word = list(_word(block, look))
    outcome = block.outcome(look)
    argument = min(cell_len(block.summary), _MIN_ARGUMENT if word else room)
    while True:
        status = list(_joined([*word, *outcome], look))
        cells = sum(cell_len(run.text) for run in status)
        if not status or cells + 1 + argument <= room:
            return status
        if outcome:
            outcome.pop()
        elif cells <= room:
            return status
        else:
            return []


def _word(block: ToolBlock, look: Look) -> Iterator[Run]:
    colours = {ToolState.ASKING: look.palette.warning, ToolState.ERROR: look.palette.error}
    if word := block.state_word():
        yield Run(word, colours.get(block.state, look.palette.faint))


def _joined(parts: list[Run], look: Look) -> Iterator[Run]:
    for number, part in enumerate(parts):
        yield Run(f" {look.glyphs.dot} " if number else "  ", look.palette.faint)
        yield part


def _sign(state: ToolState, look: Look) -> tuple[str, Style]:
    palette, glyphs = look.palette, look.glyphs
    return {
        ToolState.PENDING: (glyphs.pending, palette.faint),
        ToolState.ASKING: (glyphs.asking, palette.warning),
        ToolState.RUNNING: (glyphs.running, palette.accent),
        ToolState.OK: (glyphs.ok, palette.success),
        ToolState.ERROR: (glyphs.error, palette.error),
        ToolState.DENIED: (glyphs.denied, palette.warning),
        ToolState.INTERRUPTED: (glyphs.interrupted, palette.warning),
    }[state]
