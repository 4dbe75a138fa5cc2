"""The task list of a real session: it outlasts a summary and the process, and follows undo, rewind and fork."""

from pathlib import Path

from tests.agent.talking import say, talking
from tui_agent.agent.agent import Agent
from tui_agent.agent.commands.table import run_command
from tui_agent.session import Session

FIRST = 'todo "[>] read it", "mend it"'
SECOND = 'todo "[x] read it", "[>] mend it", "run the tests"'


def lines(agent: Agent) -> list[str]:
    return [item.line for item in agent.context.todo().items]


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
        assert lines(session.agent) == kept
        result = await session.agent.compact()
        assert not result.error
        assert lines(session.agent) == kept
        await session.agent.context.undo()
        assert lines(session.agent) == kept
        await session.agent.compact()
        name = session.id
    async with talking(tmp_path, resume=name) as session:
        assert lines(session.agent) == kept
        await say(session, 'todo "[x] read it"')
        assert lines(session.agent) == ["[x] read it"]


async def test_it_follows_rewind_fork_and_tree(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        agent = session.agent
        await talked(session)
        prompts = {prompt.text: prompt.seq for prompt in agent.branches.prompts()}
        tip = agent.engine.view.head
        await agent.branches.rewind(prompts[SECOND])
        assert lines(agent) == ["[>] read it", "[ ] mend it"]
        await agent.branches.rewind(prompts[FIRST])
        assert lines(agent) == []
        await agent.branches.switch(tip)
        assert lines(agent)[0] == "[x] read it"
        await agent.branches.fork()
        assert lines(agent)[0] == "[x] read it"


async def test_the_command_shows_it_in_every_mode(tmp_path: Path) -> None:
    async with talking(tmp_path, {"permissions.mode": "plan"}) as session:
        nothing = await run_command(session.agent, "/todo")
        assert (nothing.title, nothing.failed) == ("There is no task list", False)
        await say(session, SECOND)
        shown = await run_command(session.agent, "/todo")
        assert shown.title == "Task list: 1 of 3 done"
        assert shown.text == "[x] read it\n[>] mend it\n[ ] run the tests"


async def test_what_the_command_shows_is_free_of_escapes(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        await say(session, 'todo "[>] re\x1b[31mad\x1b]0;title\x07 it", "me\u202end it"')
        shown = await run_command(session.agent, "/todo")
        assert shown.text == "[>] read it\n[ ] mend it"
