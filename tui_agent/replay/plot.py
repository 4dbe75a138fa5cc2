"""Plotting the frontier as SVG: the cost of each policy against the share that it keeps verbatim.

The SVG is written without a library, so that nothing has to be installed, and has colours for light and dark.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, NamedTuple

from tui_agent.replay.simulation import OURS, Outcome

WIDTH: Final = 760
PANEL_HEIGHT: Final = 440
"""Pixels of one model's panel."""
LABEL_SIZE: Final = 12
CHARACTER_WIDTH: Final = 7.2
"""The most pixels of a label's character: in sans-serif fonts it is 0.5 to 0.6 of the font size."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 62, 56
_DOT = 4.5
_SAME_DOT = 3.0
_TICKS = 5
_STEPS = (1, 2, 2.5, 5, 10)
_TURNS = (0, 180, 315, 45, 225, 135, 270, 90, 337, 23, 203, 157)
"""Directions in which a label is placed, in the order they are tried: degrees clockwise from the right."""

_STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #3d444d; }
.paper { fill: #ffffff; }
.title { font-size: 15px; font-weight: 600; fill: #1f2328; }
.quiet { fill: #656d76; }
.grid { stroke: #e4e8ec; stroke-width: 1; }
.leader { stroke: #afb8c1; stroke-width: 1; }
.frontier { stroke: #0969da; stroke-width: 1.5; stroke-opacity: .55; fill: none; }
.label { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round; }
.ours { fill: #0969da; stroke: #0969da; }
.other { fill: #8c959f; stroke: #8c959f; }
.outside { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
  text { fill: #c9d1d9; }
  .paper, .outside { fill: #0d1117; }
  .title { fill: #f0f6fc; }
  .quiet { fill: #8b949e; }
  .grid { stroke: #21262d; }
  .leader { stroke: #484f58; }
  .frontier, .ours { stroke: #58a6ff; }
  .ours { fill: #58a6ff; }
  .label { stroke: #0d1117; }
  .other { fill: #7d8590; stroke: #7d8590; }
  .outside { fill: #0d1117; }
}"""


class Box(NamedTuple):
    """A rectangle: left, top, right, bottom."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def lies_in(self, other: "Box") -> bool:
        """Whether it is entirely inside the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.top >= other.top
            and self.bottom <= other.bottom
        )


class Dot(NamedTuple):
    """The dot of one policy, or of several with the same result: position, label and CSS class."""

    x: float
    y: float
    name: str
    kind: str


class Label(NamedTuple):
    """A dot's label and its box; `leads`: a line connects the two."""

    dot: Dot
    box: Box
    leads: bool


def frontier(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes that no other beats in both cost and verbatim share, cheapest first.

    Outcomes with a call that would not have fitted the window are left out.
    """
    found: list[Outcome] = []
    possible = [each for each in outcomes if not each.bill.overflows]
    for outcome in sorted(possible, key=lambda each: (each.bill.total, -each.evidence.verbatim_share)):
        if not found or outcome.evidence.verbatim_share > found[-1].evidence.verbatim_share:
            found.append(outcome)
    return found


def plot(name: str, outcomes: Sequence[Outcome]) -> str:
    """The plot of these outcomes as SVG, with a panel for each model; `name` is the recording's."""
    panels = list(dict.fromkeys((outcome.model, outcome.window) for outcome in outcomes))
    height = PANEL_HEIGHT * len(panels)
    told = _plain(name)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{told}: dollars against what stays verbatim</title>',
        f'<desc id="desc">{_description(outcomes)}</desc>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
    ]
    for index, (model, window) in enumerate(panels):
        here = [outcome for outcome in outcomes if (outcome.model, outcome.window) == (model, window)]
        lines.append(f'<g transform="translate(0 {index * PANEL_HEIGHT})">')
        lines += _Panel(f"{told}, {_plain(model)}, window {window:,}", here).lines()
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _description(outcomes: Sequence[Outcome]) -> str:
    return _plain(
        "; ".join(
            f"{each.policy} on {each.model}: ${each.bill.total:.2f}, {each.evidence.verbatim_share:.3f} verbatim"
            for each in outcomes
        )
    )


def _plain(text: str) -> str:
    """Text from a recording escaped for SVG: no control characters, no markup."""
    return escape("".join(character for character in text if character.isprintable()))


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: maps values from `low` to `high` to pixels from `start` to `end`; `ticks` are the labelled values."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """The pixel position of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def axis(values: Sequence[float], start: float, end: float, *, most: float = math.inf) -> Axis:
    """An axis for these values with some margin; it ends at `most` at the latest."""
    low, high = min(values), max(values)
    # A minimal margin, so that values that hardly differ stay close together.
    room = max((high - low) * 0.12, abs(high) * 0.01, 0.001)
    low, high = max(0.0, low - room), min(most + room / 4, high + room)
    step = _step(high - low)
    first = math.ceil(low / step - 1e-9)
    ticks = tuple(step * number for number in range(first, math.floor(min(most, high) / step + 1e-9) + 1))
    return Axis(low, high, start, end, ticks)


def _step(span: float) -> float:
    """A round tick distance that gives about five ticks in a span."""
    power = 10.0 ** math.floor(math.log10(span / _TICKS))
    return next((power * step for step in _STEPS if span / (power * step) <= _TICKS), power * 10)


