"""Costs against the catalogue package's own arithmetic, and totals that do not hide what is unknown."""

import pytest
from genai_prices import Usage as CatalogueUsage
from genai_prices import calc_price

from tui_agent.conversation.entries import Usage
from tui_agent.conversation.profile import Prices
from tui_agent.models.catalogue import CATALOGUE
from tui_agent.models.prices import look_up
from tui_agent.models.usage import Totals, UsageTracker, cost_usd

MODELS = [
    *("claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-4-7", "claude-sonnet-4-6"),
    *("claude-haiku-4-5", "claude-fable-5-2", "gemini-3.8-flash", "gemini-3.1-pro-preview", "gemini-2.5-pro"),
]
USAGES = (
    Usage(1_000, 0, 0, 200),
    Usage(50_000, 30_000, 15_000, 800, 100),
    Usage(100_000, 0, 100_000, 1),
    Usage(100_001, 90_000, 10_000, 4_000),
    Usage(200_000, 150_000, 0, 4_000),
    Usage(200_001, 0, 1, 4_000),
    Usage(900_000, 899_000, 500, 60_000),
    Usage(),
)


@pytest.mark.parametrize("model", MODELS)
def test_a_call_costs_what_the_catalogue_says(model: str) -> None:
    provider = "anthropic" if model.startswith("claude") else "google"
    prices = look_up(CATALOGUE.quick_profile(f"{provider}:{model}")).prices
    for usage in USAGES:
        used = CatalogueUsage(
            input_tokens=usage.input_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        price = float(calc_price(used, model_ref=model, provider_id=provider).total_price)
        assert cost_usd(usage, prices) == pytest.approx(price, rel=1e-9, abs=1e-12)


def test_a_cliff_holds_for_the_whole_request() -> None:
    prices = Prices(1.0, 2.0, above=((100, Prices(10.0, 20.0)), (200, Prices(100.0, 200.0))))
    costs = [cost_usd(Usage(n, output_tokens=n), prices) for n in (100, 101, 200, 201)]
    assert costs == [pytest.approx(n * 1e-6) for n in (300, 3030, 6000, 60300)]


def test_unknown_prices_are_unknown_not_free() -> None:
    assert cost_usd(Usage(1000), None) is None
    tracker = UsageTracker()
    tracker.record("a", Usage(10), 0.5)
    tracker.record("b", Usage(20), None)
    assert tracker.session == Totals(Usage(30), 2, 0.5, 1)
    tracker.start_turn()
    tracker.record("b", Usage(1), None)
    tracker.record("c", Usage(2), 2.0)
    assert tracker.turn == Totals(Usage(3), 2, 2.0, 1)
    assert tracker.session == Totals(Usage(33), 4, 2.5, 2)
    assert list(tracker.by_model()) == ["c", "a", "b"]
    assert tracker.by_model()["b"] == Totals(Usage(21), 2, 0.0, 2)
    assert [each.known_cost_usd for each in (Totals(), tracker.by_model()["b"], tracker.session)] == [0.0, None, 2.5]
    tracker.end_turn()
    tracker.record("c", Usage(4), 1.0)
    assert (tracker.turn.cost_usd, tracker.session.cost_usd) == (2.0, 3.5)


def test_a_call_of_a_subtask_counts_once_in_each_total() -> None:
    parent = UsageTracker()
    parent.record("large", Usage(input_tokens=10), 1.0)
    parent.start_turn()
    first, second = UsageTracker(parent), UsageTracker(parent)
    first.start_turn()
    first.record("small", Usage(input_tokens=100), 0.5)
    first.record("small", Usage(input_tokens=200), None)
    second.start_turn()
    second.record("small", Usage(input_tokens=1), 0.25)
    assert (parent.session.cost_usd, parent.turn.cost_usd, parent.subtasks.cost_usd) == (1.75, 0.75, 0.75)
    assert (parent.session.calls, parent.turn.calls, parent.subtasks.calls, parent.subtask_count) == (4, 3, 3, 2)
    assert (first.session.cost_usd, first.subtasks.calls, first.subtask_count) == (0.5, 0, 0)
    assert parent.by_model()["small"].usage.input_tokens == 301
