"""The cost ceiling: what trips it, that nothing is asked of a model afterwards, and what a reset grants."""

from pathlib import Path

import pytest

from tests.agent.serving import OPUS, Serve
from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import goes_on, of, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Script, Step
from tui_agent.agent import events
from tui_agent.agent.turn.guards import (
    CostCeiling,
    CostCeilingReached,
    Limits,
    ledger_of_today,
    probably_cached,
)
from tui_agent.conversation.entries import Message, Usage
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.models.usage import UsageTracker
from tui_agent.session import Session
from tui_agent.settings import GivenValue

PRICED = ModelProfile("anthropic", "claude-x", prices=Prices(1.0, 10.0, cache_read=0.1))
UNPRICED = ModelProfile("ollama", "llama")
READING = Step(calls=(Call("read_file", {"path": "calc.py"}),))
ALLOWING = {**OPUS, "permissions.mode": "allow"}


def spent(*costs: float) -> UsageTracker:
    tracker = UsageTracker()
    for cost in costs:
        tracker.record("m", Usage(), cost)
    return tracker


def call(ceiling: CostCeiling, profile: ModelProfile, tokens: int, cached: int = 0) -> None:
    """A call that costs nothing in the end."""
    with ceiling.calling(profile, tokens, cached):
        pass


def failure(seen: list[events.AgentEvent]) -> events.TurnFailed:
    (failed,) = of(events.TurnFailed, seen)
    return failed


def test_a_bound_that_is_met_counts_as_reached() -> None:
    CostCeiling(Limits(max_usd=1.0), spent(0.99)).check()
    with pytest.raises(CostCeilingReached, match=r"turn has cost \$1\.00; its ceiling is \$1\.00"):
        CostCeiling(Limits(max_usd=1.0), spent(0.5, 0.5)).check()
    with pytest.raises(CostCeilingReached, match="session"):
        CostCeiling(Limits(max_usd=None, max_session_usd=1.0), spent(3.0)).check()
    CostCeiling(Limits(None, None, None), spent(1_000.0)).check()


def test_once_reached_it_stays_so_with_the_same_words_in_the_next_turn() -> None:
    tracker = spent(2.0)
    ceiling = CostCeiling(Limits(max_usd=1.0), tracker)
    with pytest.raises(CostCeilingReached) as first:
        ceiling.check()
    tracker.start_turn()
    with pytest.raises(CostCeilingReached) as second:
        call(ceiling, UNPRICED, 0)
    assert second.value is first.value
    assert not first.value.retryable
    assert "turn" in ceiling.reset()[0]
    ceiling.check()


def test_a_reset_grants_the_session_one_more_such_amount() -> None:
    tracker = spent(7.0)
    ceiling = CostCeiling(Limits(max_usd=None, max_session_usd=2.0), tracker)
    assert "not reached" in ceiling.reset()[0]
    with pytest.raises(CostCeilingReached):
        ceiling.check()
    assert "$2.00 more" in ceiling.reset()[0]
    tracker.record("m", Usage(), 1.99)
    ceiling.check()
    tracker.record("m", Usage(), 0.02)
    with pytest.raises(CostCeilingReached, match=r"ceiling is \$9\.00"):
        ceiling.check()


def test_a_grant_pays_for_the_call_that_was_refused() -> None:
    ceiling = CostCeiling(Limits(max_usd=None, max_session_usd=0.01), spent(0.0))
    with pytest.raises(CostCeilingReached):
        call(ceiling, PRICED, 300_000)
    assert "$0.310 more" in ceiling.reset()[0]
    call(ceiling, PRICED, 300_000)


def test_a_call_whose_input_alone_would_break_it_is_not_made() -> None:
    ceiling = CostCeiling(Limits(max_usd=1.0), spent(0.5))
    call(ceiling, PRICED, 499_000)
    call(ceiling, PRICED, 4_000_000, cached=3_900_000)
    with pytest.raises(CostCeilingReached, match="500,000 tokens of input alone"):
        call(ceiling, PRICED, 500_000)
    with pytest.raises(CostCeilingReached):
        ceiling.check()


def test_calls_under_way_count_with_their_input_until_they_are_recorded() -> None:
    tracker = spent(0.1)
    ceiling = CostCeiling(Limits(max_usd=1.0), tracker)
    with ceiling.calling(PRICED, 300_000), ceiling.calling(UNPRICED, 900_000):
        with ceiling.calling(PRICED, 300_000):
            pass
        with ceiling.calling(PRICED, 599_000):
            tracker.record("m", Usage(), 0.05)
        with pytest.raises(CostCeilingReached, match=r"cost \$0\.150, with \$0\.300 for the input of calls"):
            call(ceiling, PRICED, 550_000)
    ceiling.reset()
    call(ceiling, PRICED, 900_000)


