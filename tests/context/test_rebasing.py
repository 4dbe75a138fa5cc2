"""A plan that was made a while ago: it holds as long as what it replaces is shown as it was."""

from tests.context.talks import ARCHIVE, COMPACTION, PROMPTS, SUMMARY, Talk, accepted, situation, total
from tests.conversation.logs import broken_rules
from tui_agent.context.checkpoints import plan_checkpoint
from tui_agent.context.compaction import Accepted, CompactionPlan, accept_anew, plan_compaction
from tui_agent.context.counting import estimate
from tui_agent.context.rebasing import CHANGED, rebased
from tui_agent.context.refusal import Refusal
from tui_agent.conversation.entries import Cleared, Pinned, Undone
from tui_agent.conversation.view import View


def long_talk(turns: int = 12) -> Talk:
    talk = Talk()
    for number in range(turns):
        talk.ask(f"Question {number}: never touch file_{number}.py!")
        talk.tool(f"value_{number} = {number}\n" * 60, path=f"file_{number}.py")
        talk.say(f"Answer {number}.")
    return talk


def planned(talk: Talk) -> CompactionPlan:
    plan = plan_compaction(talk.view, situation(talk.view), COMPACTION, PROMPTS, trigger=None, asked=True, reason="why")
    assert isinstance(plan, CompactionPlan)
    return plan


def on_now(plan: CompactionPlan, view: View) -> CompactionPlan | Refusal:
    return rebased(plan, view, COMPACTION, tokens=total(view), tokens_of=estimate)


def test_what_was_said_since_stays_after_it() -> None:
    talk = long_talk()
    plan = planned(talk)
    done = accepted(plan)
    talk.ask("And this, too.")
    talk.say("Done.")
    now = on_now(plan, talk.view)
    assert isinstance(now, CompactionPlan)
    assert (now.first, now.last, now.replaced) == (plan.first, plan.last, plan.replaced)
    assert now.before == total(talk.view) > plan.before
    again = accept_anew(now, done, done.text, tokens_of=estimate)
    assert isinstance(again, Accepted)
    assert again.boundary.text == done.boundary.text
    assert again.after - done.after == now.before - plan.before
    for entry in again.entries:
        talk.add(entry)
    assert talk.shown.index(done.text) < talk.shown.index("And this, too.")
    assert "Answer 0." not in talk.shown
    assert broken_rules(talk.view.messages()) == []


def test_where_all_was_replaced_the_first_word_since_is_the_first_kept() -> None:
    talk = Talk()
    talk.ask("Do it.")
    talk.tool("value = 1\n" * 400, path="a.py")
    talk.say("Done.")
    plan = plan_checkpoint(talk.view, situation(talk.view), COMPACTION, PROMPTS)
    assert isinstance(plan, CompactionPlan)
    assert plan.kept_from == 0
    newest = talk.ask("Next.")
    now = on_now(plan, talk.view)
    assert isinstance(now, CompactionPlan)
    assert now.kept_from == newest


def test_it_does_not_hold_once_what_it_replaces_was_changed() -> None:
    for change in ("cleared", "pinned", "summarised"):
        talk = long_talk()
        plan = planned(talk)
        result = next(item.seq for item in talk.view.items() if item.category == "results")
        match change:
            case "cleared":
                talk.add(Cleared(results=(result,), texts=("[gone]",)))
            case "pinned":
                talk.add(Pinned(items=(result,)))
            case _:
                talk.apply(accepted(plan))
        outcome = on_now(plan, talk.view)
        assert isinstance(outcome, Refusal), change
        assert outcome.reason == CHANGED


def test_it_does_not_hold_once_a_summary_in_it_was_undone() -> None:
    talk = long_talk()
    talk.apply(accepted(planned(talk)))
    first = len(talk.view.log) - 1
    for number in range(6):
        talk.ask(f"More {number}.")
        talk.tool("words\n" * 200, path=f"more_{number}.py")
        talk.say("Yes.")
    plan = planned(talk)
    boundary = next(entry.seq for entry in talk.view.boundaries())
    assert boundary <= first + 1
    talk.add(Undone(target=boundary))
    assert isinstance(on_now(plan, talk.view), Refusal)


def test_an_edited_text_is_taken_to_the_letter() -> None:
    plan = planned(long_talk())
    done = accepted(plan)
    assert done.facts_appended
    edited = accept_anew(plan, done, "\n Only this: keep file_3.py as it is. \n", tokens_of=estimate)
    assert isinstance(edited, Accepted)
    assert edited.text == "Only this: keep file_3.py as it is."
    assert edited.boundary.text == f"[Previous conversation summary]\n\n{edited.text}\n\nThe turns in full: {ARCHIVE}"
    assert edited.after < done.after
    assert edited.facts_missing > 0
    assert edited.facts_appended == 0
    assert edited.boundary.reason == "why, edited"
    twice = accept_anew(plan, edited, "Or rather this.", tokens_of=estimate)
    assert isinstance(twice, Accepted)
    assert twice.boundary.reason == "why, edited"


def test_the_same_text_gives_the_same_entries() -> None:
    plan = planned(long_talk())
    done = accepted(plan)
    assert accept_anew(plan, done, done.text, tokens_of=estimate) == done
    assert done.boundary.text.startswith(f"[Previous conversation summary]\n\n{done.text}\n\n")


def test_an_edited_text_that_is_empty_or_frees_nothing_is_rejected() -> None:
    plan = planned(long_talk())
    done = accepted(plan)
    empty = accept_anew(plan, done, " \n", tokens_of=estimate)
    assert isinstance(empty, Refusal)
    assert "empty" in empty.reason
    grown = accept_anew(plan, done, SUMMARY + "more words " * 20_000, tokens_of=estimate)
    assert isinstance(grown, Refusal)
    assert "replaces" in grown.reason
