"""What the panel is told: every item and step, the course of the size, and what another model would mean."""

from pathlib import Path

import pytest

from tests.agent.models import Silent
from tests.agent.talking import goes_on, of, say, talking
from tui_agent.agent import events
from tui_agent.agent.history.as_events import step_event
from tui_agent.context.effects import Refusal, step_of
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.session import Session

READS = ("read calc.py", "read test_calc.py", "find 'return' in .", "read calc.py and test_calc.py", "read calc.py")


async def talk(session: Session) -> None:
    await goes_on(session, *READS)


def results(session: Session) -> list[int]:
    return [item.seq for item in session.agent.context.items() if item.category == "results"]


async def test_it_has_every_item_step_and_call(session: Session) -> None:
    await talk(session)
    cleared = await session.agent.context.clear_results()
    assert isinstance(cleared, events.ContextStep)
    await say(session, "read calc.py")
    seen = session.agent.context.overview()
    assert list(seen.items) == session.agent.context.items()
    assert [(step.event, step.counts) for step in seen.steps] == [(cleared, True)]
    assert len(seen.course) == session.agent.tracker.session.calls
    assert [number for number, point in enumerate(seen.course) if point.edits] == [2 * len(READS)]
    assert seen.stats == session.agent.context_stats()
    await session.agent.context.undo(cleared.seq)
    assert [step.counts for step in session.agent.context.overview().steps] == [False, True]
    # One result is cleared alone, and what is none is refused.
    newest, first = results(session)[-1], session.agent.context.items()[0].seq
    done = await session.agent.context.clear_results([newest])
    assert isinstance(done, events.ContextStep)
    assert (done.items, done.after < done.before) == (1, True)
    assert [item.seq for item in session.agent.context.items() if item.state == "cleared"] == [newest]
    for seq in (newest, first, 10_000):
        assert isinstance(await session.agent.context.clear_results([seq]), Refusal)
    assert "def " in await session.agent.context.original(newest)
    assert [session.agent.context.excerpt(seq) for seq in (first, 0, 1, 10_000)] == [READS[0], "", "", ""]


async def test_every_step_is_replayed_as_it_was_told(tmp_path: Path) -> None:
    told: list[events.AgentEvent] = []
    async with talking(tmp_path) as session:
        agent = session.agent
        agent.listen(told.append)
        await talk(session)
        await agent.context.clear_results()
        await agent.context.pin([results(session)[-1]])
        await agent.context.pin([results(session)[-1]], pinned=False)
        await agent.context.restore([results(session)[0]])
        await agent.compact("calc")
        await agent.context.undo()
    steps = of(events.ContextStep, told)
    assert {"cleared", "pinned", "unpinned", "restored", "summary", "undone"} <= {event.step for event in steps}
    async with talking(tmp_path, resume=session.id) as session:
        again = of(events.ContextStep, session.agent.branches.history())
        kept = [step_event(step_of(entry)) for entry, _ in session.agent.engine.view.context_entries()]
    assert again == kept
    facts = [(event.step, event.seq, event.before, event.after, event.text, event.target) for event in again]
    assert facts == [(event.step, event.seq, event.before, event.after, event.text, event.target) for event in steps]


async def test_another_model_means_a_cold_cache_and_other_thresholds(session: Session) -> None:
    await talk(session)
    small = ModelProfile(
        provider="anthropic",
        id="tiny",
        window=4_000,
        max_output=1_000,
        prices=Prices(2.0, 10.0, 0.2, 2.5),
    )
    seen = await session.agent.context.preview_switch(Silent(small))
    tokens = session.agent.context_stats().tokens
    assert (seen.tokens, seen.window_after, seen.fires) == (tokens, 4_000, "limit")
    assert seen.cost_usd == pytest.approx(tokens * 2.5 / 1e6)
    assert seen.call_usd == pytest.approx(tokens * 0.2 / 1e6)
    large = await session.agent.context.preview_switch(Silent(ModelProfile(provider="x", id="y", window=1_000_000)))
    assert (large.fires, large.cost_usd) == ("", None)


@pytest.mark.parametrize("connected", [False, True])
async def test_before_the_first_turn_the_prompt_and_the_tools_that_will_be_sent_are_counted(
    connected: bool, session: Session
) -> None:
    if connected:
        await session.agent.connect()
    before = session.agent.context_stats()
    assert before.tokens == sum(before.categories.values())
    assert before.forecast is not None
    assert before.forecast.ahead is not None
    summary = next(mark for mark in before.marks if mark.layer == "compact")
    assert before.tokens + before.forecast.ahead.distance == summary.tokens
    await say(session, "hello")
    after = session.agent.context_stats()
    fixed = [stats.categories["system"] + stats.categories["tools"] for stats in (before, after)]
    assert fixed[0] == pytest.approx(fixed[1], rel=0.02)
    assert fixed[0] > 1_000
