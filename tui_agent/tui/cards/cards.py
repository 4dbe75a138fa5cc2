"""Tool calls and reasoning: one quiet line, a short preview, and the whole of it when opened."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from rich.cells import cell_len
from rich.style import Style

from tui_agent.text import clean
from tui_agent.tui.cards.blocks import ReasoningBlock, ToolBlock, ToolState
from tui_agent.tui.cards.diffs import counts, diff_sections, paint_rows, read_diff
from tui_agent.tui.cards.lines import GUTTER, Line, Run, fit, make_line
from tui_agent.tui.cards.palette import Look
from tui_agent.tui.cards.sections import Section, blank_section, text_sections
from tui_agent.tui.cards.subtasks import draw_subtask, is_running_subtask, subtask_lines
from tui_agent.tui.cards.todos import draw_todo, is_todo, previewed
from tui_agent.tui.pane.transcript import can_open, compact_count

PREVIEW_LINES: Final = 3
"""Lines of a result, or of what a running tool prints, under the header of a collapsed card."""
_PREVIEW_SEARCH: Final = 2000
_DIFF_SEARCH: Final = 40
_BODY_INDENT: Final = GUTTER + 2
_NEST_INDENT: Final = 2
_MAX_DEPTH: Final = 6
_MAX_NAME: Final = 32
_MAX_NOTE: Final = 48
_NOTE_PARTS: Final = " · "
"""Between what a tool's summary says."""
_TELLS_TIME: Final = re.compile(r"exit code \d+, [\d.]+ s")
_NO_TEXT: Final = re.compile(r"\s*(?:\d+\t\s*)?")
"""A line without text: empty, or the number of an empty line of a file."""


def tool_sections(block: ToolBlock) -> list[Section]:
    """The sections of a tool card. Collapsed, its result is not looked at beyond the preview."""
    indent = _BODY_INDENT + _NEST_INDENT * min(block.depth, _MAX_DEPTH)
    header = Section(partial(_draw_tool_header, block))
    if block.collapsed:
        preview = Section(partial(_draw_preview, block, indent), breaks=preview_height(block) - 1)
        return [header, preview] if preview_height(block) else [header]
    if is_todo(block):
        items = Section(partial(draw_todo, block.todo, indent, True), breaks=len(block.todo) - 1)
        return [header, items]
    sections = [header]
    if block.note and block.state is not ToolState.OK:
        sections += text_sections(block.note, _muted, indent=indent)
    if arguments := "" if block.diff else _told_arguments(block):
        sections += text_sections(arguments, _faint, indent=indent)
        if block.steps or block.result or block.tail:
            sections.append(blank_section())
    if block.steps.strip():
        lines = subtask_lines(block)
        sections.append(Section(partial(draw_subtask, lines, indent), breaks=len(lines) - 1))
        if block.result:
            sections.append(blank_section())
    if block.diff:
        sections += diff_sections(block.diff, indent=indent)
    body = block.result or block.tail
    if body and not (block.diff and block.state is ToolState.OK):
        sections += text_sections(body, _muted, indent=indent)
    return sections


def preview_height(block: ToolBlock) -> int:
    """Lines under the header of a collapsed tool card."""
    if block.diff and block.state in (ToolState.OK, ToolState.ASKING, ToolState.RUNNING):
        return min(PREVIEW_LINES, block.diff.count("\n") + 1)
    if is_todo(block):
        return len(previewed(block.todo))
    return len(subtask_lines(block) if is_running_subtask(block) else _preview_lines(block))


def reasoning_header(block: ReasoningBlock, width: int, look: Look) -> list[Line]:
    """The one line of reasoning: how long it took, how many tokens."""
    palette, glyphs = look.palette, look.glyphs
    parts = [f"Thinking{glyphs.ellipsis}" if block.streaming else "Thought"]
    if block.seconds is not None and block.seconds >= 1:
        parts[0] = f"Thought for {duration(block.seconds)}"
    if block.tokens:
        parts.append(f"{compact_count(block.tokens)} tokens")
    sign = (glyphs.closed if block.collapsed else glyphs.opened) if can_open(block) else glyphs.dot
    label = fit(f" {glyphs.dot} ".join(parts), max(1, width - GUTTER - 2), glyphs.ellipsis)
    gutter = Run(" " * GUTTER, palette.base)
    return [make_line([gutter, Run(f"{sign} ", palette.faint), Run(label, palette.faint)], header=True)]


