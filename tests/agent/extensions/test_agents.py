"""Agents of the user's own, over the provider's protocol: what they get, how they are bounded, and what comes back."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.serving import OPUS, is_subtask
from tests.agent.talking import Person, of, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Script, Step
from tui_agent.agent import events
from tui_agent.agent.extensions.agents import GRANTABLE, own_agents
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.session import Session
from tui_agent.settings import GivenValue

REVIEWER = "---\ndescription: Looks for mistakes\ntools: Read, grep\nsteps: 4\n---\nYou are a strict reviewer."
TASK = {"agent": "reviewer", "task": "Look at calc.py."}


def agent(folder: Path, name: str, text: str = REVIEWER) -> None:
    (folder / "agents").mkdir(parents=True, exist_ok=True)
    (folder / "agents" / f"{name}.md").write_text(text)


def having(*calls: Call, inside: Callable[[ParsedRequest], Step]) -> Callable[[ParsedRequest], Step]:
    """The session makes these calls, then answers; an agent does what `inside` says."""

    def step(request: ParsedRequest) -> Step:
        if is_subtask(request):
            return inside(request)
        return Step(calls=calls) if request.position == 0 else Step(text="All done.")

    return step


async def test_an_agent_has_its_own_prompt_tools_and_model(server: AnthropicServer, tmp_path: Path) -> None:
    agent(tmp_path / "home", "reviewer", REVIEWER.replace("steps: 4", "model: claude-haiku-5-5"))
    server.script = having(Call("run_agent", TASK), inside=lambda _: Step(text="Line 5 subtracts."))
    async with talking(tmp_path, OPUS) as session:
        told = await say(session, "Have it reviewed.")
    bodies = [json.loads(request.body) for request in server.model_requests]
    [inner] = [body for body in bodies if "on behalf of" in json.dumps(body["system"])]
    assert "strict reviewer" in json.dumps(inner["system"])
    assert inner["model"] == "claude-haiku-5-5"
    assert {tool["name"] for tool in inner["tools"]} == {"read_file", "grep"}
    assert "Have it reviewed" not in json.dumps(inner)
    assert "- reviewer: Looks for mistakes" in json.dumps(bodies[0]["system"])
    [result] = of(events.ToolFinished, told)
    assert (result.status, result.text) == ("ok", "Line 5 subtracts.")
    assert server.violations == []


async def test_one_that_loops_or_overspends_is_stopped_with_what_it_found(
    server: AnthropicServer, tmp_path: Path
) -> None:
    agent(tmp_path / "home", "reviewer")
    agent(tmp_path / "home", "dear", REVIEWER.replace("steps: 4", "budget: $0.000001"))
    reading = Step(text="I look again.", calls=(Call("read_file", {"path": "calc.py"}),))
    dear = {"agent": "dear", "task": "Spend."}
    server.script = having(Call("run_agent", TASK), Call("run_agent", dear), inside=lambda _: reading)
    async with talking(tmp_path, OPUS) as session:
        told = await say(session, "Have it reviewed.")
    looped, spent = sorted(of(events.ToolFinished, told), key=lambda event: "budget" in event.text)
    assert "It was stopped after 4 model calls." in looped.text
    assert "its budget is" in spent.text
    assert all(event.status == "error" and "I look again." in event.text for event in (looped, spent))
    assert isinstance(told[-1], events.TurnFinished)
    assert told[-1].text == "All done."


async def test_one_changes_files_only_if_it_may_and_that_passes_the_gate_and_can_be_put_back(
    server: AnthropicServer, tmp_path: Path
) -> None:
    agent(tmp_path / "home", "reviewer")
    agent(tmp_path / "home", "writer", REVIEWER.replace("Read, grep", "Write"))
    writing = Call("write_file", {"path": "made.txt", "content": "x"})
    calls = [Call("run_agent", {"agent": name, "task": "Write."}) for name in ("reviewer", "writer")]
    server.script = having(
        *calls,
        inside=lambda request: Step(text=f"Told: {request.body!r}") if request.position else Step(calls=(writing,)),
    )
    person = Person()
    async with talking(tmp_path, {**OPUS, "permissions.mode": "ask"}, ask=person) as session:
        told = of(events.ToolFinished, await say(session, "Go."))
        assert ["There is no tool write_file" in each.text for each in told].count(True) == 1
        made = tmp_path / "project/made.txt"
        assert made.exists()
        assert person.tools == ["write_file"]
        planned = await session.agent.files.newest()
        assert planned is not None
        await session.agent.files.put_back(planned)
        assert not made.exists()


@pytest.mark.parametrize("allowed", [True, False])
async def test_many_at_once_are_asked_about_with_their_price(
    server: AnthropicServer, tmp_path: Path, allowed: bool
) -> None:
    agent(tmp_path / "home", "reviewer", REVIEWER.replace("steps: 4", "budget: 0.25"))
    server.script = having(*(Call("run_agent", TASK) for _ in range(6)), inside=lambda _: Step(text="Fine."))
    person = Person(allowed)
    async with talking(tmp_path, OPUS, ask=person) as session:
        told = await say(session, "Go.")
    [question] = person.asked
    assert question.preview.title == "6 agents at once, for about $1.50."
    assert question.preview.text.count("reviewer: Look at calc.py.") == 6
    assert {event.status for event in of(events.ToolFinished, told)} == {"ok" if allowed else "denied"}
    assert isinstance(told[-1], events.TurnFinished)
    assert told[-1].text == "All done."


async def test_agents_that_are_none_are_named_and_new_ones_are_news(server: AnthropicServer, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with talking(tmp_path, OPUS) as session:
        assert "run_agent" not in {tool.name for tool in session.agent.tools()}
    agent(home, "reviewer")
    agent(home, "odd", "---\ndescription: x\ntools: run_agent\nsteps: many\n---\nx")
    wrong = [Call("run_agent", {"agent": name, "task": "x"}) for name in ("odd", "nobody")]
    server.script = having(*wrong, inside=lambda _: Step(text="Fine."))
    async with talking(tmp_path, OPUS) as session:
        # Both are asked at once, and either may be answered first.
        nobody, odd = sorted(event.text for event in of(events.ToolFinished, await say(session, "Go.")))[::-1]
        assert "without run_agent, which no agent has here; steps is no number: many" in odd
        assert "There is no agent nobody. There are: reviewer." in nobody
        prefix = session.agent.engine.view.prefix
        agent(home, "second")
        await say(session, "Go on.")
        # The cache survives: what began the conversation stays, and the change is told behind it.
        assert session.agent.engine.view.prefix == prefix
        assert "- second: Looks for mistakes" in server.model_requests[-1].body.decode()
        assert "Agents\n  odd" in await session.agent.own_commands.listed()


@pytest.mark.parametrize("how", ["summary", "cold"])
async def test_the_first_agent_counts_once_no_cache_is_lost_by_it(
    server: AnthropicServer, tmp_path: Path, how: str
) -> None:
    server.script = Script((), Step(text="word " * 400))
    given: dict[str, GivenValue] = {"model.id": "claude-haiku-4-5", "compaction.keep_recent_tokens": 100}
    async with talking(tmp_path, given) as session:
        for said in ("Hello.", "And?"):
            await say(session, said)
        prefix = session.agent.engine.view.prefix
        agent(tmp_path / "home", "reviewer")
        notices = of(events.Notice, await say(session, "Go on."))
        assert [notice.title for notice in notices] == ["Your first agents wait"]
        assert session.agent.engine.view.prefix == prefix
        assert "run_agent" not in server.model_requests[-1].body.decode()
        assert session.agent.context.missed_caches() == []
        if how == "summary":
            assert not (await session.agent.compact()).error
        else:
            clock = session.agent.engine.clock
            session.agent.engine.clock = lambda: clock() + 3_600
        assert not of(events.Notice, await say(session, "Now."))
        sent = server.model_requests[-1].body.decode()
        assert '"run_agent"' in sent
        assert "- reviewer: Looks for mistakes" in sent


async def test_the_first_agent_counts_at_once_where_nothing_is_kept_of_a_request(
    session: Session, tmp_path: Path
) -> None:
    await say(session, "list .")
    agent(tmp_path / "home", "reviewer")
    (run,) = of(events.ToolFinished, await say(session, "run agent reviewer: read calc.py"))
    assert (run.name, run.status) == ("run_agent", "ok")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("window: nan", "window is no number: nan"),
        ("window: 1e400", "window is no number: 1e400"),
        ("budget: -1", "budget is no number: -1"),
        ("budget: $inf", "budget is no number: inf"),
        ("steps: 0", "steps must be 1 to "),
        ("steps: 1_000", "steps must be 1 to "),
        ("maxTurns: 1000", ""),
        ("window: 20,000", ""),
        ("tools: run_agent", "it would have no tool: without run_agent, which no agent has here"),
    ],
)
def test_an_agent_whose_front_matter_is_wrong_is_named_with_what_is_wrong(
    tmp_path: Path, line: str, problem: str
) -> None:
    agent(tmp_path, "odd", f"---\ndescription: x\n{line}\n---\nx")
    (found,) = own_agents((ExtensionFolder(tmp_path, "yours"),))
    assert found.problem.startswith(problem)
    assert bool(found.problem) == bool(problem)


@pytest.mark.parametrize(
    ("tools", "granted", "note"),
    [
        ('tools: "*"', GRANTABLE, ""),
        ('tools: "*"\ndisallowedTools: Bash, Write', GRANTABLE - {"run_command", "write_file"}, ""),
        ('tools: "Read, *"', GRANTABLE, ""),
        ('tools: [Read, "Grep"]', {"read_file", "grep"}, ""),
        ("tools: Read, Grep\ndisallowedTools: Grep", {"read_file"}, ""),
        ("tools: Read, WebSearch, Bash(git *)", {"read_file", "run_command"}, "without web_search"),
        ("tools: WebSearch", set(), "without web_search"),
    ],
)
def test_an_agent_has_the_tools_it_names_that_there_are(
    tmp_path: Path, tools: str, granted: frozenset[str], note: str
) -> None:
    agent(tmp_path, "all", f"---\ndescription: x\n{tools}\n---\nx")
    (found,) = own_agents((ExtensionFolder(tmp_path, "yours"),))
    assert set(found.tools) == granted
    assert found.note.startswith(note)
    assert bool(found.problem) == (not granted)
