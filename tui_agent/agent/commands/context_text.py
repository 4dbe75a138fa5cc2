"""The text form of a context snapshot, for `/context`."""

from textwrap import wrap
from typing import Final

from rich.cells import cell_len, chop_cells

from tui_agent.agent.history.calls import CallRecord, ViewAtCall
from tui_agent.context.forecast import sentence
from tui_agent.context.stats import LABELS, Activity, ContextStats, ModelUse, ServerUse
from tui_agent.conversation.sizes import CATEGORIES, Category
from tui_agent.text import clock_text, counted, money_text, one_line, percent_text, spoken_time

INEXACT: Final = "An earlier version sent this request: its messages may have differed in form."
ELSEWHERE: Final = "Another program made this call: this is what it recorded of it, not the request as it was sent."
ADDED: Final[dict[Category, str]] = {
    "user": "user message",
    "notices": "notice",
    "assistant": "answer",
    "calls": "call",
    "reasoning": "thought",
    "results": "result",
    "summaries": "summary",
    "system": "system prompt",
    "tools": "tool",
}
LAYERS: Final = {"clear": "Clearing from", "compact": "Summary from", "limit": "Full at"}
"""What each threshold means."""
BAR_WIDTH = 20
WIDTH = 80
"""Columns of the text form."""
_INDENT = 16
"""Columns before a model's name in the list of models."""


def text(stats: ContextStats, now: float) -> str:
    """The snapshot as lines of at most 80 columns; `now` in seconds since the epoch."""
    lines = [*_window(stats), "", *_thresholds(stats), "", *_activity(stats, now)]
    return "\n".join(_clipped(line).rstrip() for line in lines)


def _window(stats: ContextStats) -> list[str]:
    about = "" if stats.measured else "~"
    if stats.window:
        size = f"Context: {about}{stats.tokens:,} of {stats.window:,} tokens ({percent_text(stats.percent / 100)}), "
    else:
        size = f"Context: {about}{stats.tokens:,} tokens, window unknown, "
    headline = size + _clipped_inside(one_line(stats.model), WIDTH - len(size))
    if not stats.window:
        return [headline, *_categories(stats)]
    filled = min(BAR_WIDTH, round(BAR_WIDTH * stats.percent / 100))
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    return [
        headline,
        f"  [{bar}] {'measured' if stats.measured else 'estimated'}, {stats.reserve:,} are room for the answer",
        *_categories(stats),
    ]


def _categories(stats: ContextStats) -> list[str]:
    # Of the window, as everything here; if that is unknown, of what is in it.
    whole = stats.window or sum(stats.categories.values())
    lines = []
    for category in CATEGORIES:
        if tokens := stats.categories.get(category, 0):
            lines.append(_share(LABELS[category], tokens, whole))
        if category == "system" and stats.memory:
            lines.append(_share("  memory", stats.memory, whole))
    return lines


def _share(label: str, tokens: int, whole: int) -> str:
    return f"  {label:<18}{tokens:>10,}  {percent_text(tokens / max(1, whole)):>4}"


def _thresholds(stats: ContextStats) -> list[str]:
    lines = ["Thresholds:"]
    for mark in stats.marks:
        share = f"{percent_text(mark.tokens / stats.window):>4}" if stats.window else "    "
        where = f"{mark.tokens:>10,}  {share}"
        if mark.messages:
            where = f"{mark.messages:>10,} messages"
        lines.append(f"  {LAYERS[mark.layer]:<18}{where}  {'rests' if mark.warning else mark.source}")
    lines += [f"  ! {line}" for mark in stats.marks if mark.warning for line in wrap(mark.warning, WIDTH - 4)]
    if stats.forecast is not None:
        # On the screen it stands within margins.
        lines += ["", *wrap(sentence(stats.forecast), WIDTH - 8)]
    return lines


def _activity(stats: ContextStats, now: float) -> list[str]:
    texts = f" in {counted(stats.summaries, 'text')}, at most {stats.depth} deep" if stats.summaries else ""
    lines = [
        "Activity:",
        f"  Summaries:    {_boundary(stats.last_compaction, stats.compactions, 'focus', now)}",
        f"  Recorded:     {_boundary(stats.last_checkpoint, stats.checkpoints, 'note', now, 'tasks')}",
        f"  Summarised:   {counted(stats.summarised_chars, 'character')}{texts}",
        f"  Results:      {stats.evicted:,} put into files, {stats.cleared:,} cleared, {stats.digested:,} digested",
    ]
    if stats.reasoning_dropped:
        lines.append(f"  Reasoning:    {stats.reasoning_dropped:,} blocks left out since the prefix changed")
    if stats.cache_share is not None:
        until = f"; it lives until {clock_text(stats.cache_until)}" if stats.cache_until > now else ""
        lines.append(f"  Cache:        {100 * stats.cache_share:.0f}% of all input was read from it{until}")
    if stats.subtasks.count:
        used = stats.subtasks
        tokens = f"{used.input_tokens:,} in / {used.output_tokens:,} out tokens"
        lines.append(f"  Subtasks:     {used.count:,} ({tokens}, {_usd(used.cost_usd)} in the /stats total)")
    if len(stats.models) > 1:
        lines += _models(stats.models)
    if stats.servers:
        lines += ["", "MCP servers, in each call:", *(_server(each) for each in stats.servers)]
    return lines


