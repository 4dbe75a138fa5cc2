"""Bar, ticks, course and strip at the sizes where they change."""

from itertools import pairwise

import pytest
from textual.theme import Theme

from tests.tui.painting.test_painted import PALETTE
from tui_agent.context.budget import LayerName, Threshold
from tui_agent.conversation.sizes import CATEGORIES, Category
from tui_agent.tui.context.drawing import (
    Bar,
    Column,
    bar_line,
    category_style,
    strip_lines,
    ticks_line,
)
from tui_agent.tui.painting.glyphs import ASCII, UNICODE
from tui_agent.tui.painting.lines import Line
from tui_agent.tui.painting.palette import Look, Palette
from tui_agent.tui.painting.themes import THEMES

PLAIN, DRAWN = Look(PALETTE, ASCII), Look(PALETTE, UNICODE)
SHARES: dict[Category, int] = {"system": 10, "user": 20, "results": 50}


def _texts(lines: list[Line]) -> list[str]:
    return [line.text for line in lines]


@pytest.mark.parametrize(
    ("bar", "width", "plain", "drawn"),
    [
        (Bar(categories=SHARES, tokens=80, window=100, reserve=10), 22, "SSuuuuRRRRRRRRRR..==", "█" * 16 + "──╌╌"),
        (Bar(categories=SHARES, tokens=80, window=100, reserve=50), 22, "SSuuuuRRRRRRRRRR====", "█" * 16 + "╌" * 4),
        (Bar(categories={}, tokens=0, window=100), 12, "." * 10, "─" * 10),
        (Bar(categories={"user": 1}, tokens=1, window=1_000, reserve=1), 12, "u.........", "█" + "─" * 9),
        (Bar(categories=SHARES, tokens=200, window=100, reserve=9), 22, "SSuuuuuuRRRRRRRRRRRR", "█" * 20),
        (Bar(categories=SHARES, tokens=80, window=0, reserve=9), 22, "SSuuuuuuRRRRRRRRRRRR", "█" * 20),
        (Bar(categories={}, tokens=0, window=0, reserve=9), 6, "....", "────"),
        (Bar(categories=SHARES, tokens=80, window=100), 1, "R", "█"),
    ],
)
def test_the_bar_shows_shares_free_room_and_reserve(bar: Bar, width: int, plain: str, drawn: str) -> None:
    assert bar_line(bar, width, PLAIN).text == f"  {plain}"
    assert bar_line(bar, width, DRAWN).text == f"  {drawn}"


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_neighbours_in_the_bar_are_told_apart(theme: Theme) -> None:
    palette = Palette.from_theme(theme.to_color_system().generate())
    styles = [category_style(category, palette) for category in CATEGORIES]
    assert all(one != other for one, other in pairwise(styles))


@pytest.mark.parametrize(
    ("marks", "width", "ticks"),
    [
        ({"clear": 30, "compact": 60, "limit": 90}, 62, "                  ^ clearing        ^ summary         ^ full"),
        ({"clear": 30, "compact": 31, "limit": 90}, 62, "                  ^ clearing, summary                 ^ full"),
        ({"clear": 30, "compact": 33, "limit": 90}, 62, "                   ^ clearing, summary                ^ full"),
        ({"clear": 50, "compact": 80, "limit": 100}, 32, "   clearing ^ summary ^ full ^"),
        ({"clear": 5, "compact": 8, "limit": 10}, 32, " ^ ^ summary, full"),
        ({"clear": 0, "limit": 99}, 20, "            full ^"),
        ({"limit": 100}, 6, "   ^"),
        ({"compact": 90, "limit": 96}, 42, "                       summary ^ full ^"),
        ({"compact": 20, "limit": 22}, 22, "    ^ summary, full"),
        ({"clear": 95, "compact": 97, "limit": 99}, 102, " " * 73 + "clearing ^ summary ^ full ^"),
        ({"compact": 74, "limit": 100}, 42, "                     summary ^    full ^"),
        ({"limit": 85}, 42, "                                  ^ full"),
        ({"limit": 86}, 42, "                                  ^ full"),
        ({"limit": 88}, 42, "                              full ^"),
        ({}, 1, ""),
    ],
)  # fmt: skip
def test_each_step_has_a_tick_and_its_name_where_it_fits(marks: dict[LayerName, int], width: int, ticks: str) -> None:
    given = [Threshold(layer, tokens) for layer, tokens in marks.items()]
    bar = Bar(categories={}, tokens=10, window=100, marks=[*given, Threshold("clear", 10, warning="rests")])
    line = ticks_line(bar, width, PLAIN)
    assert line.text.rstrip() == f"  {ticks}".rstrip()
    assert line.width == max(width, 3)
    styles = {segment.style for segment in line.segments if segment.text == "^"}
    assert (PALETTE.error in styles) == ("limit" in marks)
    assert ticks_line(bar, width, DRAWN).text == line.text.replace("^", "▴")


def test_ticks_are_of_what_is_more_the_window_or_the_tokens() -> None:
    bar = Bar(categories={}, tokens=200, window=100, marks=[Threshold("limit", 100)])
    assert ticks_line(bar, 42, PLAIN).text.rstrip() == "                      ^ full"


@pytest.mark.parametrize(
    ("columns", "chosen", "width", "plain", "drawn"),
    [
        ([(10, "x"), (50, " ")], 1, 20, ["   @@ ", "-- @@ ", "x     ", "   |  "], ["   ██ ", "▃▃ ██ "]),
        ([(10, " "), (50, " "), (100, " ")], 2, 8, ["  @", ".@@", "   ", "  |"], ["  █", "▂██"]),
        ([(10, " "), (50, "^"), (100, "x"), (70, " ")], 2, 6, [" @", "@@", "^x", " |"], [" █", "██"]),
        ([(1, " ")] * 3, 0, 10, ["@ @ @ ", "@ @ @ ", "      ", "|     "], ["█ █ █ ", "█ █ █ "]),
        ([(1, "^"), (1, "s"), (1, "x")], 1, 1, ["@", "@", "x", "|"], ["█", "█"]),
        ([(0, " "), (100, " ")], 0, 9, ["  @ ", "_ @ ", "    ", "|   "], ["  █ ", "▁ █ "]),
        ([(0, " ")], 0, 9, ["   ", "__ ", "   ", "|  "], ["   ", "▁▁ "]),
        ([], 0, 9, ["", "", "", ""], ["", ""]),
    ],
)  # fmt: skip
def test_the_strip_of_calls(
    columns: list[tuple[int, str]], chosen: int, width: int, plain: list[str], drawn: list[str]
) -> None:
    given = [Column(tokens, sign) for tokens, sign in columns]
    assert _texts(strip_lines(given, chosen, width, PLAIN)) == [f"  {row}" for row in plain]
    assert _texts(strip_lines(given, chosen, width, DRAWN))[:2] == [f"  {row}" for row in drawn]
