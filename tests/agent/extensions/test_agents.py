"""Agents of the user's own, over the provider's protocol: what they get, how they are bounded, and what comes back."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, ParsedRequest, Script, Step
from tui_agent.agent import events
from tui_agent.agent.events import AgentEvent
from tui_agent.agent.extensions.agents import GRANTABLE, own_agents
from tui_agent.agent.extensions.files import ExtensionFolder
from tui_agent.settings import GivenValue
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion

OPUS = {"model.id": "claude-opus-5-5"}
REVIEWER = "---\ndescription: Looks for mistakes\ntools: Read, grep\nsteps: 4\n---\nYou are a strict reviewer."
TASK = {"agent": "reviewer", "task": "Look at calc.py."}


def agent(folder: Path, name: str, text: str = REVIEWER) -> None:
    (folder / "agents").mkdir(parents=True, exist_ok=True)
    (folder / "agents" / f"{name}.md").write_text(text)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer(Script()) as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def is_agent(request: ParsedRequest) -> bool:
    return "on behalf of another agent" in request.system


def having(*calls: Call, inside: Callable[[ParsedRequest], Step]) -> Callable[[ParsedRequest], Step]:
    """The session makes these calls, then answers; an agent does what `inside` says."""

    def step(request: ParsedRequest) -> Step:
        if is_agent(request):
            return inside(request)
        return Step(calls=calls) if request.position == 0 else Step(text="All done.")

    return step


def finished(told: Sequence[AgentEvent]) -> list[events.ToolFinished]:
    return [event for event in told if isinstance(event, events.ToolFinished)]


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
    [result] = finished(told)
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
    looped, spent = sorted(finished(told), key=lambda event: "budget" in event.text)
    assert "It was stopped after 4 model calls." in looped.text
    assert "its budget is" in spent.text
    assert all(event.status == "error" and "I look again." in event.text for event in (looped, spent))
    assert isinstance(told[-1], events.TurnFinished)
    assert told[-1].text == "All done."


async def test_one_cannot_call_what_it_was_not_given(server: AnthropicServer, tmp_path: Path) -> None:
    agent(tmp_path / "home", "reviewer")

    def inside(request: ParsedRequest) -> Step:
        return Step(text=f"Told: {request.body!r}") if request.position else Step(calls=(writing,))

    writing = Call("write_file", {"path": "made.txt", "content": "x"})
    server.script = having(Call("run_agent", TASK), inside=inside)
    async with talking(tmp_path, {**OPUS, "permissions.mode": "allow"}) as session:
        told = await say(session, "Go.")
    assert "There is no tool write_file" in finished(told)[0].text
    assert not (tmp_path / "project/made.txt").exists()


async def test_what_one_changes_passes_the_gate_and_can_be_put_back(server: AnthropicServer, tmp_path: Path) -> None:
    agent(tmp_path / "home", "reviewer", REVIEWER.replace("Read, grep", "Write"))
    writing = Call("write_file", {"path": "made.txt", "content": "x"})
    server.script = having(
        Call("run_agent", TASK),
        inside=lambda request: Step(text="Written.") if request.position else Step(calls=(writing,)),
    )
    asked: list[PermissionQuestion] = []

    async def yes(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        return PermissionAnswer(allowed=True)

    async with talking(tmp_path, {**OPUS, "permissions.mode": "ask"}, ask=yes) as session:
        await say(session, "Go.")
        made = tmp_path / "project/made.txt"
        assert made.exists()
        assert [question.tool for question in asked] == ["write_file"]
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
    asked: list[PermissionQuestion] = []

    async def answer(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question)
        return PermissionAnswer(allowed=allowed)

    async with talking(tmp_path, OPUS, ask=answer) as session:
        told = await say(session, "Go.")
    [question] = asked
    assert question.preview.title == "6 agents at once, for about $1.50."
    assert question.preview.text.count("reviewer: Look at calc.py.") == 6
    assert {event.status for event in finished(told)} == {"ok" if allowed else "denied"}
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
        nobody, odd = sorted(event.text for event in finished(await say(session, "Go.")))[::-1]
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
        told = [event.title for event in await say(session, "Go on.") if isinstance(event, events.Notice)]
        assert told == ["Your first agents wait"]
        assert session.agent.engine.view.prefix == prefix
        assert "run_agent" not in server.model_requests[-1].body.decode()
        assert session.agent.context.missed_caches() == []
        if how == "summary":
            assert not (await session.agent.compact()).error
        else:
            clock = session.agent.engine.clock
            session.agent.engine.clock = lambda: clock() + 3_600
        assert not [event for event in await say(session, "Now.") if isinstance(event, events.Notice)]
        sent = server.model_requests[-1].body.decode()
        assert '"run_agent"' in sent
        assert "- reviewer: Looks for mistakes" in sent


async def test_the_first_agent_counts_at_once_where_nothing_is_kept_of_a_request(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        await say(session, "list .")
        agent(tmp_path / "home", "reviewer")
        (run,) = finished(await say(session, "run agent reviewer: read calc.py"))
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
    ("tools", "without", "granted"),
    [("*", "", GRANTABLE), ("*", "Bash, Write", GRANTABLE - {"run_command", "write_file"}), ("Read, *", "", GRANTABLE)],
)
def test_a_star_stands_for_every_tool_that_an_agent_may_have(
    tmp_path: Path, tools: str, without: str, granted: frozenset[str]
) -> None:
    agent(tmp_path, "all", f'---\ndescription: x\ntools: "{tools}"\ndisallowedTools: {without}\n---\nx')
    (found,) = own_agents((ExtensionFolder(tmp_path, "yours"),))
    assert found.tools == tuple(sorted(granted))
    assert not found.problem
