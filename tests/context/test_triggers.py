"""Each layer through the manager: at its documented number, not one token or call earlier or later."""

from collections.abc import Callable

import pytest

from tests.context.sessions import MODEL, Session
from tests.context.talks import ARCHIVE, PROMPTS
from tui_agent.context.summary.plan import SummaryPlan, accept
from tui_agent.context.engine import ContextEngine
from tui_agent.context.economics import ModelFacts
from tui_agent.context.effects import Refusal
from tui_agent.context.economics import Rates
from tui_agent.context.budget import KnownTier
from tui_agent.conversation.entries import Usage, user_message
from tui_agent.conversation.view import View
from tui_agent.settings import Clearing, Compaction, Context, Digests, Preset, Settings

UNPRICED = Settings(clearing=Clearing(by_price=False), compaction=Compaction(thrift=0))
RATES = Rates(input_usd=4.0, output=5.0, read=0.05, write=1.25)
NOW = 100.0

COMPACTION: list[tuple[int, KnownTier, int]] = [
    (20_000, "frontier", 15_000),
    (60_000, "frontier", 45_000),
    (200_000, "frontier", 170_000),
    (1_000_000, "frontier", 850_000),
    (20_000, "mid", 13_000),
    (60_000, "mid", 39_000),
    (200_000, "mid", 130_000),
    (1_000_000, "mid", 650_000),
    (20_000, "small", 7_000),
    (60_000, "small", 21_000),
    (200_000, "small", 70_000),
    (1_000_000, "small", 350_000),
    (20_000, "unknown", 15_000),
    (200_000, "unknown", 170_000),
]
CLEARING: list[tuple[int, KnownTier, int]] = [
    (20_000, "frontier", 10_500),
    (60_000, "frontier", 31_500),
    (200_000, "frontier", 119_000),
    (1_000_000, "frontier", 595_000),
    (20_000, "mid", 9_100),
    (60_000, "mid", 27_300),
    (200_000, "mid", 91_000),
    (1_000_000, "mid", 455_000),
    (1_000_000, "small", 245_000),
]


def facts(window: int, tier: KnownTier, rates: Rates | None = None) -> ModelFacts:
    return ModelFacts(name=MODEL, window=window, told_by_provider=True, max_output=128_000, tier=tier, rates=rates)


def manager(settings: Settings = UNPRICED) -> ContextEngine:
    return ContextEngine(settings, PROMPTS)


