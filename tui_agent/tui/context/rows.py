"""The rows of the context panel, from an `Overview`: what fills the window, the next steps, and the past ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
from rich.cells import cell_len
from typing_extensions import override

from tui_agent.agent.commands.context_text import LAYERS
from tui_agent.agent.context import ITEM_NAMES, Overview, Step
from tui_agent.agent.events import STEPS, StepWords
from tui_agent.context.changes import PreviewedStep
from tui_agent.context.counting import estimate
from tui_agent.context.forecast import ForecastStep, sentence
from tui_agent.context.stats import LABELS, Activity, ContextStats
from tui_agent.conversation.entries import Words
from tui_agent.conversation.items import Item, place_of
from tui_agent.conversation.sizes import CATEGORIES, Category, TextSize, size_of_text
from tui_agent.conversation.states import ItemState
from tui_agent.conversation.tool_facts import facts_of
from tui_agent.text import (
    clock_text,
    compact_count,
    counted,
    displayed,
    money_text,
    one_line,
    percent_text,
    spoken_time,
)
from tui_agent.tui.context.drawing import Bar, bar_line, category_sign, course_lines, ticks_line
from tui_agent.tui.dialogs.row_list import ListRow, Rows, plain_row
from tui_agent.tui.painting.lines import Line, Run, breaks, fit, make_line
from tui_agent.tui.painting.palette import Look

PREVIEWS: Final[dict[ForecastStep, PreviewedStep]] = {
    "clear": "clear",
    "compact": "compact",
    "checkpoint": "checkpoint",
}
COMMANDS: Final[dict[PreviewedStep, str]] = {"clear": "/clear-results", "compact": "/compact", "checkpoint": "/done"}
EXPLAINED: Final = """\
The bar is the model's window: everything it can read at once. Each colour is one kind of text; the legend has the \
tokens of each and its share of the window.

Clearing: old tool results are replaced by one line each that says how to get them back.
Summary: the older turns become a text of a few hundred words. Your own messages stay as you wrote them.
Full: no larger request is sent.
Room for answer: kept free, because the answer counts too.
Newest, stays: tokens at the end in which nothing is cleared by itself.
Cache: the provider keeps what it has just read for some minutes, and reads it again for a fraction of the price. A \
change in the middle means that what follows is read at full price once. That is why steps wait until they pay.
Put into files: results that were too large; the model has both ends and the file's name.

Nothing of this is lost: u on a step undoes it, r on an item shows it in full, /recall finds everything ever said."""
"""The panel's words, for the key that explains them."""
STATES: Final[dict[ItemState, str]] = {
    "verbatim": "",
    "preview": "preview",
    "cleared": "cleared",
    "digested": "digested",
    "summarized": "summarised",
    "checkpointed": "recorded",
    "restored": "restored",
    "shortened": "shortened",
}
_IN_VIEW: Final[dict[ItemState, str]] = {"summarized": "", "checkpointed": ""}
NAME_CELLS: Final = 13
SIZE_CELLS: Final = 6
AGE_CELLS: Final = 4


class AheadKey(msgspec.Struct, frozen=True):
    """The step that comes next."""

    step: PreviewedStep


class ItemKey(msgspec.Struct, frozen=True):
    """An item of the view, by its number."""

    seq: int


class StepKey(msgspec.Struct, frozen=True):
    """A context step of the past, by its entry's number."""

    seq: int


class WordsKey(msgspec.Struct, frozen=True):
    """The kept words of a user's message, by the message's number."""

    seq: int


class PanelRows(Rows):
    """The figures, then a row for each item, newest first, created when it comes into view."""

    def __init__(
        self, figures: Sequence[ListRow], items: Sequence[Item], now: float, excerpt: Callable[[int], str], scale: float
    ) -> None:
        super().__init__(figures)
        self._items = items
        self._now = now
        self._excerpt = excerpt
        self._scale = scale

    @override
    def place_of(self, key: object) -> int | None:
        if not isinstance(key, ItemKey):
            return super().place_of(key)
        place = place_of(self._items, key.seq)
        return None if place is None else len(self) - 1 - place

    @override
    def __len__(self) -> int:
        return len(self._made) + len(self._items)

    @override
    def element(self, place: int) -> ListRow:
        if place < len(self._made):
            return super().element(place)
        return _item_row(self._items[len(self) - 1 - place], self._now, self._excerpt, self._scale)


