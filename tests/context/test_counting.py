"""Token shapes: the rule, and a tokenizer whose ranks are on disk."""

import base64
import math
from hashlib import sha1, sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.context.sessions import MODEL
from tui_agent.context.counting import (
    CACHED_COUNTS,
    CHUNK_CHARS,
    ENCODINGS,
    HIGHEST_RATIO,
    LOWEST_RATIO,
    RATIO_SAMPLES,
    Counter,
    Encoding,
    Ratios,
    Tokenizer,
    estimate,
    load_tokenizer,
)
from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.sizes import Size, size_of_text

PATTERN = ENCODINGS[0].pattern
URL = "https://ranks.invalid/tiny.tiktoken"


def tiny(folder: Path, *, damaged: bool = False) -> Encoding:
    """Encoding of all bytes and a few merges, where tiktoken would have cached them."""
    tokens = [bytes([number]) for number in range(256)] + [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor"]
    data = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    (folder / sha1(URL.encode(), usedforsecurity=False).hexdigest()).write_bytes(
        data[: data[:-1].rindex(b"\n") + 1] if damaged else data
    )
    return Encoding("tiny", URL, sha256(data).hexdigest(), PATTERN)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    found = load_tokenizer([tiny(tmp_path)], tmp_path)
    assert found is not None
    return found


def test_the_rule_is_a_third_per_ascii_character_and_one_and_a_half_per_other() -> None:
    assert estimate(Size(1_000, 0, 0)) == 330
    assert estimate(Size(0, 1_000, 0)) == 1_500
    assert estimate(Size(100, 100, 2)) == 33 + 150 + 2_400
    assert Counter().text("x" * 100) == 33


@given(st.text(max_size=200), st.text(max_size=200))
def test_counts_grow_with_the_text_and_add_up(one: str, other: str) -> None:
    counter = Counter()
    both = counter.text(one + other)
    assert both >= max(counter.text(one), counter.text(other))
    assert abs(both - counter.text(one) - counter.text(other)) <= 1
    assert counter.size(size_of_text(one)) == counter.text(one)


def test_ranks_are_found_under_their_names_and_only_if_they_are_what_they_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    assert load_tokenizer() is None
    assert list(tmp_path.iterdir()) == []
    ranks = tiny(tmp_path, damaged=True)
    assert load_tokenizer([ranks]) is None
    assert len(list(tmp_path.iterdir())) == 1
    found = load_tokenizer([Encoding("missing", "https://ranks.invalid/other", "0", PATTERN), tiny(tmp_path)])
    assert found is not None
    assert found.name == "tiny"
    assert found.count("hello world") == 4
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
    assert load_tokenizer([ranks]) is None


@pytest.mark.parametrize("ranks", ENCODINGS, ids=lambda ranks: ranks.name)
def test_known_ranks_are_those_of_tiktoken(ranks: Encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def record(url: str, expected_hash: str) -> dict[bytes, int]:
        asked.append((url, expected_hash))
        return {}

    public = import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(public, "load_tiktoken_bpe", record)
    made: dict[str, Any] = getattr(public, ranks.name)()
    assert asked == [(ranks.url, ranks.sha256)]
    assert made["pat_str"] == ranks.pattern


def test_long_texts_are_counted_in_bounded_time(tokenizer: Tokenizer) -> None:
    assert tokenizer.count("a" * 100_000) == 100_000
    assert tokenizer.count("é" * CHUNK_CHARS * 3) == 2 * CHUNK_CHARS * 3
    huge = "hello world\n" * 500_000
    assert tokenizer.count(huge) == pytest.approx(5 * 500_000, rel=0.01)


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
    assert counter.size(Size(3_000, 0, 0), "results") == 990
    counter.block(ToolResult("c1", "dense " * 200))
    assert counter.size(Size(3_000, 0, 0), "results") == pytest.approx(3_000, rel=0.01)
    assert counter.size(Size(3_000, 0, 0), "prose") == 990
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
