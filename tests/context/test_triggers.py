"""Each layer through the engine: at its documented number, not one token or call earlier or later."""

from collections.abc import Callable

import pytest
from msgspec import structs

from tests.context.performer import RATES, Performer, written
from tests.context.sessions import MODEL, Session, comes
from tests.profiles import model_named, priced
from tui_agent.context.counting import ASCII_TOKENS
from tui_agent.context.effects import StepStarted
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Message, ModelSwitched, Prefix, Usage, tool_result, user_message
from tui_agent.conversation.profile import ModelProfile, Prices, Rates, Tier
from tui_agent.conversation.view import View
from tui_agent.settings import ClearingSettings, CompactionSettings, ContextSettings, Settings
from tui_agent.settings.schema import DigestSettings, Preset

UNPRICED = Settings(
    clearing=ClearingSettings(by_price=False), compaction=CompactionSettings(thrift=0, background=False)
)

NUMBERS: list[tuple[int, Tier, int, int]] = [
    (20_000, "frontier", 10_674, 15_248),
    (20_000, "unknown", 10_674, 15_248),
    (60_000, "mid", 31_674, 45_248),
    (90_000, "mid", 0, 64_990),
    (100_000, "small", 0, 64_990),
    (200_000, "frontier", 119_000, 170_000),
    (200_000, "mid", 91_000, 130_000),
    (200_000, "small", 0, 70_000),
    (1_000_000, "frontier", 595_000, 850_000),
    (1_000_000, "mid", 455_000, 650_000),
    (1_000_000, "small", 245_000, 350_000),
]
"""Window, tier, and the tokens at which clearing and compaction are due; 0: all that could be cleared is protected.

In windows of 20,000 and 60,000 the system prompt of 990 tokens counts: a quarter of what it leaves is for the answer.
"""


def facts(window: int, tier: Tier, rates: Rates | None = None) -> ModelProfile:
    return model_named(MODEL, window=window, source="provider", max_output=128_000, tier=tier, rates=rates)


AWAITED = Settings(compaction=CompactionSettings(background=False))
"""What is due is done there and then, so the thresholds hold to the token."""


def engine(view: View, model: ModelProfile, settings: Settings = UNPRICED) -> ContextEngine:
    return ContextEngine(settings, view=view, model=model, clock=lambda: 100.0)


