"""Drawings of the context: the bar of categories with its thresholds, and the chart of its size over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from rich.style import Style

from tui_agent.context.budget import Threshold
from tui_agent.conversation.sizes import CATEGORIES, Category
from tui_agent.tui.painting.glyphs import ASCII
from tui_agent.tui.painting.lines import Line, Run, make_line
from tui_agent.tui.painting.palette import Look, Palette

LEVELS: Final = "▁▂▃▄▅▆▇█"
LEVELS_ASCII: Final = "_.-=+*#@"
LETTERS: Final[dict[Category, str]] = {
    "system": "S",
    "tools": "T",
    "user": "u",
    "notices": "n",
    "assistant": "a",
    "reasoning": "r",
    "calls": "c",
    "results": "R",
    "summaries": "Z",
}
"""The letters of the bar where block characters are not available."""

FREE, FREE_ASCII = "─", "."
RESERVE, RESERVE_ASCII = "╌", "="
TICK, TICK_ASCII = "▴", "^"
POINTER, POINTER_ASCII = "↑", "|"
MARKS: Final = {"clear": "clearing", "compact": "summary", "limit": "full"}
"""What starts at each mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """The data of the bar, in tokens. `reserve`: the room kept for an answer."""

    categories: Mapping[Category, int]
    tokens: int
    window: int
    reserve: int = 0
    marks: Sequence[Threshold] = ()


def category_style(category: Category, palette: Palette) -> Style:
    source = {
        "system": palette.faint,
        "tools": palette.muted,
        "user": palette.accent,
        "notices": palette.warning,
        "assistant": palette.success,
        "reasoning": palette.name,
        "calls": palette.link,
        "results": palette.link,
        "summaries": palette.error,
    }[category]
    style = Style(color=source.color, bgcolor=palette.base.bgcolor, dim=source.dim)
    return style + Style(dim=True) if category == "calls" else style


def category_sign(category: Category, look: Look) -> Run:
    sign = LETTERS[category] if look.glyphs is ASCII else "■"
    return Run(sign, category_style(category, look.palette))


def bar_line(bar: Bar, width: int, look: Look) -> Line:
    """The bar: each category as wide as its share of the window, then free space, then the reserve."""
    palette, plain = look.palette, look.glyphs is ASCII
    room = max(1, width - 2)
    scale = room / max(1, bar.window, bar.tokens)
    used = min(room, max(1, round(bar.tokens * scale))) if bar.tokens else 0
    runs = [Run("  ", palette.base)]
    for category, cells in _shares(bar.categories, used):
        sign = LETTERS[category] if plain else "█"
        runs.append(Run(sign * cells, category_style(category, palette)))
    reserve = min(room - used, round(bar.reserve * scale)) if bar.window else 0
    runs.append(Run((FREE_ASCII if plain else FREE) * (room - used - reserve), palette.faint))
    runs.append(Run((RESERVE_ASCII if plain else RESERVE) * reserve, palette.muted))
    return make_line(runs)


def ticks_line(bar: Bar, width: int, look: Look) -> Line:
    """The row below the bar: a tick with its name at each place where a step starts, as far as the names fit."""
    palette, plain = look.palette, look.glyphs is ASCII
    room = max(1, width - 2)
    scale = room / max(1, bar.window, bar.tokens)
    cells = [Run(" ", palette.base)] * room
    free = room
    # Marks of one cell, or of two beside each other, share a tick.
    places: dict[int, list[Threshold]] = {}
    for mark in sorted(bar.marks, key=lambda mark: -mark.tokens):
        if mark.tokens and not mark.warning:
            place = min(room - 1, int(mark.tokens * scale))
            places.setdefault(place + 1 if place + 1 in places else place, []).append(mark)
    for place, marks in places.items():
        style = palette.error if any(mark.layer == "limit" for mark in marks) else palette.warning
        tick = TICK_ASCII if plain else TICK
        name = ", ".join(MARKS[mark.layer] for mark in reversed(marks))
        label = f"{tick} {name}"
        if place + len(label) > free:
            # Beside the next mark there is no room to the right of the tick.
            label = f"{name} {tick}"
            start = min(place, free - 1) - len(label) + 1
        else:
            start = place
        if start < 0 or start + len(label) > free:
            label, start = tick, min(place, max(0, free - 1))
        for index, letter in enumerate(label):
            cells[start + index] = Run(letter, style if letter == tick else palette.muted)
        free = max(0, start - 1)
    return make_line([Run("  ", palette.base), *cells])


