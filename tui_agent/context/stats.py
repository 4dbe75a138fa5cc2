"""A frozen snapshot of how full the window is and what comes next, and its text form for `/context`."""

from collections.abc import Callable, Mapping
from textwrap import wrap
from unicodedata import combining, east_asian_width

import msgspec

from tui_agent.context.budget import ModelLimits, Thresholds
from tui_agent.context.economics import LayerPreview, spoken_time
from tui_agent.context.meter import TokenMeter
from tui_agent.conversation.entries import Checkpointed, Summarized
from tui_agent.conversation.sizes import CATEGORIES, Category
from tui_agent.conversation.view import View
from tui_agent.text import counted, money_text, one_line, price_or_time

LABELS: dict[Category, str] = {
    "system": "System prompt",
    "tools": "Tool definitions",
    "user": "Your messages",
    "notices": "Notices",
    "assistant": "Answers",
    "reasoning": "Reasoning",
    "calls": "Tool calls",
    "results": "Tool results",
    "summaries": "Summaries",
}
BAR_WIDTH = 20
WIDTH = 80
"""Columns of the text form."""
_INDENT = 16
"""Columns before a model's name in the list of models."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A threshold to show: the layer (``clear``, ``compact`` or ``limit``), where it starts, and a warning if it rests.

    If the window is unknown, it starts at `messages` instead of `tokens`.
    """

    layer: str
    tokens: int
    percent: float
    messages: int = 0
    source: str = ""
    warning: str = ""


class NextLayer(msgspec.Struct, frozen=True, kw_only=True):
    """The layer that acts next: in how many tokens (`distance`), and what it would do now."""

    layer: str
    distance: int
    preview: LayerPreview = LayerPreview()


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of boundary: how many there are, when the newest was made (seconds since the epoch), its focus or note."""

    count: int = 0
    last: float = 0.0
    note: str = ""


class Subtasks(msgspec.Struct, frozen=True):
    """The subtasks' usage; the session's cost includes it."""

    count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = 0.0


class ServerUse(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens, and USD for each call, of an MCP server's tool definitions: `told` are sent with every request,
    `saved` are not, because they are looked up.
    """

    name: str
    told: int = 0
    saved: int = 0
    told_usd: float = 0.0
    saved_usd: float = 0.0


class ModelUse(msgspec.Struct, frozen=True):
    """The usage of one model."""

    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None


class ContextStats(msgspec.Struct, frozen=True, kw_only=True):
    """How full the window is, what comes next, and what everything costs.

    tokens: the size of the next request (`measured`: counted by the provider, else estimated). window: the model's
    input capacity; 0: unknown. reserve: room for an answer. categories: the request in estimated tokens by category.
    Costs are in USD, None if the model's prices are unknown. cache_share: the share of all input that was read from the
    provider's cache. evicted, cleared, digested: the present number of such results. summarised_chars: characters in
    the log of everything that boundaries cover; summaries: how many texts replace it; depth: how many times the oldest
    of it was summarised. waits, waited_s: how often, and how many seconds in all, turns waited for a summary. models:
    by descending cost.
    """

    model: str
    tokens: int
    window: int
    reserve: int
    measured: bool
    categories: Mapping[Category, int]
    cost_usd: float | None = 0.0
    turn_cost_usd: float | None = 0.0
    cache_share: float | None = None
    messages: int = 0
    evicted: int = 0
    cleared: int = 0
    digested: int = 0
    compactions: int = 0
    checkpoints: int = 0
    summarised_chars: int = 0
    summaries: int = 0
    depth: int = 0
    waits: int = 0
    waited_s: float = 0.0
    reasoning_dropped: int = 0
    last_compaction: Activity = Activity()
    last_checkpoint: Activity = Activity()
    marks: tuple[Mark, ...] = ()
    next_layer: NextLayer | None = None
    subtasks: Subtasks = Subtasks()
    models: tuple[ModelUse, ...] = ()
    servers: tuple[ServerUse, ...] = ()

    @property
    def percent(self) -> float:
        """The share of the window in use, in percent."""
        return 100 * self.tokens / self.window if self.window else 0.0


