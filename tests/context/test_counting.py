"""Token shapes: the rule, and what a tokenizer counts; ratios to what providers report."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.sessions import MODEL
from tui_agent.context.counting import (
    CACHED_COUNTS,
    HIGHEST_RATIO,
    LOWEST_RATIO,
    RATIO_SAMPLES,
    Counter,
    Ratios,
    estimate,
)
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.sizes import TextSize, size_of_text


def test_the_rule_is_a_third_per_ascii_character_and_one_and_a_half_per_other() -> None:
    assert estimate(TextSize(1_000, 0, 0)) == 330
    assert estimate(TextSize(0, 1_000, 0)) == 1_500
    assert estimate(TextSize(100, 100, 2)) == 33 + 150 + 2_400
    assert Counter().text("x" * 100) == 33


@given(st.text(max_size=200), st.text(max_size=200))
def test_counts_grow_with_the_text_and_add_up(one: str, other: str) -> None:
    counter = Counter()
    both = counter.text(one + other)
    assert both >= max(counter.text(one), counter.text(other))
    assert abs(both - counter.text(one) - counter.text(other)) <= 1
    assert counter.size(size_of_text(one)) == counter.text(one)


class Counting:
    """A tokenizer that says how often it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    def count(self, text: str) -> int:
        self.asked += 1
        return len(text)


def test_counts_are_kept_by_content_and_the_cache_is_bounded() -> None:
    asked = Counting()
    counter = Counter(asked)
    for _ in range(3):
        assert counter.text("same " * 10) == 50
    assert asked.asked == 1
    for number in range(CACHED_COUNTS):
        counter.text(f"{number}")
    counter.text("same " * 10)
    assert asked.asked == CACHED_COUNTS + 2


def test_sizes_follow_the_density_of_the_texts_seen_of_their_class() -> None:
    counter = Counter(Counting())
    assert counter.size(TextSize(3_000, 0, 0), "results") == 990
    counter.block(ToolResult("c1", "dense " * 200))
    assert counter.size(TextSize(3_000, 0, 0), "results") == pytest.approx(3_000, rel=0.01)
    assert counter.size(TextSize(3_000, 0, 0), "prose") == 990
    counter = Counter()
    counter.use(Counting())
    assert counter.shape == "counting"


def test_every_kind_of_block_counts() -> None:
    counter = Counter(image_tokens=1_200)
    image = Image("image/png", "A" * 50_000)
    assert counter.block(image) == 1_200
    assert counter.block(ToolResult("c1", "x" * 300, images=(image,))) == 99 + 1_200
    smaller = Image("image/png", "A" * 500, weight=0.25)
    assert counter.block(smaller) == 300
    assert counter.block(ToolResult("c1", "x" * 300, images=(image, smaller))) == 99 + 1_500
    assert counter.block(ToolCall("c1", "read_file", "x" * 300)) >= math.ceil(309 * 0.33)
    assert counter.block(Reasoning("x" * 100, "s" * 200)) == 99
    assert counter.block(Text("x" * 300)) == 99


def test_ratios_are_the_middle_of_the_newest_samples_and_odd_ones_are_left_out() -> None:
    ratios = Ratios()
    for measured in (1_300, 1_300, 1_300, 2_900, 1_310):
        assert ratios.learn(MODEL, "rule", "results", measured=measured, estimated=1_000)
    assert ratios.ratio(MODEL, "rule", "results") == 1.3
    for odd in (0, -500, 100, 3_100, 1e9):
        assert not ratios.learn(MODEL, "rule", "results", measured=odd, estimated=1_000)
    assert not ratios.learn(MODEL, "rule", "results", measured=150, estimated=199)
    assert ratios.ratio(MODEL, "rule", "prose") == 1.3
    assert ratios.ratio("gemini:other", "rule", "prose") == 1.0
    assert ratios.ratio(MODEL, "o200k_base", "prose") == 1.25
    for _ in range(RATIO_SAMPLES):
        ratios.learn(MODEL, "rule", "results", measured=800, estimated=1_000)
    assert ratios.ratio(MODEL, "rule", "results") == 0.8


@given(st.dictionaries(st.text(max_size=5), st.lists(st.floats(), max_size=20), max_size=4))
def test_kept_ratios_come_back_and_damaged_ones_do_not(kept: dict[str, list[float]]) -> None:
    ratios = Ratios({**kept, f"{MODEL}|rule|results": [1.2, 1.4, 1.3]})
    assert ratios.ratio(MODEL, "rule", "results") == 1.3
    assert Ratios(ratios.export()).export() == ratios.export()
    assert all(LOWEST_RATIO <= each <= HIGHEST_RATIO for samples in ratios.export().values() for each in samples)
