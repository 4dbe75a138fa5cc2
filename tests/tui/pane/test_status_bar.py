"""The status bar's timer and the words of its gauge; `test_painted` has its line."""

from msgspec.structs import replace
from textual.app import App, ComposeResult
from typing_extensions import override

from tui_agent.tui.pane.status_bar import GAUGE, StatusBar, StatusBarFacts, gauge_words


class BarApp(App[None]):
    @override
    def compose(self) -> ComposeResult:
        yield StatusBar()


async def test_no_timer_runs_while_nothing_is_going_on() -> None:
    app = BarApp()
    async with app.run_test():
        bar = app.query_one(StatusBar)
        states = [bar._timer is not None]
        for activity in ("thinking", "running grep", ""):
            bar.show(activity=activity, since=0.0)
            states.append(bar._timer is not None)
        assert states == [False, True, True, False]


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