def stats_of(
    view: View, meter: TokenMeter, limits: ModelLimits, model: str, preview: Callable[[str], LayerPreview]
) -> ContextStats:
    """The snapshot without costs, in time proportional to the number of context entries.

    `preview`: what the layer of this name would do now.
    """
    tokens, hidden, shown, entries = meter.tokens(view), view.counts(), view.boundaries(), view.context_entries()
    # A wait counts even if its step was undone later.
    waited = [each.waited_s for each, _ in entries if isinstance(each, Summarized | Checkpointed) and each.waited_s]
    summaries = [entry for entry, counts in entries if counts and isinstance(entry, Summarized)]
    records = [entry for entry, counts in entries if counts and isinstance(entry, Checkpointed)]
    return ContextStats(
        model=model,
        tokens=tokens,
        window=limits.window.tokens,
        reserve=limits.budget.reserve,
        measured=meter.measured,
        categories=meter.breakdown(view),
        messages=view.message_count,
        evicted=hidden.evicted,
        cleared=hidden.cleared,
        digested=hidden.digested,
        compactions=len(summaries),
        checkpoints=len(records),
        summarised_chars=hidden.hidden,
        summaries=len(shown),
        depth=max((boundary.depth for boundary in shown), default=0),
        waits=len(waited),
        waited_s=sum(waited),
        reasoning_dropped=view.reasoning_dropped(),
        last_compaction=Activity(
            count=len(summaries),
            last=max((entry.time for entry in summaries), default=0.0),
            note=summaries[-1].focus if summaries else "",
        ),
        last_checkpoint=Activity(
            count=len(records),
            last=max((entry.time for entry in records), default=0.0),
            note=records[-1].note if records else "",
        ),
        marks=marks(limits.thresholds, limits.window.tokens),
        next_layer=next_layer(tokens, limits.thresholds, preview),
    )


def marks(thresholds: Thresholds, window: int) -> tuple[Mark, ...]:
    """The thresholds to show, lowest first."""
    return tuple(
        Mark(
            layer=each.layer,
            tokens=each.tokens,
            percent=each.share(window),
            messages=each.messages,
            source=each.source,
            warning=each.warning,
        )
        for each in thresholds.all()
    )


def next_layer(tokens: int, thresholds: Thresholds, preview: Callable[[str], LayerPreview]) -> NextLayer | None:
    """The next layer that a growing request of `tokens` reaches, with its preview."""
    ahead = [each for each in thresholds.all() if not each.rests and each.tokens > tokens and each.layer != "limit"]
    if not ahead:
        return None
    seen = preview(ahead[0].layer)
    seen = seen._replace(frees=max(0, seen.frees))
    return NextLayer(layer=ahead[0].layer, distance=ahead[0].tokens - tokens, preview=seen)


def price_text(ahead: LayerPreview) -> str:
    """What the next step costs, and when it has paid for itself; empty if prices are unknown or it frees nothing."""
    price = ahead.payback
    if price is None or not ahead.frees:
        return ""
    saved = price_or_time(price.saving_usd, price.saving_s)
    if not price.cost_usd and not price.cost_s:
        return f"costs nothing, saves {saved} a call"
    paid = f", paid back after {counted(price.calls, 'call')}" if price.calls else ""
    return f"costs {price_or_time(price.cost_usd, price.cost_s)}, saves {saved} a call{paid}"


def text(stats: ContextStats, now: float) -> str:
    """The snapshot as lines of at most 80 columns; `now` in seconds since the epoch."""
    lines = [*_window(stats), "", *_thresholds(stats), "", *_activity(stats, now)]
    return "\n".join(_clipped(line).rstrip() for line in lines)


def _window(stats: ContextStats) -> list[str]:
    about = "" if stats.measured else "~"
    if stats.window:
        size = f"Context: {about}{stats.tokens:,} of {stats.window:,} tokens ({stats.percent:.0f}%), "
    else:
        size = f"Context: {about}{stats.tokens:,} tokens, window unknown, "
    headline = size + _clipped_inside(one_line(stats.model), WIDTH - len(size))
    if not stats.window:
        return [headline, *_categories(stats)]
    filled = min(BAR_WIDTH, round(BAR_WIDTH * stats.percent / 100))
    bar = "#" * filled + "." * (BAR_WIDTH - filled)
    return [
        headline,
        f"  [{bar}] {'measured' if stats.measured else 'estimated'}, {stats.reserve:,} reserved for an answer",
        *_categories(stats),
    ]


def _categories(stats: ContextStats) -> list[str]:
    whole = sum(stats.categories.values())
    return [
        f"  {LABELS[category]:<18}{tokens:>10,}  {100 * tokens / whole:>3.0f}%"
        for category in CATEGORIES
        if (tokens := stats.categories.get(category, 0))
    ]


