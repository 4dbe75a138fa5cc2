"""Line charts for a page: inline SVG without scripts, in the page's own colours for light and dark."""

import math
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

import msgspec

from tui_agent.text import clean

WIDTH: Final = 720
HEIGHT: Final = 150
"""Size in SVG units; the page scales the chart to its column."""

MAX_POINTS: Final = 360
"""The most points that are drawn: one for two units of width. Of more, the highest of each group of neighbours is
drawn.
"""

MAX_MARKS: Final = 120
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 10, 20
_LINES = 2

STYLE: Final = """\
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--quiet); }
svg .grid { stroke: var(--rule); }
svg .curve { fill: none; stroke: var(--accent); stroke-width: 1.6; stroke-linejoin: round; }
svg .area { fill: var(--accent); fill-opacity: .1; }
svg .mark { stroke: var(--boundary); stroke-dasharray: 3 3; }
svg .spot { fill: transparent; }
svg .spot:hover { fill: var(--accent); fill-opacity: .18; }"""


def safe(text: str) -> str:
    """Untrusted text escaped for HTML, without control and direction characters."""
    return escape(clean(text))


class Point(msgspec.Struct, frozen=True):
    """A value at a position on the horizontal axis, its tooltip, and the id of what a click leads to."""

    at: int
    value: float
    label: str
    target: str


class Mark(msgspec.Struct, frozen=True):
    """A vertical line at a position on the horizontal axis, and its tooltip."""

    at: int
    label: str


def curve(points: Sequence[Point], marks: Sequence[Mark], scale: Callable[[float], str]) -> Iterator[str]:
    """A chart of these points, sorted by `at`; `scale` formats a value of the vertical axis.

    The size of its markup is bounded, however many points there are.
    """
    first, last = (points[0].at, points[-1].at) if points else (0, 1)
    top = nice_ceiling(max((point.value for point in points), default=0.0))

    def x(at: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * max(0.0, at - first) / max(1, last - first)

    def y(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * value / top

    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    for step in range(_LINES + 1):
        value = top * step / _LINES
        yield f'<path class="grid" d="M{_LEFT} {y(value):.1f}H{WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{safe(scale(value))}</text>'
    drawn = thinned(points)
    if drawn:
        line = "L".join(f"{x(point.at):.1f} {y(point.value):.1f}" for point in drawn)
        yield f'<path class="area" d="M{x(drawn[0].at):.1f} {y(0):.1f}L{line}L{x(drawn[-1].at):.1f} {y(0):.1f}Z"/>'
        yield f'<path class="curve" d="M{line}"/>'
    for mark in marks[:: max(1, math.ceil(len(marks) / MAX_MARKS))]:
        place = f"M{x(mark.at):.1f} {_TOP}V{HEIGHT - _BOTTOM}"
        yield f'<path class="mark" d="{place}"><title>{safe(mark.label)}</title></path>'
    for point, until in zip(drawn, [*(point.at for point in drawn[1:]), last + 1], strict=True):
        width = max(1.0, x(until) - x(point.at))
        yield (
            f'<a href="#{point.target}"><rect class="spot" x="{x(point.at) - width / 2:.1f}" y="{_TOP}" '
            f'width="{width:.1f}" height="{HEIGHT - _TOP - _BOTTOM}"><title>{safe(point.label)}</title></rect></a>'
        )
    yield f'<text x="{_LEFT}" y="{HEIGHT - 5}">call {first:,}</text>'
    yield f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 5}" text-anchor="end">call {last:,}</text></svg>'


def thinned(points: Sequence[Point], most: int = MAX_POINTS) -> Sequence[Point]:
    """At most `most` points, and the last: of each group of neighbours the highest, so that no peak is lost."""
    size = math.ceil(len(points) / most)
    if size <= 1:
        return points
    highest = [
        max(points[start : start + size], key=lambda point: point.value) for start in range(0, len(points), size)
    ]
    return highest if highest[-1] is points[-1] else [*highest, points[-1]]


def nice_ceiling(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10, 20 … at or above a value, so that half of it is a round number too; 1 for 0."""
    if value <= 0:
        return 1.0
    size = 10.0 ** math.floor(math.log10(value))
    return next(step * size for step in (1, 2, 4, 6, 8, 10, 20) if step * size >= value)
