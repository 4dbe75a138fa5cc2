"""Servers of tools in whole conversations: found, called through the gate, and the same in front of every request."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.serving import Serve
from tests.agent.talking import Person, of, say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.script import Call, Script, Step, Turn
from tests.servers.server import ProtocolServer
from tests.tools.mcp.catalogue import ASKED, ten_servers
from tests.tools.mcp.connecting import faulty
from tui_agent.agent import events
from tui_agent.agent.commands.table import run_command
from tui_agent.session import Session
from tui_agent.settings import GivenValue, ToolServer
from tui_agent.storage.sessions import copy_session
from tui_agent.tools.base import PermissionQuestion, ToolFailure

MODELS = {"anthropic": "claude-opus-5-5", "gemini": "gemini-3.8-flash"}
SOAKED = 200
ONE = pytest.mark.parametrize("world", ["gemini"], indirect=True)
"""What is the same for every provider."""


class World:
    """A provider's server, and sessions that talk to it and have the tests' own server of tools."""

    def __init__(self, provider: str, folder: Path, server: ProtocolServer) -> None:
        self.provider, self.folder, self.server = provider, folder, server

    @asynccontextmanager
    async def session(
        self,
        tools: ToolServer | None = None,
        *,
        ask: Callable[[PermissionQuestion], Any] | None = None,
        resume: str | None = None,
        given: Mapping[str, GivenValue] | None = None,
    ) -> AsyncIterator[Session]:
        servers = {"test": msgspec.to_builtins(tools or faulty())}
        given = {"model.id": MODELS[self.provider], "mcp.servers": servers, "mcp.whole_share": 0.0, **(given or {})}
        async with talking(self.folder, given, ask=ask or Person(), resume=resume) as session:
            await session.offered.servers.learn()
            yield session

    def fronts(self) -> list[bytes]:
        """What stands in front of the conversation in each request of it: system prompt and tools."""
        keys = ("system", "tools", "systemInstruction")
        of_it = (request for request in self.bodies() if request.get("tools"))
        return [json.dumps({key: request.get(key) for key in keys}).encode() for request in of_it]

    def bodies(self) -> list[dict[str, Any]]:
        return [request.json or {} for request in self.server.model_requests]


def through(name: str, **arguments: object) -> Call:
    return Call("call_tool", {"name": f"mcp__test__{name}", "arguments": arguments})


FIND = Call("find_tool", {"query": "say the same again"})


@pytest.fixture(params=list(MODELS))
def world(request: pytest.FixtureRequest, tmp_path: Path, serve: Serve) -> Callable[[Script], World]:
    made = AnthropicServer if request.param == "anthropic" else GeminiServer
    return lambda script: World(request.param, tmp_path, serve(made(script)))


def finished(told: Iterable[events.AgentEvent]) -> list[events.ToolFinished]:
    return of(events.ToolFinished, told)


async def test_a_tool_is_found_and_called_and_asked_about_by_its_own_name(world: Callable[[Script], World]) -> None:
    by_name = Call("mcp__test__add", {"a": 1, "b": 2})
    calling = (Step(calls=(FIND,)), Step(calls=(through("echo", text="hi"),)), Step(calls=(by_name,)))
    here = world(Script((Turn((*calling, Step(text="done"))),)))
    person = Person(always=True)
    async with here.session(ask=person) as session:
        told = await say(session, "say hi")
        await say(session, "and again")
    found, echoed, added = finished(told)[:3]
    assert found.text.startswith("mcp__test__echo\nSay the same again.")
    assert (echoed.name, echoed.text, added.text) == ("mcp__test__echo", "hi", '{"sum": 3}')
    assert [question.tool for question in person.asked] == ["mcp__test__echo", "mcp__test__add"], "once each, for good"
    assert person.asked[0].rules == ("every call of mcp__test__echo",)
    assert ('"tool_reference"' in json.dumps(here.bodies()[-1])) == (here.provider == "anthropic")
    assert len(set(here.fronts())) == 1


async def test_what_was_found_stays_through_a_compaction_a_resume_and_a_fork(world: Callable[[Script], World]) -> None:
    much = Step(calls=(through("large", size=40_000),))
    here = world(Script((Turn((Step(calls=(FIND,)), much, Step(text="found")), when="find"),), Step(text="Yes.")))
    async with here.session(given={"compaction.keep_recent_tokens": 500}) as session:
        await say(session, "find a tool")
        await say(session, "go on")
        done = await session.agent.compact()
        assert not done.error
        await say(session, "after")
        name = session.id
    async with here.session(resume=name) as session:
        await say(session, "resumed")
        await session.agent.branches.fork(session.agent.branches.prompts()[-2].seq)
        await say(session, "forked")
        copied = await copy_session(session.home, session.folder)
    async with here.session(resume=copied.name) as session:
        await say(session, "copied")
    resumed, forked, copied_ = map(json.dumps, here.bodies()[-3:])
    for sent in (resumed, forked, copied_):
        assert "mcp__test__echo" in sent
        assert "Say the same again." in sent
    assert '"resumed"' not in forked
    assert len(set(here.fronts())) == 1


async def test_a_list_that_changes_is_told_as_a_notice_and_costs_no_cache(world: Callable[[Script], World]) -> None:
    growing = Turn((Step(calls=(through("grow"),)), Step(text="grown")), when="grow")
    using = Turn((Step(calls=(through("grown_1", text="x"),)), Step(text="used")), when="use")
    here = world(Script((growing, using), Step(text="Yes.")))
    async with here.session() as session:
        changed = asyncio.Event()
        session.offered.servers.on_change = changed.set
        await say(session, "grow")
        await changed.wait()
        told = await say(session, "use it")
    assert finished(told)[0].status == "ok"
    assert "[notice] What the MCP servers offer changed" in json.dumps(here.bodies()[-1])
    assert len(set(here.fronts())) == 1


@ONE
async def test_small_sets_are_told_whole_and_hints_are_believed_only_where_the_user_says_so(
    world: Callable[[Script], World],
) -> None:
    looking = Script.of(Step(calls=(Call("mcp__test__look", {"city": "Ulm"}),)), Step(text="done"))
    here = world(looking)
    for believed, asked in ((False, 1), (True, 0)):
        person = Person()
        server = msgspec.structs.replace(faulty(), believe_hints=believed)
        async with here.session(server, ask=person, given={"mcp.whole_share": 0.5}) as session:
            told = await say(session, "look")
        assert finished(told)[0].status == "ok"
        assert len(person.asked) == asked
    assert '"mcp__test__echo"' in here.fronts()[0].decode()
    assert "find_tool" not in here.fronts()[0].decode()


@ONE
async def test_a_huge_result_is_kept_aside_like_any_other(world: Callable[[Script], World]) -> None:
    here = world(Script.of(Step(calls=(through("large", size=10_000_000),)), Step(text="done")))
    async with here.session() as session:
        (large,) = finished(await say(session, "give me much"))
        assert large.evicted
        assert (session.folder / large.artifact).stat().st_size == 10_000_000
    assert len(json.dumps(here.bodies()[-1])) < 200_000


@ONE
async def test_calls_that_cannot_be_done_say_why(world: Callable[[Script], World]) -> None:
    calls = (through("nothing"), through("die"), through("echo", text="on"), Call("call_tool", {"name": ""}))
    here = world(Script.of(Step(calls=calls), Step(text="done")))
    async with here.session() as session:
        done = {event.name: event.text for event in finished(await say(session, "try"))}
        assert "offers no such tool" in done["mcp__test__nothing"]
        assert "I have had enough" in done["mcp__test__die"]
        assert done["mcp__test__echo"] == "on"
        assert "names no tool" in done["call_tool"]
        await run_command(session.agent, "/mcp off test")
        done = {event.name: event.text for event in finished(await say(session, "try"))}
        assert "turned off" in done["mcp__test__echo"]


@ONE
async def test_what_a_definition_leaves_out_is_not_there(world: Callable[[Script], World]) -> None:
    asked = (Call("find_tool", {"query": "add two numbers"}), through("add", a=1, b=2), through("echo", text="hi"))
    here = world(Script((Turn((*(Step(calls=(call,)) for call in asked), Step(text="done"))),)))
    narrowed = msgspec.structs.replace(
        faulty(), include_tools=("add", "ec*", "no_such"), exclude_tools=("add",), always_load=True
    )
    async with here.session(narrowed) as session:
        offered = {offer.definition.name for offer in session.offered.servers.offers()}
        told = await say(session, "add one and two")
        one, every = [(await run_command(session.agent, command)).text for command in ("/mcp test", "/mcp")]
    assert offered == {"mcp__test__echo"}
    found, added, echoed = finished(told)[:3]
    assert "mcp__test__add" not in found.text
    assert "leaves this tool out" in added.text
    assert (echoed.status, echoed.text) == ("ok", "hi")
    assert not any("mcp__test__add" in json.dumps(request.get("tools")) for request in here.bodies())
    assert "1 tool (" in every
    (left_out,) = [line for line in one.splitlines() if line.startswith("left out: ")]
    assert "add" in left_out
    assert "echo" not in left_out
    assert "not among its tools: no_such" in one


@ONE
async def test_a_mentioned_resource_is_read_for_the_model(world: Callable[[Script], World]) -> None:
    here = world(Script.of(Step(calls=(through("echo", text="hi"),)), Step(text="done")))
    async with here.session() as session:
        async for event in session.agent.run("look at @test:demo://one, and (@nobody:demo://two)"):
            if isinstance(event, events.ToolStarted):
                await session.agent.queue("and at @test:demo://three")
    sent = json.dumps(here.bodies()[-1])
    assert "all of demo://one" in sent
    assert "demo://two, which the user mentions" not in sent
    assert sent.index("all of demo://three") < sent.index("and at @test:demo://three"), "what is sent meanwhile, too"


@ONE
async def test_a_prompt_of_a_server_is_a_slash_command(world: Callable[[Script], World]) -> None:
    here = world(Script())
    async with here.session() as session:
        agent = session.agent
        assert [(each.name, each.hint) for each in await agent.own_commands.all()] == [("test:review", "<what> [how]")]
        prompt = await agent.own_commands.named("test:review")
        assert prompt is not None
        assert await agent.own_commands.expand(prompt, "this file with care") == "Please review this file with care."
        with pytest.raises(ToolFailure, match="needs what"):
            await agent.own_commands.expand(prompt, "")


async def test_the_command_shows_what_servers_cost_and_save_and_why_one_failed(
    world: Callable[[Script], World],
) -> None:
    here = world(Script())
    servers = {"test": faulty(), "broken": ToolServer(command="/nowhere/at-all")}
    async with here.session(given={"mcp.servers": msgspec.to_builtins(servers)}) as session:
        await session.agent.connect()
        shown = (await run_command(session.agent, "/mcp")).text
        assert all(words in shown for words in ("14 tools", "saves", "$"))
        one = (await run_command(session.agent, "/mcp test")).text
        assert all(words in one for words in ("Say the same again.", "Ask me anything."))
    lines = shown.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("broken"))
    assert "cannot be used" in lines[at + 1]
    assert lines[at + 2].startswith("test")


@pytest.mark.parametrize(
    ("world", "calls"),
    [
        ("anthropic", 8),
        pytest.param("anthropic", SOAKED, marks=pytest.mark.soak),
        pytest.param("gemini", SOAKED, marks=pytest.mark.soak),
    ],
    indirect=["world"],
)
async def test_three_hundred_tools_weigh_little_and_cost_no_cache(
    calls: int, world: Callable[[Script], World], tmp_path: Path
) -> None:
    """Found, called, compacted, resumed and called again: no cache is missed but where the summary changed what is
    sent, and in front stands what stood there.
    """
    found = list(ASKED.items())
    steps = [step for number in range(calls // 2) for step in _find_and_call(*found[number % len(found)])]
    here = world(Script((Turn((*steps, Step(text="done")), when="work"),), Step(text="Yes.")))
    async with here.session(given={"mcp.servers": {}}) as session:
        await say(session, "hello")
        bare = fixed_tokens(session)
    servers = {name: msgspec.to_builtins(server) for name, server in ten_servers(tmp_path).items()}
    given: dict[str, GivenValue] = {"mcp.servers": servers, "mcp.whole_share": 0.02, "permissions.mode": "allow"}
    given["compaction.auto"] = False  # the script tells by the conversation how far it has come
    async with here.session(given=given) as session:
        told = finished(await say(session, "work"))
        more = fixed_tokens(session) - bare
        print(f"300 tools of ten servers: {more:,} tokens more than none")
        assert more <= 2_000
        assert [each.status for each in told] == ["ok"] * calls
        wanted = [f"mcp__{asked.replace('/', '__')}" for _, asked in found]
        for number, each in enumerate(told):
            assert wanted[number // 2 % len(found)] in (each.text if number % 2 == 0 else each.name)
        assert session.agent.context.missed_caches() == []
        await session.agent.compact()
        await say(session, "thanks")
        name = session.id
    if calls == SOAKED:
        async with here.session(resume=name, given=given) as session:
            told = finished(await say(session, "work"))
            assert [each.status for each in told] == ["ok"] * calls
            assert session.agent.context.missed_caches() == []
    assert len(set(here.fronts()[1:])) == 1


def _find_and_call(query: str, wanted: str) -> tuple[Step, Step]:
    name = f"mcp__{wanted.replace('/', '__')}"
    calling = Call("call_tool", {"name": name, "arguments": {"workspace": "w"}})
    return Step(calls=(Call("find_tool", {"query": query}),)), Step(calls=(calling,))


def fixed_tokens(session: Session) -> int:
    """Tokens of system prompt and tools."""
    engine = session.agent.engine
    return engine.budget.fixed