def duration(seconds: float) -> str:
    """A length of time in a few characters: 0.4s, 12s, 3m 05s, 2h 10m."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def _draw_tool_header(block: ToolBlock, width: int, look: Look) -> list[Line]:
    palette, glyphs = look.palette, look.glyphs
    sign, colour = _sign(block.state, look)
    nesting = " " * (_NEST_INDENT * min(block.depth, _MAX_DEPTH))
    if block.depth:
        nesting = nesting[:-2] + f"{glyphs.nested} "
    start = [Run(" " * GUTTER + nesting, palette.faint), Run(f"{sign} ", colour)]
    room = width - cell_len(start[0].text) - 2
    name = fit(block.name, max(1, min(_MAX_NAME, room)), glyphs.ellipsis)
    room -= cell_len(name)
    status = list(_status(block, look))
    status_cells = sum(cell_len(run.text) for run in status)
    if status_cells + 2 > room:
        status, status_cells = [], -2
    summary_room = room - status_cells - 3
    summary = fit(block.summary, summary_room, glyphs.ellipsis) if summary_room > 3 else ""
    runs = [*start, Run(name, palette.strong)]
    if summary:
        runs.append(Run(f" {summary}", palette.muted))
    if status:
        runs += [Run("  ", palette.base), *status]
    return [make_line(runs, gutter=len(start[0].text) + len(start[1].text), header=True)]


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


def _status(block: ToolBlock, look: Look) -> Iterator[Run]:
    """What stands after the summary: size and duration of a result, or why there is none."""
    palette = look.palette
    words = {
        ToolState.ASKING: "needs your answer",
        ToolState.RUNNING: "running",
        ToolState.ERROR: "failed",
        ToolState.DENIED: "denied",
        ToolState.INTERRUPTED: "interrupted",
    }
    colours = {ToolState.ASKING: palette.warning, ToolState.ERROR: palette.error}
    parts: list[Run] = []
    if word := words.get(block.state):
        parts.append(Run(word, colours.get(block.state, palette.faint)))
    if block.diff:
        added, removed = counts(block.diff)
        parts += [Run(f"+{added} -{removed}", palette.faint)]
    elif block.state is ToolState.OK and block.note and (block.collapsed or not block.steps.strip()):
        note = f" {look.glyphs.dot} ".join(block.note.split(_NOTE_PARTS))
        parts.append(Run(fit(note, _MAX_NOTE, look.glyphs.ellipsis), palette.faint))
    elif block.state.finished and block.size.lines:
        parts.append(Run(f"{block.size.lines:,} line{'s' if block.size.lines != 1 else ''}", palette.faint))
    if block.state.finished and block.size.tokens and not is_todo(block):
        parts.append(Run(f"{compact_count(block.size.tokens)} tokens", palette.faint))
    if block.seconds is not None and block.seconds >= 1 and not _TELLS_TIME.search(block.note):
        parts.append(Run(duration(block.seconds), palette.faint))
    for number, part in enumerate(parts):
        if number:
            yield Run(f" {look.glyphs.dot} ", palette.faint)
        yield part


def _draw_preview(block: ToolBlock, indent: int, width: int, look: Look) -> list[Line]:
    if block.diff and block.state in (ToolState.OK, ToolState.ASKING, ToolState.RUNNING):
        return _diff_preview(block.diff, indent, width, look)
    if is_running_subtask(block):
        return draw_subtask(subtask_lines(block), indent, width, look)
    if is_todo(block):
        return draw_todo(previewed(block.todo), indent, False, width, look)
    margin = Run(" " * indent, look.palette.base)
    room = max(1, width - indent)
    return [
        make_line([margin, Run(fit(line, room, look.glyphs.ellipsis), look.palette.faint)], gutter=indent)
        for line in _preview_lines(block)
    ]


def _diff_preview(diff: str, indent: int, width: int, look: Look) -> list[Line]:
    lines = diff.split("\n", _DIFF_SEARCH)[:_DIFF_SEARCH]
    rows = read_diff("\n".join(lines))
    changed = next((place for place, row in enumerate(rows) if row.sign in "+-"), 0)
    return paint_rows(rows[changed : changed + PREVIEW_LINES], width, look, indent=indent)[:PREVIEW_LINES]


def _preview_lines(block: ToolBlock) -> list[str]:
    if not block.state.finished:
        lines = [line for line in block.tail[-_PREVIEW_SEARCH:].split("\n") if line.strip()]
        return lines[-PREVIEW_LINES:]
    lines = [line for line in block.result[:_PREVIEW_SEARCH].split("\n") if not _NO_TEXT.fullmatch(line)]
    if block.state is ToolState.OK:
        in_header = block.note.split(_NOTE_PARTS)
        return [line for line in lines if line.strip(" []") not in in_header][:PREVIEW_LINES]
    return [block.note, *lines][:PREVIEW_LINES] if block.note else lines[:PREVIEW_LINES]


def _told_arguments(block: ToolBlock) -> str:
    """The arguments that the header does not tell, each with its name; the text itself where it is no JSON object."""
    import json

    try:
        values = json.loads(block.arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return "" if block.arguments.strip() == block.summary else block.arguments
    told = {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in values.items()
    }
    return "\n".join(f"{clean(name)}: {clean(text)}" for name, text in told.items() if clean(text) not in block.summary)


def _muted(look: Look) -> Style:
    return look.palette.muted


def _faint(look: Look) -> Style:
    return look.palette.faint
