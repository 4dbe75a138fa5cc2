"""The status line: what it tells, and what it leaves out where there is no room."""

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from textual.app import App, ComposeResult
from typing_extensions import override

from tui_agent.tui.painting.glyphs import ASCII, UNICODE, Glyphs
from tui_agent.tui.pane.status_bar import (
    GAUGE,
    GaugeMarks,
    StatusBar,
    StatusBarFacts,
    elapsed_text,
    gauge_words,
    status_line,
)

TICKS = (("clear", 0.6), ("compact", 0.85))
FULL = StatusBarFacts(
    model="anthropic:claude-sonnet-5-5",
    mode="auto",
    tokens=84_000,
    window=200_000,
    measured=True,
    cost_usd=0.1234,
    activity="running run_command",
    since=100.0,
)


def text(status: StatusBarFacts, width: int, glyphs: Glyphs = UNICODE, now: float = 112.5) -> str:
    return "".join(span.text for span in status_line(status, width, glyphs, GaugeMarks(), now))


@pytest.mark.parametrize(
    "status", [FULL, StatusBarFacts(), StatusBarFacts(model="offline:offline", hint="Ctrl+C again to quit")]
)
def test_the_line_is_as_wide_as_the_screen(status: StatusBarFacts) -> None:
    widths = range(1, 160)
    assert [cell_len(text(status, width)) for width in widths] == list(widths)


def test_a_wide_screen_shows_every_fact() -> None:
    line = text(FULL, 120)
    for fact in ("12s", "running run_command", "Esc stops", "auto", "claude-sonnet-5-5", "━━━━──────", "42%", "$0.123"):
        assert fact in line
    assert "anthropic:" not in line


def test_facts_go_in_the_order_of_their_worth() -> None:
    seen = {
        fact: min(width for width in range(1, 160) if fact in text(FULL, width))
        for fact in ("Esc stops", "━", "auto", "running", "sonnet-5-5", "$0.123", "claude-sonn", "42%")
    }
    assert sorted(seen.values(), reverse=True) == list(seen.values())


def test_commands_without_the_sandbox_they_should_have_are_shown() -> None:
    assert "no sandbox" not in text(FULL, 120)
    assert "no sandbox" in text(replace(FULL, unconfined=True), 120)


def test_commands_in_the_background_are_counted_on_a_small_screen_too() -> None:
    assert "2 jobs" in text(replace(FULL, activity="", jobs=2), 60)
    assert "loop 10m" in text(replace(FULL, activity="", loop="10m"), 60)


def test_an_estimate_is_marked() -> None:
    assert "~42%" in text(StatusBarFacts(model="m", tokens=84_000, window=200_000), 80)
    assert "~" not in text(StatusBarFacts(model="m", tokens=84_000, window=200_000, measured=True), 80)


@pytest.mark.parametrize(
    ("tokens", "color"), [(69_400, "$foreground"), (70_000, "$text-warning"), (90_000, "$text-error")]
)
def test_the_gauge_changes_colour_at_its_thresholds(tokens: int, color: str) -> None:
    status = StatusBarFacts(model="m", tokens=tokens, window=100_000, measured=True)
    spans = status_line(status, 80, UNICODE, GaugeMarks(), 0.0)
    assert next(span.color for span in spans if "%" in span.text) == color


def test_an_unknown_window_shows_tokens_instead_of_a_share() -> None:
    line = text(StatusBarFacts(model="m", tokens=12_345, window=0), 80)
    assert "12k tokens" in line
    assert "%" not in line


def test_a_wait_for_a_time_counts_down() -> None:
    waiting = replace(FULL, activity="until the limit resets", since=0.0, until=1_000.0)
    shown = [text(waiting, 120, now=now) for now in (0.0, 60.0, 2_000.0)]
    for line, left in zip(shown, ("16m40s  until the limit resets", "15m40s  until", "  0s  until"), strict=True):
        assert left in line
        assert "Esc stops" in line


def test_of_a_long_command_it_is_said_how_it_goes_on_unseen_if_there_is_room() -> None:
    running = replace(FULL, activity="running a command", since=100.0)
    assert "Esc stops, Ctrl+B leaves it running" in text(running, 120, now=111.0)
    assert "Ctrl+B" not in text(running, 120, now=105.0)
    assert "Ctrl+B" not in text(replace(running, activity="thinking"), 120, now=111.0)
    narrow = text(running, 90, now=111.0)
    assert "Ctrl+B" not in narrow
    assert "running a command" in narrow


