"""What of a tool result enters the conversation."""

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui_agent.context.budget import Budget
from tui_agent.context.counting import estimate
from tui_agent.context.cutting import head, head_bytes, tail, tail_bytes
from tui_agent.context.effects import Effect, SaveText, carry_out
from tui_agent.context.layers.limits import Cut, Entering, Evicted, Uncut, eviction_tokens, fitted, shorten
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Artifact, user_message
from tui_agent.conversation.sizes import size_of_text
from tui_agent.settings.schema import OutputSettings

PATH = "/home/someone/.local/share/tui-agent/sessions/20261121-x/large_tool_results/call_1"
PLENTY = 1_000_000


def tokens_of(text: str) -> int:
    return estimate(size_of_text(text))


def short(text: str, limits: OutputSettings | None = None, history: int = PLENTY, *, paged: bool = False) -> Entering:
    return shorten(text, limits or OutputSettings(), history_budget=history, tokens_of=tokens_of, paged=paged)


def said(text: str, history: int) -> tuple[str, list[str]]:
    """What of the user's text enters, and the texts that were saved."""
    saved: list[str] = []

    def save(effect: Effect) -> Artifact:
        assert isinstance(effect, SaveText)
        saved.append(effect.text)
        return Artifact("large_tool_results/p", len(effect.text), "")

    steps = fitted(user_message(text), OutputSettings(), Budget(history, 0, 0), name="p", tokens_of=tokens_of)
    (block,) = carry_out(steps, save).blocks
    assert isinstance(block, Text)
    return block.text, saved


def lines(count: int, width: int = 1) -> str:
    return "\n".join(f"{number:0{width}}" for number in range(count))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (lines(2_000), Uncut),
        (lines(2_001), Cut),
        ("x" * 51_200, Uncut),
        ("x" * 51_201, Cut),
        ("é" * 25_600, Evicted),
        ("x" * 60_606, Cut),
        ("x" * 60_607, Evicted),
        ("", Uncut),
    ],
)
def test_limits_apply_at_their_numbers(text: str, kind: type) -> None:
    assert isinstance(short(text), kind)


def test_a_result_over_the_character_limit_is_evicted_without_being_counted() -> None:
    def never(text: str) -> int:
        raise AssertionError("counted")

    big = "x" * 204_801
    assert isinstance(shorten(big, OutputSettings(), history_budget=PLENTY, tokens_of=never), Evicted)
    generous = OutputSettings(evict_tokens=10**9, max_bytes=10**9)
    assert isinstance(short("x" * 204_800, generous, 10**10), Uncut)
    assert isinstance(short("x" * 204_801, generous, 10**10), Evicted)


def test_eviction_is_at_most_a_third_of_the_history_budget() -> None:
    assert eviction_tokens(OutputSettings(), 200_000) == 20_000
    assert eviction_tokens(OutputSettings(), 40_000) == 13_200
    text = "word " * 6_000
    assert isinstance(short(text, OutputSettings(evict_share=0.25), 4 * tokens_of(text)), Uncut)
    assert isinstance(short(text, OutputSettings(evict_share=0.25), 4 * tokens_of(text) - 4), Evicted)


def test_what_is_smaller_than_a_preview_is_never_evicted() -> None:
    assert isinstance(short("x" * 4_700, history=0), Uncut)
    assert isinstance(short("x" * 4_701, history=0), Evicted)


def test_a_preview_says_how_large_the_whole_is_and_how_to_read_it() -> None:
    text = "first line\n" + "middle\n" * 50_000 + "last line"
    found = short(text)
    assert isinstance(found, Evicted)
    shown = found.text(PATH)
    assert found.head == text[:2_000]
    assert found.tail == text[-2_000:]
    assert found.head in shown
    assert shown.endswith(found.tail)
    assert sha256(text.encode()).hexdigest() in shown
    assert f'read_file(path="{PATH}")' in shown
    assert "350,020 characters" in shown
    assert "50,002 lines" in shown
    assert isinstance(short(shown), Uncut)


def test_a_cut_names_the_limit_and_keeps_both_ends() -> None:
    found = short(lines(5_000))
    assert isinstance(found, Cut)
    shown = found.text(PATH).split("\n")
    assert len(shown) <= 2_000
    assert shown[0] == "0"
    assert shown[-2] == "4999"
    assert "Cut at 2,000 lines: 5,000 lines" in shown[-1]
    assert any("lines, " in line and "left out" in line for line in shown[1:-2])


