"""Questions of the model, plans and the task list: answered, approved, changed, sent back, and answered later."""

from pathlib import Path

import pytest

from tests.agent.talking import Person, failures, of, results, say, talking
from tui_agent.agent import events
from tui_agent.agent.agent import Agent, nobody
from tui_agent.agent.commands.table import run_command
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message
from tui_agent.conversation.tasks import PLAN_BEGUN, PLAN_OVER, TaskPlan
from tui_agent.session import Session

PLANNED = 'plan "mend it", "run the tests"'
IN_PLAN_MODE = {"permissions.mode": "plan"}


def tasks(agent: Agent) -> list[str]:
    return [item.line for item in agent.context.todo().items]


def mode_of(session: Session) -> str:
    return session.agent.permissions.mode


def notices(session: Session) -> list[str]:
    path = session.agent.engine.view.log.path()
    messages = (
        entry for entry in path if isinstance(entry, Message) and entry.kind in ("plan_begun", "plan_over", "approval")
    )
    return [block.text for message in messages for block in message.blocks if isinstance(block, Text)]


async def test_the_users_choice_or_words_are_the_result_of_the_question(tmp_path: Path) -> None:
    person = Person(choice="that")
    async with talking(tmp_path, ask=person) as session:
        told = await say(session, 'ask me "Which one?" "this", "that"')
        assert results(session)[-1].text == "The user answered: that"
    asked = person.asked[0]
    assert (asked.kind, asked.preview.text, asked.choices) == ("question", "Which one?", ("this", "that"))
    assert of(events.PermissionAsked, told)


@pytest.mark.parametrize(("choice", "mode"), [("auto", "auto"), ("no such mode", "ask")])
async def test_an_approved_plan_is_the_task_list_and_ends_plan_mode(tmp_path: Path, choice: str, mode: str) -> None:
    async with talking(tmp_path, IN_PLAN_MODE, ask=Person(choice=choice)) as session:
        await say(session, PLANNED)
        assert mode_of(session) == mode
        assert tasks(session.agent) == ["[ ] mend it", "[ ] run the tests"]
        tools = session.agent.engine.view.prefix
        await say(session, "list .")
        # The definitions of a session never change with its mode, and the end of planning was told once.
        assert session.agent.engine.view.prefix == tools
        assert notices(session) == [PLAN_BEGUN]
        await say(session, 'todo "[x] mend it"')
        assert tasks(session.agent) == ["[x] mend it"]


async def test_the_mode_goes_back_to_the_one_before(tmp_path: Path) -> None:
    person = Person(choice="")
    async with talking(tmp_path, {"permissions.mode": "auto"}, ask=person) as session:
        session.agent.permissions.mode = "plan"
        await say(session, PLANNED)
        assert person.asked[0].choices == ("auto", "ask")
        assert mode_of(session) == "auto"


async def test_a_plan_that_the_user_changed_is_what_counts(tmp_path: Path) -> None:
    edited = "Only this.\n\nSteps:\n- mend it well"
    async with talking(tmp_path, IN_PLAN_MODE, ask=Person(choice="ask", edited=edited)) as session:
        await say(session, PLANNED)
        assert tasks(session.agent) == ["[ ] mend it well"]
        assert "They changed it. It is now:\n\nOnly this." in results(session)[-1].text


async def test_a_plan_that_is_sent_back_leaves_everything_as_it_is(tmp_path: Path) -> None:
    async with talking(tmp_path, IN_PLAN_MODE, ask=Person(allowed=False, feedback="tests first")) as session:
        await say(session, PLANNED)
        assert mode_of(session) == "plan"
        assert not tasks(session.agent)
        assert results(session)[-1].text == "[the user sent the plan back] They said: tests first"


