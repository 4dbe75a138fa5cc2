"""Pins, bringing back, undo, and looking first."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.context.talks import FILLER, Talk, accepted, compaction, shown, situation, total
from tests.conversation.logs import logs
from tui_agent.context.changes import plan_pin, plan_restore, plan_undo, plan_unpin, preview_change, view_with
from tui_agent.context.effects import Refusal
from tui_agent.conversation.blocks import Reasoning, Text
from tui_agent.conversation.entries import Cleared, Message, Pinned, Restored, Undone
from tui_agent.conversation.request import ReasoningPolicy
from tui_agent.conversation.view import View


@pytest.fixture
def talk() -> Talk:
    made = Talk()
    for turn in range(10):
        made.ask(f"Step {turn}, please.")
        made.tool(FILLER * 60 + f"value_{turn}", path=f"f{turn}.py")
        made.say("Fine.")
    return made


def compacted(talk: Talk) -> int:
    before = len(talk.view.log)
    talk.apply(accepted(compaction(talk), talk.view))
    return before + 1


def results(view: View) -> list[int]:
    return [item.seq for item in view.items() if item.category == "results"]


def test_a_pin_covers_its_whole_group(talk: Talk) -> None:
    entry = plan_pin(talk.view, results(talk.view)[:1], situation(talk.view))
    assert isinstance(entry, Pinned)
    talk.add(entry)
    assert sum(item.pinned for item in talk.view.items()) == 2


def test_pins_together_take_a_quarter_of_the_history_budget_at_most(talk: Talk) -> None:
    here = situation(talk.view, window=20_000)
    allowed = here.budget.history // 4
    pinned = 0
    for seq in results(talk.view):
        entry = plan_pin(talk.view, [seq], here)
        if isinstance(entry, Refusal):
            assert f"{allowed:,}" in entry.reason
            break
        talk.add(entry)
        pinned += 1
    assert pinned == allowed // 1_050


def test_a_pin_of_something_summarised_brings_it_back(talk: Talk) -> None:
    first = results(talk.view)[0]
    compacted(talk)
    assert "value_0" not in talk.shown.split("The turns in full")[1]
    entry = plan_pin(talk.view, [first], situation(talk.view))
    assert isinstance(entry, Pinned)
    assert entry.after > entry.before
    talk.add(entry)
    assert "value_0" in talk.shown.split("The turns in full")[1]
    off = plan_unpin(talk.view, [first], situation(talk.view))
    assert isinstance(off, Pinned)
    talk.add(off)
    assert "value_0" not in talk.shown.split("The turns in full")[1]
    assert isinstance(plan_unpin(talk.view, [first], situation(talk.view)), Refusal)


def test_an_undo_that_would_pass_the_limit_is_refused(talk: Talk) -> None:
    compacted(talk)
    tight = situation(talk.view, window=8_000)
    outcome = plan_undo(talk.view, tight)
    assert isinstance(outcome, Refusal)
    assert f"{tight.budget.limit:,}" in outcome.reason
    assert isinstance(plan_undo(talk.view, situation(talk.view, window=200_000)), Undone)


def test_nested_and_out_of_order_undo(talk: Talk) -> None:
    first = compacted(talk)
    talk.tool(FILLER * 200, path="new.py")
    talk.say("Fine.")
    second = compacted(talk)
    assert talk.shown.count("[Previous conversation summary]") == 2
    older = plan_undo(talk.view, situation(talk.view), target=first)
    assert isinstance(older, Undone)
    talk.add(older)
    assert isinstance(plan_undo(talk.view, situation(talk.view), target=first), Refusal)
    assert "value_0" in talk.shown
    assert talk.shown.count("[Previous conversation summary]") == 1
    undo = len(talk.view.log)
    newer = plan_undo(talk.view, situation(talk.view), target=second)
    assert isinstance(newer, Undone)
    talk.add(newer)
    assert "value_0" in talk.shown
    assert "[Previous conversation summary]" not in talk.shown
    redo = plan_undo(talk.view, situation(talk.view), target=undo)
    assert isinstance(redo, Undone)
    talk.add(redo)
    assert talk.shown.count("[Previous conversation summary]") == 1


def test_what_was_summarised_comes_back_with_its_group(talk: Talk) -> None:
    first = results(talk.view)[0]
    compacted(talk)
    entry = plan_restore(talk.view, [first], situation(talk.view))
    assert isinstance(entry, Restored)
    talk.add(entry)
    assert "value_0" in talk.shown.split("The turns in full")[1]
    assert isinstance(plan_restore(talk.view, [first], situation(talk.view)), Refusal)
    entry = plan_restore(talk.view, [first], situation(talk.view), texts=["the whole text"])
    assert isinstance(entry, Restored)
    talk.add(entry)
    assert "the whole text" in talk.shown


def test_looking_first_changes_nothing_and_tells_what_will_be(talk: Talk) -> None:
    entries, before = len(talk.view.log), shown(talk.view)
    first, second, *_ = results(talk.view)
    clearing = Cleared(results=(first, second), texts=("[cleared]", "[cleared]"))
    preview = preview_change(talk.view, [clearing], situation(talk.view))
    assert (len(talk.view.log), shown(talk.view)) == (entries, before)
    assert [item.seq for item in preview.leaving] == [first, second]
    assert preview.returning == ()
    talk.add(clearing)
    assert preview.after == total(talk.view)
    assert preview.freed > 2_000
    assert preview.after - 200 < preview.rewritten < preview.after


def test_what_the_provider_measured_stays_in_the_figures(talk: Talk) -> None:
    here = situation(talk.view)
    measured = structs.replace(here, tokens=here.tokens + 5_000)
    clearing = Cleared(results=tuple(results(talk.view)[:2]), texts=("[cleared]", "[cleared]"))
    seen, known = preview_change(talk.view, [clearing], here), preview_change(talk.view, [clearing], measured)
    assert (known.before, known.after) == (seen.before + 5_000, seen.after + 5_000)
    assert known.freed == seen.freed
    assert known.scale == pytest.approx(seen.scale * measured.tokens / here.tokens)


def test_looking_first_counts_the_reasoning_that_will_be_dropped() -> None:
    talk, model = Talk(), "anthropic:claude-opus-5-5"
    talk.ask("One.")
    talk.tool(FILLER * 10)
    carry = ReasoningPolicy(model)
    talk.view.messages(carry)
    thought = (Reasoning("hm", "signature"), Text("Thought about it."))
    talk.add(Message(role="assistant", blocks=thought, model=model, prefix_hash=talk.view.prefix_hash()))
    clearing = Cleared(results=tuple(results(talk.view)), texts=("[cleared]",))
    assert preview_change(talk.view, [clearing], situation(talk.view)).reasoning_dropped == 1
    assert preview_change(talk.view, [clearing], situation(talk.view)).thinking_calls == 1
    assert preview_change(talk.view, [], situation(talk.view)).reasoning_dropped == 0


@given(logs(), st.data())
@settings(deadline=None)
def test_no_look_ahead_changes_the_view(view: View, data: st.DataObject) -> None:
    items = tuple(data.draw(st.lists(st.integers(0, len(view.log) + 1), max_size=3)))
    before = (len(view.log), view.messages(), view.items())
    same = view_with(view, [])
    assert same.messages(view.policy) == before[1]
    preview_change(view, [Pinned(items=items)], situation(view))
    assert (len(view.log), view.messages(), view.items()) == before
