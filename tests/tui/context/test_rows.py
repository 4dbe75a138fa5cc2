"""The rows of the context panel: aligned at any width, safe with any text."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs
from rich.cells import cell_len
from typing_extensions import override

from tui_agent.agent import events
from tui_agent.agent.context import Overview, Step, SwitchPreview
from tui_agent.context.budget import Threshold
from tui_agent.context.cache_life import CacheState
from tui_agent.context.changes import ChangePreview, StepPreview
from tui_agent.context.economics import StepPrice
from tui_agent.context.forecast import Forecast, StepAhead
from tui_agent.context.stats import Activity, ContextStats, ModelUse, SubtaskUse
from tui_agent.conversation.entries import Words
from tui_agent.conversation.fold import MeasuredCall
from tui_agent.conversation.items import Item
from tui_agent.conversation.sizes import Category, TextSize
from tui_agent.conversation.states import ItemState
from tui_agent.tui.context.previews import preview_rows, switch_rows
from tui_agent.tui.context.rows import ItemKey, StepKey, panel_rows, short_age
from tui_agent.tui.dialogs.row_list import ListRow
from tui_agent.tui.painting.glyphs import UNICODE, Glyphs
from tui_agent.tui.painting.palette import Look, Palette

HOSTILE = "\x1b[31mred\x1b]0;x\x07 [/b] \u202eevil\u200b 漢字 e\u0301\U0001f468\u200d\U0001f469 \t tab\nnext"
NOW = 10_000.0
STATES: tuple[ItemState, ...] = ("verbatim", "preview", "cleared", "digested", "summarized", "checkpointed", "restored")
CATEGORIES: dict[Category, int] = {"system": 2_000, "tools": 3_000, "user": 500, "results": 40_000, "summaries": 900}


def look(glyphs: Glyphs = UNICODE) -> Look:
    return Look(Palette.from_theme({}), glyphs)


def items(name: str = HOSTILE) -> tuple[Item, ...]:
    return tuple(
        Item(number, number, "results", state, number == 2, TextSize(10), TextSize(5_000), NOW - 90, name)
        for number, state in enumerate(STATES, start=1)
    )


AHEAD = Forecast(
    tokens=46_400,
    cache=CacheState(False, "the cache is warm"),
    cost=0.02,
    later=0.01,
    ahead=StepAhead(step="clear", frees=12_000, calls=9, price=StepPrice(0.02, 0.0512, 0.0044)),
)


def seen(window: int = 200_000) -> Overview:
    stats = ContextStats(
        model="m",
        tokens=46_400,
        window=window,
        reserve=16_384,
        measured=False,
        categories=CATEGORIES,
        cache_share=0.84,
        evicted=1,
        cleared=2,
        digested=3,
        compactions=1,
        last_compaction=Activity(count=1, last=NOW - 60, note=HOSTILE),
        reasoning_dropped=2,
        marks=(
            Threshold(layer="clear", tokens=120_000, source="threshold"),
            Threshold(layer="compact", tokens=130_000, warning=HOSTILE),
            Threshold(layer="limit", tokens=183_616),
        ),
        forecast=AHEAD,
        subtasks=SubtaskUse(count=2, input_tokens=5_000, output_tokens=200, cost_usd=None),
        models=(
            ModelUse(model=HOSTILE, calls=1, input_tokens=1, output_tokens=1, cost_usd=1.0),
            ModelUse(model="b", calls=2, input_tokens=1, output_tokens=1, cost_usd=None),
        ),
    )
    step = events.ContextStep(step="cleared", seq=9, before=50_000, after=46_400, items=3, reason=HOSTILE)
    points = (MeasuredCall(40_000, 0), MeasuredCall(50_000, 0), MeasuredCall(46_400, 1))
    steps = (Step(step, NOW - 3_700, counts=True), Step(step, NOW - 90_000, counts=False))
    words = (Words(2, HOSTILE), Words(5, f"{HOSTILE} again"), Words(999, "Never touch `main`."))
    return Overview(stats, items(), steps, points, 40_000, words)


def texts(rows: Sequence[ListRow], width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    return [row.draw(width, look(glyphs)).text for row in rows]


@pytest.mark.parametrize("width", [50, 58, 79, 120])
@pytest.mark.parametrize("window", [0, 200_000])
def test_no_row_is_wider_than_the_panel(width: int, window: int) -> None:
    for line in texts(panel_rows(seen(window), NOW, lambda _: HOSTILE, width), width):
        assert cell_len(line) <= width, line


@pytest.mark.parametrize("width", [50, 58, 79])
def test_why_a_step_was_taken_is_not_cut(width: int) -> None:
    why = "it pays: 9,000 freed tokens outweigh a summary (between turns, from 4,000 on)"
    step = Step(events.ContextStep(step="cleared", seq=9, before=50_000, after=46_400, reason=why), NOW, counts=True)
    shown = texts(panel_rows(structs.replace(seen(), steps=(step,)), NOW, lambda _: "", width), width)
    place = next(place for place, line in enumerate(shown) if "cleared" in line and "50k → 46k" in line)
    assert why in " ".join(line.strip() for line in shown[place + 1 : place + 4])


class Counted(Sequence[Item]):
    """Items that count how many of them were looked at."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.looked = 0

    @override
    def __len__(self) -> int:
        return self.length

    @override
    def __getitem__(self, index: Any) -> Any:
        self.looked += 1
        return structs.replace(items("read_file")[0], seq=range(self.length)[index] + 1)


