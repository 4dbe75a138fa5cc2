"""The picture of dollars against verbatim text: what is on the frontier, and that nothing covers a name."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.pictures import elements
from tui_agent.replay.plot import LINE_HEIGHT, Dot, axis, frontier, plot, spread


def outcome(policy: str, cost: float, verbatim: int, *, overflows: int = 0, model: str = "m") -> Dot:
    """`verbatim` is of 1,000."""
    return Dot(policy, model, 200_000, cost, verbatim / 1000, not overflows)


def test_what_another_beats_in_both_is_not_on_the_frontier() -> None:
    outcomes = [
        outcome("dear", 9, 900),
        outcome("good", 5, 950),
        outcome("cheap", 2, 700),
        outcome("as dear", 5, 940),
        outcome("impossible", 1, 1000, overflows=3),
    ]
    assert [each.policy for each in frontier(outcomes)] == ["cheap", "good"]


def test_each_model_has_a_panel_and_each_policy_a_name() -> None:
    outcomes = [
        outcome("layered", 2, 900),
        outcome("digest", 2, 900),
        outcome("none", 5, 1000, overflows=1),
        outcome("layered", 1, 950, model="n"),
    ]
    picture = plot("s.jsonl", outcomes)
    texts = [text.text for text in elements(picture, "text")]
    assert [text for text in texts if "window" in (text or "") and "," in (text or "")] == [
        "s.jsonl, m, window 200,000",
        "s.jsonl, n, window 200,000",
    ]
    assert [texts.count(name) for name in ("layered", "digest", "none")] == [2, 1, 1]
    assert [circle.get("class") for circle in elements(picture, "circle")] == ["ours", "ours", "other outside", "ours"]


def test_it_is_readable_in_light_and_in_dark() -> None:
    (style,) = elements(plot("s", [outcome("none", 1, 1000)]), "style")
    light, dark = (style.text or "").split("@media (prefers-color-scheme: dark)")
    for name in ("text", ".paper", ".title", ".quiet", ".grid", ".leader", ".frontier", ".ours", ".other"):
        assert f"{name} {{" in light
        assert name in dark


def test_a_hostile_name_stays_text() -> None:
    picture = plot('</title><script>\x1b[31m&"\x00\u202e', [outcome("<b>", 1, 500)])
    assert not {"\x1b", "\x00", "\u202e"} & set(picture)
    assert elements(picture, "script") == []
    assert "<script>" in (elements(picture, "title")[0].text or "")


@given(st.lists(st.floats(62, 384), min_size=1, max_size=30).map(sorted))
def test_no_name_covers_another(places: list[float]) -> None:
    found = spread(places, 62, 384)
    assert all(62 - 1e-6 <= place <= 384 + 1e-6 for place in found)
    gap = min(LINE_HEIGHT, 322 / max(1, len(places) - 1))
    assert all(later - earlier >= gap - 1e-6 for earlier, later in pairwise(found))


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=12))
def test_an_axis_has_room_for_all_and_names_two_values_at_least(values: list[float]) -> None:
    found = axis(values, 64, 736)
    assert all(64 <= found.place(value) <= 736 for value in values)
    assert 2 <= len(found.ticks) <= 7
    assert all(64 - 1e-6 <= found.place(tick) <= 736 + 1e-6 for tick in found.ticks)


@pytest.mark.parametrize("verbatim", [0, 1000])
def test_one_policy_alone_is_drawn(verbatim: int) -> None:
    texts = [text.text for text in elements(plot("s", [outcome("layered", 0, verbatim)]), "text")]
    assert "layered" in texts