def panel_rows(
    seen: Overview,
    now: float,
    excerpt: Callable[[int], str],
    width: int,
    *,
    focused: bool = False,
    away: str = "",
) -> Rows:
    """All rows of a panel of `width` cells. `now`: seconds since the epoch. `excerpt`: the start of an item's text.

    `focused`: its keys work. `away`: what comes if the user stays away.
    """
    figures = [
        *_ahead(seen.stats, width, focused=focused, away=away),
        *_window(seen),
        *titled_rows("Size, call by call", _course(seen)),
        *titled_rows("Steps", [row for step in reversed(seen.steps) for row in _step_rows(step, now, width)]),
        *titled_rows("MCP servers, in each call", _servers(seen.stats)),
        *titled_rows("Activity", _activity(seen.stats, now, width)),
    ]
    if seen.words:
        figures += title_rows(f"Your own words: {len(seen.words):,}", "tokens")
        figures += [
            ListRow(partial(_draw_words, each, seen.items, seen.stats.scale), WordsKey(each.seq))
            for each in reversed(seen.words)
        ]
    if seen.items:
        figures += title_rows(f"In the conversation: {len(seen.items):,}", "tokens  age")
    return PanelRows(figures, seen.items, now, excerpt, seen.stats.scale)


def item_rows(items: Sequence[Item], now: float, excerpt: Callable[[int], str], scale: float) -> list[ListRow]:
    """A row for each item, newest first. `scale`: as in `ContextStats`."""
    return [_item_row(item, now, excerpt, scale) for item in reversed(items)]


def _item_row(item: Item, now: float, excerpt: Callable[[int], str], scale: float) -> ListRow:
    return ListRow(partial(_draw_item, item, now, excerpt, scale), ItemKey(item.seq))


def wrapped(text: str, width: int, style: str = "muted") -> list[ListRow]:
    """A text, wrapped to rows."""
    flat = displayed(one_line(text))
    cuts = breaks(flat, max(8, width - 6))
    return [plain_row(("    " + flat[start:end], style)) for start, end, _ in cuts]


def titled_rows(title: str, rows: Sequence[ListRow], columns: str = "") -> Iterator[ListRow]:
    """Rows under a title, with the headings of the columns on the right; nothing if there are no rows."""
    if rows:
        yield from title_rows(title, columns)
        yield from rows


def title_rows(title: str, columns: str = "") -> tuple[ListRow, ListRow]:
    """A blank row, and a title with the headings of the columns on the right."""
    return plain_row(), ListRow(partial(_draw_title, title, columns))


def _ahead(stats: ContextStats, width: int, *, focused: bool, away: str) -> Iterator[ListRow]:
    """What comes next, as a sentence whose rows can be chosen."""
    if (seen := stats.forecast) is None:
        return
    key, said = None, sentence(seen)
    if (ahead := seen.ahead) is not None and ahead.step in PREVIEWS and ahead.frees:
        key = AheadKey(PREVIEWS[ahead.step])
        # By hand all old results are cleared; what comes later takes more than is there now, and costs something else.
        at_once = "it" if ahead.due and not ahead.in_background else "one now"
        what = "clearing all of them now" if key.step == "clear" else at_once
        said += f" {'Enter' if focused else COMMANDS[key.step]} previews {what}."
    for start, end, _ in breaks(said, max(8, width - 4)):
        yield plain_row(("  " + said[start:end].strip(), "heading"), key=key)
        key = None
    if away:
        yield from wrapped(away, width)
    if warning := next((mark.warning for mark in stats.marks if mark.warning), ""):
        yield from wrapped(warning, width)
    yield plain_row()


def _window(seen: Overview) -> Iterator[ListRow]:
    stats = seen.stats
    about = "" if stats.measured else "~"
    bar = Bar(
        categories=stats.categories, tokens=stats.tokens, window=stats.window, reserve=stats.reserve, marks=stats.marks
    )
    of = f" of {stats.window:,}" if stats.window else ", window unknown"
    share = f"  {percent_text(stats.percent / 100)}" if stats.window else ""
    yield plain_row(("  Context", "heading"), (f"  {about}{stats.tokens:,}{of}", "base"), (share, "muted"))
    if stats.window:
        yield ListRow(partial(bar_line, bar))
        yield ListRow(partial(ticks_line, bar))
    whole = stats.window or sum(stats.categories.values())
    yield from share_rows(stats.categories, whole)
    if stats.memory:
        yield _measure("Index of notes", f"{stats.memory:,}", _percent(stats.memory, whole))
    if stats.reserve:
        yield _measure("Room for answer", f"{stats.reserve:,}", _percent(stats.reserve, whole))
    fixed = stats.categories.get("system", 0) + stats.categories.get("tools", 0)
    if kept := min(seen.protected, max(0, stats.tokens - fixed)):
        yield _measure("Newest, stays", f"{kept:,}", _percent(kept, whole))
    for mark in stats.marks:
        if mark.messages:
            yield _fact(LAYERS[mark.layer], f"{mark.messages:,}", "messages")
        else:
            share = _percent(mark.tokens, stats.window) if stats.window else ""
            yield _measure(LAYERS[mark.layer], f"{mark.tokens:,}", share)