class _Panel:
    """One model's outcomes."""

    def __init__(self, title: str, outcomes: Sequence[Outcome]) -> None:
        self._title = title
        self._area = Box(_LEFT, _TOP, WIDTH - _RIGHT, PANEL_HEIGHT - _BOTTOM)
        costs = [each.bill.total for each in outcomes]
        shares = [each.evidence.verbatim_share for each in outcomes]
        self._x = axis(costs, self._area.left, self._area.right)
        self._y = axis(shares, self._area.bottom, self._area.top, most=1.0)
        self._line = [self._place(each) for each in frontier(outcomes)]
        self._dots = self._dots_of(outcomes)

    def lines(self) -> Iterator[str]:
        """The panel's elements, back to front."""
        area = self._area
        yield f'<text class="title" x="{area.left}" y="28">{self._title}</text>'
        yield f'<text class="quiet" x="{area.left}" y="47">share of the needed text that is still verbatim</text>'
        for tick in self._x.ticks:
            x = self._x.place(tick)
            yield _line("grid", x, area.top, x, area.bottom)
            yield _text("quiet", x, area.bottom + 18, _number(tick, self._x, "$"), anchor="middle")
        for tick in self._y.ticks:
            y = self._y.place(tick)
            yield _line("grid", area.left, y, area.right, y)
            yield _text("quiet", area.left - 8, y + 4, _number(tick, self._y), anchor="end")
        middle = (area.left + area.right) / 2
        told = "cost of the session in US dollars; hollow: would not fit the window"
        yield _text("quiet", middle, area.bottom + 40, told, anchor="middle")
        yield f'<path class="frontier" d="{self._steps()}"/>'
        labels = place_labels(self._dots, area)
        for label in labels:
            if label.leads:
                box, dot = label.box, label.dot
                x, y = min(max(dot.x, box.left), box.right), min(max(dot.y, box.top + 2), box.bottom - 2)
                yield _line("leader", dot.x, dot.y, x, y)
        for dot in self._dots:
            yield f'<circle class="{dot.kind}" cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="{_DOT}" stroke-width="1.5"/>'
        for label in labels:
            x, anchor = _anchored(label)
            yield _text("label", x, label.box.bottom - 4, label.dot.name, anchor=anchor)

    def _place(self, outcome: Outcome) -> tuple[float, float]:
        return self._x.place(outcome.bill.total), self._y.place(outcome.evidence.verbatim_share)

    def _dots_of(self, outcomes: Sequence[Outcome]) -> list[Dot]:
        """A dot for each position; policies with the same result share one."""
        dots: list[Dot] = []
        for outcome in outcomes:
            x, y = self._place(outcome)
            kind = "ours" if outcome.policy in OURS else "other"
            kind += " outside" if outcome.bill.overflows else ""
            for index, dot in enumerate(dots):
                if abs(dot.x - x) < _SAME_DOT and abs(dot.y - y) < _SAME_DOT and dot.kind == kind:
                    dots[index] = dot._replace(name=f"{dot.name}, {_plain(outcome.policy)}")
                    break
            else:
                dots.append(Dot(x, y, _plain(outcome.policy), kind))
        return dots

    def _steps(self) -> str:
        """The frontier as a step line: for each cost, the largest verbatim share."""
        if not self._line:
            return ""
        (x, y), *rest = self._line
        path = [f"M{x:.1f} {y:.1f}"]
        path += [f"H{x:.1f} V{y:.1f}" for x, y in rest]
        return " ".join([*path, f"H{self._area.right:.1f}"])


def place_labels(dots: Sequence[Dot], area: Box) -> list[Label]:
    """Place each dot's label at the nearest position where it covers no other label and no dot."""
    taken = [Box(dot.x - _DOT - 2, dot.y - _DOT - 2, dot.x + _DOT + 2, dot.y + _DOT + 2) for dot in dots]
    labels: list[Label] = []
    for dot in sorted(dots, key=lambda each: (each.y, each.x)):
        box, leads = next(
            ((box, leads) for box, leads in _places(dot) if box.lies_in(area) and not any(map(box.meets, taken))),
            next(_places(dot)),
        )
        taken.append(box)
        labels.append(Label(dot, box, leads))
    return labels


def _places(dot: Dot) -> Iterator[tuple[Box, bool]]:
    """Boxes around a dot, nearest first, each with whether it is so far away that it needs a connecting line."""
    width, height = len(dot.name) * CHARACTER_WIDTH, LABEL_SIZE + 4.0
    for distance in range(8, 400, 8):
        for turn in _TURNS:
            across, down = math.cos(math.radians(turn)), math.sin(math.radians(turn))
            # Place the box so that its nearest edge is in this direction.
            x = dot.x + across * distance + (across - 1) * width / 2
            y = dot.y + down * distance + (down - 1) * height / 2
            yield Box(x, y, x + width, y + height), distance > 16


def _anchored(label: Label) -> tuple[float, str]:
    """The x position and text anchor of a label, so that a text narrower than its box stays near its dot."""
    box, x = label.box, label.dot.x
    if box.left >= x:
        return box.left, "start"
    return (box.right, "end") if box.right <= x else ((box.left + box.right) / 2, "middle")


def _number(value: float, of: Axis, unit: str = "") -> str:
    step = of.ticks[1] - of.ticks[0] if len(of.ticks) > 1 else value
    digits = next((digits for digits in range(6) if math.isclose(round(step, digits), step)), 6)
    return f"{unit}{value:,.{digits}f}"


def _line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _text(kind: str, x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
