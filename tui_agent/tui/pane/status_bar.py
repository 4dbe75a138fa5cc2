"""The status bar: current activity, model, how full the context window is, and cost."""

from collections.abc import Iterable
from itertools import groupby
from time import monotonic
from typing import Final, TypeAlias, TypedDict

import msgspec
from msgspec import Struct, structs
from msgspec.structs import replace
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget
from typing_extensions import Unpack, override

from tui_agent.text import compact_count, counted, money_text, one_line, percent_text
from tui_agent.tui.painting.glyphs import ASCII, SPIN_BEATS, Glyphs, glyphs_of, spinner, until_beat
from tui_agent.tui.painting.lines import fit
from tui_agent.tui.wording import doing, model_label

GAUGE: Final = (
    "ctx shows how full the model's window is, as its last request was measured (~ where that is estimated, as it is "
    "after an undo). Eviction puts a result that is too large into a file as it comes. A tick marks where more is "
    "done: clearing takes old tool results out, compaction summarises older turns. F2 shows all of it, with its price."
)
"""Explains the gauge, in the help and in its tooltip."""
GAUGE_CELLS: Final = 10
LONG_S: Final = 10.0
"""Seconds after which it is said how to let a command run on unseen."""
GAP: Final = 2
"""Cells between two pieces of the line."""

MODEL_CELLS: Final = 12
"""Cells of a model's name in its shortened form."""

MUTED: Final = "$foreground 68%"


class StatusBarFacts(Struct, frozen=True, kw_only=True):
    """What the status bar shows.

    tokens, window: size of the last request and of the model's window, in tokens; `window` 0: unknown.
    measured: `tokens` was counted by the provider, not estimated.
    ticks: the context layers in their order, with the share of the window at which each starts.
    soon, ahead: the context step that comes next, in a few words once it is near, and as a sentence.
    cost_usd, turn_cost_usd: of the session and of the turn; None: the model's prices are unknown.
    cache_share: the share of all input tokens that were read from the provider's cache.
    activity, since: what is running, and when it began on the monotonic clock in seconds; empty: idle.
    until: when a wait is over, on the same clock; 0: it is not waiting for a time.
    hint: what a key would do now; it replaces the activity.
    summarising: a summary is being written while the conversation goes on.
    unconfined: commands run without the sandbox they should run in. confined: in the mode auto, they run unasked in a
    full sandbox.
    loop: how often a prompt is sent again; empty: there is no loop. jobs: how many commands run in the background.
    problems: how many the language servers know of.
    reading, writing: tokens per second of a local model; 0: not local, or unknown.
    """

    model: str = ""
    mode: str = ""
    tokens: int = 0
    window: int = 0
    measured: bool = False
    ticks: tuple[tuple[str, float], ...] = ()
    soon: str = ""
    ahead: str = ""
    cost_usd: float | None = 0.0
    turn_cost_usd: float | None = None
    cache_share: float | None = None
    activity: str = ""
    since: float = 0.0
    until: float = 0.0
    hint: str = ""
    summarising: bool = False
    unconfined: bool = False
    confined: bool = False
    loop: str = ""
    jobs: int = 0
    problems: int = 0
    reading: float = 0.0
    writing: float = 0.0


class Changes(TypedDict, total=False):
    """The fields of a `StatusBarFacts` as keyword arguments, to change some of them."""

    model: str
    mode: str
    tokens: int
    window: int
    measured: bool
    ticks: tuple[tuple[str, float], ...]
    soon: str
    ahead: str
    cost_usd: float | None
    turn_cost_usd: float | None
    cache_share: float | None
    activity: str
    since: float
    until: float
    hint: str
    summarising: bool
    unconfined: bool
    confined: bool
    loop: str
    jobs: int
    problems: int
    reading: float
    writing: float


class GaugeMarks(msgspec.Struct, frozen=True):
    """Shares of the window at which the gauge turns yellow and red."""

    yellow: float = 0.70
    red: float = 0.90


class ColoredText(msgspec.Struct, frozen=True):
    """A piece of text in the colour of a theme variable."""

    text: str
    color: str = MUTED


class Form(msgspec.Struct, frozen=True):
    """One form of a piece. If the line is too long, the form with the highest rank is shortened first."""

    rank: int
    spans: tuple[ColoredText, ...] = ()


Piece: TypeAlias = tuple[Form, ...]
"""One fact on the line, from its longest form to its shortest."""


