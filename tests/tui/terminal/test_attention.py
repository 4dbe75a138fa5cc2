"""The window's title, and when a notification is sent."""

import pytest

from tui_agent.tui.terminal import attention
from tui_agent.tui.terminal.attention import Attention, notification


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(attention, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "focused", "wanted", "told"),
    [(11.0, False, True, 1), (11.0, True, True, 0), (9.0, False, True, 0), (11.0, False, False, 0)],
)
def test_only_the_end_of_a_long_turn_that_nobody_watches_is_told(
    clock: list[float], seconds: float, focused: bool, wanted: bool, told: int
) -> None:
    written: list[str] = []
    attention_ = Attention(written.append, {}, place="ledger", notifications=wanted)
    attention_.show(working=True, focused=True)
    clock[0] += seconds
    attention_.show(working=True, focused=False)
    attention_.show(working=False, focused=focused)
    attention_.show(working=False, focused=focused)
    assert sum(sequence.startswith("\x1b]9;") for sequence in written) == told
    titles = [sequence for sequence in written if sequence.startswith("\x1b]2;")]
    assert titles == ["\x1b]2;* ledger - tui-agent\x07", "\x1b]2;ledger - tui-agent\x07"]


def test_each_terminal_in_its_own_way() -> None:
    assert notification("a;b", "c;d", {}) == "\x1b]9;a;b (c,d)\x07"
    assert notification("a;b", "c;d", {"VTE_VERSION": "7000"}) == "\x1b]777;notify;a,b;c,d\x07"
    assert notification("a", "b", {"TMUX": "x"}) == "\x1bPtmux;\x1b\x1b]9;a (b)\x07\x1b\\"


def test_a_notification_names_the_conversation_else_the_folder() -> None:
    written: list[str] = []
    told = Attention(written.append, {}, place="ledger")
    told.notify("done")
    told.name = "rename the parser"
    told.notify("done")
    assert ["(ledger)" in written[0], "(rename the parser)" in written[1]] == [True, True]
