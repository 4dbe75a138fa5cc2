"""What is forecast is what is then done and what it then costs, in every place that shows it."""

import random
from collections.abc import Iterator

import pytest
from msgspec import structs
from typing_extensions import override

from tests.context.performer import Performer, written
from tests.context.talks import SUMMARY
from tests.profiles import model_named
from tests.servers.cache import PromptCache, Segment
from tui_agent.agent.commands.context_text import text as context_text
from tui_agent.context.cache_life import CacheState
from tui_agent.context.compaction.draft import Draft
from tui_agent.context.counting import estimate
from tui_agent.context.economics import StepPrice
from tui_agent.context.effects import Effect, Outcome, Steps, WriteInBackground
from tui_agent.context.engine import ContextEngine
from tui_agent.context.forecast import Forecast, StepAhead, expired, next_call, price_lines, sentence, soon
from tui_agent.context.layers.clearing import LEAST_BATCH
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import (
    Cleared,
    Message,
    ModelSwitched,
    Prefix,
    Summarized,
    Usage,
    tool_result,
    user_message,
)
from tui_agent.conversation.profile import Cache, Prices, Rates
from tui_agent.conversation.sizes import size_of_block, size_of_text
from tui_agent.models.usage import cost_usd
from tui_agent.settings import ClearingSettings, CompactionSettings, ContextSettings, Settings
from tui_agent.text import money_text

NAME = "anthropic:claude-opus-5-5"
OPUS = Rates(read=0.05, write=1.25, output=5.0, input_usd=4.0)
FLASH = Rates(read=0.1, write=1.0, output=5.0, input_usd=0.75)
TTL_S = 300.0
SYSTEM = "You work on this project. " * 400


class Provider:
    """Bills requests by what its cache has of them."""

    def __init__(self, cache: Cache, rates: Rates) -> None:
        self.now = 1_000.0
        self.kind = cache
        self.cache = PromptCache(lambda: self.now)
        self.prices = Prices(
            rates.input_usd, rates.output * rates.input_usd, rates.read * rates.input_usd, rates.write * rates.input_usd
        )

    def bill(self, engine: ContextEngine) -> Usage:
        request = engine.request().request
        segments = [Segment(request.system.encode(), estimate(size_of_text(request.system)), "5m")]
        edges = {*request.cache_edges, len(request.messages) - 1}
        for place, message in enumerate(request.messages):
            segments += [Segment(repr(each).encode(), estimate(size_of_block(each))) for each in message.blocks]
            if place in edges:
                segments[-1] = Segment(segments[-1].data, segments[-1].tokens, "5m")
        if self.kind == "none":
            return Usage(input_tokens=sum(each.tokens for each in segments))
        use = self.cache.use_marked if self.kind == "marked" else self.cache.use_implicit
        found = use(NAME, segments, 1_024)
        return Usage(found.total, found.read, found.written)

    def input_usd(self, used: Usage) -> float:
        return cost_usd(structs.replace(used, output_tokens=0), self.prices) or 0.0


class Later(Performer):
    """Writes summaries beside the calls: each is complete once the call it was begun before has ended."""

    def __init__(self, engine: ContextEngine) -> None:
        super().__init__(engine, written(SUMMARY))
        self.writing_beside: Steps[None] | None = None

    @override
    def __call__(self, effect: Effect) -> Outcome:
        if isinstance(effect, WriteInBackground):
            self.writing_beside = effect.steps
            return None
        return super().__call__(effect)

    def finish(self) -> None:
        steps, self.writing_beside = self.writing_beside, None
        if steps is not None:
            self.run(steps)
            self.run(self.engine.settle())


class Talk:
    """A conversation with a provider, its numbers drawn from a seed."""

    def __init__(self, seed: int) -> None:
        drawn = self.drawn = random.Random(seed)
        self.rates = drawn.choice((OPUS, FLASH))
        cache: Cache = "marked" if self.rates is OPUS else drawn.choice(("implicit", "none"))
        self.provider = Provider(cache, self.rates)
        self.engine = ContextEngine(
            Settings(
                context=ContextSettings(preset=drawn.choice(("layered", "summary-only"))),
                clearing=ClearingSettings(keep=3, protect_tokens=drawn.choice((2_000, 8_000))),
                compaction=CompactionSettings(thrift=drawn.choice((0.0, 1.0, 4.0))),
            ),
            model=model_named(
                NAME,
                window=drawn.choice((30_000, 100_000, 400_000)),
                tier=drawn.choice(("frontier", "mid")),
                rates=self.rates,
                cache=cache,
            ),
            clock=lambda: self.provider.now,
        )
        self.caller = Later(self.engine)
        self.engine.extend([ModelSwitched(model=NAME), Prefix(system=SYSTEM), user_message("Read them all.")])
        self.calls = self.sent = 0

    def ask(self, *, between_turns: bool = False) -> Usage:
        """One call, after the context work that is due."""
        self.caller.run(self.engine.prepare(between_turns=between_turns))
        self.sent = len(self.engine.view.log)
        call = ToolCall(f"c{self.calls + 1}", "read_file", f'{{"path": "{self.calls + 1}.py"}}')
        used = structs.replace(self.provider.bill(self.engine), output_tokens=estimate(size_of_block(call)))
        self.calls += 1
        self.engine.extend([Message(role="assistant", blocks=(call,), model=NAME, usage=used)])
        lines = self.drawn.choice((5, 60, 250, 400))
        self.engine.extend([tool_result(ToolResult(call.id, f"{self.calls}: a line of the file\n" * lines))])
        self.caller.finish()
        self.provider.now += self.drawn.choice((2.0, 20.0, 60.0))
        return used


