"""What context work costs, checked against the published prices and a simulated session."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from tui_agent.context.pricing import (
    Summariser,
    cache_state,
    choose_summariser,
    clearing_payback,
    clearing_size,
    compaction_payback,
    compaction_size,
    cycle_cost,
    rates,
    spoken_time,
    thrift_factor,
)
from tui_agent.context.situation import Rates
from tui_agent.settings import Compaction


def known(*prices: float) -> Rates:
    found = rates(*prices)
    assert found is not None
    return found


OPUS_47 = known(5, 25, 0.50, 6.25)
OPUS_55 = known(4, 20, 0.20, 5)
FABLE_52 = known(8, 40, 0.20, 10)
FLASH_38 = known(0.75, 3.75, 0.075)
HAIKU_ABOVE_100K = known(0.5, 2.5, 0.05, 0.625)


class Step(NamedTuple):
    """One call of a simulated session: what stays of it, and its result, which may be cleared."""

    stays: int
    result: int
    live: bool


CALLS, BASE, PER_CALL, RESULT, ANSWER, STUB = 120, 8_500, 6_400, 4_000, 700, 60
Policy = Callable[[list[Step], list[int], Rates], list[int]]


def simulated(policy: Policy, priced: Rates) -> float:
    """USD of 120 warm calls that add 6.4k tokens each, 4k of them a result; the prefix is cached byte by byte."""
    steps: list[Step] = []
    cached, cost = BASE, BASE * priced.write
    for _ in range(CALLS):
        steps.append(Step(PER_CALL - RESULT, RESULT, live=True))
        cleared = policy(steps, [at for at, step in enumerate(steps) if step.live], priced)
        if cleared:
            before = sum(step.stays + step.result for step in steps[: cleared[0]])
            cached = min(cached, BASE + before + steps[cleared[0]].stays)
            for at in cleared:
                steps[at] = Step(steps[at].stays, STUB, live=False)
        tokens = BASE + sum(step.stays + step.result for step in steps)
        cost += cached * priced.read + (tokens - cached) * priced.write + ANSWER * priced.output
        cached = tokens
    return cost * priced.input_usd / 1_000_000


def nothing(steps: list[Step], live: list[int], priced: Rates) -> list[int]:
    return []


def slide(steps: list[Step], live: list[int], priced: Rates) -> list[int]:
    return live[:-3]


def by_price(steps: list[Step], live: list[int], priced: Rates) -> list[int]:
    old = live[:-3]
    if not old:
        return []
    after = sum(step.stays + step.result for step in steps[old[0] + 1 :])
    tail = after - sum(steps[at].result for at in old[1:])
    needed = clearing_size(priced, tail, RESULT)
    assert needed is not None
    return old if sum(steps[at].result for at in old) >= needed else []


@pytest.mark.parametrize(
    ("priced", "expected_nothing", "expected_by_price"),
    [(OPUS_47, 30.31, 21.20), (OPUS_55, 14.91, 12.25), (FABLE_52, 20.47, 19.95), (FLASH_38, 4.40, 2.90)],
    ids=["opus-4-7", "opus-5-5", "fable-5-2", "gemini-3.8-flash"],
)
def test_clearing_by_price_is_cheaper_than_clearing_always_and_never(
    priced: Rates, expected_nothing: float, expected_by_price: float
) -> None:
    costs = simulated(nothing, priced), simulated(by_price, priced), simulated(slide, priced)
    assert costs[0] == pytest.approx(expected_nothing, rel=0.001)
    assert costs[1] == pytest.approx(expected_by_price, rel=0.04)
    assert costs[1] < min(costs[0], costs[2])


def test_sliding_costs_more_than_nothing_where_reads_are_cheap() -> None:
    assert simulated(slide, OPUS_55) > simulated(nothing, OPUS_55)
    assert simulated(slide, FABLE_52) > 1.3 * simulated(nothing, FABLE_52)
    assert simulated(slide, OPUS_47) < simulated(nothing, OPUS_47)


def test_the_clearing_size_is_the_cheapest_of_its_neighbours() -> None:
    tail, growth = 60_000.0, 4_000.0
    best = clearing_size(OPUS_55, tail, growth)
    assert best is not None

    def cost_per_call(freed: float) -> float:
        calls = freed / growth
        return (OPUS_55.write - OPUS_55.read) * tail / calls + OPUS_55.read * freed / 2

    assert cost_per_call(best) < min(cost_per_call(0.9 * best), cost_per_call(1.1 * best))


def test_without_prices_or_growth_only_the_thresholds_decide() -> None:
    assert rates(0, 0) is None
    unread = known(4, 20)
    assert unread.read == 0
    for priced, growth in ((None, 5_000.0), (unread, 5_000.0), (OPUS_55, 0.0)):
        assert clearing_size(priced, 50_000, growth) is None
        assert compaction_size(priced, tokens=1e5, keep=2e4, summary=3e3, growth=growth, cold=False) is None


def test_a_write_without_a_price_of_its_own_costs_what_input_costs() -> None:
    assert FLASH_38.write == 1
    assert FLASH_38.read == pytest.approx(0.1)


def test_a_compaction_costs_its_reading_its_summary_and_the_new_tail() -> None:
    warm = cycle_cost(OPUS_55, tokens=100_000, keep=20_000, summary=3_000, cold=False)
    assert warm == pytest.approx(0.05 * 100_000 + 3_000 * 5 + 1.2 * 23_000)
    cold = cycle_cost(OPUS_55, tokens=100_000, keep=20_000, summary=3_000, cold=True)
    assert warm - cold == pytest.approx(5_000)
    size = compaction_size(OPUS_55, tokens=100_000, keep=20_000, summary=3_000, growth=4_000, cold=False)
    assert size == pytest.approx((2 * warm * 4_000 / 0.05) ** 0.5)


@pytest.mark.parametrize(
    ("between_turns", "cold", "factor"),
    [(True, False, 1.6), (False, False, 2.6), (True, True, 1.0), (False, True, 1.0)],
)
def test_thrift_waits_least_when_cold_and_longest_in_a_loop(between_turns: bool, cold: bool, factor: float) -> None:
    assert thrift_factor(Compaction(), between_turns=between_turns, cold=cold) == pytest.approx(factor)
    assert thrift_factor(Compaction(thrift=0), between_turns=between_turns, cold=cold) == 0


@pytest.mark.parametrize(
    ("last_call", "same_model", "same_prefix", "cold"),
    [
        (None, True, True, True),
        (1_000.0, True, True, False),
        (700.5, True, True, False),
        (700.0, True, True, True),
        (1_000.0, False, True, True),
        (1_000.0, True, False, True),
    ],
)
def test_when_the_cache_is_cold(last_call: float | None, same_model: bool, same_prefix: bool, cold: bool) -> None:
    state = cache_state(now=1_000, last_call=last_call, ttl_s=300, same_model=same_model, same_prefix=same_prefix)
    assert state.cold is cold
    assert state.reason


def test_the_summary_of_400k_tokens_on_opus_costs_least_from_the_cache() -> None:
    same = Summariser("opus-5-5", OPUS_55, 400_000, 1_000, 3_000, 900_000, cached=True)
    alone = Summariser("haiku-5-5", HAIKU_ABOVE_100K, 400_000, 0, 3_000, 900_000, cached=False)
    assert same.usd == pytest.approx(0.145)
    assert alone.usd == pytest.approx(0.21, rel=0.02)
    assert same._replace(cached=False, instruction=0).usd == pytest.approx(1.66)

    warm = choose_summariser(same, alone)
    assert (warm.way, warm.model) == ("same_prefix", "opus-5-5")
    cold = choose_summariser(same._replace(cached=False), alone)
    assert (cold.way, cold.model, cold.usd) == ("separate", "haiku-5-5", alone.usd)
    assert "$0.207" in cold.reason


def test_the_summariser_must_have_room() -> None:
    same = Summariser("small-window", OPUS_55, 400_000, 1_000, 3_000, 180_000, cached=True)
    alone = Summariser("other", OPUS_55, 400_000, 0, 3_000, 900_000, cached=False)
    assert choose_summariser(same, alone).way == "separate"
    assert choose_summariser(same, alone._replace(limit=100_000)).way == "separate"
    assert choose_summariser(same._replace(limit=900_000), alone._replace(limit=100_000)).way == "same_prefix"
    assert choose_summariser(same, None).way == "same_prefix"
    unpriced = choose_summariser(same._replace(limit=900_000, rates=None), alone)
    assert (unpriced.way, unpriced.usd, unpriced.reason) == ("same_prefix", None, "prices are not known")


def test_a_clearing_pays_back_after_the_calls_it_says() -> None:
    figures = clearing_payback(OPUS_55, freed=100_000, tail=50_000, cold=False)
    assert figures.cost_usd == pytest.approx(1.2 * 50_000 * 4e-6)
    assert figures.saving_usd == pytest.approx(100_000 * 0.2e-6)
    assert figures.calls == 12
    assert clearing_payback(OPUS_55, freed=100_000, tail=50_000, cold=True).calls == 0
    assert clearing_payback(OPUS_55, freed=0, tail=50_000, cold=False).calls is None


def test_a_compaction_pays_for_its_summariser_too() -> None:
    figures = compaction_payback(OPUS_55, freed=377_000, keep=20_000, summary=3_000, summariser_usd=0.145, cold=False)
    assert figures.cost_usd == pytest.approx(0.145 + 1.2 * 23_000 * 4e-6)
    assert figures.calls == 4


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0s"), (51, "51s"), (252, "4m12s"), (7_500, "2h05m"), (273_600, "3d04h")]
)
def test_spans_of_time(seconds: float, said: str) -> None:
    assert spoken_time(seconds) == said
