"""What the panel is told: every item and step, the course of the size, and what another model would mean."""

from pathlib import Path

import pytest

from tests.agent.models import Silent
from tests.agent.talking import say, talking
from tui_agent.agent import events
from tui_agent.agent.history.as_events import step_event
from tui_agent.context.effects import Refusal, step_of
from tui_agent.conversation.profile import ModelProfile, Prices
from tui_agent.session import Session

READS = ("read calc.py", "read test_calc.py", "find 'return' in .", "read calc.py and test_calc.py", "read calc.py")


@pytest.fixture(autouse=True)
def _no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUI_AGENT_OFFLINE_DELAY_S", "0")


async def talk(session: Session) -> None:
    for prompt in READS:
        await say(session, prompt)


def results(session: Session) -> list[int]:
    return [item.seq for item in session.agent.context.items() if item.category == "results"]


async def test_it_has_every_item_step_and_call(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
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


async def test_one_result_is_cleared_alone_and_others_are_refused(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        await talk(session)
        newest = results(session)[-1]
        done = await session.agent.context.clear_results([newest])
        assert isinstance(done, events.ContextStep)
        assert (done.items, done.after < done.before) == (1, True)
        states = {item.seq: item.state for item in session.agent.context.items()}
        assert [seq for seq, state in states.items() if state == "cleared"] == [newest]
        for seq in (newest, session.agent.context.items()[0].seq, 10_000):
            assert isinstance(await session.agent.context.clear_results([seq]), Refusal)
        assert "def " in await session.agent.context.original(newest)


async def test_an_excerpt_of_nothing_is_empty(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        await talk(session)
        assert session.agent.context.excerpt(session.agent.context.items()[0].seq) == READS[0]
        assert [session.agent.context.excerpt(seq) for seq in (0, 1, 10_000)] == ["", "", ""]


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
        name = session.id
    steps = [event for event in told if isinstance(event, events.ContextStep)]
    assert {"cleared", "pinned", "unpinned", "restored", "summary", "undone"} <= {event.step for event in steps}
    async with talking(tmp_path, resume=name) as session:
        again = [event for event in session.agent.branches.history() if isinstance(event, events.ContextStep)]
        kept = [step_event(step_of(entry)) for entry, _ in session.agent.engine.view.context_entries()]
    assert again == kept
    facts = [(event.step, event.seq, event.before, event.after, event.text, event.target) for event in again]
    assert facts == [(event.step, event.seq, event.before, event.after, event.text, event.target) for event in steps]


async def test_an_edit_is_replayed_with_its_diff(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        (tmp_path / "project" / "notes.txt").write_text("alpha\nbeta\n")
        await say(session, 'replace "alpha" with "gamma" in notes.txt')
        name = session.id
    async with talking(tmp_path, resume=name) as session:
        (edit,) = (
            e for e in session.agent.branches.history() if isinstance(e, events.ToolFinished) and e.name == "edit_file"
        )
    assert edit.status == "ok"
    assert "-alpha" in edit.diff
    assert "+gamma" in edit.diff


async def test_another_model_means_a_cold_cache_and_other_thresholds(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
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
    connected: bool, tmp_path: Path
) -> None:
    async with talking(tmp_path) as session:
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