@pytest.mark.parametrize(("words", "mode"), [("Yes, auto.", "auto"), ("ok", "ask"), ("approve but later", "plan")])
async def test_a_plan_is_approved_later_where_nobody_was_there(tmp_path: Path, words: str, mode: str) -> None:
    async with talking(tmp_path, IN_PLAN_MODE, ask=nobody) as session:
        told = await say(session, PLANNED)
        assert failures(told) == ["needs_answer"]
    async with talking(tmp_path, IN_PLAN_MODE, ask=nobody, resume=session.id) as session:
        await say(session, words)
        assert mode_of(session) == mode
        assert bool(tasks(session.agent)) == (mode != "plan")
        # Said once: the same words mean nothing more afterwards.
        session.agent.permissions.mode = "plan"
        await say(session, words)
        assert mode_of(session) == "plan"


async def test_the_model_hears_once_where_plan_mode_begins_and_ends(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        for mode in ("auto", "plan", "plan", "ask", "auto", "plan"):
            session.agent.permissions.mode = mode
            await say(session, "list .")
        assert notices(session) == [PLAN_BEGUN, PLAN_OVER, PLAN_BEGUN]
        await session.agent.branches.rewind(session.agent.branches.prompts()[1].seq)
        session.agent.permissions.mode = "auto"
        await say(session, "list .")
        told = notices(session)
    async with talking(tmp_path, resume=session.id) as session:
        await say(session, "list .")
        assert notices(session) == told


@pytest.mark.parametrize("plan", [TaskPlan("Words.\n\nSteps:\nfew", ("a", "b")), TaskPlan("", ("one",))])
def test_a_plan_reads_back_as_it_is_shown(plan: TaskPlan) -> None:
    assert TaskPlan.read(plan.whole()) == plan


def test_a_plan_without_its_heading_is_steps_all_over() -> None:
    assert TaskPlan.read("- a\n\nb\n").steps == ("a", "b")


# The task list: it outlasts a summary and the process, and follows undo, rewind and fork


FIRST = 'todo "[>] read it", "mend it"'
SECOND = 'todo "[x] read it", "[>] mend it", "run the tests"'


async def talked(session: Session) -> None:
    await say(session, FIRST)
    for name in ("calc.py", "test_calc.py"):
        await say(session, f"read {name}")
    await say(session, SECOND)
    await say(session, "list .")


async def test_it_outlasts_a_summary_its_undoing_and_the_process(tmp_path: Path) -> None:
    kept = ["[x] read it", "[>] mend it", "[ ] run the tests"]
    async with talking(tmp_path) as session:
        await talked(session)
        assert tasks(session.agent) == kept
        result = await session.agent.compact()
        assert not result.error
        assert tasks(session.agent) == kept
        await session.agent.context.undo()
        assert tasks(session.agent) == kept
        await session.agent.compact()
    async with talking(tmp_path, resume=session.id) as session:
        assert tasks(session.agent) == kept
        await say(session, 'todo "[x] read it"')
        assert tasks(session.agent) == ["[x] read it"]


async def test_it_follows_rewind_fork_and_tree(session: Session) -> None:
    agent = session.agent
    await talked(session)
    prompts = {prompt.text: prompt.seq for prompt in agent.branches.prompts()}
    tip = agent.engine.view.head
    await agent.branches.rewind(prompts[SECOND])
    assert tasks(agent) == ["[>] read it", "[ ] mend it"]
    await agent.branches.rewind(prompts[FIRST])
    assert tasks(agent) == []
    await agent.branches.switch(tip)
    assert tasks(agent)[0] == "[x] read it"
    await agent.branches.fork()
    assert tasks(agent)[0] == "[x] read it"


async def test_the_command_shows_it_in_every_mode(tmp_path: Path) -> None:
    async with talking(tmp_path, {"permissions.mode": "plan"}) as session:
        nothing = await run_command(session.agent, "/todo")
        assert (nothing.title, nothing.failed) == ("There is no task list", False)
        await say(session, SECOND)
        shown = await run_command(session.agent, "/todo")
        assert shown.title == "Task list: 1 of 3 done"
        assert shown.text == "[x] read it\n[>] mend it\n[ ] run the tests"
        await say(session, 'todo "[>] re\x1b[31mad\x1b]0;title\x07 it", "me\u202end it"')
        assert (await run_command(session.agent, "/todo")).text == "[>] read it\n[ ] mend it", "free of escapes"