def _server(use: ServerUse) -> str:
    sent = f"{use.sent:,} tokens, {_usd(use.sent_usd)}" if use.sent else "looked up when needed"
    saved = f"; saves {use.saved:,} tokens, {_usd(use.saved_usd)}" if use.saved else ""
    return f"  {one_line(use.name, 24):<18}{sent}{saved}"


def _boundary(activity: Activity, count: int, label: str, now: float, things: str = "") -> str:
    number = f"{count:,} {things}".rstrip()
    if not count or not activity.last:
        return number
    note = f", {label}: {one_line(activity.note)}" if activity.note.strip() else ""
    line = f"{number} (last {spoken_time(now - activity.last)} ago{note}"
    return f"{_clipped(line, WIDTH - 17)})"


def _models(models: tuple[ModelUse, ...]) -> list[str]:
    """The usage of each model; a long name takes lines of its own, uncut."""
    lines = []
    for number, use in enumerate(models):
        figures = (
            f"({counted(use.calls, 'call')}, {use.input_tokens:,} in / {use.output_tokens:,} out, {_usd(use.cost_usd)})"
        )
        name = one_line(use.model)
        parts = [f"{name} {figures}"]
        if cell_len(parts[0]) > WIDTH - _INDENT:
            parts = [*chop_cells(name, WIDTH - _INDENT), f"  {figures}"]
        lines.append(f"{'              + ' if number else '  Models:       '}{parts[0]}")
        lines += [f"{' ' * _INDENT}{part}" for part in parts[1:]]
    return lines


def _usd(cost: float | None) -> str:
    return "price unknown" if cost is None else money_text(cost)


def _clipped(line: str, width: int = WIDTH) -> str:
    return line if cell_len(line) <= width else f"{chop_cells(line, width - 3)[0]}..."


def _clipped_inside(text: str, width: int) -> str:
    """A text cut in the middle to `width` columns: names with the same beginning often differ at the end."""
    if cell_len(text) <= width:
        return text
    half = (width - 3) // 2
    return f"{chop_cells(text, half)[0]}...{chop_cells(text[::-1], width - 3 - half)[0][::-1]}"


def call_line(call: CallRecord) -> str:
    """A call on a line: its tokens, cost, and what happened since the one before. A dot: it is on another branch."""
    used, mark = call.usage, " " if call.present else "."
    notes = ", ".join([*call.notes, *["cache lost"] * bool(call.lost), *["by another program"] * call.elsewhere])
    return (
        f"{call.number:>6}{mark} {used.input_tokens:>9,} {used.cache_read_tokens:>9,} {used.cache_write_tokens:>9,} "
        f"{used.output_tokens:>7,} {money_text(call.cost_usd):>8}  {notes}"
    ).rstrip()


def call_text(seen: ViewAtCall) -> str:
    """What the model saw at a call: its size by category, and what changed since the call before."""
    call, used = seen.call, seen.call.usage
    whole = sum(seen.categories.values())
    found = ((LABELS[category], seen.categories.get(category, 0)) for category in CATEGORIES)
    shares = [_share(label, tokens, whole) for label, tokens in found if tokens]
    since = f"Since call {call.before:,}:" if call.before else "The first call of this branch:"
    return "\n".join(
        [
            f"{call.model}, {clock_text(call.time)}: {used.input_tokens:,} tokens, {money_text(call.cost_usd)}",
            *shares,
            "",
            f"Cache: {used.cache_read_tokens:,} read, {used.cache_write_tokens:,} written",
            *([f"  lost, {money_text(call.lost_usd)} more: {call.lost}"] if call.lost else []),
            since,
            *(f"  {line}" for line in changes(seen)),
            *(["", how_sent(seen)] if not seen.exact else []),
        ]
    )


def how_sent(seen: ViewAtCall) -> str:
    """Why what is shown may not be the request as it was sent; empty if it is."""
    return "" if seen.exact else ELSEWHERE if seen.call.elsewhere else INEXACT


def changes(seen: ViewAtCall) -> list[str]:
    """What changed since the call before, in words."""
    added = [f"{count:,} {ADDED[category]}{'s' * (count > 1)}" for category, count in seen.added.items()]
    found = [f"added: {', '.join(reversed(added))}"] if added else []
    found += seen.call.notes
    if seen.dropped:
        found.append(f"thinking of {counted(seen.dropped, 'answer')} left out")
    return found or ["nothing"]
