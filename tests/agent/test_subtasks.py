"""Subtasks: a fresh conversation, the same gate, one bill, and an end when the parent ends."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.billing import billed, counted
from tests.agent.serving import MODELS, OPUS, Serve, is_subtask, serving
from tests.agent.summaries import HANDOVER, asks_for_summary
from tests.agent.talking import Person, goes_on, of, saved_in, say, talking
from tests.conversation.logs import broken_rules
from tests.e2e.program import asked as asked_of
from tests.servers.anthropic import AnthropicServer
from tests.servers.script import Call, Fault, ParsedRequest, Script, Step
from tests.servers.server import ProtocolServer
from tests.tools.web.test_fetch_url import answer
from tests.tools.web.test_fetch_url import server as web
from tui_agent.agent import events
from tui_agent.agent.agent import nobody
from tui_agent.agent.subtasks import past_progress
from tui_agent.conversation.blocks import Text
from tui_agent.conversation.entries import Message, UnattributedCall, Usage
from tui_agent.conversation.view import View
from tui_agent.session import Session, SessionError
from tui_agent.storage.sessions import NoSuchSession, find_session, list_sessions
from tui_agent.tools.agentic import INNER_TOOLS
from tui_agent.tools.subtasks import SubtaskSpec

SECRET = "the launch code is xyzzy"
QUESTION = "What does add do?"
PARENT_MODELS = {"anthropic": ("claude-opus-5-5", "claude-haiku-5-5"), "gemini": ("gemini-2.5-pro", "gemini-3.8-flash")}
READING = Call("read_file", {"path": "calc.py"})
PAGE = "https://docs.example/add"
WRAPPERS = {
    "agentic_read_file": {"path": "calc.py", "question": QUESTION},
    "agentic_fetch_url": {"url": PAGE, "question": QUESTION},
    "agentic_grep": {"pattern": "return", "question": QUESTION},
    "agentic_research": {"question": QUESTION},
}


def delegating(*calls: Call, reads: int = 1) -> Any:
    """The parent makes these calls, then answers; a subtask reads `reads` times, then answers."""

    def step(request: ParsedRequest) -> Step:
        if is_subtask(request):
            if request.position < reads:
                reading = Call("fetch_url", {"url": PAGE}) if "fetch_url" in request.tools else READING
                return Step(calls=(reading,))
            return Step(text="It subtracts: line 5 says `return a - b`.")
        return Step(calls=calls) if request.position == 0 else Step(text="There is a bug.")

    return step


def bodies(server: ProtocolServer, *, subtask: bool) -> list[str]:
    """The requests that asked for an answer, of subtasks or of the session itself."""
    found = [request.body.decode() for request in server.model_requests]
    return [body for body in found if ("on behalf of another agent" in body) == subtask]


def sub_folders(session: Session) -> list[Path]:
    return sorted(session.folder.parent.glob(f"{session.id}.sub.*"))


@pytest.mark.parametrize("provider", PARENT_MODELS)
async def test_a_subtask_sees_only_its_own_prompts(provider: str, tmp_path: Path, serve: Serve) -> None:
    parent, small = PARENT_MODELS[provider]
    server = serve(serving(provider, delegating(*(Call(name, arguments) for name, arguments in WRAPPERS.items()))))
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "AGENTS.md").write_text("Always answer in verse.\n")
    (tmp_path / "project" / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    # Nothing of the network is needed to see what a subtask is sent.
    given = {"model.id": parent, "permissions.deny": '["fetch_url(*)"]'}
    async with talking(tmp_path, given, trusted=True) as session:
        seen = await say(session, f"Remember: {SECRET}. Find the bug.")
    inner, outer = bodies(server, subtask=True), bodies(server, subtask=False)
    requests = [json.loads(body) for body in inner]
    assert len(inner) == 2 * len(WRAPPERS)
    assert all(SECRET in body and "in verse" in body and "def add" not in body for body in outer)
    for body in inner:
        assert QUESTION in body
        assert not any(words in body for words in (SECRET, "in verse", "Find the bug"))
    assert len([request for request in requests if len(said(request)) == 1]) == len(WRAPPERS)
    assert {frozenset(tools_of(request)) for request in requests} == {frozenset(INNER_TOOLS[name]) for name in WRAPPERS}
    assert all(
        small in str(request.path) or small in request.body.decode()
        for request in asked_of(server.requests)
        if b"on behalf of another agent" in request.body
    )
    answers = of(events.ToolFinished, seen)
    assert [(event.status, "It subtracts" in event.text) for event in answers] == [("ok", True)] * len(WRAPPERS)


def said(request: dict[str, Any]) -> list[Any]:
    found = request.get("messages", request.get("contents"))
    assert isinstance(found, list)
    return found


def tools_of(request: dict[str, Any]) -> list[str]:
    tools = request["tools"]
    if "functionDeclarations" in tools[0]:
        tools = tools[0]["functionDeclarations"]
    return [tool["name"] for tool in tools]


async def test_the_bill_is_what_the_server_counted_once(server: AnthropicServer, tmp_path: Path) -> None:
    calls = [Call("agentic_read_file", {"path": "calc.py", "question": f"{QUESTION} {n}"}) for n in range(3)]
    server.script = delegating(*calls)
    async with talking(tmp_path, OPUS) as session:
        seen = await say(session, "Find the bug.")
        expected = sum((await billed(server)).values())
        tracker, stats = session.agent.tracker, session.agent.context_stats()
        assert tracker.session.cost_usd == pytest.approx(expected)
        assert tracker.turn.cost_usd == pytest.approx(expected)
        assert tracker.session.calls == len(server.model_requests) == 2 + 3 * 2
        finished = seen[-1]
        assert isinstance(finished, events.TurnFinished)
        assert finished.cost_usd == pytest.approx(expected)
        assert finished.usage == tracker.session.usage
        assert finished.usage.output_tokens == server.usage_total["output_tokens"]
        assert stats.subtasks.count == 3
        assert stats.subtasks.input_tokens == tracker.by_model()["anthropic:claude-haiku-5-5"].usage.input_tokens
        assert {use.model: use.calls for use in stats.models} == {
            "anthropic:claude-opus-5-5": 2,
            "anthropic:claude-haiku-5-5": 6,
        }
        assert stats.models[0].model == "anthropic:claude-opus-5-5"
    async with talking(tmp_path, OPUS, resume=session.id) as session:
        again = session.agent.tracker
        assert again.session.cost_usd == pytest.approx(expected)
        assert (again.session.calls, again.subtask_count, again.turn.calls) == (8, 3, 0)
    (listed,) = await list_sessions(tmp_path / "home")
    assert listed.cost_usd == pytest.approx(expected)


async def test_its_record_lies_beside_the_sessions_and_is_whole(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = delegating(Call("agentic_read_file", {"path": "calc.py", "question": QUESTION}))
    async with talking(tmp_path, OPUS) as session:
        await say(session, "Find the bug.")
        (folder,) = sub_folders(session)
        result = await session.agent.run_subtask(SubtaskSpec(system="on behalf of another agent", prompt=QUESTION))
        assert re.fullmatch(rf"{session.id}:sub:[0-9a-f]+", result.id)
        assert len(sub_folders(session)) == 2
    entries = await saved_in(folder)
    assert [message.role for message in of(Message, entries)] == ["user", "assistant", "user", "assistant"]
    assert broken_rules(View(entries).messages()) == []
    home = tmp_path / "home"
    name = f"{session.id}:sub:{folder.name.rpartition('.')[2]}"
    assert await find_session(home, name) == folder
    assert await find_session(home, name[:-2]) == folder
    assert await find_session(home, session.id) == session.folder
    with pytest.raises(NoSuchSession):
        await find_session(home, f"{session.id}:sub:none")


async def test_its_progress_is_seen_under_the_call_it_works_for(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = delegating(Call("agentic_read_file", {"path": "calc.py", "question": QUESTION}), reads=2)
    async with talking(tmp_path, OPUS) as session:
        seen = await say(session, "Find the bug.")
    (call,) = of(events.ToolStarted, seen)
    told = [event for event in seen if isinstance(event, events.ToolProgress) and event.call_id == call.call_id]
    stood = [event.subtask for event in told if event.subtask is not None]
    assert [event.text for event in told] == [each.text for each in stood]
    assert stood[0].figures[:2] == ("anthropic:claude-haiku-5-5", "starting")
    assert ("read_file", '{"path":"calc.py"}') in stood[-1].calls
    assert len(stood[-1].calls) == 2
    assert stood[-1].doing == "done"
    assert "$0." in told[-1].text
    assert stood[-1].log == f"{session.id}:sub:{sub_folders(session)[0].name.rpartition('.')[2]}"
    assert not any(each.log for each in stood[:-1])
    (finished,) = of(events.ToolFinished, seen)
    assert "3 model calls" in finished.summary
    async with talking(tmp_path, OPUS, resume=session.id) as session:
        assert await session.agent.subtask_progress(call.call_id) == stood[-1]
        assert await session.agent.subtask_progress("another call") is None
        (sub_folders(session)[0] / "checkpoints.sqlite").write_bytes(b"nothing of the kind" * 500)
        unreadable = await session.agent.subtask_progress(call.call_id)
        assert unreadable is not None
        assert "its record cannot be read: " in unreadable.text


async def test_its_calls_pass_the_same_gate(server: AnthropicServer, tmp_path: Path) -> None:
    person = Person(allowed=False)
    outside = tmp_path / "outside.txt"
    outside.write_text("private")

    def step(request: ParsedRequest) -> Step:
        if is_subtask(request):
            return (
                Step(calls=(Call("read_file", {"path": str(outside)}),)) if not request.position else Step(text="No.")
            )
        return Step(text="Well.") if request.position else Step(calls=(wrapper,))

    wrapper = Call("agentic_read_file", {"path": str(outside), "question": QUESTION})
    server.script = step
    async with talking(tmp_path, OPUS, ask=person) as session:
        seen = await say(session, "Look.")
        (call,) = of(events.ToolStarted, seen)
    assert [(question.tool, question.call_id) for question in person.asked] == [("read_file", call.call_id)]
    assert "private" not in "".join(bodies(server, subtask=True))
    async with talking(tmp_path, {**OPUS, "permissions.deny": '["read_file(calc.py)"]'}) as session:
        server.script = delegating(Call("agentic_read_file", {"path": "calc.py", "question": QUESTION}))
        await say(session, "Look.")
    assert "def add" not in "".join(bodies(server, subtask=True))
    assert "A rule of the user forbids this" in bodies(server, subtask=True)[-1]
    begun = len(bodies(server, subtask=True))
    async with talking(tmp_path, {**OPUS, "permissions.deny": '["agentic_read_file(calc.py)"]'}) as session:
        seen = await say(session, "Look.")
    assert [event.status for event in of(events.ToolFinished, seen)] == ["denied"]
    assert len(bodies(server, subtask=True)) == begun


async def test_an_approval_nobody_can_give_ends_the_turn(server: AnthropicServer, tmp_path: Path) -> None:
    outside = Call("read_file", {"path": "/etc/hostname"})
    wrapper = Call("agentic_research", {"question": QUESTION})
    server.script = lambda request: Step(calls=(outside if is_subtask(request) else wrapper,))
    async with talking(tmp_path, OPUS, ask=nobody) as session:
        seen = await say(session, "Look.")
        assert session.agent.engine.view.unanswered() == ()
    assert [event.kind for event in of(events.TurnFailed, seen)] == ["needs_approval"]


async def test_stopping_the_turn_stops_its_subtasks(server: AnthropicServer, tmp_path: Path) -> None:
    asked: list[str] = []
    both = asyncio.Event()
    wrapper = Call("agentic_research", {"question": QUESTION})

    def step(request: ParsedRequest) -> Step:
        if not is_subtask(request):
            return Step(calls=(wrapper, wrapper))
        asked.append(request.prompt)
        if len(asked) == 2:
            both.set()
        return Step(text="This takes a while. " * 50, delay=1.0)

    server.script = step
    async with talking(tmp_path, OPUS) as session:
        turn = asyncio.ensure_future(say(session, "Look."))
        await both.wait()
        assert session.agent.interrupt()
        seen = await turn
        assert isinstance(seen[-1], events.TurnFinished)
        assert seen[-1].stop_reason == "interrupted"
        assert {event.status for event in seen if isinstance(event, events.ToolFinished)} == {"interrupted"}
        last = {event.call_id: event.text for event in seen if isinstance(event, events.ToolProgress)}
        assert len(last) == 2
        assert all(" · stopped · " in text and f"log {session.id}:sub:" in text for text in last.values())
        assert session.agent.engine.view.unanswered() == ()
        for folder in sub_folders(session):
            assert broken_rules(View(await saved_in(folder)).messages()) == []


async def test_several_run_at_once_but_not_too_many(server: AnthropicServer, tmp_path: Path) -> None:
    most = 0
    calls = tuple(Call("agentic_research", {"question": f"{QUESTION} {n}"}) for n in range(7))
    server.script = lambda request: (
        Step(text="Found.") if is_subtask(request) or request.position else Step(calls=calls)
    )
    async with talking(tmp_path, OPUS) as session:
        begun: set[str] = set()
        ended: set[str] = set()
        async for event in session.agent.run("Look."):
            match event:
                case events.ToolProgress() if "starting" in event.text:
                    begun.add(event.call_id)
                case events.ToolProgress() if "done" in event.text:
                    ended.add(event.call_id)
                case _:
                    continue
            most = max(most, len(begun - ended))
    assert len(ended) == 7
    assert 1 < most <= 4


async def test_it_is_told_to_end_and_stopped_when_its_steps_run_out(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = lambda request: Step(text="Still.", calls=(Call("list_dir", {}),))
    spec = SubtaskSpec(system="on behalf of another agent", prompt=QUESTION, tools=("list_dir",), steps=6)
    async with talking(tmp_path, OPUS) as session:
        result = await session.agent.run_subtask(spec)
    assert result.steps == 6
    assert "6 model calls" in result.error
    assert result.text == "Still."
    assert len(server.model_requests) == 6
    assert "You have one call left" in server.model_requests[-1].body.decode()
    assert "You have one call left" not in server.model_requests[3].body.decode()
    assert server.violations == []


async def test_a_failing_subtask_is_an_answer_not_the_end_of_the_turn(server: AnthropicServer, tmp_path: Path) -> None:
    bad = Step(text="x", fault=Fault(kind="bad_request", times=9, message="no such thing"))
    wrapper = Call("agentic_research", {"question": QUESTION})

    def step(request: ParsedRequest) -> Step:
        return bad if is_subtask(request) else Step(text="Then not.") if request.position else Step(calls=(wrapper,))

    server.script = step
    async with talking(tmp_path, OPUS) as session:
        seen = await say(session, "Look.")
    (result,) = of(events.ToolFinished, seen)
    assert result.status == "error"
    assert "no such thing" in result.text
    assert "plain tools" in result.text
    assert isinstance(seen[-1], events.TurnFinished)
    assert seen[-1].text == "Then not."


async def test_the_ceiling_counts_what_subtasks_cost(server: AnthropicServer, tmp_path: Path) -> None:
    server.script = delegating(Call("agentic_read_file", {"path": "calc.py", "question": QUESTION}), reads=15)
    same = {**OPUS, "agentic.small_model": "claude-opus-5-5"}
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "calc.py").write_text("".join(f"# line {number} of many\n" for number in range(500)))
    async with talking(tmp_path, same) as session:
        async for event in session.agent.run("Look."):
            if isinstance(event, events.AssistantMessage):
                break
        first = session.agent.tracker.session.cost_usd
    before = len(server.model_requests)
    async with talking(tmp_path, {**same, "agent.max_turn_cost_usd": f"{first * 1.05:.6f}"}) as session:
        seen = await say(session, "Look.")
        tracker = session.agent.tracker
        # Its own calls alone would have stayed far below.
        assert tracker.turn.cost_usd - tracker.subtasks.cost_usd < first / 2
    (failed,) = of(events.TurnFailed, seen)
    assert failed.kind == "cost_ceiling"
    made = server.model_requests[before:]
    assert 1 < len(made) < 16
    assert b"on behalf of another agent" in made[-1].body


async def test_a_subtasks_call_that_would_break_the_ceiling_is_not_made(
    server: AnthropicServer, tmp_path: Path
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "calc.py").write_text("".join(f"# line {number} of many\n" for number in range(1_500)))
    server.script = delegating(Call("agentic_read_file", {"path": "calc.py", "question": QUESTION}))
    # The second call of the subtask has the file in its input, and costs more than all that was before it.
    bound = {**OPUS, "agentic.small_model": "claude-opus-5-5", "agent.max_turn_cost_usd": "0.075"}
    async with talking(tmp_path, bound) as session:
        seen = await say(session, "Look.")
        assert session.agent.tracker.session.cost_usd < 0.075
        assert session.agent.engine.view.unanswered() == ()
    (failed,) = of(events.TurnFailed, seen)
    assert failed.kind == "cost_ceiling"
    assert "input alone" in failed.message
    (result,) = of(events.ToolFinished, seen)
    assert result.status == "error"
    assert "input alone" in result.text
    assert (len(bodies(server, subtask=False)), len(bodies(server, subtask=True))) == (1, 1)


async def test_an_address_that_fetch_url_refuses_costs_nothing(server: AnthropicServer, tmp_path: Path) -> None:
    urls = ["http://127.0.0.1:9/", "http://10.0.0.1/", "http://[::1]/", "docs.example", "ftp://x/"]
    server.script = delegating(*(Call("agentic_fetch_url", {"url": url, "question": QUESTION}) for url in urls))
    async with talking(tmp_path, {**OPUS, "permissions.mode": "allow"}) as session:
        seen = await say(session, "Look.")
        assert sub_folders(session) == []
    answers = of(events.ToolFinished, seen)
    assert [event.status for event in answers] == ["error"] * len(urls)
    for event in answers:
        assert "not on the public network" in event.text or "no web address" in event.text


async def test_a_page_is_fetched_and_read_by_a_subtask(server: AnthropicServer, tmp_path: Path) -> None:
    page = answer(b"<h1>add</h1><p>It adds two numbers.", Content_Type="text/html")
    away = answer(b"", "302 Found", Location="http://169.254.169.254/latest")
    async with web({"/add": page, "/away": away}) as site:
        allowed = {**OPUS, "permissions.allow": f'["fetch_url({site.url}/*)"]'}
        for path, words in (("/add", "It adds two numbers."), ("/away", "not on the public network")):
            url = f"{site.url}{path}"

            def step(request: ParsedRequest, url: str = url) -> Step:
                if not is_subtask(request):
                    wrapper = Call("agentic_fetch_url", {"url": url, "question": QUESTION})
                    return Step(text="Well.") if request.position else Step(calls=(wrapper,))
                return Step(text="Read.") if request.position else Step(calls=(Call("fetch_url", {"url": url}),))

            server.script = step
            async with talking(tmp_path, allowed) as session:
                seen = await say(session, "Look it up.")
            assert [event.status for event in of(events.ToolFinished, seen)] == ["ok"]
            assert words in bodies(server, subtask=True)[-1]
            assert words not in bodies(server, subtask=False)[-1]


async def test_offline_it_works_too(tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        seen = await say(
            session, 'ask calc.py "what does add do?", then research "what is here", then ask calcc.py what is this?'
        )
        assert len(sub_folders(session)) == 2
    asked, researched, wrong = of(events.ToolFinished, seen)
    assert (asked.name, researched.name) == ("agentic_read_file", "agentic_research")
    assert (asked.status, researched.status) == ("ok", "ok")
    assert "return a - b" in asked.text
    assert "test_calc.py" in researched.text
    # A wrong path costs nothing.
    assert (wrong.status, "calc.py" in wrong.text) == ("error", True)
    async with talking(tmp_path, {"agentic.enabled": "false"}) as session:
        assert not [tool for tool in session.agent.tools() if tool.name.startswith("agentic_")]


async def test_a_small_model_that_is_none_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r'agentic\.small_model \(overrides\): There is no model "foo"'):
        async with talking(tmp_path, {"agentic.small_model": "foo"}):
            pass
    assert list((tmp_path / "home" / "sessions").iterdir()) == []


def test_a_card_opened_later_counts_summaries_and_broken_calls_too() -> None:
    said = Message(
        seq=1, role="assistant", blocks=(Text("Here."),), model="anthropic:haiku", usage=Usage(input_tokens=10)
    )
    paid = msgspec.structs.replace(said, cost_usd=0.25)
    summarised = UnattributedCall(
        seq=2, model="anthropic:haiku", usage=Usage(input_tokens=5), purpose="summary", cost_usd=0.5
    )
    assert past_progress("20260101-000000-abcd:sub:1234", [paid, summarised]).cost_usd == 0.75
    assert past_progress("20260101-000000-abcd:sub:1234", [said]).cost_usd is None


# A question about a large tree: what the session's own context holds at its peak, and the bill


AREAS = ("billing", "search", "storage", "transport")
FILES = 25
READ = 6
"""Files of an area that are read to answer the question about it."""


def large_tree(project: Path) -> None:
    for area in AREAS:
        (project / area).mkdir(parents=True)
        for number in range(FILES):
            lines = (f"def {area}_{number}_{each}(value):  # retry {each % 7} times\n" for each in range(400))
            (project / area / f"part_{number:02}.py").write_text("".join(lines))


def looking(area: str, position: int) -> Call | None:
    """What is done, one call after another, to find out how an area does it."""
    calls = [Call("list_dir", {"path": area}), Call("grep", {"pattern": "retry 3", "path": f"{area}/part_00.py"})]
    calls += [Call("read_file", {"path": f"{area}/part_{number:02}.py"}) for number in range(READ)]
    return calls[position] if position < len(calls) else None


class Researcher:
    """Answers by how often it was asked, not by what a request shows: a summary may take that away."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: ParsedRequest) -> Step:
        if is_subtask(request):
            area = next(area for area in AREAS if f'List "{area}"' in request.prompt)
            call = looking(area, request.position)
            return Step(calls=(call,)) if call else Step(text=f"{area}: each function retries, see part_00.py:4.")
        if asks_for_summary(request):
            return Step(text=HANDOVER)
        self.asked += 1
        if "agentic_research" in request.tools:
            asked = (Call("agentic_research", {"question": "How does it retry?", "path": area}) for area in AREAS)
            return Step(calls=tuple(asked)) if self.asked == 1 else Step(text="All areas retry.")
        place, position = divmod(self.asked - 1, READ + 2)
        call = looking(AREAS[place], position) if place < len(AREAS) else None
        return Step(calls=(call,)) if call else Step(text="All areas retry.")


