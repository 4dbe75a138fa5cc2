"""Plotting the frontier as SVG: the cost of each policy against the share that it keeps verbatim.

The SVG is written without a library, so that nothing has to be installed, and has colours for light and dark.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Final

import msgspec

from tui_agent.replay.simulation import OURS, ReplayOutcome

WIDTH: Final = 760
PANEL_HEIGHT: Final = 440
"""Pixels of one model's panel."""
LINE_HEIGHT: Final = 16
"""Pixels between two names, which are listed to the right of the dots."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 584, 62, 384
_NAMES = 600
_TICKS = 5
_STEPS = (1, 2, 2.5, 5, 10)

_STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #3d444d; }
.paper { fill: #ffffff; }
.title { font-size: 15px; font-weight: 600; fill: #1f2328; }
.quiet { fill: #656d76; }
.grid { stroke: #e4e8ec; stroke-width: 1; }
.leader { stroke: #afb8c1; stroke-width: .7; }
.frontier { stroke: #0969da; stroke-width: 1.5; stroke-opacity: .55; fill: none; }
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
  .other { fill: #7d8590; stroke: #7d8590; }
  .outside { fill: #0d1117; }
}"""


class Dot(msgspec.Struct, frozen=True):
    """A policy on a model: its cost in USD, the share it keeps verbatim, and whether each call fits the window."""

    policy: str
    model: str
    window: int
    usd: float
    verbatim: float
    fits: bool = True


def dots(outcomes: Iterable[ReplayOutcome]) -> list[Dot]:
    return [
        Dot(
            each.policy,
            each.model,
            each.window,
            each.bill.total,
            each.evidence.verbatim_share,
            not each.bill.calls_over_window,
        )
        for each in outcomes
    ]


def frontier(outcomes: Sequence[Dot]) -> list[Dot]:
    """The dots that no other beats in both cost and verbatim share, cheapest first.

    Those with a call that would not have fitted the window are left out.
    """
    found: list[Dot] = []
    for dot in sorted((each for each in outcomes if each.fits), key=lambda each: (each.usd, -each.verbatim)):
        if not found or dot.verbatim > found[-1].verbatim:
            found.append(dot)
    return found


def plot(name: str, outcomes: Sequence[Dot]) -> str:
    """The plot of these dots as SVG, with a panel for each model; `name` is the recording's."""
    panels = list(dict.fromkeys((outcome.model, outcome.window) for outcome in outcomes))
    height = PANEL_HEIGHT * len(panels)
    title = _plain(name)
    described = (f"{each.policy} on {each.model}: ${each.usd:.2f}, {each.verbatim:.3f} verbatim" for each in outcomes)
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
        f'<title id="title">{title}: dollars against what stays verbatim</title>',
        f'<desc id="desc">{_plain("; ".join(described))}</desc>',
        f"<style>\n{_STYLE}\n</style>",
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
    ]
    for index, (model, window) in enumerate(panels):
        here = [outcome for outcome in outcomes if (outcome.model, outcome.window) == (model, window)]
        lines.append(f'<g transform="translate(0 {index * PANEL_HEIGHT})">')
        lines += _panel(f"{title}, {_plain(model)}, window {window:,}", here)
        lines.append("</g>")
    return "\n".join([*lines, "</svg>", ""])


def _plain(text: str) -> str:
    """Text from a recording escaped for SVG: no control characters, no markup."""
    return escape("".join(character for character in text if character.isprintable()))


class Axis(msgspec.Struct, frozen=True):
    """An axis: maps values from `low` to `high` to pixels from `start` to `end`; `ticks` are the labelled values."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def label(self, tick: float) -> str:
        """A tick's value with as many digits as the ticks need."""
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else tick
        digits = next((digits for digits in range(6) if math.isclose(round(step, digits), step)), 6)
        return f"{tick:,.{digits}f}"


def axis(values: Sequence[float], start: float, end: float, *, most: float = math.inf) -> Axis:
    """An axis for these values with some margin; it ends at `most` at the latest."""
    low, high = min(values), max(values)
    # A minimal margin, so that values that hardly differ stay close together.
    room = max((high - low) * 0.12, abs(high) * 0.01, 0.001)
    low, high = max(0.0, low - room), min(most + room / 4, high + room)
    power = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next((power * step for step in _STEPS if (high - low) / (power * step) <= _TICKS), power * 10)
    first = math.ceil(low / step - 1e-9)
    ticks = tuple(step * number for number in range(first, math.floor(min(most, high) / step + 1e-9) + 1))
    return Axis(low, high, start, end, ticks)


def spread(places: Sequence[float], low: float, high: float) -> list[float]:
    """The ascending `places`, moved apart by `LINE_HEIGHT` (less if there are too many) between `low` and `high`."""
    gap = min(LINE_HEIGHT, (high - low) / max(1, len(places) - 1))
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + gap if found else low))
    for index in reversed(range(len(found))):
        found[index] = min(found[index], high - gap * (len(found) - 1 - index))
    return found


def _panel(title: str, outcomes: Sequence[Dot]) -> Iterator[str]:
    """The elements of one model's panel, back to front."""
    across = axis([each.usd for each in outcomes], _LEFT, _RIGHT)
    up = axis([each.verbatim for each in outcomes], _BOTTOM, _TOP, most=1.0)

    def place(outcome: Dot) -> tuple[float, float]:
        return across.place(outcome.usd), up.place(outcome.verbatim)

    yield f'<text class="title" x="{_LEFT}" y="28">{title}</text>'
    yield f'<text class="quiet" x="{_LEFT}" y="47">share of the needed text that is still verbatim</text>'
    for tick in across.ticks:
        x = across.place(tick)
        yield _line("grid", x, _TOP, x, _BOTTOM)
        yield _text("quiet", x, _BOTTOM + 18, f"${across.label(tick)}", anchor="middle")
    for tick in up.ticks:
        y = up.place(tick)
        yield _line("grid", _LEFT, y, _RIGHT, y)
        yield _text("quiet", _LEFT - 8, y + 4, up.label(tick), anchor="end")
    caption = "cost of the session in US dollars; hollow: would not fit the window"
    yield _text("quiet", (_LEFT + _RIGHT) / 2, _BOTTOM + 40, caption, anchor="middle")
    if best := [place(each) for each in frontier(outcomes)]:
        (x, y), *rest = best
        steps = (f"M{x:.1f} {y:.1f}", *(f"H{x:.1f} V{y:.1f}" for x, y in rest), f"H{_RIGHT}")
        yield f'<path class="frontier" d="{" ".join(steps)}"/>'
    ordered = sorted(outcomes, key=lambda each: (place(each)[1], each.usd))
    names = spread([place(each)[1] for each in ordered], _TOP, _BOTTOM)
    for outcome, at in zip(ordered, names, strict=True):
        yield _line("leader", *place(outcome), _NAMES - 4, at)
        yield _text("label", _NAMES, at + 4, _plain(outcome.policy))
    for outcome in outcomes:
        x, y = place(outcome)
        kind = ("ours" if outcome.policy in OURS else "other") + ("" if outcome.fits else " outside")
        yield f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5" stroke-width="1.5"/>'


def _line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _text(kind: str, x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'
