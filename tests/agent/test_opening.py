"""One door: `Agent.open` and `Agent` make whole agents, which answer, stop at their limits and can be used again."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import msgspec
import pytest

from tests.agent.models import PROFILE, Scripted, Stream, answers
from tui_agent.agent import events
from tui_agent.agent.agent import Agent
from tui_agent.agent.answers import TurnError
from tui_agent.agent.persistence import Persistence
from tui_agent.agent.turn.guards import Limits
from tui_agent.agent.turn.turns import AgentBusy, AgentClosed
from tui_agent.context import effects
from tui_agent.context.effects import AsyncMemoryHost
from tui_agent.context.engine import ContextEngine
from tui_agent.conversation.blocks import Text, ToolCall
from tui_agent.conversation.entries import Custom, Message, UnknownEntry, Usage, custom, user_message
from tui_agent.conversation.profile import Prices
from tui_agent.conversation.request import ModelRequest
from tui_agent.models.base import StreamEvent
from tui_agent.reports.export import document, markdown
from tui_agent.storage.log import LogStore
from tui_agent.storage.store import MemoryTexts
from tui_agent.tools.base import ToolContext, ToolOutput
from tui_agent.tools.files.paging import PageLimits
from tui_agent.tools.files.reading import ReadFile
from tui_agent.tools.functions import tool
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.subtasks import SubtaskSpec

PRICED = msgspec.structs.replace(PROFILE, prices=Prices(input=1.0, output=1.0))


def saying(*texts: str) -> list[Stream]:
    """One answer for each text."""
    return [answers(Text(text), usage=Usage(input_tokens=1_000_000)) for text in texts]


def calling(name: str, arguments: str = "{}") -> Stream:
    return lambda request: answers(Text("So:"), ToolCall(f"call-{len(request.messages)}", name, arguments))(request)


def said(model: Scripted) -> str:
    """All text of the newest request."""
    blocks = [block for message in model.requests[-1].messages for block in message.blocks]
    return "\n".join(text for block in blocks if (text := getattr(block, "text", "")))


class City(msgspec.Struct):
    name: str
    people: int


@dataclass
class Town:
    name: str


class Place(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("output", "answer", "value"),
    [
        (City, '{"name": "Bern", "people": 134000}', City("Bern", 134_000)),
        (Town, 'Here it is:\n```json\n{"name": "Bern"}\n```', Town("Bern")),
        (Place, '{"name": "Bern"}', {"name": "Bern"}),
        (list[int], "[1, 2]", [1, 2]),
        (bool, "true", True),
    ],
)
async def test_an_answer_has_the_type_that_was_asked_for(output: type[object], answer: str, value: object) -> None:
    async with Agent(Scripted(*saying(answer))) as agent:
        assert await agent.ask("Which?", output=output) == value


@pytest.mark.parametrize("prompt", ["Which?", ""])
async def test_an_answer_of_another_type_goes_back_and_is_no_word_of_the_person(prompt: str) -> None:
    model = Scripted(*saying("Bern, I think.", '{"name": "Bern", "people": "many"}', '{"name": "Bern", "people": 1}'))
    async with Agent(model) as agent:
        assert await agent.ask(prompt, output=City) == City("Bern", 1)
        assert [each.text for each in agent.engine.view.said()] == [prompt] * bool(prompt)
    assert said(model).count("JSON Schema") == 3
    assert "Expected `int`, got `str` - at `$.people`" in said(model), "it goes back with the reason"


async def test_an_answer_that_never_has_the_type_is_an_error_that_carries_it() -> None:
    model = Scripted(*saying("no"))
    async with Agent(model) as agent:
        with pytest.raises(TurnError) as raised:
            await agent.ask("Which?", output=City)
        assert (raised.value.kind, raised.value.text, len(model.requests)) == ("output", "no", 3)
        assert await agent.ask("And in words?") == "no"


async def test_a_type_that_json_cannot_express_is_refused_before_anything_is_sent() -> None:
    model = Scripted(*saying("no"))
    async with Agent(model) as agent:
        with pytest.raises(TypeError, match="cannot be the type of an answer"):
            await agent.ask("Which?", output=Agent)
    assert not model.requests


async def test_a_model_that_calls_for_ever_is_stopped_and_can_go_on() -> None:
    model = Scripted(calling("there_is_none"))
    async with Agent(model, limits=Limits(max_calls=4)) as agent:
        for calls in (4, 8):
            with pytest.raises(TurnError) as raised:
                await agent.ask("Do it.")
            assert (raised.value.kind, raised.value.retryable, len(model.requests)) == ("call_limit", True, calls)
    # Without being set it holds, too.
    async with Agent(model) as agent:
        with pytest.raises(TurnError):
            await agent.ask("Do it.")
    assert len(model.requests) - 8 == Limits().max_calls


async def test_what_a_session_may_cost_holds_in_the_next_process(tmp_path: Path) -> None:
    limits = Limits(max_usd=None, max_session_usd=1.5)
    for calls in (1, 1, 0):
        model = Scripted(*saying("Done."), profile=PRICED)
        async with Agent.open(tmp_path / "talk", model=model, limits=limits) as agent:
            if agent.tracker.session.cost_usd < 1.0:
                assert await agent.ask("Go on.") == "Done."
            else:
                with pytest.raises(TurnError) as raised:
                    await agent.ask("Go on.")
                assert raised.value.kind == "cost_ceiling"
            assert len(model.requests) == calls
    async with Agent.open(tmp_path / "talk", model=model, limits=limits) as agent:
        assert "may cost $1.50 more" in agent.reset_cost_ceiling()
        assert await agent.ask() == "Done."


WHOLE = "\n".join(f"line {number} of the report" for number in range(20_000))


@tool(effect="none")
def report() -> str:
    """The whole report."""
    return WHOLE


async def test_a_large_result_is_whole_in_the_next_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with Agent.open("talk", model=Scripted(calling("report"), *saying("Read.")), tools=[report]) as agent:
        monkeypatch.chdir("/")
        assert await agent.ask("Read the report.") == "Read."
    async with Agent.open(tmp_path / "talk", model=Scripted(*saying("Still here."))) as agent:
        result = next(item for item in agent.context.items() if item.category == "results")
        assert await agent.context.original(result.seq) == WHOLE
        assert (await agent.context.recall("line 19999")).hits


@pytest.mark.parametrize("on_disk", [True, False])
async def test_the_model_can_read_on_in_a_large_result(on_disk: bool, tmp_path: Path) -> None:
    async def read(request: ModelRequest) -> AsyncIterator[StreamEvent]:
        assert [definition.name for definition in request.tools] == ["read_file", *["recall"] * on_disk, "report"]
        (path,) = re.findall(r'read_file\(path="([^"]+)"\)', said(model))
        for arguments in ({"path": path, "offset": 300_000}, {"path": path, "offset": 10**9}, {"path": "/etc/passwd"}):
            answer = calling("read_file", msgspec.json.encode(arguments).decode())(request)
            read_on.append(answer)
        async for event in read_on.pop(0):
            yield event

    read_on: list[AsyncIterator[StreamEvent]] = []
    answers = [calling("report"), read, lambda _: read_on.pop(0), lambda _: read_on.pop(0), *saying("Read.")]
    model = Scripted(*answers)
    kept = await Persistence.on_disk(tmp_path / "talk") if on_disk else None
    async with Agent(model, tools=[report], persistence=kept) as agent:
        assert await agent.ask("Read the report.") == "Read."
    assert WHOLE[300_000:312_000] in said(model)
    assert f"[Characters 300,000 to 312,000 of {len(WHOLE):,}; offset=312000 goes on.]" in said(model)
    assert f"The text has {len(WHOLE):,} characters." in said(model)
    assert "No result is stored at /etc/passwd." in said(model)


async def test_two_agents_cannot_have_one_conversation(tmp_path: Path) -> None:
    async with Agent.open(tmp_path, model="offline"):
        with pytest.raises(Exception, match="open"):
            async with Agent.open(tmp_path, model="offline"):
                pass


async def test_a_close_that_is_cancelled_closes_everything(tmp_path: Path) -> None:
    before, model = set(threading.enumerate()), Scripted(*saying("Yes."))
    kept = await Persistence.on_disk(tmp_path)
    agent = Agent(model, persistence=kept)
    await agent.ask("Well?")
    for close in (agent.close, kept.close):
        closing = asyncio.create_task(close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    assert model.closed
    started = [each for each in threading.enumerate() if each not in before and not each.name.startswith("asyncio_")]
    for each in started:
        each.join(10)  # it has been told to end
    assert not any(each.is_alive() for each in started), started


async def test_an_engine_over_another_conversation_is_refused() -> None:
    with pytest.raises(ValueError, match="another conversation"):
        Agent("offline", persistence=Persistence(), context=ContextEngine())


async def test_a_store_of_ones_own_brings_its_conversation(tmp_path: Path) -> None:
    texts = MemoryTexts()
    for turn in (1, 2):
        store = await LogStore.open(tmp_path)
        kept = await Persistence.kept_by(store, texts)
        async with Agent(Scripted(*saying("Yes.")), persistence=kept) as agent:
            await agent.ask("Well?")
            assert len(agent.branches.prompts()) == turn
        await kept.close()


async def test_leaving_the_loop_leaves_an_agent_that_can_run_again() -> None:
    model = Scripted(*saying("One.", "Two.", "Three."))
    async with Agent(model) as agent:
        for _ in range(3):
            async for event in agent.run("Go."):
                if isinstance(event, events.TextDelta):
                    break
            assert not agent.busy
        assert await agent.ask("And now?") == "Three."
        async for _ in agent.run("Go."):
            break
        assert (await agent.compact_if_needed()).error == "nothing is due"


async def test_a_busy_or_closed_agent_says_so_at_the_call() -> None:
    async with Agent(Scripted(*saying("One."))) as agent:
        stream = agent.run("Go.")
        await anext(stream)
        with pytest.raises(AgentBusy):
            agent.run("And go.")
        await stream.aclose()
        assert await agent.ask("Go.") == "One."
    with pytest.raises(AgentClosed):
        agent.run("Go.")
    with pytest.raises(AgentClosed):
        await agent.compact()
    with pytest.raises(AgentClosed):
        await agent.run_subtask(SubtaskSpec("Answer.", "Who?"))


class Users:
    """What tools depend on."""

    names = ("Ada", "Grace")


@tool(effect="none")
def user(context: ToolContext[Users], number: int) -> str:
    """The name of a user."""
    return context.deps.names[number]


async def test_tools_are_given_what_they_depend_on() -> None:
    model = Scripted(calling("user", '{"number": 1}'), *saying("Found."))
    async with Agent(model, tools=[user], deps=Users()) as agent:
        assert await agent.ask("Who?") == "Found."
    assert "Grace" in said(model)


async def test_an_agent_without_what_its_tools_depend_on_is_refused() -> None:
    with pytest.raises(TypeError, match="the tool user needs deps of type Users, not NoneType"):
        Agent("offline", tools=[user])


async def test_functions_around_calls_refuse_change_and_add() -> None:
    def before(call: ToolCall) -> ToolCall | str | None:
        if call.arguments == '{"number": 0}':
            return "Not the first one."
        return msgspec.structs.replace(call, arguments='{"number": 1}')

    async def after(call: ToolCall, output: ToolOutput) -> ToolOutput | None:
        return ToolOutput(f"{output.text} H.") if call.arguments == '{"number": 1}' else None

    sizes: list[int] = []

    def model_next(request: ModelRequest) -> str | None:
        sizes.append(len(request.messages))
        return "Be brief." if len(sizes) == 1 else None

    model = Scripted(calling("user", '{"number": 0}'), calling("user", '{"number": 7}'), *saying("Found."))
    async with Agent(
        model, tools=[user], deps=Users(), before_tool=before, after_tool=after, before_model=model_next
    ) as agent:
        assert await agent.ask("Who?") == "Found."
    text = said(model)
    assert "Not the first one." in text
    assert "Grace H.\n[the program changed the arguments of this call to" in text
    assert text.count("Be brief.") == 1
    assert len(sizes) == 3


async def test_a_function_that_raises_ends_the_turn() -> None:
    def refuse(_: ModelRequest) -> str | None:
        raise PermissionError("not on Sundays")

    model = Scripted(*saying("One."))
    async with Agent(model, before_model=refuse) as agent:
        with pytest.raises(TurnError, match="not on Sundays"):
            await agent.ask("Go.")
    assert not model.requests


async def test_what_would_wait_for_its_own_turn_is_refused_within_it() -> None:
    within: list[Agent] = []

    @tool(effect="none")
    async def leave() -> str:
        """Leave."""
        for wait in (within[0].close, lambda: within[0].context.preview("compact")):
            with pytest.raises(AgentBusy):
                await wait()
        return "Still here."

    model = Scripted(calling("leave", "{}"), *saying("Bye."))
    async with Agent(model, tools=[leave]) as agent, asyncio.timeout(20):
        within.append(agent)
        assert await agent.ask("Go.") == "Bye."
    assert "Still here." in said(model)


async def test_an_entry_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    text = Text("")
    msgspec.structs.force_setattr(text, "text", 7)
    async with Agent.open(tmp_path / "talk", model=Scripted(*saying("Good."))) as agent:
        await agent.ask("Is it good?")
        with pytest.raises(UnknownEntry):
            await agent.add(custom("review", {"by": "Ada"}, text))
    async with Agent.open(tmp_path / "talk", model=Scripted(*saying("And again."))) as agent:
        assert await agent.ask("Sure?") == "And again."


class Reviewed(msgspec.Struct):
    """What a host program notes."""

    by: str
    lines: int


async def test_entries_of_ones_own_are_kept_shown_and_exported(tmp_path: Path) -> None:
    model = Scripted(*saying("Good.", "Noted."))
    async with Agent.open(tmp_path / "talk", model=model) as agent:
        await agent.ask("Is it good?")
        told: list[events.AgentEvent] = []
        agent.listen(told.append)
        await agent.add(custom("review", Reviewed("Ada", 12), Text("Ada has reviewed 12 lines.")))
        await agent.add(custom("build", {"ok": True}))
        stream = agent.run("Then go on.")
        await anext(stream)
        with pytest.raises(AgentBusy):
            await agent.add(custom("late", None, Text("Too late.")))
        await agent.add(custom("silent", [1, 2]))
        assert [event async for event in stream]
        shown = [event for event in agent.branches.history() if isinstance(event, events.CustomEntry)]
    assert "Ada has reviewed 12 lines." in said(model)
    assert "silent" not in said(model)
    assert told == shown
    async with Agent.open(tmp_path / "talk", model=model) as agent:
        kept = [entry for entry in agent.engine.view.log.path() if isinstance(entry, Custom)]
        assert [event for event in agent.branches.history() if isinstance(event, events.CustomEntry)] == shown
        (item,) = (item for item in agent.context.items() if item.seq == kept[0].seq)
        assert item.category == "notices"
        log = list(agent.engine.view.log.path())
    assert [entry.name for entry in kept] == ["review", "build", "silent"]
    assert kept[0].value(Reviewed) == Reviewed("Ada", 12)
    for page in ("".join(document("A talk", log)), "".join(markdown("A talk", log))):
        assert "review" in page
        assert "12 lines" in page


async def test_an_engine_with_an_event_loop_asks_its_model_there() -> None:
    engine = ContextEngine(model=msgspec.structs.replace(PROFILE, window=32_000))
    for number in range(40):
        answer = Message(role="assistant", blocks=(Text(f"It is {number}. " + "And more. " * 300),))
        engine.extend([user_message(f"What is number {number}?"), answer])
    asked: list[effects.AskModel] = []

    async def ask(effect: effects.AskModel) -> effects.Answer | effects.Refusal:
        await asyncio.sleep(0)
        asked.append(effect)
        return effects.Refusal("not today")

    host = AsyncMemoryHost(engine, ask)
    done = await host.carry_out(engine.compact())
    assert asked
    assert done.after < done.before
    assert [step.step for step in host.done] == ["summary"]


async def test_any_agent_has_subtasks_and_functions_around_calls_stand_around_theirs() -> None:
    calls: list[str] = []

    def before(call: ToolCall) -> None:
        calls.append(call.name)

    model = Scripted(calling("user", '{"number": 1}'), *saying("Found."))
    async with Agent(model, tools=[user], deps=Users(), before_tool=before) as agent:
        done = await agent.run_subtask(SubtaskSpec("Answer.", "Who?", tools=("user",)))
        assert calls == ["user"]
        assert (done.error, done.text, done.steps) == ("", "Found.", 2)
        assert agent.context_stats().subtasks.count == 1
        assert not agent.branches.prompts()
    assert "Grace" in said(model)


async def test_what_subtasks_have_cost_counts_in_the_next_process(tmp_path: Path) -> None:
    model = Scripted(*saying("It is so."), profile=PRICED)
    async with Agent.open(tmp_path / "talk", model=model) as agent:
        done = await agent.run_subtask(SubtaskSpec("Answer.", "Is it so?"))
        assert (done.text, done.cost_usd) == ("It is so.", 1.0)
        assert not model.closed
    async with Agent.open(tmp_path / "talk", model=model, limits=Limits(max_session_usd=1.0)) as agent:
        assert agent.tracker.session.cost_usd == 1.0
        with pytest.raises(TurnError) as raised:
            await agent.ask("And is this so?")
        assert raised.value.kind == "cost_ceiling"


async def test_an_agent_offers_tools_that_ask_subtasks_if_it_is_to(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("The code is 4711.\n")
    workspace = Workspace(tmp_path)
    async with Agent("offline", tools=[ReadFile(PageLimits())], workspace=workspace, agentic=True) as agent:
        assert "agentic_read_file" in [each.name for each in agent.tools()]
        told = [
            event
            async for event in agent.run('call agentic_read_file path="notes.txt" question="read notes.txt"')
            if isinstance(event, events.ToolFinished)
        ]
        assert [(event.name, event.status) for event in told] == [("agentic_read_file", "ok")]
    async with Agent("offline", tools=[ReadFile(PageLimits())], workspace=workspace) as agent:
        assert [each.name for each in agent.tools()] == ["read_file"]