def test_input_costs_what_the_catalogue_says_cliffs_included() -> None:
    prices = Prices(1.0, 5.0, cache_read=0.1, above=((200_000, Prices(2.0, 10.0, cache_read=0.2)),))
    assert prices.of_input(100_000) == pytest.approx(0.1)
    assert prices.of_input(100_000, cached=50_000) == pytest.approx(0.055)
    assert prices.of_input(300_000, cached=999_999) == pytest.approx(0.06)


def test_the_cache_counts_while_it_is_warm_and_the_model_the_same() -> None:
    usage = Usage(input_tokens=100, cache_read_tokens=60, cache_write_tokens=30)
    last = Message(role="assistant", blocks=(), model=PRICED.name, usage=usage, time=1_000.0)
    assert probably_cached(last, PRICED, now=1_100.0) == 90
    assert probably_cached(last, PRICED, now=1_400.0) == 0
    assert probably_cached(last, UNPRICED, now=1_100.0) == 0
    assert probably_cached(None, PRICED) == 0


def test_unknown_prices_are_told_once_and_only_where_there_is_a_ceiling() -> None:
    ceiling = CostCeiling(Limits(max_usd=None, max_session_usd=1.0), UsageTracker())
    call(ceiling, UNPRICED, 10**9)
    assert "not known" in ceiling.unwatched(UNPRICED)
    assert ceiling.unwatched(UNPRICED) == ""
    assert ceiling.unwatched(PRICED) == ""
    assert CostCeiling(Limits(None, None, None), UsageTracker()).unwatched(UNPRICED) == ""


def cost(session: Session) -> float:
    return session.agent.tracker.session.cost_usd