def moments(seed: int) -> Iterator[Talk]:
    """Several moments of one conversation, some of them after a pause."""
    talk = Talk(seed)
    for _ in range(4):
        for _ in range(talk.drawn.randrange(1, 12)):
            talk.ask()
        talk.provider.now += talk.drawn.choice((0.0, 30.0, 290.0, 301.0, 540.0, 9_000.0))
        yield talk


def places(seen: Forecast, talk: Talk) -> list[str]:
    """The texts of all places that show it."""
    stats = talk.engine.stats()
    assert stats.forecast == seen
    return [sentence(seen), context_text(stats, talk.provider.now), next_call(seen)]


@pytest.mark.parametrize(
    "seeds",
    [range(24), *(pytest.param(range(first, first + 40), marks=pytest.mark.soak) for first in (24, 64, 104, 144))],
)
def test_what_is_forecast_is_what_is_done_and_what_it_costs(seeds: range) -> None:
    """96 states, and 700 in the long run: conversations at four moments each."""
    steps: list[str] = []
    for talk in (talk for seed in seeds for talk in moments(seed)):
        seen, length = talk.engine.forecast(), len(talk.engine.view.log)
        shown = places(seen, talk)
        used = talk.ask(between_turns=True)
        entries = talk.engine.view.log.entries()[length : talk.sent]
        done = [each for each in entries if isinstance(each, Cleared | Summarized)]
        due = seen.due
        if seen.ahead is not None and seen.ahead.step == "clear":
            assert seen.ahead.frees >= LEAST_BATCH, seen
        if due is None or due.in_background:
            assert done == [], seen
            later = [each for each in talk.engine.view.log.entries()[length:] if isinstance(each, Summarized)]
            if later and due is not None and due.price is not None:
                # Whether the call after it costs less or more: the cache has been filled meanwhile.
                assert (later[0].saved_usd > 0) is (due.price.before > due.price.call), seen
        elif due.step == "clear":
            (cleared,) = done
            assert isinstance(cleared, Cleared)
            assert (len(cleared.results), cleared.before - cleared.after) == (due.items, due.frees)
            assert due.price is not None
            assert cleared.saved_usd == pytest.approx(due.price.before - due.price.call, abs=1e-6)
            assert cleared.saving_usd == pytest.approx(due.price.saving, abs=1e-6)
        steps.append(due.step if due is not None else "")
        assert seen.cost_then is not None
        # How long a summary will be is an estimate: this writer's says little and lacks no facts.
        off = 0.02 if due is not None and due.step == "compact" else 0.005
        assert talk.provider.input_usd(used) == pytest.approx(seen.cost_then, abs=off), (seen, used)
        assert money_text(seen.cost_then) in shown[2]
        assert shown[0].split()[1] in shown[1]
    assert {"clear", "compact", ""} <= set(steps)


def test_a_summary_that_brings_other_rules_is_priced_with_them() -> None:
    talk = next(talk for talk in map(Talk, range(20)) if talk.rates is OPUS)
    for _ in range(12):
        talk.ask()
    talk.provider.now += 10
    talk.engine.renewed_prefix = Prefix(system=SYSTEM.replace("work", "help"))
    draft = talk.caller.run(talk.engine.draft("compact"))
    assert isinstance(draft, Draft)
    price = talk.engine.preview_draft(draft).price
    assert price is not None
    talk.caller.run(talk.engine.enter(draft))
    then = talk.engine.forecast()
    assert then.cache.reason == "the system prompt or the tools have changed"
    assert price.call == pytest.approx(then.cost, rel=0.02)
    assert talk.provider.input_usd(talk.provider.bill(talk.engine)) == pytest.approx(price.call, rel=0.02)


WARM, COLD = CacheState(False, "the cache is warm"), CacheState(True, "the last call was 9m00s ago")
FREE = StepAhead(step="clear", frees=56_000, due=True, items=12, price=StepPrice(0.27, 0.12, 0.003))
SUMMARY_LATER = StepAhead(step="compact", frees=77_000, calls=9, price=StepPrice(0.02, 0.01, 0.0077, writing=0.04))


