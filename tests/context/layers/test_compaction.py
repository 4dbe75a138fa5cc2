"""What a compaction covers, and what it keeps."""

import pytest

from tests.context.talks import FILLER, accepted, compaction, long_talk, material, planned, situation, total
from tui_agent.context.compaction.plan import Plan
from tui_agent.context.counting import estimate
from tui_agent.context.effects import Refusal
from tui_agent.context.layers.compaction import Backoff
from tui_agent.conversation.entries import Restored, Summarized


def test_the_newest_tokens_stay_at_most_half_of_what_the_trigger_leaves() -> None:
    talk = long_talk()
    plan = planned(compaction(talk, trigger=8_000, window=200_000))
    groups = talk.view.groups()
    kept = [group for group in groups if group.first >= plan.kept_from]
    tokens = [estimate(size) for group in kept for size in group.sizes.values()]
    before = [group for group in groups if group.first < plan.kept_from][-1]
    room = (8_000 - situation(talk.view).budget.fixed) // 2
    assert sum(tokens) <= room
    assert sum(tokens) + sum(map(estimate, before.sizes.values())) > room - len(kept)


@pytest.mark.parametrize(("trigger", "window"), [(400_000, 500_000), (170_000, 200_000), (24_000, 32_000)])
def test_a_twentieth_of_the_history_stays_and_twenty_thousand_tokens_at_most(trigger: int, window: int) -> None:
    """Were it more, the next compaction would be due again after a few calls."""
    talk = long_talk(turns=120)
    plan = planned(compaction(talk, trigger=trigger, window=window))
    kept = [group for group in talk.view.groups() if group.first >= plan.kept_from]
    tokens = sum(estimate(size) for group in kept for size in group.sizes.values())
    room = situation(talk.view, window=window).budget.history
    assert room / 32 < tokens <= min(20_000, room * 0.05)


def test_five_messages_stay_where_tokens_are_unknown() -> None:
    talk = long_talk()
    plan = planned(compaction(talk, trigger=0))
    kept = [group for group in talk.view.groups() if group.first >= plan.kept_from]
    messages = sum(1 + (len(group.segments[1].blocks) if len(group.segments) > 1 else 0) for group in kept)
    assert messages == 5


def test_what_the_model_has_not_seen_stays() -> None:
    talk = long_talk()
    step = talk.tool(FILLER * 400, path="huge.py")
    plan = planned(compaction(talk, keep=0))
    assert plan.kept_from == step


def test_a_summary_never_covers_what_an_earlier_one_covers() -> None:
    talk = long_talk()
    first = talk.apply(accepted(compaction(talk, keep=1_500), talk.view)).boundary
    inside = [item.group for item in talk.view.items() if item.state == "summarized" and item.category == "results"]
    talk.add(Restored(items=(inside[3], inside[4]), texts=("", "")))
    plans = [compaction(talk, keep=keep, window=4_000) for keep in range(0, total(talk.view), 200)]
    found = [plan for plan in plans if isinstance(plan, Plan)]
    assert found
    for plan in found:
        assert plan.first > first.last
        assert all(group.first > inside[4] for group in plan.leaving)


def test_a_compaction_loop_without_headroom_ends_in_one_warning() -> None:
    talk = long_talk(turns=2, lines=400)
    talk.ask("next")
    talk.tool(FILLER * 900, path="huge.py")
    compactions = 0
    for _ in range(20):
        plan = compaction(talk, trigger=5_000, window=30_000)
        if isinstance(plan, Refusal):
            assert "too few" in plan.reason or "nothing to summarise" in plan.reason
            break
        compactions += 1
        talk.apply(accepted(plan, talk.view))
    assert isinstance(plan, Refusal)
    assert compactions <= 2


def test_the_user_may_compact_a_short_conversation() -> None:
    talk = long_talk(turns=4, lines=30)
    assert isinstance(compaction(talk, trigger=170_000, window=200_000), Refusal)
    plan = planned(compaction(talk, trigger=170_000, window=200_000, asked=True, focus="the parser"))
    done = talk.apply(accepted(plan, talk.view))
    assert isinstance(done.boundary, Summarized)
    assert done.boundary.focus == "the parser"
    made = material(plan, talk.view)
    assert "the parser" in made.questions.separate
    assert "the parser" in made.questions.same_prefix


def test_backs_off_2_4_8_up_to_32_turns_and_starts_over_with_a_success() -> None:
    pause, seen = Backoff(), []
    for _ in range(7):
        pause = pause.failed()
        rested = 0
        while pause.resting:
            pause = pause.turn_ended()
            rested += 1
        seen.append(rested)
    assert seen == [2, 4, 8, 16, 32, 32, 32]
    assert pause.failed().succeeded() == Backoff()
    assert not Backoff().turn_ended().resting