def share_rows(categories: Mapping[Category, int], whole: int) -> Iterator[ListRow]:
    """The legend of a bar: the tokens of each category, and their share of `whole`."""
    for category in CATEGORIES:
        if tokens := categories.get(category, 0):
            yield ListRow(partial(_draw_share, category, tokens, whole))


def _percent(tokens: int, whole: int) -> str:
    return percent_text(tokens / max(1, whole))


def _course(seen: Overview) -> list[ListRow]:
    if not seen.course:
        return []
    largest = max(point.tokens for point in seen.course)
    edits = sum(point.edits > 0 for point in seen.course)
    rows = [ListRow(partial(_draw_course, seen, number)) for number in range(2 if edits else 1)]
    totals = f"{counted(len(seen.course), 'call')}, largest {largest:,}"
    return [*rows, plain_row((f"  {totals}", "muted"))]


def _draw_course(seen: Overview, number: int, width: int, look: Look) -> Line:
    lines = course_lines([(point.tokens, point.edits) for point in seen.course], width, look)
    return lines[number] if number < len(lines) else make_line([Run(" ", look.palette.base)])


def _step_rows(step: Step, now: float, width: int) -> Iterator[ListRow]:
    """What a step did, and below it why."""
    yield ListRow(partial(_draw_step, step, now), StepKey(step.event.seq))
    if step.event.reason:
        yield from wrapped(step.event.reason, width)


def _draw_step(step: Step, now: float, width: int, look: Look) -> Line:
    event, palette, glyphs = step.event, look.palette, look.glyphs
    style = palette.base if step.counts else palette.faint
    name = STEPS.get(event.step, StepWords(event.step)).done
    count = f" {event.items:,}" if event.items > 1 else ""
    sizes = f"{compact_count(event.before)} {glyphs.arrow} {compact_count(event.after)}"
    state = "" if step.counts else f" {glyphs.dot} undone"
    left = f"  {short_age(now - step.time):>{AGE_CELLS}}  {name}{count}{state}"
    pad = " " * max(1, width - cell_len(left) - cell_len(sizes))
    return make_line([Run(left, style), Run(pad, palette.base), Run(sizes, palette.muted)])


def _activity(stats: ContextStats, now: float, width: int) -> list[ListRow]:
    deep = f", {counted(stats.depth, 'time')} over" if stats.depth > 1 else ""
    rows = [
        *_boundary("Summaries", stats.last_compaction, stats.compactions, "focus", now, width),
        *_boundary("Tasks recorded", stats.last_checkpoint, stats.checkpoints, "note", now, width),
        _fact("Summarised", f"{stats.summarised_chars:,}", f"characters{deep}"),
    ]
    for count, label in ((stats.evicted, "put into files"), (stats.cleared, "cleared"), (stats.digested, "digested")):
        if count:
            rows.append(_fact(f"Results {label}", f"{count:,}"))
    if stats.reasoning_dropped:
        rows.append(_fact("Reasoning left out", f"{stats.reasoning_dropped:,}", "prefix changed"))
    if stats.cache_share is not None:
        rows.append(_fact("From the cache", f"{100 * stats.cache_share:.0f}%", "of all input"))
    if stats.cache_until > now:
        day, _, hour = clock_text(stats.cache_until).rpartition(", ")
        rows.append(_fact("Cache lives until", hour, day))
    if stats.subtasks.count:
        used = stats.subtasks
        tokens = compact_count(used.input_tokens + used.output_tokens)
        rows.append(_fact("Subtasks", f"{used.count:,}", f"{tokens} tokens, {money_text(used.cost_usd)} of it"))
    rows.append(_fact("Cost", money_text(stats.cost_usd), f"turn {money_text(stats.turn_cost_usd)}"))
    if len(stats.models) > 1:
        for use in stats.models:
            use_text = f"{counted(use.calls, 'call')}, {money_text(use.cost_usd)}"
            rows.append(plain_row((f"  {one_line(use.model, 60)}  ", "base"), (use_text, "muted")))
    return rows


