"""What context work costs and when it pays: published prices, a simulated session, the formula of docs/context.md."""

from math import sqrt

import pytest
from msgspec import structs

from tests.context.performer import NAME, Chat
from tests.context.sessions import comes, situation
from tests.profiles import model_named
from tui_agent.context.budget import Budget, budget, thresholds
from tui_agent.context.economics import (
    CompactionWorth,
    Situation,
    Summariser,
    choose_summariser,
    clearing_size,
    compaction_worth,
    pays_from,
    reason_it_pays,
    step_price,
)
from tui_agent.context.layers.compaction import begins_at
from tui_agent.conversation.profile import Cache, Prices, Rates, Tier
from tui_agent.conversation.view import View
from tui_agent.settings import ClearingSettings, CompactionSettings, ContextSettings, Settings
from tui_agent.text import spoken_time

KNOBS = CompactionSettings(thrift=2, facts_tokens=4_000)
"""Those that the expected figures are of."""


def known(input_usd: float, output: float, cache_read: float | None = None, cache_write: float | None = None) -> Rates:
    found = Prices(input_usd, output, cache_read, cache_write).rates
    assert found is not None
    return found


OPUS_55 = known(4, 20, 0.20, 5)
FLASH_38 = known(0.75, 3.75, 0.075)
HAIKU_ABOVE_100K = known(0.5, 2.5, 0.05, 0.625)


def test_the_clearing_size_is_the_cheapest_of_all() -> None:
    # A batch of f tokens costs (w - r) * tail at once, and r * f / 2 a call until it is full: least where both are one.
    assert clearing_size(OPUS_55, 60_000, 4_000) == pytest.approx(sqrt(2 * 1.2 * 60_000 * 4_000 / 0.05))


def test_without_prices_or_growth_only_the_thresholds_decide() -> None:
    assert Prices(0, 0).rates is None
    unread = known(4, 20)
    assert unread.read == 0
    for priced, growth in ((None, 5_000.0), (unread, 5_000.0), (OPUS_55, 0.0)):
        assert clearing_size(priced, 50_000, growth) is None


def test_a_write_without_a_price_of_its_own_costs_what_input_costs() -> None:
    assert FLASH_38.write == 1
    assert FLASH_38.read == pytest.approx(0.1)


def moment(tokens: int, *, cold: bool = False, between_turns: bool = False) -> Situation:
    """A view of so many tokens, 8,000 of them system prompt and tools, on Opus 5.5."""
    room = Budget(200_000, 8_000, 16_384)
    here = situation(View(), room, cold=cold, between_turns=between_turns, rates=OPUS_55, growth=4_000)
    return structs.replace(here, settings=Settings(compaction=KNOBS), tokens=tokens)


def worth(here: Situation, small: Rates | None = None) -> CompactionWorth:
    return compaction_worth(structs.replace(here, small_rates=small), keep=20_000)


def with_thrift(here: Situation, thrift: float) -> Situation:
    return structs.replace(here, settings=Settings(compaction=structs.replace(KNOBS, thrift=thrift)))


def test_a_compaction_costs_its_writing_and_the_new_tail_and_frees_all_but_what_stays() -> None:
    # Of 100,000 tokens 72,000 are replaced, by a summary of 3,000 and facts of 4,000.
    assert worth(moment(100_000)).freed == 100_000 - (8_000 + 20_000 + 7_000)
    reading, writing, rewriting = 0.05 * 100_000, 5 * 3_000, 1.2 * (20_000 + 7_000)
    assert worth(moment(100_000)).cost == pytest.approx(reading + writing + rewriting)
    assert worth(moment(100_000, cold=True)).cost == pytest.approx(writing)
    alone = (0.4 * 100_000 + 5 * 3_000) * 0.5 / 4
    assert alone < writing
    assert worth(moment(100_000), HAIKU_ABOVE_100K).cost == pytest.approx(alone + rewriting)
    assert worth(moment(100_000, cold=True), HAIKU_ABOVE_100K).cost == pytest.approx(alone)
    # Of 40,000 tokens 12,000 are replaced, by a summary of 3,000 and facts of a fifth, 2,400.
    assert worth(moment(40_000)).freed == 40_000 - (8_000 + 20_000 + 5_400)
    dear = structs.replace(HAIKU_ABOVE_100K, input_usd=40)
    assert worth(moment(100_000), dear) == worth(moment(100_000))


def test_a_short_view_has_nothing_to_gain_by_a_compaction() -> None:
    short = worth(moment(20_000))
    assert short.freed < 0
    assert short.per_token == float("inf")
    assert reason_it_pays(with_thrift(moment(20_000), 0.001), short) == ""