async def researched(server: ProtocolServer, folder: Path, settings: Mapping[str, str]) -> tuple[int, float]:
    """The most input tokens of a call of the session itself, and the cost it shows, checked against the server's."""
    server.script = Researcher()
    already, answered = sum((await billed(server)).values()), len(server.answers)
    async with talking(folder, settings) as session:
        seen = await goes_on(session, "How does each area of this tree retry?")
        finished = seen[-1]
        assert isinstance(finished, events.TurnFinished)
        assert finished.text == "All areas retry."
        shown = session.agent.tracker.session.cost_usd
        stats = session.agent.context_stats()
    assert finished.cost_usd == stats.cost_usd == shown
    assert shown == pytest.approx(sum((await billed(server)).values()) - already)
    asked = {request.number: request for request in server.model_requests}
    own = [
        counted(answer).input_tokens
        for answer in server.answers[answered:]
        if answer.usage and answer.number in asked and b"on behalf of another agent" not in asked[answer.number].body
    ]
    return max(own), shown


@pytest.mark.parametrize("provider", ["anthropic", pytest.param("gemini", marks=pytest.mark.soak)])
async def test_with_wrappers_the_sessions_own_context_stays_below_a_fifth(
    provider: str, tmp_path: Path, serve: Serve
) -> None:
    large_tree(tmp_path / "project")
    server = serve(serving(provider, Script()))
    settings = {"model.id": MODELS[provider]}
    without, dear = await researched(server, tmp_path, {**settings, "agentic.enabled": "false"})
    within, cheap = await researched(server, tmp_path, settings)
    assert within <= without / 5
    assert cheap < dear