def test_a_beginning_alone_has_no_marker() -> None:
    for limits in (OutputSettings(truncate_mode="head"), OutputSettings(max_lines=3)):
        found = short(lines(5_000), limits)
        assert isinstance(found, Cut)
        assert found.tail == ""
        assert "left out" not in found.text(PATH)
        assert found.text(PATH).startswith("0\n1\n2\n")
    assert isinstance(both := short(lines(5_000), OutputSettings(max_lines=4)), Cut)
    assert (both.head, both.tail) == ("0\n1\n", "4998\n4999")


def test_limits_apply_one_after_another() -> None:
    wide = "\n".join("é" * 100 for _ in range(2_500))
    found = short(wide, OutputSettings(evict_tokens=10**9), 10**10)
    assert isinstance(found, Evicted)
    found = short(wide, OutputSettings(evict_tokens=10**9, large_output_threshold=10**9), 10**10)
    assert isinstance(found, Cut)
    assert found.limits == ("2,000 lines", "204,800 characters", "51,200 bytes")
    assert len(found.text(PATH).encode()) <= 51_200
    assert len(found.text(PATH).encode()) > 50_000


@pytest.mark.parametrize("text", [lines(9_000), "x" * 150_000, "x" * 500_000])
def test_a_page_is_never_shortened(text: str) -> None:
    assert short(text, paged=True) == Uncut(text)


PIECES = st.sampled_from(
    ["a", "line of text\n", "\n", "\r\n", "é", "漢字", "😀", "👩‍👩‍👧‍👦", "e\u0301", "🇩🇪", "x" * 300, "word " * 50]
)
TEXTS = st.lists(PIECES, max_size=400).map("".join)
LIMITS = st.builds(
    OutputSettings,
    max_lines=st.integers(8, 60),
    max_chars=st.integers(1_400, 9_000),
    max_bytes=st.integers(1_400, 9_000),
    truncate_mode=st.sampled_from(["head_tail", "head"]),
    large_output_threshold=st.integers(1_400, 60_000),
    evict_tokens=st.integers(100, 20_000),
    preview_chars=st.integers(0, 150),
)


@given(TEXTS, LIMITS)
@settings(deadline=None)
def test_what_enters_is_within_all_limits_and_of_the_source(text: str, limits: OutputSettings) -> None:
    found = short(text, limits)
    if isinstance(found, Uncut):
        assert found.text == text
    else:
        assert found.source == text
        assert text.startswith(found.head)
        assert text.endswith(found.tail)
        assert len(found.head) + len(found.tail) <= len(text)
    shown = found.text if isinstance(found, Uncut) else found.text(PATH)
    if not isinstance(found, Evicted):
        assert len(shown) <= limits.max_chars
        assert len(shown.encode()) <= limits.max_bytes
        assert shown.count("\n") + (not shown.endswith("\n")) <= limits.max_lines
    shortened_again = short(shown, limits)
    assert isinstance(shortened_again, Uncut if isinstance(found, Uncut | Cut) else Uncut | Cut)


@given(TEXTS, st.integers(0, 500))
@settings(deadline=None)
def test_cuts_keep_to_their_limit_and_miss_it_by_one_grapheme_at_most(text: str, limit: int) -> None:
    assert text.startswith(head(text, limit))
    assert text.endswith(tail(text, limit))
    assert text.startswith(head_bytes(text, limit))
    assert text.endswith(tail_bytes(text, limit))
    for part in (head(text, limit), tail(text, limit)):
        assert min(len(text), limit) - 32 <= len(part) <= limit
    for part in (head_bytes(text, limit), tail_bytes(text, limit)):
        assert len(part.encode()) <= limit


@pytest.mark.parametrize("cluster", ["👩‍👩‍👧‍👦", "e\u0301", "🇩🇪", "👍🏽", "\r\n", "❤️"])
def test_a_cut_never_falls_into_a_grapheme(cluster: str) -> None:
    text = f"ab{cluster}cd"
    for limit in range(len(text) + 1):
        for part in (head(text, limit), tail(text, limit)):
            assert cluster in part or not set(part) & set(cluster)


def test_two_flags_are_cut_between_them() -> None:
    assert head("🇩🇪🇫🇷", 3) == "🇩🇪"
    assert tail("🇩🇪🇫🇷", 3) == "🇫🇷"


def test_what_the_user_says_enters_whole_up_to_half_of_the_history_budget() -> None:
    text = "please " * 3_000

    assert said(text, 2 * tokens_of(text)) == (text, [])
    found, saved = said(text, 2 * tokens_of(text) - 1)
    assert found.startswith(text[:100])
    assert "[Cut at half of the room for the conversation: 1 lines, 21,000 characters" in found
    assert saved == [text]


def test_a_short_text_of_the_user_always_enters_whole() -> None:
    assert said("x" * 4_700, 1) == ("x" * 4_700, [])