def course_lines(points: Sequence[tuple[int, int]], width: int, look: Look) -> list[Line]:
    """The chart of request sizes, newest on the right, and below it a sign at each request preceded by context steps.

    `points`: tokens and edits of each call, oldest first.
    """
    palette, plain = look.palette, look.glyphs is ASCII
    room = max(1, width - 2)
    shown = points[-room:]
    highest = max((tokens for tokens, _ in shown), default=0) or 1
    levels = LEVELS_ASCII if plain else LEVELS
    bars = "".join(levels[min(len(levels) - 1, tokens * len(levels) // (highest + 1))] for tokens, _ in shown)
    edits = "".join((TICK_ASCII if plain else TICK) if edited else " " for _, edited in shown)
    lines = [make_line([Run("  ", palette.base), Run(bars, palette.accent)])]
    if edits.strip():
        lines.append(make_line([Run("  ", palette.base), Run(edits.rstrip(), palette.warning)]))
    return lines


class Column(msgspec.Struct, frozen=True):
    """A call in the strip of all calls: its tokens, and the sign of what happened before it with its style's name."""

    tokens: int
    sign: str = " "
    style: str = "muted"
    present: bool = True


SIGNS: Final = {"lost": ("×", "x"), "summarised": ("◆", "s"), "cleared": ("▴", "^"), "moved": ("↳", ">")}
"""The signs of the strip, the second where only ASCII is shown."""


def strip_lines(columns: Sequence[Column], chosen: int, width: int, look: Look) -> list[Line]:
    """A chart of calls in two rows, a row of signs, and one that points at `chosen`; several calls share a column if
    there are more than cells.
    """
    palette, plain = look.palette, look.glyphs is ASCII
    room, count = max(1, width - 4), max(1, len(columns))
    step = min(3, max(1, room // count))
    cells = min(room, len(columns))
    highest = max((column.tokens for column in columns), default=0) or 1
    levels = LEVELS_ASCII if plain else LEVELS
    rows: list[list[Run]] = [[Run("  ", palette.base)] for _ in range(4)]
    for cell in range(cells):
        shared = columns[cell * count // cells : (cell + 1) * count // cells]
        here = cell * count // cells <= chosen < (cell + 1) * count // cells
        tallest = max(shared, key=lambda column: column.tokens)
        marked = next((column for each in SIGNS for column in shared if column.sign in SIGNS[each]), shared[0])
        style = palette.accent if here else palette.muted if tallest.present else palette.faint
        height = max(1, round(2 * len(levels) * tallest.tokens / highest))
        upper, lower = max(0, height - len(levels)), min(height, len(levels))
        wide = max(1, step - 1)
        gap = Run(" " * (step - wide), palette.base) if step > wide else None
        drawn = (
            Run((levels[upper - 1] if upper else " ") * wide, style),
            Run(levels[lower - 1] * wide, style),
            Run(marked.sign.ljust(wide), getattr(palette, marked.style)),
            Run(((POINTER_ASCII if plain else POINTER) if here else " ").ljust(wide), palette.accent),
        )
        for row, run in zip(rows, drawn, strict=True):
            row.append(run)
            if gap is not None:
                row.append(gap)
    return [make_line(row) for row in rows]


def _shares(categories: Mapping[Category, int], cells: int) -> list[tuple[Category, int]]:
    """Distribute `cells` over the categories in proportion to their tokens; the shares add up exactly."""
    whole = sum(categories.values())
    if not whole or not cells:
        return []
    shares: list[tuple[Category, int]] = []
    seen = given = 0
    for category in CATEGORIES:
        seen += categories.get(category, 0)
        reach = round(cells * seen / whole)
        if reach > given:
            shares.append((category, reach - given))
            given = reach
    return shares


def before_after_line(label: str, tokens: int, largest: int, share: str, width: int, look: Look) -> Line:
    """A row of a comparison: label, bar in proportion to `largest`, and the text `share`."""
    palette, plain = look.palette, look.glyphs is ASCII
    value = f"{share:>18}"
    room = max(1, width - 8 - len(value))
    filled = min(room, round(room * tokens / max(1, largest)) or (1 if tokens else 0))
    return make_line(
        [
            Run(f"  {label:<6}", palette.muted),
            Run(("#" if plain else "━") * filled, palette.accent),
            Run((FREE_ASCII if plain else FREE) * (room - filled), palette.faint),
            Run(value, palette.base),
        ]
    )