def talk(size: int) -> Session:
    """Twelve exchanges of text alone, of together about `size` tokens."""
    made = Session()
    for _ in range(12):
        made.add(user_message("please go on"))
        made.answer(text="answer " * (size * 3 // 12 // 7))
    return made


def reading(size: int) -> Session:
    """Forty results of together about `size` tokens."""
    made = Session()
    made.add(user_message("read on"))
    for _ in range(40):
        made.step("x" * (size * 3 // 40))
    return made


def filled_to(tokens: int, start: Callable[[], Session]) -> View:
    """The session with one more prompt, so that its next request has exactly this size."""
    length = 1
    for _ in range(9):
        made = start()
        made.add(user_message("p" * length))
        missing = tokens - engine(made.view, facts(200_000, "unknown")).tokens
        if not missing:
            return made.view
        length += round(missing / ASCII_TOKENS)
    raise AssertionError(f"no prompt makes {tokens} tokens")


@pytest.mark.parametrize(("window", "tier", "clearing", "compaction"), NUMBERS)
def test_each_layer_fires_at_its_number_and_not_one_token_earlier(
    window: int, tier: Tier, clearing: int, compaction: int
) -> None:
    for tokens, first in ((compaction - 1, ""), (compaction, "summary")):
        here = engine(filled_to(tokens, lambda: talk((compaction - 1_500) * 9 // 10)), facts(window, tier))
        assert [comes(here, between_turns=between) for between in (False, True)] == [first] * 2, tokens
    for tokens, first in ((clearing, ""), (clearing + 1, "cleared")) if clearing else ():
        here = engine(filled_to(tokens, lambda: reading((clearing - 1_500) * 9 // 10)), facts(window, tier))
        assert comes(here) == first, tokens


@pytest.mark.parametrize("window", [20_000, 60_000])
def test_where_an_answer_alone_passes_the_threshold_clearing_rests_with_one_warning(window: int) -> None:
    early = Settings(
        clearing=UNPRICED.clearing, compaction=CompactionSettings(threshold=0.35, thrift=0, background=False)
    )
    full = engine(reading(window // 4).view, facts(window, "unknown"), early)
    assert full.thresholds.clear.tokens < full.tokens
    assert full.thresholds.clear.rests
    assert comes(full) == ""
    assert len(full.warnings()) == 1
    assert full.warnings() == ()


@pytest.mark.parametrize(
    ("preset", "clears", "compacts"),
    [("layered", True, True), ("digest", True, True), ("summary-only", False, True), ("off", False, False)],
)
def test_a_preset_says_which_layers_work(preset: Preset, clears: bool, compacts: bool) -> None:
    settings = Settings(
        context=ContextSettings(preset=preset),
        clearing=UNPRICED.clearing,
        compaction=UNPRICED.compaction,
        digests=DigestSettings(cutoff=100),
    )
    model = facts(200_000, "frontier")
    assert comes(engine(reading(150_000).view, model, settings)) == ("cleared" if clears else "")
    assert comes(engine(talk(180_000).view, model, settings)) == ("summary" if compacts else "")


@pytest.mark.parametrize(("results", "first"), [(10, ""), (11, "digest")])
def test_a_digest_is_due_at_the_eleventh_result(results: int, first: str) -> None:
    made = Session()
    made.add(user_message("read on"))
    for _ in range(results):
        made.step("found it")
    settings = Settings(context=ContextSettings(preset="digest"))
    assert comes(engine(made.view, facts(200_000, "frontier"), settings)) == first


def test_of_an_unknown_window_tokens_decide_or_the_number_of_messages() -> None:
    model = facts(0, "small")
    unknown = Settings(
        context=ContextSettings(context_window=-1), clearing=UNPRICED.clearing, compaction=UNPRICED.compaction
    )
    for tokens, first in ((7_999, ""), (8_000, "summary")):
        assert comes(engine(filled_to(tokens, lambda: talk(7_000)), model, unknown)) == first
    counted = Settings(
        context=ContextSettings(context_window=-1, max_context_tokens=0), compaction=CompactionSettings(thrift=0)
    )
    made = Session()
    while len(made.view.messages()) < 48:
        made.add(user_message("please go on " * 20))
        made.answer(text="I go on. " * 60)
    made.add(user_message("please"))
    assert comes(engine(made.view, model, counted)) == ""
    made.answer(text="I go on.")
    assert comes(engine(made.view, model, counted)) == "summary"


@pytest.mark.parametrize(("window", "tier", "_", "number"), [NUMBERS[place] for place in (0, 2, 7, 8)])
def test_with_prices_no_layer_is_later_than_without(window: int, tier: Tier, _: int, number: int) -> None:
    """A priced session never stands at the trigger without a step that takes it below."""
    grown = ContextEngine(AWAITED, model=facts(window, tier, RATES), clock=lambda: float(len(grown.view.log)))
    caller = Performer(grown)
    grown.extend([ModelSwitched(model=MODEL), Prefix(system="s" * 3_000), user_message("read on")])
    for call in range(120):
        usage = Usage(input_tokens=grown.tokens, output_tokens=60)
        asks = ToolCall(f"c{call}", "read_file", f'{{"path":"f{call}.py"}}')
        grown.extend([Message(role="assistant", blocks=(asks,), model=MODEL, usage=usage)])
        grown.extend([tool_result(ToolResult(asks.id, "word " * (window // 120)))])
        caller.run(grown.prepare())
        assert grown.tokens < min(number, grown.budget.limit), caller.done[-1:]
    assert caller.done


def test_above_a_price_cliff_a_turn_waits_for_the_summary_that_leads_below_it() -> None:
    dearer = Prices(20.0, 100.0, 1.0, 25.0)
    model = facts(200_000, "frontier", RATES)
    prices = structs.replace(priced(RATES), above=((90_000, dearer),))
    model = structs.replace(model, prices=prices)
    for tokens, beside in ((90_000, True), (90_001, False)):
        here = engine(
            filled_to(tokens, lambda: talk(79_000)), model, Settings(clearing=ClearingSettings(by_price=False))
        )
        performer = Performer(here, written("Work went on. " * 20))
        performer.run(here.prepare())
        begun = [effect for effect in performer.effects if isinstance(effect, StepStarted)]
        assert [each.in_background for each in begun] == [beside]
