"""The picture of dollars against verbatim text: what is on the frontier, and that nothing covers a name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.pictures import elements
from tui_agent.replay.billing import Bill
from tui_agent.replay.plot import CHARACTER_WIDTH, LABEL_SIZE, Box, Dot, axis, frontier, place_labels, plot
from tui_agent.replay.simulation import NAMES, Evidence, Outcome

AREA = Box(64, 62, 736, 384)


def outcome(policy: str, cost: float, verbatim: int, *, overflows: int = 0, model: str = "m") -> Outcome:
    """`verbatim` is of 1,000."""
    evidence = Evidence(needed=1000, in_view=verbatim)
    evidence.depths[0] = verbatim
    return Outcome(policy, model, 200_000, Bill(cost=cost, overflows=overflows), evidence, 0, 0)


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
    # Two that come out the same share a dot.
    assert texts.count("layered, digest") == 1
    assert [circle.get("class") for circle in elements(picture, "circle")] == ["ours", "other outside", "ours"]


def test_it_is_readable_in_light_and_in_dark() -> None:
    (style,) = elements(plot("s", [outcome("none", 1, 1000)]), "style")
    light, dark = (style.text or "").split("@media (prefers-color-scheme: dark)")
    for name in ("text", ".paper", ".title", ".quiet", ".grid", ".leader", ".frontier", ".ours", ".other", ".label"):
        assert f"{name} {{" in light
        assert name in dark


def test_a_hostile_name_stays_text() -> None:
    picture = plot('</title><script>\x1b[31m&"\x00\u202e', [outcome("<b>", 1, 500)])
    assert not {"\x1b", "\x00", "\u202e"} & set(picture)
    assert elements(picture, "script") == []
    assert "<script>" in (elements(picture, "title")[0].text or "")


@given(st.lists(st.tuples(st.floats(70, 730), st.floats(70, 380)), min_size=1, max_size=14))
def test_no_name_covers_another_or_a_dot(places: list[tuple[float, float]]) -> None:
    dots = [Dot(x, y, name, "other") for (x, y), name in zip(places, [*NAMES, "as recorded", "and"], strict=False)]
    labels = place_labels(dots, AREA)
    assert sorted(label.dot.name for label in labels) == sorted(dot.name for dot in dots)
    for index, label in enumerate(labels):
        assert label.box.lies_in(AREA)
        assert label.box.right - label.box.left >= len(label.dot.name) * CHARACTER_WIDTH - 1e-6
        assert label.box.bottom - label.box.top >= LABEL_SIZE
        assert not any(label.box.meets(other.box) for other in labels[index + 1 :])
        assert not any(label.box.meets(Box(dot.x - 4, dot.y - 4, dot.x + 4, dot.y + 4)) for dot in dots)


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