async def test_the_sequence_error_flag_same_error_reset(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = Script.of(*[READING] * 20)
    async with talking(tmp_path, {**ALLOWING, "agent.max_turn_cost_usd": "0.00001"}) as session:
        await session.agent.connect()
        failed = failure(await say(session, "read calc.py"))
        assert (failed.kind, "input alone" in failed.message) == ("cost_ceiling", True)
        assert server.model_requests == []
    async with talking(tmp_path, ALLOWING) as session:
        async for event in session.agent.run("read calc.py"):
            if isinstance(event, events.AssistantMessage):
                break
        price, before = cost(session), len(server.model_requests)
    async with talking(tmp_path, {**ALLOWING, "agent.max_turn_cost_usd": f"{price * 1.3:.6f}"}) as session:
        seen = await say(session, "read calc.py")
        failed, asked = failure(seen), len(server.model_requests)
        assert (failed.kind, failed.retryable) == ("cost_ceiling", False)
        assert "/continue-spending" in failed.hint
        # Between two calls of the turn.
        costs = [event.cost_usd or 0 for event in of(events.AssistantMessage, seen)]
        assert 1 < asked - before < 20
        assert sum(costs[:-1]) < price * 1.3
        assert cost(session) == pytest.approx(sum(costs))
        assert session.agent.engine.view.unanswered() == ()
        again = await say(session, "go on")
        assert failure(again).message == failed.message
        assert len(server.model_requests) == asked
        assert of(events.ModelCallStarted, again) == []
        assert "again" in session.agent.reset_cost_ceiling()
        resumed = await say(session)
        assert len(server.model_requests) > asked
        assert [event.text for event in of(events.UserMessage, again)] == ["go on"]
        assert "go on" in server.model_requests[asked].body.decode()
        assert of(events.AssistantMessage, resumed)
        assert broken_rules(session.agent.engine.view.messages()) == []


async def test_the_bound_of_a_session_holds_over_turns_and_restarts(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = Script.of(Step(text="Yes."))
    async with talking(tmp_path, ALLOWING) as session:
        await say(session, "hello")
        price = cost(session)
    given = {**ALLOWING, "agent.max_session_cost_usd": f"{price * 1.01:.6f}"}
    async with talking(tmp_path, given, resume=session.id) as session:
        seen = await say(session, "hello again")
        assert failure(seen).kind == "cost_ceiling"
        asked = len(server.model_requests)
        assert "more" in session.agent.reset_cost_ceiling()
    # What was granted is granted in the next process too, and is used up there.
    async with talking(tmp_path, given, resume=session.id) as session:
        answered = await say(session)
        assert of(events.AssistantMessage, answered)
        assert len(server.model_requests) == asked + 1
        server.script = Script.of(Step(text="A dear answer. " * 400))
        last = await say(session, "Go on.")
        assert failure(last).kind == "cost_ceiling"
    async with talking(tmp_path, given, resume=session.id) as session:
        assert failure(await say(session)).message == failure(last).message
    assert cost(session) > 2 * price


async def test_a_compaction_between_turns_is_no_part_of_the_turn_before(
    server: AnthropicServer, tmp_path: Path
) -> None:
    dear = Step(text="Heard. " + "A long and winding answer. " * 900)
    server.script = lambda request: Step(text=HANDOVER) if asks_for_summary(request) else dear
    async with talking(tmp_path / "measured", ALLOWING) as session:
        turns = [await turn_cost(session, f"Tell me more, {turn}.") for turn in range(4)]
        before = cost(session)
        assert (await session.agent.compact()).error == ""
        summary = cost(session) - before
    # Each turn stays below it, and so does the summary, but not the two together.
    most = max(*turns, turns[-1] + summary / 2)
    assert summary < most < turns[-1] + summary
    async with talking(tmp_path / "bound", {**ALLOWING, "agent.max_turn_cost_usd": f"{most:.6f}"}) as session:
        turns = [await turn_cost(session, f"Tell me more, {turn}.") for turn in range(4)]
        assert (await session.agent.compact()).error == ""
        assert session.agent.tracker.turn.cost_usd == turns[-1]
        await turn_cost(session, "Go on.")


async def turn_cost(session: Session, prompt: str) -> float:
    await goes_on(session, prompt)
    return session.agent.tracker.turn.cost_usd


async def test_an_answer_that_reaches_it_is_kept(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = Script.of(Step(text="A dear answer. " * 400))
    async with talking(tmp_path, {**ALLOWING, "agent.max_turn_cost_usd": "0.03"}) as session:
        seen = await say(session, "hello")
    assert failure(seen).kind == "cost_ceiling"
    assert isinstance(seen[-1], events.TurnFinished)
    assert seen[-1].text.startswith("A dear answer.")


def long_talk(request: ParsedRequest) -> Step:
    if asks_for_summary(request):
        return Step(text=HANDOVER)
    return Step(text=f"Heard. {'A long and winding answer. ' * 300}")


async def test_a_summary_that_would_break_it_is_not_asked_for(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = long_talk
    async with talking(tmp_path, ALLOWING) as session:
        await goes_on(session, *(f"Tell me more, {turn}." for turn in range(4)))
        spent_so_far = cost(session)
        tokens = session.agent.engine.tokens
    asked = len(server.model_requests)
    given = {**ALLOWING, "agent.max_session_cost_usd": f"{spent_so_far + tokens * 0.05e-6:.6f}"}
    async with talking(tmp_path, given, resume=session.id) as session:
        before = session.agent.engine.view.messages()
        result = await session.agent.compact()
        assert "input alone" in result.error
        assert "/continue-spending" in result.error
        assert session.agent.engine.view.messages() == before
        # The flag stays up for whatever asks a model next.
        assert "input alone" in (await session.agent.checkpoint()).error
        assert failure(await say(session, "Go on.")).kind == "cost_ceiling"
        assert len(server.model_requests) == asked
        assert "more" in session.agent.reset_cost_ceiling()
        assert (await session.agent.compact()).error == ""
        assert len(server.model_requests) == asked + 1
        await goes_on(session, "Go on.")


async def test_a_summary_within_a_turn_stops_it_the_same_way(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = long_talk
    async with talking(tmp_path, ALLOWING) as session:
        await goes_on(session, *(f"Tell me more, {turn}." for turn in range(4)))
        name, spent_so_far = session.id, cost(session)
        tokens = session.agent.engine.tokens
    asked = len(server.model_requests)
    due = {"context.context_window": str(tokens + 4_000), "context.max_tokens": "1024", "compaction.threshold": "0.5"}
    due |= {"compaction.threshold_by_tier.frontier": "0.5", "compaction.keep_recent_tokens": "500"}
    due |= {"compaction.background": "false"}
    bound = {"agent.max_session_cost_usd": f"{spent_so_far + tokens * 0.05e-6:.6f}"}
    async with talking(tmp_path, {**ALLOWING, **due, **bound}, resume=name) as session:
        seen = await say(session, "Go on.")
        assert failure(seen).kind == "cost_ceiling"
        (step,) = of(events.ContextStep, seen)
        assert "input alone" in step.error
        assert step.before == step.after
        assert len(server.model_requests) == asked
        assert not session.agent.engine.backoff.resting
        session.agent.reset_cost_ceiling()
        resumed = await say(session)
        assert "summary" in [event.step for event in of(events.ContextStep, resumed) if not event.error]
        assert broken_rules(session.agent.engine.view.messages()) == []


# What sessions of one day may cost together


OF_THE_DAY: dict[str, GivenValue] = {"model.id": "claude-opus-5-5", "limits.day_usd": 5.0}


async def test_a_call_that_waits_for_those_of_others_says_so(tmp_path: Path, serve: Serve) -> None:
    serve(AnthropicServer(lambda _: Step(text="Hello.")))
    async with talking(tmp_path, OF_THE_DAY) as session:
        ledger = ledger_of_today(session.home, 5.0)
        theirs = ledger.reserve(0.0, 4.9)
        assert isinstance(theirs, int)
        told: list[events.Notice] = []
        async for event in session.agent.run("hello"):
            assert told or not isinstance(event, events.AssistantMessage), "it did not wait"
            if isinstance(event, events.Notice):
                told.append(event)
                ledger.settle(theirs, 0.01)
        assert [event.title for event in told] == ["The call waits for those of other sessions"]
        assert "more than is left of $5.00" in told[0].text
        assert not [event for event in await say(session, "again") if isinstance(event, events.Notice)]