def _thresholds(stats: ContextStats) -> list[str]:
    lines = ["Thresholds:"]
    for mark in stats.marks:
        where = f"{mark.tokens:>10,}  {mark.percent:>3.0f}%" if mark.percent else f"{mark.tokens:>10,}      "
        if mark.messages:
            where = f"{mark.messages:>10,} messages"
        lines.append(f"  {_LAYERS[mark.layer]:<18}{where}  {'rests' if mark.warning else mark.source}")
    lines += [f"  ! {line}" for mark in stats.marks if mark.warning for line in wrap(mark.warning, WIDTH - 4)]
    if (ahead := stats.next_layer) is not None:
        frees = f", frees about {ahead.preview.frees:,}" if ahead.preview.frees else ""
        lines.append(f"  Next: {_LAYERS[ahead.layer].lower()} in {ahead.distance:,} tokens{frees}")
        lines += [f"        {line}" for line in (price_text(ahead.preview), ahead.preview.why) if line]
    return lines


def _texts(stats: ContextStats) -> str:
    """A line on the texts that replace what was summarised."""
    if not stats.summaries:
        return ""
    return f" in {stats.summaries:,} text{'s' * (stats.summaries > 1)}, at most {stats.depth} deep"


def _activity(stats: ContextStats, now: float) -> list[str]:
    lines = [
        "Context-management activity:",
        f"  Compactions:  {_boundary(stats.last_compaction, stats.compactions, 'focus', now)}",
        f"  Checkpoints:  {_boundary(stats.last_checkpoint, stats.checkpoints, 'note', now)}",
        f"  Summarised:   {counted(stats.summarised_chars, 'character')}{_texts(stats)}",
        f"  Results:      {stats.evicted:,} evicted, {stats.cleared:,} cleared, {stats.digested:,} digested",
    ]
    if stats.reasoning_dropped:
        lines.append(f"  Reasoning:    {stats.reasoning_dropped:,} blocks left out since the prefix changed")
    if stats.cache_share is not None:
        lines.append(f"  Cache:        {100 * stats.cache_share:.0f}% of all input was read from it")
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
    told = f"{use.told:,} tokens, {_usd(use.told_usd)}" if use.told else "looked up when needed"
    saved = f"; saves {use.saved:,} tokens, {_usd(use.saved_usd)}" if use.saved else ""
    return f"  {one_line(use.name, 24):<18}{told}{saved}"


def _boundary(activity: Activity, count: int, label: str, now: float) -> str:
    if not count or not activity.last:
        return f"{count:,}"
    note = f", {label}: {one_line(activity.note)}" if activity.note.strip() else ""
    line = f"{count:,} (last {spoken_time(now - activity.last)} ago{note}"
    return f"{_clipped(line, WIDTH - 17)})"


def _models(models: tuple[ModelUse, ...]) -> list[str]:
    """The usage of each model; a long name takes lines of its own, uncut."""
    lines = []
    for number, use in enumerate(models):
        calls = f"{use.calls:,} call{'' if use.calls == 1 else 's'}"
        figures = f"({calls}, {use.input_tokens:,} in / {use.output_tokens:,} out, {_usd(use.cost_usd)})"
        name = one_line(use.model)
        parts = [f"{name} {figures}"]
        if _columns(parts[0]) > WIDTH - _INDENT:
            parts = [*_folded(name, WIDTH - _INDENT), f"  {figures}"]
        lines.append(f"{'              + ' if number else '  Models:       '}{parts[0]}")
        lines += [f"{' ' * _INDENT}{part}" for part in parts[1:]]
    return lines


def _usd(cost: float | None) -> str:
    return "price unknown" if cost is None else money_text(cost)


def _columns(text: str) -> int:
    return sum(map(_width, text))


def _width(character: str) -> int:
    return 2 if east_asian_width(character) in "WF" else 0 if combining(character) else 1


def _folded(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, broken anywhere."""
    lines, used = [""], 0
    for character in text:
        used += _width(character)
        if used > width:
            lines.append("")
            used = _width(character)
        lines[-1] += character
    return lines


def _clipped(line: str, width: int = WIDTH) -> str:
    return line if _columns(line) <= width else f"{_folded(line, width - 3)[0]}..."


def _clipped_inside(text: str, width: int) -> str:
    """A text cut in the middle to `width` columns: names with the same beginning often differ at the end."""
    if _columns(text) <= width:
        return text
    half = (width - 3) // 2
    return f"{_folded(text, half)[0]}...{_folded(text[::-1], width - 3 - half)[0][::-1]}"


_LAYERS = {"clear": "Clearing", "compact": "Compaction", "limit": "Limit"}