def seen(ahead: StepAhead | None, *, cache: CacheState = WARM, cost: float | None = 0.02) -> Forecast:
    due = ahead if ahead is not None and ahead.due else None
    return Forecast(tokens=109_000, cache=cache, cost=cost, later=0.02, due=due, ahead=ahead)


def test_a_sentence_says_when_what_it_frees_and_what_it_costs() -> None:
    assert sentence(seen(SUMMARY_LATER)) == (
        "Next: a summary in about 9 calls. It frees 77k tokens, costs about $0.030 and is paid back after 4 calls."
    )
    assert sentence(seen(FREE, cache=COLD, cost=0.27)) == (
        "Next: clearing old tool results comes before the next call. It frees 56k tokens, costs nothing and saves"
        " $0.150."
    )
    cold = structs.replace(SUMMARY_LATER, price=StepPrice(0.07, 0.01, 0.0077, writing=0.04))
    assert sentence(seen(cold)).endswith(" It frees 77k tokens, is paid back at once and saves about $0.020.")
    assert sentence(seen(None)).startswith("Nothing has to leave")
    begun = structs.replace(SUMMARY_LATER, due=True, begun=True, in_background=True)
    assert sentence(seen(begun)).startswith("Next: a summary is being written.")
    early = structs.replace(SUMMARY_LATER, due=True, in_background=True, reason="it pays: 9 outweigh 3")
    assert sentence(seen(early)).startswith("Next: a summary starts with your next message, since it pays. It frees")
    at_its_threshold = structs.replace(early, reason="the context reached 109,000 tokens")
    assert sentence(seen(at_its_threshold)).startswith("Next: a summary starts with your next message. It frees")


def test_the_status_bar_names_a_step_only_when_it_is_near() -> None:
    assert soon(seen(FREE)) == "clearing next"
    assert soon(seen(SUMMARY_LATER)) == soon(seen(None)) == ""
    assert soon(seen(structs.replace(SUMMARY_LATER, calls=1))) == "summary in 1 call"


def test_an_expired_cache_is_told_of_in_one_line() -> None:
    told = expired(seen(FREE, cache=COLD, cost=0.27), at_least_usd=0.25)
    assert told == (
        "The cache expired: your next message costs $0.270 as it is, $0.120 after clearing 56k of old results"
        " (by itself; /keep keeps them)"
    )
    alone = expired(seen(None, cache=COLD, cost=0.27), at_least_usd=0.25)
    assert alone.startswith("The cache expired: your next message costs $0.270. /compact")
    assert expired(seen(FREE, cost=0.27), at_least_usd=0.25) == ""
    assert expired(seen(FREE, cache=COLD, cost=0.2), at_least_usd=0.25) == ""


def test_a_price_is_told_in_the_same_figures_everywhere() -> None:
    assert price_lines(StepPrice(0.02, 0.01, 0.0077, writing=0.04), exact=True) == [
        ("Writing it", "$0.040"),
        ("Next call", "$0.010 instead of $0.020"),
        ("Each call after it", "saves $0.0077"),
        ("Paid back", "after 4 more calls"),
    ]
    # What a text will cost that is not written yet depends on its length.
    assert price_lines(StepPrice(0.02, 0.01, 0.0077, writing=0.04), exact=False)[0] == ("Writing it", "about $0.040")
    assert price_lines(StepPrice(0.27, 0.12, 0.003), exact=True)[-1] == ("Paid back", "at once")
    assert price_lines(StepPrice(0.02, 0.03, 0.0), exact=True)[-1] == ("Paid back", "never, as it looks now")
    assert price_lines(StepPrice(2.0, 1.0, 0.5, in_seconds=True), exact=True)[0] == (
        "Next call",
        "1.0 s instead of 2.0 s",
    )
    assert "$0.120 plus the answer, after clearing old tool results ($0.270 without that)" in next_call(
        seen(FREE, cache=COLD, cost=0.27)
    )
    assert next_call(seen(FREE, cache=COLD, cost=0.27)).endswith("From a warm cache it would read them for $0.0097.")
    warm = structs.replace(seen(None, cost=0.02), uncached=0.27)
    assert next_call(warm).endswith(
        "for $0.020 plus the answer. Without the provider's cache it would read them for $0.270."
    )
    assert "ithout" not in next_call(structs.replace(warm, uncached=0.02))
    assert next_call(seen(None, cost=None)).endswith("the prices of this model are not known.")
    assert next_call(seen(None, cost=0.0)).endswith("and costs nothing.")


def test_what_the_user_keeps_is_neither_cleared_nor_forecast_to_be() -> None:
    talk = next(talk for seed in range(50) for talk in moments(seed) if talk.engine.forecast().due is not None)
    before = len(talk.engine.view.log)
    talk.engine.keep_as_it_is()
    assert talk.engine.forecast().due is None
    talk.caller.run(talk.engine.prepare(between_turns=True))
    assert len(talk.engine.view.log) == before
    talk.ask(between_turns=True)
    talk.provider.now += 9_000
    assert talk.engine.forecast().due is not None