@pytest.mark.parametrize(
    ("cold", "between_turns", "cost", "needed", "when"),
    [
        # thrift * sqrt(2 K g / (r + 0.03 (w - r))), with K as above, g = 4,000, r = 0.05, w = 1.25
        (False, True, 52_400, 111_707.2, "between turns"),
        (False, False, 52_400, 181_524.3, "inside a tool loop"),
        (True, False, 15_000, 37_354.4, "the cache is cold"),
        (True, True, 15_000, 37_354.4, "the cache is cold"),
    ],
)
def test_a_compaction_pays_from_the_size_the_formula_says(
    cold: bool, between_turns: bool, cost: float, needed: float, when: str
) -> None:
    here = moment(100_000, cold=cold, between_turns=between_turns)
    found = pays_from(here, worth(here))
    assert found == pytest.approx(needed, abs=0.1)
    for freed, pays in ((int(needed), False), (int(needed) + 1, True)):
        reason = reason_it_pays(here, CompactionWorth(cost, freed))
        assert (f"({when}, from {needed:,.0f} on)" in reason) is pays


def test_a_summary_that_is_written_meanwhile_is_entered_after_a_call_has_written_the_cache_anew() -> None:
    cold = moment(100_000, cold=True)
    meanwhile = structs.replace(cold, in_background=True)
    assert worth(meanwhile) == worth(moment(100_000))
    assert pays_from(meanwhile, worth(meanwhile)) == pays_from(moment(100_000), worth(moment(100_000)))
    assert worth(structs.replace(meanwhile, between_turns=True)) == worth(cold)


@pytest.mark.parametrize(
    ("window", "tier", "cliffs", "start"),
    [
        # Two calls of 5,000 tokens are made meanwhile, or a tenth of what lies between threshold and fixed part.
        (200_000, "frontier", (), 170_000),
        (200_000, "mid", (), 130_000),
        (120_000, "frontier", (), 120_000 - 16_384 - 9_400),
        (64_000, "frontier", (), 50_000 - 4_200),
        (200_000, "frontier", (100_000,), 100_000 - 9_200),
        (32_000, "frontier", (100_000,), 26_000 - 1_800),
    ],
)
def test_a_summary_begins_before_its_threshold_only_where_calls_would_have_to_wait(
    window: int, tier: Tier, cliffs: tuple[int, ...], start: int
) -> None:
    room = budget(window, 8_000, 16_384)
    limits = thresholds(room, ClearingSettings(), CompactionSettings(), tier=tier, cliffs=cliffs)
    here = structs.replace(moment(20_000), budget=room, limits=limits, growth_of_all=5_000)
    assert begins_at(here, in_background=True) == start
    assert begins_at(here, in_background=False) == limits.compact.tokens >= start


def test_where_no_price_growth_or_thrift_is_known_nothing_pays() -> None:
    here = moment(100_000, cold=True)
    assert pays_from(with_thrift(here, 0), worth(here)) is None
    assert pays_from(structs.replace(here, growth_of_all=0), worth(here)) is None
    assert pays_from(structs.replace(here, rates=known(4, 20)), worth(here)) is None
    assert pays_from(structs.replace(here, rates=None), worth(here)) is None


def test_the_summary_of_400k_tokens_on_opus_costs_least_from_the_cache() -> None:
    same = Summariser("opus-5-5", OPUS_55, 400_000, 1_000, 3_000, 900_000, cached=True)
    alone = Summariser("haiku-5-5", HAIKU_ABOVE_100K, 400_000, 0, 3_000, 900_000, cached=False)
    assert same.usd == pytest.approx(0.145)
    assert alone.usd == pytest.approx(0.21, rel=0.02)
    assert structs.replace(same, cached=False, instruction=0).usd == pytest.approx(1.66)

    warm = choose_summariser(same, alone)
    assert warm.way == "same_prefix"
    cold = choose_summariser(structs.replace(same, cached=False), alone)
    assert (cold.way, cold.usd) == ("whole", alone.usd)
    assert "$0.207" in cold.reason


def test_the_summariser_must_have_room() -> None:
    same = Summariser("small-window", OPUS_55, 400_000, 1_000, 3_000, 180_000, cached=True)
    alone = Summariser("other", OPUS_55, 400_000, 0, 3_000, 900_000, cached=False)
    assert choose_summariser(same, alone).way == "whole"
    assert choose_summariser(same, structs.replace(alone, limit=100_000)).way == "whole"
    assert (
        choose_summariser(structs.replace(same, limit=900_000), structs.replace(alone, limit=100_000)).way
        == "same_prefix"
    )
    unpriced = choose_summariser(structs.replace(same, limit=900_000, rates=None), alone)
    assert (unpriced.way, unpriced.usd, unpriced.reason) == (
        "same_prefix",
        None,
        "the conversation's own model writes it",
    )


def priced(cache: Cache, *, tokens: int, kept: int) -> Situation:
    model = model_named(NAME, rates=OPUS_55, cache=cache)
    return structs.replace(moment(tokens), model=model, kept=kept, rates=OPUS_55)