def test_elapsed_time_does_not_move_what_follows_it() -> None:
    columns = {text(FULL, 120, now=100.0 + seconds).index("running") for seconds in (0, 9, 10, 59)}
    assert len(columns) == 1


def test_a_hint_stands_where_the_activity_was() -> None:
    line = text(StatusBarFacts(model="m", hint="Ctrl+C again to quit"), 80)
    assert line.startswith("Ctrl+C again to quit")
    assert "ready" not in line


def test_an_ascii_terminal_gets_ascii() -> None:
    line = text(FULL, 120, ASCII)
    assert line.isascii()
    assert "####------" in line


def test_a_hostile_model_name_stays_on_its_line() -> None:
    line = text(StatusBarFacts(model="ollama:\x1b]0;x\x07a\nb"), 80)
    assert "\x1b" not in line
    assert "\n" not in line


@pytest.mark.parametrize(("seconds", "shown"), [(-1, "  0s"), (59.9, " 59s"), (60, "1m00s"), (3_661, "1h01m")])
def test_durations(seconds: float, shown: str) -> None:
    assert elapsed_text(seconds) == shown


class BarApp(App[None]):
    @override
    def compose(self) -> ComposeResult:
        yield StatusBar()


async def test_no_timer_runs_while_nothing_is_going_on() -> None:
    app = BarApp()
    async with app.run_test():
        bar = app.query_one(StatusBar)
        states = [bar.ticking]
        for activity in ("thinking", "running grep", ""):
            bar.show(activity=activity, since=0.0)
            states.append(bar.ticking)
        assert states == [False, True, True, False]


def test_ticks_stand_where_the_layers_start() -> None:
    status = StatusBarFacts(model="m", tokens=70_000, window=100_000, measured=True, ticks=TICKS)
    assert "ctx ━━━━━━┿─┼─" in text(status, 80)
    assert "ctx ######|-|-" in text(status, 80, ASCII)


def test_a_window_that_is_hardly_filled_is_not_told_to_be_empty() -> None:
    hardly = StatusBarFacts(model="m", tokens=4_700, window=1_000_000, measured=True, ticks=TICKS)
    assert " <1%" in text(hardly, 80)
    assert " 0%" in text(replace(hardly, tokens=0), 80)


def test_the_turn_and_the_cache_are_told_where_there_is_room() -> None:
    status = replace(FULL, turn_cost_usd=0.02, cache_share=0.84)
    assert "cache 84%  turn $0.020  $0.123" in text(status, 140)
    assert "turn" not in text(status, 60)
    assert "$0.123" in text(status, 60)
    seen = {
        fact: min(width for width in range(1, 180) if fact in text(status, width))
        for fact in ("turn", "cache", "Esc stops", "━", "auto")
    }
    assert sorted(seen.values(), reverse=True) == list(seen.values())


def test_a_turn_that_is_the_whole_session_is_not_told_twice() -> None:
    assert "turn" not in text(replace(FULL, turn_cost_usd=FULL.cost_usd), 140)


def test_what_comes_next_is_told_once_it_is_near() -> None:
    assert "summary in 3 calls" in text(
        StatusBarFacts(model="m", tokens=46, window=100, soon="summary in 3 calls"), 120
    )
    assert "summary" not in text(StatusBarFacts(model="m", tokens=46, window=100, ahead="Next: a summary"), 120)


def test_the_gauge_is_told_in_words() -> None:
    status = StatusBarFacts(tokens=500, window=1_000, measured=True, ahead="Next: a summary in about 9 calls.")
    assert gauge_words(status).startswith("500 of 1,000 tokens. Next: a summary in about 9 calls.\n\n")
    assert gauge_words(replace(status, measured=False)).startswith("500 of 1,000 tokens, estimated.")
    assert gauge_words(StatusBarFacts(tokens=5)) == GAUGE


async def test_what_the_gauge_shows_is_told_anew_where_it_changes() -> None:
    bar = StatusBar()
    bar.show(tokens=1_000, window=10_000)
    before = bar.tooltip
    bar.show(tokens=2_000)
    assert (before, bar.tooltip) == (gauge_words(StatusBarFacts(tokens=1_000, window=10_000)), gauge_words(bar.status))
