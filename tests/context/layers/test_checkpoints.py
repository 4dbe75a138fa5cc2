"""What becomes a completion record."""

from typing import Any

from tests.context.talks import FILLER, Talk, accepted, material, situation
from tests.conversation.logs import broken_rules
from tui_agent.context.compaction.forms import CHECKPOINT, sections
from tui_agent.context.compaction.plan import Plan, plan_checkpoint
from tui_agent.context.effects import Refusal
from tui_agent.context.layers.compaction import task_done
from tui_agent.conversation.entries import Checkpointed, Undone

RECORD = "\n".join(f"# {name}\nsomething about it" for name in CHECKPOINT.sections)


def task(talk: Talk, name: str) -> None:
    talk.ask(f"Do {name}.")
    for number in range(4):
        talk.tool(FILLER * 20, path=f"{name}_{number}.py")


def plan(talk: Talk, **more: Any) -> Plan | Refusal:
    return plan_checkpoint(talk.view, situation(talk.view), **more)


def test_the_task_up_to_its_declaration_becomes_the_record() -> None:
    talk = Talk()
    task(talk, "alpha")
    step = talk.tool("noted", "mark_task_done", detail="alpha works")
    talk.say("Alpha is done.")
    talk.ask("Now beta.")
    found = task_done(talk.view)
    assert found == (step, "alpha works")
    planned = plan(talk, step=step, note="alpha works")
    assert isinstance(planned, Plan)
    assert (planned.first, planned.last) == (2, step + 1)
    done = talk.apply(accepted(planned, talk.view, RECORD))
    assert isinstance(done.boundary, Checkpointed)
    assert (done.boundary.compaction, done.boundary.note) == ("checkpoint", "alpha works")
    assert "alpha_0" not in talk.shown.replace(done.boundary.text, "")
    assert talk.shown.index("[Completed task]") < talk.shown.index("Alpha is done.") < talk.shown.index("Now beta.")
    assert set(CHECKPOINT.sections) <= set(sections(CHECKPOINT, done.boundary.text))
    assert broken_rules(talk.view.messages()) == []


def test_a_second_task_starts_after_the_first_record() -> None:
    talk = Talk()
    task(talk, "alpha")
    first = talk.apply(accepted(plan(talk), talk.view, RECORD)).boundary
    task(talk, "beta")
    planned = plan(talk)
    assert isinstance(planned, Plan)
    assert planned.first > first.last
    assert "alpha" not in "".join(material(planned, talk.view).parts)
    talk.apply(accepted(planned, talk.view, RECORD))
    assert len(talk.view.boundaries()) == 2


def test_a_declaration_is_answered_once_even_when_its_record_is_undone() -> None:
    talk = Talk()
    task(talk, "alpha")
    step = talk.tool("noted", "mark_task_done", detail="alpha works")
    talk.apply(accepted(plan(talk, step=step), talk.view, RECORD))
    assert task_done(talk.view) is None
    talk.add(Undone(target=len(talk.view.log)))
    assert task_done(talk.view) is None


def test_nothing_done_nothing_recorded() -> None:
    talk = Talk()
    assert isinstance(plan(talk), Refusal)
    talk.ask("Hello?")
    assert isinstance(plan(talk), Refusal)
    assert task_done(talk.view) is None
    task(talk, "alpha")
    talk.apply(accepted(plan(talk), talk.view, RECORD))
    assert isinstance(plan(talk), Refusal)