def test_a_clearing_pays_back_after_the_calls_it_says() -> None:
    implicit = step_price(priced("implicit", tokens=160_000, kept=160_000), after=60_000, tail=50_000)
    assert implicit is not None
    assert implicit.before == pytest.approx(160_000 * 0.2e-6)
    assert implicit.call == pytest.approx(10_000 * 0.2e-6 + 50_000 * 5e-6)
    assert implicit.saving == pytest.approx(100_000 * 0.2e-6)
    assert (implicit.gained, implicit.calls) == (0.0, 11)
    # A provider that keeps marked prefixes has nothing between the system prompt and what was changed.
    marked = step_price(priced("marked", tokens=160_000, kept=160_000), after=60_000, tail=50_000)
    assert marked is not None
    assert marked.call == pytest.approx(8_000 * 0.2e-6 + 52_000 * 5e-6)


def test_on_a_cold_cache_a_clearing_saves_at_once() -> None:
    cold = step_price(priced("marked", tokens=160_000, kept=0), after=60_000, tail=50_000)
    assert cold is not None
    assert (cold.cost, cold.calls) == (0.0, 0)
    assert cold.gained == pytest.approx(100_000 * 5e-6)
    nothing = step_price(priced("marked", tokens=60_000, kept=60_000), after=60_000, tail=50_000)
    assert nothing is not None
    assert nothing.calls is None


def test_a_compaction_pays_for_its_writer_too() -> None:
    figures = step_price(priced("implicit", tokens=400_000, kept=400_000), after=23_000, tail=15_000, writing=0.145)
    assert figures is not None
    assert figures.cost == pytest.approx(0.145 + 8_000 * 0.2e-6 + 15_000 * 5e-6 - 400_000 * 0.2e-6)
    assert figures.calls == 2
    assert step_price(structs.replace(moment(9), rates=None), after=1, tail=1) is None


def test_below_a_price_cliff_every_later_call_costs_less_for_all_that_it_carries() -> None:
    here = priced("implicit", tokens=260_000, kept=260_000)
    prices = Prices(2.0, 10.0, 0.2, above=((200_000, Prices(4.0, 20.0, 0.4)),))
    here = structs.replace(here, model=structs.replace(here.model, prices=prices), rates=prices.of(260_000).rates)
    across = step_price(here, after=180_000, tail=20_000)
    assert across is not None
    assert across.saving == pytest.approx(260_000 * 0.4e-6 - 180_000 * 0.2e-6)
    assert across.call == pytest.approx(160_000 * 0.2e-6 + 20_000 * 2e-6)


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0s"), (51, "51s"), (252, "4m12s"), (7_500, "2h05m"), (273_600, "3d04h")]
)
def test_spans_of_time(seconds: float, said: str) -> None:
    assert spoken_time(seconds) == said


def reading(reads: int, settings: Settings, window: int) -> Chat:
    """A loop of reads whose requests are measured, by a model with the prices of Opus 5.5."""
    loop = Chat(window, settings, priced=True)
    loop.ask("read them all")
    for _ in range(reads):
        loop.read(110)
    return loop


def freed_and_needed(loop: Chat, *, between_turns: bool, growth: float) -> tuple[float, float]:
    """What a compaction frees now, and from how many tokens on it pays, as the formula of docs/context.md says it."""
    tokens, read, write, output = loop.engine.tokens, OPUS_55.read, OPUS_55.write, OPUS_55.output
    fixed, kept = loop.engine.budget.fixed, 20_000
    replaced = max(0, tokens - fixed - kept)
    bare = min(3_000, replaced // 4)
    summary = bare + min(4_000, replaced // 5)
    cost = read * tokens + output * bare + (write - read) * (kept + summary)
    thrift = 2 * (0.8 if between_turns else 1.3)
    needed = thrift * sqrt(2 * cost * growth / (read + 0.03 * (write - read)))
    return tokens - (fixed + kept + summary), needed


@pytest.mark.parametrize("between_turns", [False, True])
def test_a_compaction_comes_at_the_call_at_which_the_formula_says_it_pays(between_turns: bool) -> None:
    settings = Settings(context=ContextSettings(preset="summary-only"), compaction=KNOBS)
    loop = reading(2, settings, 1_000_000)
    for number in range(2, 400):
        loop.read(110)
        growth = loop.engine.meter.growth(loop.engine.view).all
        freed, needed = freed_and_needed(loop, between_turns=between_turns, growth=growth)
        assert (comes(loop.engine, between_turns=between_turns) == "summary") is (freed >= needed), number
        if freed >= needed:
            break
    assert 100_000 < loop.engine.tokens < loop.engine.thresholds.compact.tokens / 2


@pytest.mark.parametrize(("kept_results", "first"), [(3, "cleared"), (30, "summary"), (60, "")])
def test_a_compaction_comes_instead_of_a_clearing_that_would_free_at_a_higher_price(
    kept_results: int, first: str
) -> None:
    """The more stays behind what is cleared, the more is written anew for it: in the end more than it saves until the
    next clearing, and then nothing comes before the threshold of compaction, although that of clearing has passed.
    """
    settings = Settings(
        clearing=ClearingSettings(keep=kept_results, protect_tokens=0, threshold=0.2, min_batch_share=0.01),
        compaction=CompactionSettings(thrift=100),
    )
    loop = reading(72, settings, 500_000)
    assert loop.engine.tokens > loop.engine.thresholds.clear.tokens
    assert comes(loop.engine) == first
