"""Whatever a tool, a model or the disk raises: what was told to begin is told to end, and the conversation goes on."""

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from typing_extensions import override

from tests.agent.models import Scripted, Stream, answers
from tests.agent.serving import MODELS, Serve, serving
from tests.agent.talking import failures, goes_on, of, saved, say, talking
from tests.conversation.logs import broken_rules
from tests.servers.script import Call, ParsedRequest, Script, Step
from tui_agent.agent import events
from tui_agent.agent.agent import Agent, nobody
from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolDefinition
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.request import ModelRequest
from tui_agent.conversation.view import View
from tui_agent.models.base import Completed, StreamEvent, TextDelta
from tui_agent.session import Session
from tui_agent.tools.base import Access, Effect, Preview, Tool, ToolContext, ToolOutput, WorkspaceView


class Odd(BaseException):
    """Neither an error nor the end of the program."""


class Unspeakable(Exception):
    """Cannot even be written down."""

    @override
    def __str__(self) -> str:
        raise ValueError("no words for it")


RAISED: dict[str, Callable[[], BaseException]] = {
    "value error": lambda: ValueError("wrong"),
    "key error": lambda: KeyError("missing"),
    "recursion error": lambda: RecursionError("too deep"),
    "memory error": MemoryError,
    "timeout": asyncio.TimeoutError,
    "end of iteration": StopIteration,
    "end of async iteration": StopAsyncIteration,
    "odd base exception": lambda: Odd("odd"),
    "exit of the program": lambda: SystemExit(3),
    "a cancellation of its own": asyncio.CancelledError,
    "error without words": Unspeakable,
    "surrogate in its words": lambda: ValueError("half a pair: \ud83d"),
    "group": lambda: BaseExceptionGroup("several", [ValueError("one"), Odd("two")]),
}


class Raising(Tool):
    """Raises when it is run, at once or after a while; or when it is asked what it would touch."""

    def __init__(self, make: Callable[[], BaseException], *, when: str = "run", effect: Effect = "none") -> None:
        self._make = make
        self._when = when
        self._effect = effect

    @property
    @override
    def definition(self) -> ToolDefinition:
        return ToolDefinition("raise_it", "Raises.", '{"type":"object","properties":{}}')

    @property
    @override
    def effect(self) -> Effect:
        return self._effect

    @override
    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        if self._when == "access":
            raise self._make()
        return ()

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview("Raise")

    @override
    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        if self._when == "later":
            await asyncio.sleep(0.01)
        raise self._make()


class Answering(Raising):
    """Gives back what is no output."""

    @override
    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return None  # type: ignore[return-value]


def calling(*names: str) -> Stream:
    return answers(*(ToolCall(f"call-{number}", name, "{}") for number, name in enumerate(names)))


