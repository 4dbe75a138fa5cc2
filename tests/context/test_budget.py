"""Windows, budgets and thresholds at their documented numbers."""

import pytest

from tui_agent.context.budget import (
    Budget,
    Thresholds,
    Window,
    budget,
    budget_of,
    keep_tokens,
    resolve_window,
    thresholds,
)
from tui_agent.conversation.profile import Tier
from tui_agent.settings import ClearingSettings, CompactionSettings, ContextSettings
from tui_agent.settings.schema import ThresholdByTier


@pytest.mark.parametrize(
    ("setting", "provider", "catalogue", "window"),
    [
        (0, 200_000, 1_000_000, Window(200_000, "provider")),
        (0, 0, 1_000_000, Window(1_000_000, "catalogue")),
        (0, 0, 0, Window(131_072, "default")),
        (60_000, 200_000, 0, Window(60_000, "setting")),
        (-1, 200_000, 1_000_000, Window(0, "unknown")),
    ],
)
def test_whose_word_the_window_is(setting: int, provider: int, catalogue: int, window: Window) -> None:
    assert resolve_window(ContextSettings(context_window=setting), provider=provider, catalogue=catalogue) == window


@pytest.mark.parametrize(
    ("window", "max_output", "reserve"),
    [(200_000, 0, 16_384), (70_536, 0, 16_384), (60_000, 0, 13_750), (8_192, 0, 2_048), (200_000, 4_096, 4_096)],
)
def test_the_reserve_is_at_most_a_quarter_of_what_is_free(window: int, max_output: int, reserve: int) -> None:
    room = budget_of(ContextSettings(), Window(window, "provider"), 5_000, max_output=max_output)
    assert room == Budget(window, 5_000, reserve)
    assert room.limit == window - reserve
    assert room.history == max(0, window - reserve - 5_000)
    assert room.fits(room.limit)
    assert not room.fits(room.limit + 1)


def test_an_unknown_window_is_limited_by_tokens_or_by_messages_and_refuses_nothing() -> None:
    room = budget_of(ContextSettings(), Window(0, "unknown"), 3_000)
    assert (room.known, room.limit, room.history, room.reserve) == (False, 8_000, 5_000, 16_384)
    assert room.fits(1_000_000)
    found = thresholds(room, ClearingSettings(), CompactionSettings(), tier="small")
    assert not found.compact.reached(7_999)
    assert found.compact.reached(8_000)
    assert not found.clear.reached(5_600)
    assert found.clear.reached(5_601)

    room = budget_of(ContextSettings(max_context_tokens=0), Window(0, "unknown"), 3_000)
    found = thresholds(room, ClearingSettings(), CompactionSettings())
    assert not found.compact.reached(10**9, messages=49)
    assert found.compact.reached(0, messages=50)
    assert not found.clear.reached(10**9, messages=10**9)


def at(window: int, tier: Tier, fixed: int = 0) -> Thresholds:
    return thresholds(budget(window, fixed, 16_384), ClearingSettings(), CompactionSettings(), tier=tier)


def test_clearing_starts_at_its_own_share_where_that_is_lower() -> None:
    found = thresholds(
        budget(200_000, 0, 16_384), ClearingSettings(), CompactionSettings(threshold=0.9), tier="unknown"
    )
    assert (found.clear.tokens, found.clear.source) == (120_000, "clearing.threshold")


@pytest.mark.parametrize(
    ("tier", "task", "set_tiers", "share", "source"),
    [
        ("small", 0.65, ("small",), 0.30, "threshold_by_tier.small"),
        ("small", 0.65, ("mid",), 0.65, "task class"),
        ("small", None, (), 0.30, "small tier"),
        ("unknown", 0.70, ("small",), 0.70, "task class"),
        ("unknown", None, ("small",), 0.80, "compaction.threshold"),
    ],
)
def test_whose_word_the_compaction_threshold_is(
    tier: Tier, task: float | None, set_tiers: tuple[str, ...], share: float, source: str
) -> None:
    compaction = CompactionSettings(threshold=0.8, threshold_by_tier=ThresholdByTier(small=0.30))
    found = thresholds(
        budget(1_000_000, 0, 16_384), ClearingSettings(), compaction, tier=tier, task=task, set_tiers=set_tiers
    )
    assert (found.compact.tokens, found.compact.source) == (round(1_000_000 * share), source)