class StatusBar(Widget):
    """Shows a `StatusBarFacts`. Its timer runs only while there is an activity, and repaints without a layout."""

    def __init__(self, thresholds: GaugeMarks | None = None) -> None:
        super().__init__()
        self.status = StatusBarFacts()
        self._thresholds = thresholds or GaugeMarks()
        self._timer: Timer | None = None

    def show(self, **changes: Unpack[Changes]) -> None:
        changed = replace(self.status, **changes)
        if changed == self.status:
            return
        self.status = changed
        if (words := gauge_words(changed)) != self.tooltip:
            self.tooltip = words
        if changed.activity and self._timer is None:
            self._tick()
        elif not changed.activity and self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.refresh()

    def _tick(self) -> None:
        self._timer = self.set_timer(until_beat(SPIN_BEATS), self._tick)
        self.refresh()

    @override
    def render(self) -> Content:
        line = status_line(self.status, self.size.width, glyphs_of(self.app), self._thresholds, monotonic())
        return Content.assemble(*((span.text, span.color) for span in line))


def status_line(
    status: StatusBarFacts, width: int, glyphs: Glyphs, thresholds: GaugeMarks, now: float
) -> tuple[ColoredText, ...]:
    """The line in exactly `width` cells: the activity on the left, the facts on the right; the least important facts
    are shortened or left out where room is short."""
    left = _activity(status, glyphs, now)
    right = [
        _word("summarising" if status.summarising else "", 12, "$accent"),
        _word(f"loop {status.loop}" if status.loop else "", 9, "$accent"),
        _word(counted(status.jobs, "job") if status.jobs else "", 9, "$accent"),
        _word(counted(status.problems, "problem") if status.problems else "", 10, "$text-warning"),
        _sandbox(status),
        _word(status.mode, 9, "$text-warning" if status.mode == "allow" else MUTED),
        _model(status, glyphs),
        _gauge(status, glyphs, thresholds),
        _word(status.soon, 9),
        _word(f"cache {100 * status.cache_share:.0f}%" if status.cache_share else "", 13),
        _speed(status),
        _cost(status),
    ]
    chosen = _fit([left, *right], width)
    facts = [form for form in chosen[1:] if _length(form)]
    joined = [span for index, form in enumerate(facts) for span in ((ColoredText(" " * GAP), *form) if index else form)]
    room = width - _length(chosen[0]) - _length(joined)
    line = (*chosen[0], ColoredText(" " * max(0, room)), *joined)
    return line if room >= 0 else _cropped(line, width)


def gauge_words(status: StatusBarFacts) -> str:
    """The gauge's tooltip: how full the window is, what comes next, and what the gauge means."""
    if status.window <= 0:
        return GAUGE
    full = f"{status.tokens:,} of {status.window:,} tokens{'' if status.measured else ', estimated'}"
    return f"{full}. {status.ahead}".rstrip() + f"\n\n{GAUGE}"


def elapsed_text(seconds: float) -> str:
    """A duration in at least four characters."""
    whole = int(max(0.0, seconds))
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes}m{rest:02}s" if minutes else f"{rest:>3}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def _activity(status: StatusBarFacts, glyphs: Glyphs, now: float) -> Piece:
    if status.hint:
        return (Form(0, (ColoredText(status.hint, "$accent"),)),)
    if not status.activity:
        return Form(4, (ColoredText("ready"),)), Form(0)
    turning = ColoredText(spinner(glyphs, now), "$accent")
    passed = status.until - now if status.until else now - status.since
    elapsed = ColoredText(f" {elapsed_text(max(0.0, passed))}", "$foreground")
    what = ColoredText(f"  {one_line(status.activity, 40)}")
    hint = ColoredText(f" {glyphs.dot} Esc stops")
    long = status.activity == doing("run_command") and passed >= LONG_S
    leaving = (Form(20, (turning, elapsed, what, hint, ColoredText(", Ctrl+B leaves it running"))),) if long else ()
    return (
        *leaving,
        Form(12, (turning, elapsed, what, hint)),
        Form(7, (turning, elapsed, what)),
        Form(3, (turning, elapsed)),
        Form(0, (turning,)),
    )


def _word(text: str, rank: int, color: str = MUTED) -> Piece:
    """A piece that is there or not; one without text is not."""
    return (Form(rank, (ColoredText(text, color),)), Form(0)) if text else (Form(0),)


def _sandbox(status: StatusBarFacts) -> Piece:
    if status.unconfined:
        return _word("no sandbox", 9, "$text-warning")
    return _word("sandboxed" if status.confined and status.mode == "auto" else "", 9)