def assert_paired(told: Sequence[events.AgentEvent]) -> None:
    """Every beginning has its end, in order, and the last event ends the turn."""
    turns = [type(event) for event in told if isinstance(event, events.TurnStarted | events.TurnFinished)]
    assert turns == [events.TurnStarted, events.TurnFinished] * (len(turns) // 2)
    assert isinstance(told[-1], events.TurnFinished)
    started = [event.call_id for event in of(events.ToolStarted, told)]
    finished = [event.call_id for event in of(events.ToolFinished, told)]
    assert sorted(started) == sorted(finished)


# Tools


@pytest.mark.parametrize("when", ["run", "later", "access"])
@pytest.mark.parametrize("name", RAISED)
async def test_what_a_tool_raises_is_its_calls_error_and_the_turn_goes_on(name: str, when: str, tmp_path: Path) -> None:
    model = Scripted(calling("raise_it", "raise_it"), answers(Text("So be it.")))
    agent = Agent(model, tools=[Raising(RAISED[name], when=when)])
    told = await asyncio.wait_for(say(agent, "go on"), 60)
    assert_paired(told)
    assert failures(told) == []
    finished = of(events.ToolFinished, told)
    assert [event.status for event in finished] == ["error", "error"]
    assert all("raise_it failed" in event.text and "failed: ." not in event.text for event in finished)
    assert isinstance(told[-1], events.TurnFinished)
    assert told[-1].text == "So be it."
    assert broken_rules(agent.engine.view.messages()) == []


async def test_a_tool_that_gives_nothing_back_is_an_error_of_its_call() -> None:
    agent = Agent(Scripted(calling("raise_it"), answers(Text("Done."))), tools=[Answering(ValueError)])
    told = await say(agent, "go on")
    assert_paired(told)
    assert [event.status for event in of(events.ToolFinished, told)] == ["error"]
    assert failures(told) == []


async def test_what_is_raised_beside_others_leaves_their_results(tmp_path: Path, serve: Serve) -> None:
    """In one batch a file is read, another is missing, and one lies outside: nobody can be asked about it."""
    outside = tmp_path / "outside.txt"
    outside.write_text("not yours")
    paths = ("calc.py", "missing.txt", str(outside), "test_calc.py")
    reading = tuple(Call("read_file", {"path": path}) for path in paths)
    serve(serving("gemini", Script.of(Step(calls=reading), Step(text="Read."))))
    async with talking(tmp_path, {"model.id": MODELS["gemini"]}, ask=nobody) as session:
        told = await say(session, "Read them.")
        assert_paired(told)
        assert failures(told) == ["needs_approval"]
        assert sorted(event.status for event in of(events.ToolFinished, told)) == ["error", "interrupted", "ok", "ok"]
        assert_paired(await goes_on(session, "Go on without it."))


# Models


def ending_with(error: Callable[[], BaseException], *before: StreamEvent) -> Stream:
    async def stream(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        for event in before:
            yield event
        raise error()

    return stream


def at_once(error: Callable[[], BaseException]) -> Stream:
    def stream(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        raise error()

    return stream


def yielding(*garbage: object) -> Stream:
    async def stream(_: ModelRequest) -> AsyncIterator[StreamEvent]:
        for event in garbage:
            yield event  # type: ignore[misc]

    return stream


@pytest.mark.parametrize("when", ["at once", "before the first event", "after some text"])
@pytest.mark.parametrize("name", RAISED)
async def test_what_a_model_raises_fails_the_turn_and_the_next_one_works(name: str, when: str) -> None:
    error = RAISED[name]
    broken = {
        "at once": at_once(error),
        "before the first event": ending_with(error),
        "after some text": ending_with(error, TextDelta("So far, ")),
    }
    agent = Agent(Scripted(broken[when], answers(Text("Here I am."))))
    told = await asyncio.wait_for(say(agent, "go on"), 60)
    assert_paired(told)
    assert failures(told) == ["model_error"]
    again = await say(agent, "again")
    assert_paired(again)
    assert failures(again) == []
    said = "So far, " in str(agent.engine.view.messages())
    assert said == (when == "after some text")
    assert broken_rules(agent.engine.view.messages()) == []


GARBAGE: dict[str, Stream] = {
    "no event": yielding(None, 7, "text", object()),
    "text that is none": yielding(TextDelta("Up to here."), TextDelta(None)),  # type: ignore[arg-type]
    "an answer of no blocks": yielding(Completed(None, Usage(), "end_turn")),  # type: ignore[arg-type]
    "an answer of other things": yielding(Completed((None, 3, "x"), Usage(), "end_turn")),  # type: ignore[arg-type]
    "no usage": yielding(Completed((Text("x"),), None, "end_turn")),  # type: ignore[arg-type]
    "an answer and an error": ending_with(ValueError, Completed((Text("x"),), Usage(), "end_turn")),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_garbage_of_a_model_fails_the_turn_at_most_and_the_next_one_works(name: str) -> None:
    agent = Agent(Scripted(GARBAGE[name], *[GARBAGE[name]] * 4, answers(Text("Here I am."))))
    told = await asyncio.wait_for(say(agent, "go on"), 60)
    assert_paired(told)
    assert len(failures(told)) <= 1
    agent = Agent(Scripted(answers(Text("Here I am."))), context=agent.engine)
    again = await say(agent, "again")
    assert_paired(again)
    assert failures(again) == []
    assert ("Up to here." in str(agent.engine.view.messages())) == (name == "text that is none")
    assert broken_rules(agent.engine.view.messages()) == []


@pytest.mark.parametrize(
    "blocks",
    [
        (),
        (Text(""),),
        (Reasoning("only thought"),),
        (ToolCall("", "", "{}"), ToolCall("", "", "{}")),
        (ToolCall("a", "raise_it", "no json at all"),),
        (ToolCall("a", "raise_it", "[1, 2]"), Text("after the call")),
        (Text("half \ud83d"), ToolCall("\ud83d", "\ud83d", "{}")),
    ],
    ids=repr,
)
async def test_odd_answers_are_kept_as_valid_ones(blocks: tuple[Block, ...]) -> None:
    agent = Agent(Scripted(answers(*blocks), answers(Text("Done."))), tools=[Raising(lambda: ValueError("x"))])
    told = await say(agent, "go on")
    assert_paired(told)
    assert failures(await say(agent, "again")) == []
    # A window so small that all of it has to be shortened.
    agent.engine.learn_limit(agent.engine.budget.reserve + 300)
    assert_paired(await say(agent, "once more"))
    assert broken_rules(agent.engine.view.messages()) == []


async def test_an_answer_that_ends_early_is_void_and_tried_again() -> None:
    agent = Agent(Scripted(yielding(TextDelta("Half an")), answers(Text("A whole answer."))))
    told = await say(agent, "go on")
    assert_paired(told)
    assert [event.kind for event in of(events.Retrying, told)] == ["connection"]
    assert [block for message in agent.engine.view.messages() for block in message.blocks] == [
        Text("go on"),
        Text("A whole answer."),
    ]


# A stop


def three_steps(request: ParsedRequest) -> Step:
    asked = (request.body.get("messages") or request.body["contents"])[-1]
    match len(request.results) if "Go on" not in str(asked) else 0:
        case 0:
            calls = (Call("read_file", {"path": "calc.py"}), Call("read_file", {"path": "no.txt"}))
            return Step(text="I look at both of them.", reasoning="Both at once.", calls=calls)
        case 2:
            return Step(text="Now run.", calls=(Call("run_command", {"command": "echo 1"}),))
        case _:
            return Step(text="All is done.")


@pytest.mark.parametrize(
    ("provider", "way"),
    [
        ("anthropic", "interrupt"),
        pytest.param("anthropic", "leave", marks=pytest.mark.soak),
        ("gemini", "cancel"),
        pytest.param("anthropic", "cancel", marks=pytest.mark.soak),
    ],
)
async def test_a_stop_at_any_event_ends_all_that_began(provider: str, way: str, tmp_path: Path, serve: Serve) -> None:
    serve(serving(provider, three_steps))

    async def stopped_at(session: Session, number: int) -> bool:
        """Stop at this event; whether the turn had that many."""
        told: list[events.AgentEvent] = []

        async def turn() -> None:
            async with aclosing(session.agent.run(f"Go on, {number}.")) as stream:
                async for event in stream:
                    told.append(event)
                    if len(told) == number and way == "interrupt":
                        session.agent.interrupt()
                    elif len(told) == number and way == "cancel":
                        running.cancel()
                    elif len(told) == number:
                        break

        running = asyncio.ensure_future(turn())
        await asyncio.wait([running])
        assert not session.agent.busy
        view = session.agent.engine.view
        assert (broken_rules(view.messages()), view.unanswered()) == ([], ())
        if way == "interrupt":
            assert_paired(told)
        return len(told) >= number

    async with talking(tmp_path, {"model.id": MODELS[provider]}) as session:
        number = 1
        while await stopped_at(session, number):
            number += 1
        assert number > 20
        assert failures(await say(session, "Once more.")) == []
        assert broken_rules(View(list(session.agent.engine.view.log)).messages()) == []


# The disk


@pytest.mark.parametrize("after", ["first result", "all started"])
async def test_a_result_that_cannot_be_saved_ends_the_turn_in_order(after: str, tmp_path: Path) -> None:
    async with talking(tmp_path) as session:
        told: list[events.AgentEvent] = []
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            async for event in session.agent.run("read calc.py, read test_calc.py, run echo hello"):
                told.append(event)
                started = sum(isinstance(each, events.ToolStarted) for each in told)
                if isinstance(event, events.ToolFinished) if after == "first result" else started == 3:
                    # From here on the disk is full: no file grows any more.
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert_paired(told)
        assert failures(told) == ["disk_full"]
        again = await say(session, "read calc.py")
        assert_paired(again)
        assert failures(again) == []
        assert broken_rules(session.agent.engine.view.messages()) == []
    assert broken_rules(View(await saved(tmp_path)).messages()) == []