def test_the_share_of_a_tier_is_not_raised_where_the_user_or_the_task_class_gives_one() -> None:
    room = budget(50_000, 0, 1_000)
    assert (
        thresholds(room, ClearingSettings(), CompactionSettings(), tier="small", set_tiers=["small"]).compact.tokens
        == 17_500
    )
    assert thresholds(room, ClearingSettings(), CompactionSettings(), tier="small", task=0.5).compact.tokens == 25_000
    lower = CompactionSettings(threshold_by_tier=ThresholdByTier(frontier=0.5))
    assert thresholds(room, ClearingSettings(), lower, tier="small").compact.tokens == 25_000
    assert thresholds(room, ClearingSettings(), CompactionSettings(), tier="small").compact.tokens == 42_500


def test_a_price_cliff_is_a_threshold_of_its_own() -> None:
    room = budget(1_000_000, 8_000, 16_384)
    found = thresholds(room, ClearingSettings(), CompactionSettings(), tier="frontier", cliffs=(200_000,))
    assert (found.clear.tokens, found.compact.tokens) == (200_000, 200_000)
    assert found.compact.source == "price cliff"
    lower = thresholds(room, ClearingSettings(), CompactionSettings(), tier="small", cliffs=(600_000,))
    assert (lower.clear.tokens, lower.compact.tokens) == (245_000, 350_000)
    below = thresholds(room, ClearingSettings(), CompactionSettings(), tier="small", cliffs=(24_384, 300_000))
    assert below.compact.tokens == 300_000


def test_a_layer_whose_threshold_is_always_passed_rests_with_one_warning() -> None:
    def early(fixed: int) -> Thresholds:
        return thresholds(budget(20_000, fixed, 16_384), ClearingSettings(), CompactionSettings(threshold=0.35))

    found = early(2_667)
    assert found.compact.tokens == 7_000
    assert found.compact.rests
    assert found.clear.rests
    assert not found.compact.reached(19_000)
    assert len(found.warnings()) == 2
    assert "2,667" in found.compact.warning
    assert "4,333" in found.compact.warning
    assert not early(2_666).compact.rests

    crowded = at(20_000, "frontier", fixed=17_952)
    assert crowded.limit.rests
    assert not at(20_000, "frontier", fixed=17_951).limit.rests


def test_thresholds_are_listed_lowest_first() -> None:
    listed = at(200_000, "mid").all()
    assert [(each.layer, each.tokens) for each in listed] == [
        ("clear", 91_000),
        ("compact", 130_000),
        ("limit", 183_616),
    ]
    assert at(200_000, "mid").warnings() == ()


@pytest.mark.parametrize(
    ("trigger", "fixed", "keep"), [(170_000, 8_000, 8_780), (25_560, 8_000, 8_780), (20_000, 8_000, 6_000), (7, 9, 0)]
)
def test_a_compaction_keeps_at_most_half_of_what_its_trigger_leaves(trigger: int, fixed: int, keep: int) -> None:
    assert keep_tokens(CompactionSettings(), budget(200_000, fixed, 16_384), trigger) == keep


def test_what_a_large_system_prompt_takes_comes_on_top_of_a_short_history() -> None:
    assert at(200_000, "small", fixed=40_000).compact.tokens == 104_000
    assert (
        at(64_000, "frontier", fixed=40_000).compact.tokens == at(64_000, "small", fixed=40_000).limit.tokens == 58_000
    )