def talk(size: int) -> Session:
    """Twelve exchanges of text alone, of together about `size` tokens."""
    made = Session()
    for _ in range(12):
        made.add(user_message("please " * (size * 3 // 24 // 7)))
        made.answer(text="answer " * (size * 3 // 24 // 7))
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
    low, high = 1, tokens * 4
    while low <= high:
        middle = (low + high) // 2
        made = start()
        made.add(user_message("p" * middle))
        found = manager().tokens(made.view)
        if found == tokens:
            return made.view
        low, high = (middle + 1, high) if found < tokens else (low, middle - 1)
    raise AssertionError(f"no prompt makes {tokens} tokens")


@pytest.mark.parametrize("between_turns", [False, True])
@pytest.mark.parametrize(("window", "tier", "number"), COMPACTION)
def test_compaction_fires_at_its_number_and_not_one_token_earlier(
    window: int, tier: KnownTier, number: int, between_turns: bool
) -> None:
    model = facts(window, tier)
    for tokens, fires in ((number - 1, False), (number, True)):
        view = filled_to(tokens, lambda: talk((number - 1_500) * 9 // 10))
        due = manager().due(view, model, NOW, between_turns=between_turns)
        assert (due.summary is not None) is fires, tokens


@pytest.mark.parametrize(("window", "tier", "number"), CLEARING)
def test_clearing_fires_above_its_number_and_not_one_token_earlier(window: int, tier: KnownTier, number: int) -> None:
    model = facts(window, tier)
    for tokens, fires in ((number, False), (number + 1, True)):
        view = filled_to(tokens, lambda: reading((number - 1_500) * 9 // 10))
        due = manager().due(view, model, NOW, between_turns=False)
        assert (due.cleared is not None) is fires, tokens
        assert due.summary is None


@pytest.mark.parametrize("factor", [None, 1.1, 1.3])
@pytest.mark.parametrize(("window", "tier", "number"), COMPACTION)
def test_compaction_fires_at_the_call_that_reaches_its_number(
    window: int, tier: KnownTier, number: int, factor: float | None
) -> None:
    made, engine, model = Session(), manager(), facts(window, tier)
    for _ in range(60):
        made.add(user_message("please " * (number // 100)))
        usage = None
        if factor is not None:
            estimated = sum(manager().meter.categories(made.view).values())
            usage = Usage(input_tokens=int(factor * estimated), output_tokens=number // 40)
        made.answer(usage, text="answer " * (number // 100))
        if usage is not None:
            engine.meter.measure(made.view, usage)
        tokens = engine.tokens(made.view)
        due = engine.due(made.view, model, NOW, between_turns=True)
        assert (due.summary is not None) is (tokens >= number)
        if due.summary is not None:
            return
    raise AssertionError("compaction never fired")


def test_a_small_model_clears_only_once_a_batch_lies_before_the_protected_tail() -> None:
    made, engine, model = Session(), manager(), facts(200_000, "small")
    made.add(user_message("read on"))
    for number in range(1, 70):  # noqa: B007
        made.step("x" * 3_000)
        due = engine.due(made.view, model, NOW, between_turns=False)
        assert due.summary is None
        if due.cleared is not None:
            break
    old = number - 40_000 // 990
    assert engine.tokens(made.view) > 49_000
    assert due.cleared is not None
    assert due.cleared.before - due.cleared.after >= 10_000
    assert len(due.cleared.results) in (old - 1, old)
    assert (len(due.cleared.results) - 1) * 990 < 10_000 + 990


@pytest.mark.parametrize("window", [20_000, 60_000])
def test_where_an_answer_alone_passes_the_threshold_clearing_rests_with_one_warning(window: int) -> None:
    engine, model = manager(), facts(window, "small")
    view = reading(window // 3).view
    assert engine.due(view, model, NOW, between_turns=False).cleared is None
    assert len(engine.warnings(view, model)) == 1
    assert engine.warnings(view, model) == ()


@pytest.mark.parametrize(
    ("preset", "clears", "compacts"),
    [("layered", True, True), ("digest", True, True), ("summary-only", False, True), ("off", False, False)],
)
def test_a_preset_says_which_layers_work(preset: Preset, clears: bool, compacts: bool) -> None:
    settings = Settings(
        context=Context(preset=preset),
        clearing=UNPRICED.clearing,
        compaction=UNPRICED.compaction,
        digests=Digests(cutoff=100),
    )
    model = facts(200_000, "frontier")
    due = manager(settings).due(reading(150_000).view, model, NOW, between_turns=False)
    assert (due.cleared is not None) is clears
    due = manager(settings).due(talk(180_000).view, model, NOW, between_turns=False)
    assert (due.summary is not None) is compacts


@pytest.mark.parametrize(("results", "fires"), [(10, False), (11, True)])
def test_a_digest_is_due_at_the_eleventh_result(results: int, fires: bool) -> None:
    made = Session()
    made.add(user_message("read on"))
    for _ in range(results):
        made.step("found it")
    settings = Settings(context=Context(preset="digest"))
    due = manager(settings).due(made.view, facts(200_000, "frontier"), NOW, between_turns=False)
    assert (due.digest is not None) is fires


def test_of_an_unknown_window_tokens_decide_or_the_number_of_messages() -> None:
    model = facts(0, "small")
    unknown = Settings(context=Context(context_window=-1), clearing=UNPRICED.clearing, compaction=UNPRICED.compaction)
    for tokens, fires in ((7_999, False), (8_000, True)):
        due = manager(unknown).due(filled_to(tokens, lambda: talk(7_000)), model, NOW, between_turns=False)
        assert (due.summary is not None) is fires
    counted = Settings(context=Context(context_window=-1, max_context_tokens=0), compaction=Compaction(thrift=0))
    made = Session()
    while len(made.view.messages()) < 48:
        made.add(user_message("please go on " * 20))
        made.answer(text="I go on. " * 60)
    made.add(user_message("please"))
    assert not manager(counted).due(made.view, model, NOW, between_turns=False)
    made.answer(text="I go on.")
    assert manager(counted).due(made.view, model, NOW, between_turns=False).summary is not None


@pytest.mark.parametrize(("window", "tier", "number"), COMPACTION)
def test_with_prices_no_layer_is_later_than_without(window: int, tier: KnownTier, number: int) -> None:
    """A priced session never stands at the trigger without a step that takes it below."""
    made, engine, model = Session(), manager(Settings()), facts(window, tier, RATES)
    made.add(user_message("read on"))
    steps = 0
    for _ in range(120):
        usage = Usage(input_tokens=engine.tokens(made.view), output_tokens=60)
        made.answer(usage, call="read_file", path=f"f{made.calls}.py")
        engine.meter.measure(made.view, usage)
        made.result("word " * (window // 120))
        due = engine.due(made.view, model, float(len(made.view.log)), between_turns=False)
        steps += bool(due)
        if due.cleared is not None:
            made.add(due.cleared)
        if due.summary is not None:
            compacted(made, due.summary, engine)
        left = engine.tokens(made.view)
        assert left < number, (left, due)
    assert steps


def compacted(made: Session, plan: SummaryPlan, engine: ContextEngine) -> None:
    done = accept(plan, plan.extract, Compaction(), path=ARCHIVE, tokens_of=engine.tokens_of(made.view))
    assert not isinstance(done, Refusal), done
    for entry in done.entries:
        made.add(entry)