def _servers(stats: ContextStats) -> list[ListRow]:
    rows = []
    for use in stats.servers:
        prices = [money_text(use.sent_usd)] if use.sent_usd else []
        worth = f" ({money_text(use.saved_usd)})" if use.saved_usd else ""
        prices += [f"saves {use.saved:,}{worth}"] if use.saved else []
        rows.append(_fact(one_line(use.name, 18), f"{use.sent:,}", ", ".join(prices)))
    return rows


def _boundary(label: str, newest: Activity, count: int, called: str, now: float, width: int) -> list[ListRow]:
    last = f"last {spoken_time(now - newest.last)} ago" if count and newest.last else ""
    rows = [_fact(label, f"{count:,}", last)]
    if count and newest.note.strip():
        rows += wrapped(f"{called}: {newest.note}", width)
    return rows


def _draw_words(words: Words, items: Sequence[Item], scale: float, width: int, look: Look) -> Line:
    """Paint kept words, with a note if the message itself is pinned or still in the context."""
    palette, glyphs = look.palette, look.glyphs
    place = place_of(items, words.seq)
    state = "" if place is None else "pinned" if items[place].pinned else _IN_VIEW.get(items[place].state, "in view")
    style = palette.accent if state == "pinned" else palette.faint if state else palette.base
    right = f"{state and '  ' + state}{_size(size_of_text(words.text), scale):>{SIZE_CELLS + 1}}"
    room = max(0, width - 2 - len(right))
    excerpt_text = fit(one_line(words.text, 200), room, glyphs.ellipsis) if room >= 4 else ""
    pad = " " * max(0, room - cell_len(excerpt_text))
    return make_line([Run("  ", palette.base), Run(excerpt_text + pad, style), Run(right, palette.muted)])


def _draw_item(item: Item, now: float, excerpt: Callable[[int], str], scale: float, width: int, look: Look) -> Line:
    palette, glyphs = look.palette, look.glyphs
    gone = item.size.characters < item.full.characters and item.state != "verbatim"
    style = palette.faint if gone else palette.base
    kind = facts_of(one_line(item.name)).title or ITEM_NAMES.get(item.category, item.category)
    name = fit(kind, NAME_CELLS, glyphs.ellipsis)
    state = "pinned" if item.pinned else STATES[item.state]
    size, age = _size(item.full, scale), short_age(now - item.time)
    right = f"{state and '  ' + state}{size:>{SIZE_CELLS + 1}}{age:>{AGE_CELLS + 1}}"
    room = max(0, width - 2 - NAME_CELLS - 2 - len(right))
    excerpt_text = fit(one_line(excerpt(item.seq), 200), room, glyphs.ellipsis) if room >= 4 else ""
    sign = Run("  ", palette.base)
    label = Run(name + " " * (NAME_CELLS - cell_len(name) + 1), palette.accent if item.pinned else style)
    pad = " " * max(0, room + 1 - cell_len(excerpt_text))
    status = palette.accent if item.pinned else palette.muted
    return make_line(
        [sign, label, Run(excerpt_text + pad, palette.faint if gone else palette.muted), Run(right, status)]
    )


def _size(size: TextSize, scale: float) -> str:
    return compact_count(round(estimate(size) * scale))


def short_age(seconds: float) -> str:
    """A duration in at most four characters."""
    whole = max(0, int(seconds))
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if whole >= length:
            return f"{min(999, whole // length)}{unit}"
    return f"{whole}s"


def _draw_share(category: Category, tokens: int, whole: int, width: int, look: Look) -> Line:
    palette = look.palette
    return make_line(
        [
            Run("  ", palette.base),
            category_sign(category, look),
            Run(f" {LABELS[category]:<18}", palette.base),
            Run(f"{tokens:>10,}", palette.base),
            Run(f"{_percent(tokens, whole):>6}", palette.muted),
        ]
    )


def _measure(label: str, value: str, share: str) -> ListRow:
    """A row below the legend, in its columns."""
    return plain_row((f"    {label:<18}", "muted"), (f"{value:>10}", "base"), (f"{share:>6}", "muted"))


def _fact(label: str, value: str, note: str = "") -> ListRow:
    return plain_row(("    ", "base"), (f"{label:<18}", "base"), (f"{value:>10}", "base"), (f"  {note}", "muted"))


def _draw_title(title: str, columns: str, width: int, look: Look) -> Line:
    palette = look.palette
    room = width - 2 - cell_len(title) - cell_len(columns)
    right = " " * room + columns if columns and room > 0 else ""
    return make_line([Run("  " + title, palette.heading), Run(right, palette.faint)])