def _model(status: StatusBarFacts, glyphs: Glyphs) -> Piece:
    name = one_line(model_label(status.model.partition(":")[2] or status.model), 40)
    short = fit(name, MODEL_CELLS, glyphs.ellipsis)
    return Form(6, (ColoredText(name, "$foreground"),)), Form(2, (ColoredText(short, "$foreground"),)), Form(0)


def _gauge(status: StatusBarFacts, glyphs: Glyphs, thresholds: GaugeMarks) -> Piece:
    about = "" if status.measured or not status.tokens else "~"
    if status.window <= 0:
        tokens = f"{about}{compact_count(status.tokens)} tokens" if status.tokens else ""
        return _word(tokens, 5)
    share = status.tokens / status.window
    color = (
        "$text-error" if share >= thresholds.red else "$text-warning" if share >= thresholds.yellow else "$foreground"
    )
    filled = min(GAUGE_CELLS, round(share * GAUGE_CELLS) or (1 if status.tokens else 0))
    full, empty = ("#", "-") if glyphs is ASCII else ("━", "─")
    ticks = [share for _, share in status.ticks]
    bar = _ticked(full * filled + empty * (GAUGE_CELLS - filled), filled, color, ticks, glyphs)
    percent = percent_text(min(9.99, share))
    percent = percent if percent.startswith("<") else f"{about}{percent}"
    label = ColoredText("ctx ")
    return (
        Form(10, (label, *bar, ColoredText(f" {percent:>4}", color))),
        Form(8, (label, ColoredText(percent, color))),
        Form(1, (ColoredText(percent, color),)),
        Form(0),
    )


def _ticked(bar: str, filled: int, color: str, ticks: Iterable[float], glyphs: Glyphs) -> tuple[ColoredText, ...]:
    full, empty = ("|", "|") if glyphs is ASCII else ("┿", "┼")
    marked = {min(GAUGE_CELLS - 1, int(share * GAUGE_CELLS)) for share in ticks if 0 < share <= 1}
    spans: list[ColoredText] = []
    for place, cell in enumerate(bar):
        if place in marked:
            spans.append(ColoredText(full if place < filled else empty, color if place < filled else MUTED))
        else:
            spans.append(ColoredText(cell, color if place < filled else "$foreground 25%"))
    return tuple(
        ColoredText("".join(span.text for span in same), tone)
        for tone, same in groupby(spans, key=lambda span: span.color)
    )


def _speed(status: StatusBarFacts) -> Piece:
    """The speed of a local model: its requests cost time, not money."""
    if not status.reading and not status.writing:
        return (Form(0),)
    pieces = [
        f"{name} {_rate(speed)} tok/s"
        for name, speed in (("reads", status.reading), ("writes", status.writing))
        if speed
    ]
    return Form(13, (ColoredText(" ".join(pieces)),)), Form(5, (ColoredText(pieces[-1]),)), Form(0)


def _rate(speed: float) -> str:
    return f"{speed:.1f}" if speed < 10 else compact_count(round(speed))


def _cost(status: StatusBarFacts) -> Piece:
    if not status.model or ((status.reading or status.writing) and not status.cost_usd):
        return (Form(0),)
    session = ColoredText(money_text(status.cost_usd))
    if not status.turn_cost_usd or status.turn_cost_usd == status.cost_usd:
        return Form(5, (session,)), Form(0)
    turn = ColoredText(f"turn {money_text(status.turn_cost_usd)}{' ' * GAP}")
    return Form(14, (turn, session)), Form(5, (session,)), Form(0)


def _fit(pieces: list[Piece], width: int) -> list[tuple[ColoredText, ...]]:
    """Pick one form of each piece so that all fit with gaps between them."""
    forms = [0] * len(pieces)
    while True:
        chosen = [piece[form].spans for piece, form in zip(pieces, forms, strict=True)]
        shown = [spans for spans in chosen if spans]
        if sum(map(_length, shown)) + GAP * max(0, len(shown) - 1) <= width:
            return chosen
        can_shrink = [index for index, form in enumerate(forms) if form + 1 < len(pieces[index])]
        if not can_shrink:
            return chosen
        forms[max(can_shrink, key=lambda index: pieces[index][forms[index]].rank)] += 1


def _length(spans: Iterable[ColoredText]) -> int:
    return sum(Content(span.text).cell_length for span in spans)


def _cropped(line: tuple[ColoredText, ...], width: int) -> tuple[ColoredText, ...]:
    kept: list[ColoredText] = []
    for span in line:
        kept.append(structs.replace(span, text=span.text[: max(0, width - _length(kept))]))
    return tuple(kept)