def test_of_a_long_conversation_only_the_items_in_view_are_looked_at() -> None:
    many = Counted(30_000)
    rows = panel_rows(structs.replace(seen(), items=many), NOW, lambda _: "text", 80)
    first = len(rows) - 30_000
    assert many.looked == 0
    assert rows[first].key == ItemKey(30_000)
    assert rows[-1].key == ItemKey(1)
    texts(rows[first : first + 40], 80)
    assert many.looked < 100
    assert rows.place_of(ItemKey(29_999)) == first + 1
    assert rows.place_of(ItemKey(40_000)) is None
    assert rows.place_of(StepKey(9)) is not None


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0s"), (59, "59s"), (60, "1m"), (7_300, "2h"), (86_399, "23h"), (86_400, "1d"), (1e9, "999d")],
)
def test_ages(seconds: float, shown: str) -> None:
    assert short_age(seconds) == shown


def test_only_a_step_that_frees_something_is_previewed() -> None:
    for frees, told in ((12_000, True), (0, False)):
        ahead = structs.replace(AHEAD, ahead=StepAhead(step="compact", frees=frees, distance=9))
        known = structs.replace(seen(), stats=structs.replace(seen().stats, forecast=ahead))
        rows = panel_rows(known, NOW, lambda _: "", 79, focused=True)
        assert ("Enter previews one now." in " ".join(texts(rows[:3], 79))) is told


@pytest.mark.parametrize(
    ("price", "told"),
    [
        (None, "Costs not known, no price is"),
        (StepPrice(0.1, 0.2, 0.1, 0.4), "Writing it $0.400 Next call $0.200 instead of $0.100"),
        (StepPrice(0.1, 0.2, 0.1), "Each call after it saves $0.100 Paid back after 1 more call"),
        (StepPrice(0.2, 0.1, 0.1), "Paid back at once"),
        (StepPrice(0.1, 0.2, 0.0), "Paid back never"),
    ],
)
def test_a_preview_says_what_it_costs(price: StepPrice | None, told: str) -> None:
    preview = ChangePreview(50_000, 20_000, items(), (), 4_000, 2, 2)
    rows = texts(preview_rows(StepPreview("clear", preview, True, price, ""), NOW, lambda _: HOSTILE), 90)
    shown = " ".join(" ".join(rows).split())
    for fact in (told, "30,000 tokens", "of 2 calls", "Leaves the view: 7"):
        assert fact in shown


def test_a_step_costs_nothing_where_the_model_is_free() -> None:
    seen = StepPreview("clear", ChangePreview(50_000, 20_000, items(), (), 4_000, 2), True, None, "")
    shown = "\n".join(texts(preview_rows(seen, NOW, lambda _: "", free=True), 90))
    assert "nothing, the model is free" in shown
    assert "price" not in shown


def test_a_switch_says_what_fires_and_what_it_costs() -> None:
    seen_preview = SwitchPreview(HOSTILE, "b", 150_000, 20_000_000, 200_000, (), "compact", 0.6, 0.02, None, 3)
    shown = "\n".join(texts(switch_rows(seen_preview), 90))
    figures = ("<1% of 20,000,000", "75% of 200,000", "$0.600", "$0.020", "$?", "3 blocks")
    for fact in ("older turns are summarised", *figures):
        assert fact in shown
    assert "\x1b" not in shown
    for usd, told in ((None, "its price is not known"), (0.0, "costs no money")):
        shown = "\n".join(texts(switch_rows(structs.replace(seen_preview, cost_usd=usd, call_usd=usd)), 90))
        assert told in shown
        assert "$" not in shown


def test_a_threshold_in_messages_is_told_in_messages() -> None:
    mark = Threshold(layer="compact", tokens=0, messages=40, source="max_messages")
    stats = structs.replace(seen().stats, marks=(mark,), forecast=None)
    shown = "\n".join(texts(panel_rows(structs.replace(seen(), stats=stats), NOW, lambda _: "", 100), 100))
    assert "40  messages" in shown


def test_an_activity_is_told_with_its_note_where_it_has_one() -> None:
    told = "\n".join(texts(panel_rows(seen(), NOW, lambda _: "", 80), 80))
    quiet = seen()
    stats = structs.replace(quiet.stats, last_compaction=Activity(count=1, last=NOW - 60, note=" "))
    silent = "\n".join(texts(panel_rows(structs.replace(quiet, stats=stats), NOW, lambda _: "", 80), 80))
    assert ("focus: " in told, "focus: " in silent) == (True, False)


def test_the_end_of_the_cache_is_under_the_other_figures() -> None:
    until = structs.replace(seen(), stats=structs.replace(seen().stats, cache_until=NOW + 200))
    rows = texts(panel_rows(until, NOW, lambda _: "", 60), 60)
    (cache,) = (row for row in rows if "Cache lives until" in row)
    (share,) = (row for row in rows if "From the cache" in row)
    clock = re.search(r"\d\d:\d\d", cache)
    assert clock is not None
    assert clock.end() == share.index("%") + 1
    assert not any("Cache lives" in row for row in texts(panel_rows(until, NOW + 300, lambda _: "", 60), 60))
