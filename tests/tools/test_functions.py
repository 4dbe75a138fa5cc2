"""Plain functions as tools."""

import asyncio
import dataclasses
import functools
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextvars import ContextVar
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

import msgspec
import pytest
from typing_extensions import override

from tests.tools.support import Call, call
from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import Effect, PermissionAnswer, PermissionQuestion, ToolContext, ToolFailure, ToolOutput
from tui_agent.tools.files.reading import ReadFile
from tui_agent.tools.functions import FunctionTool, tool
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.registry import ToolRegistry


@dataclasses.dataclass
class Ticket:
    title: str
    due: date | None = None


@tool(effect="read")
def open_tickets(project: str, limit: Annotated[int, msgspec.Meta(ge=1)] = 20) -> list[Ticket]:
    """List the open tickets of a project,
    newest first.

    Args:
        project (str): The project's short name,
            in lower case.
        limit: The most to list.

    Returns:
        The tickets.
    """
    return [Ticket(f"{project} {number}", date(2024, 1, number)) for number in range(1, limit + 1)]


def test_a_decorated_function_is_described_by_its_types_and_docstring() -> None:
    definition = open_tickets.definition
    assert definition.name == "open_tickets"
    assert definition.description == "List the open tickets of a project, newest first.\n\nReturns: The tickets."
    assert json.loads(definition.schema) == {
        "type": "object",
        "properties": {
            "project": {"type": "string", "description": "The project's short name, in lower case."},
            "limit": {"type": "integer", "minimum": 1, "description": "The most to list.", "default": 20},
        },
        "required": ["project"],
    }


def test_parameters_need_no_description() -> None:
    @tool
    def rename(
        old: str, new: str, *, mode: Literal["fast", "safe"] = "safe", tickets: list[Ticket] | None = None
    ) -> None:
        """Rename a thing."""

    schema = json.loads(rename.definition.schema)
    assert schema["properties"]["old"] == {"type": "string"}
    assert schema["properties"]["mode"] == {"type": "string", "enum": ["fast", "safe"], "default": "safe"}
    assert schema["required"] == ["old", "new"]
    assert rename.effect == "run"
    assert rename.__doc__ == "Rename a thing."


async def test_what_it_returns_is_the_result(tmp_path: Path) -> None:
    output = ToolOutput("as it is", summary="short")
    cases: dict[str, tuple[object, ToolOutput]] = {
        "text": ("a\ud800b", ToolOutput("a\ufffdb")),
        "nothing": (None, ToolOutput("")),
        "output": (output, output),
        "number": (1.5, ToolOutput("1.5")),
        "ticket": (Ticket("x", date(2024, 2, 1)), ToolOutput('{"title":"x","due":"2024-02-01"}')),
        "set": ({1}, ToolOutput("[1]")),
    }

    @tool
    def give(case: str) -> object:
        """Give a case."""
        return cases[case][0]

    for case, (_, expected) in cases.items():
        assert await call(give, tmp_path, case=case) == expected
    assert (await call(open_tickets, tmp_path, project="a", limit="1")).text == '[{"title":"a 1","due":"2024-01-01"}]'


VARIABLE: ContextVar[str] = ContextVar("VARIABLE")


async def test_a_plain_function_runs_in_a_thread_and_an_async_one_on_the_loop(tmp_path: Path) -> None:
    @tool
    def here() -> list[object]:
        """Say where it runs."""
        return [threading.current_thread() is threading.main_thread(), VARIABLE.get()]

    @tool
    async def there() -> bool:
        """Say where it runs."""
        await asyncio.sleep(0)
        return asyncio.get_running_loop().is_running()

    def wrapped() -> object:
        """A function that only gives a coroutine."""
        return asyncio.sleep(0, "slept")

    VARIABLE.set("carried")
    assert (await call(here, tmp_path)).text == '[false,"carried"]'
    assert (await call(there, tmp_path)).text == "true"
    assert (await call(tool(wrapped), tmp_path)).text == "slept"


async def test_the_first_parameter_may_be_the_context(tmp_path: Path) -> None:
    @tool
    async def look(context: ToolContext, /, name: str) -> str:
        """Look."""
        context.progress(f"looking for {name}")
        return context.call_id

    @tool
    def also(where: "ToolContext") -> str:
        """Look."""
        return str(where.workspace.root)

    assert json.loads(look.definition.schema)["required"] == ["name"]
    assert json.loads(also.definition.schema)["properties"] == {}
    context = Call(Workspace(tmp_path), (), tmp_path)
    assert (await look.run('{"name":"x"}', context)).text == "call-1"
    assert context.seen == ["looking for x"]
    assert (await also.run("{}", context)).text == str(Workspace(tmp_path).root)


class Unspeakable(Exception):
    @override
    def __str__(self) -> str:
        raise ValueError


FAILURES: list[tuple[BaseException, str]] = [
    (ValueError("no such project: x."), "fail failed: ValueError: no such project: x. Call it"),
    (KeyError("x"), "fail failed: KeyError: 'x'. Call it"),
    (RuntimeError(), "fail failed: RuntimeError. Call it"),
    (FileNotFoundError(2, "No such file", "a"), "fail failed: FileNotFoundError: [Errno 2] No such file: 'a'. Call it"),
    (StopIteration("x"), "fail"),
    (StopAsyncIteration("x"), "fail failed: "),
    (SystemExit(3), "fail failed: SystemExit: 3. Call it"),
    (
        ExceptionGroup("two", [ValueError("a"), ValueError("b")]),
        "fail failed: ExceptionGroup: two (2 sub-exceptions). Call",
    ),
    (Unspeakable(), "fail failed: Unspeakable. Call it"),
    (asyncio.CancelledError(), "fail was cancelled from within. Call it"),
    (TimeoutError(), "fail failed: TimeoutError. Call it"),
    (ValueError("half a pair \ud800"), "fail failed: ValueError: half a pair \ufffd. Call it"),
    (ToolFailure("The door is closed.", "Open it."), "The door is closed. Open it."),
]


@pytest.mark.parametrize(("error", "told"), FAILURES, ids=[type(error).__name__ for error, _ in FAILURES])
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_it_raises_is_told_without_a_traceback(
    tmp_path: Path, error: BaseException, told: str, is_async: bool
) -> None:
    def fail() -> None:
        """Fail."""
        raise error

    async def fail_later() -> None:
        """Fail."""
        await asyncio.sleep(0)
        raise error

    made = tool(fail_later, name="fail") if is_async else tool(fail)
    async with asyncio.timeout(60):
        with pytest.raises(ToolFailure) as failure:
            await call(made, tmp_path)
    assert str(failure.value).startswith(told)
    assert "Traceback" not in str(failure.value)


async def test_what_cannot_be_written_as_json_is_a_failure(tmp_path: Path) -> None:
    @tool
    def odd() -> object:
        """Give something odd."""
        return object()

    with pytest.raises(ToolFailure, match="odd returned a object that cannot be written as JSON"):
        await call(odd, tmp_path)


async def test_cancelling_a_call_cancels_an_async_function(tmp_path: Path) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> None:
        """Wait."""
        try:
            started.set()
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(call(wait, tmp_path))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


UNFIT = {
    "x, y: int": "made cannot be a tool: the parameter `x` needs a type",
    "*names: str, **more: int": r"made cannot be a tool: \*names: str stands for any number of arguments.*; \*\*more",
    "x: int, /": "the parameter `x` is positional-only",
    "x: threading.Lock": "the parameter `x` cannot be described as JSON",
    "x: int, context: ToolContext": "only its first parameter can be the ToolContext",
    "x: 'Decimal'": "its type hints cannot be resolved .*Decimal",
    "x: int = object()": "the parameter `x` cannot be described as JSON",
    "y: int": "the docstring describes what is no parameter: x",
}
"""The parameters of a function as somebody may write it who has no type checker, and why it is no tool."""


@pytest.mark.parametrize("parameters", UNFIT)
def test_a_function_that_cannot_be_described_says_what_is_missing(parameters: str) -> None:
    described = "Do it." + "\n\n    Args:\n        x: One.\n" * (parameters == "y: int")
    names = {"threading": threading, "ToolContext": ToolContext}
    exec(f"def made({parameters}):\n    {described!r}", names)  # noqa: S102
    with pytest.raises(TypeError, match=UNFIT[parameters]):
        ToolRegistry([cast("Callable[..., object]", names["made"])])


def yields() -> Iterator[int]:
    """A docstring."""
    yield 1


async def yields_later() -> AsyncIterator[int]:
    """A docstring."""
    yield 1


class Service:
    def method(self, x: int) -> str:
        """A method."""
        return f"{x}"


INDESCRIBABLE: list[tuple[object, str]] = [
    (yields, "it yields"),
    (yields_later, "it yields"),
    (Service.method, "it is a method; make one of the bound method"),
    (Service, "neither a tool nor a function"),
    (5, "5 is neither a tool nor a function"),
    (lambda x: x, "'<lambda>' is no name for a tool"),
    (functools.partial(yields), "neither a tool nor a function"),
    (len, "positional-only"),
    (max, "has no signature to read"),
]


@pytest.mark.parametrize(("function", "missing"), INDESCRIBABLE)
def test_what_is_no_function_is_refused(function: Callable[..., object], missing: str) -> None:
    with pytest.raises(TypeError, match=missing):
        ToolRegistry([function])


def test_a_registry_takes_functions_and_tools() -> None:
    def word_count(text: str) -> int:
        """Count words."""
        return len(text.split())

    registry = ToolRegistry(
        [word_count, ReadFile(), open_tickets, tool(Service().method, name="call-it", effect="none")]
    )
    assert [one.definition.name for one in registry] == ["call-it", "open_tickets", "read_file", "word_count"]
    assert [one.effect for one in registry] == ["none", "read", "read", "run"]
    assert isinstance(registry.get("word_count"), FunctionTool)


async def asked_about(
    effect: Effect, mode: Mode, allow: Sequence[str] = (), ask: Sequence[str] = (), deny: Sequence[str] = ()
) -> tuple[bool, list[PermissionQuestion]]:
    @tool(effect=effect)
    def deploy(place: str) -> None:
        """Deploy."""

    questions: list[PermissionQuestion] = []

    async def say_no(question: PermissionQuestion) -> PermissionAnswer:
        questions.append(question)
        return PermissionAnswer(allowed=False)

    gate = PermissionGate(mode, Workspace(Path("/")), allow=allow, ask=ask, deny=deny)
    verdict = await gate.check(deploy, ToolCall("c", "deploy", '{"place":"the moon"}'), say_no)
    return verdict.allowed, questions


@pytest.mark.parametrize(
    ("effect", "modes"),
    [
        ("none", ("plan", "ask", "auto", "allow")),
        ("read", ("plan", "ask", "auto", "allow")),
        ("write", ("auto", "allow")),
        ("run", ("allow",)),
        ("network", ("allow",)),
    ],
)
async def test_the_effect_says_when_a_person_is_asked_and_rules_hold(effect: Effect, modes: tuple[Mode, ...]) -> None:
    for mode in get_args(Mode):
        assert (await asked_about(effect, mode))[0] is (mode in modes)
    assert not (await asked_about(effect, "allow", deny=["deploy"]))[0]
    assert (await asked_about(effect, "ask", allow=["deploy"]))[0]
    _, (question,) = await asked_about(effect, "auto", ask=["dep*"])
    assert (question.preview.title, question.preview.text) == ("Call deploy", 'place: "the moon"')
    # A rule may name the arguments.
    assert (await asked_about("run", "ask", allow=["deploy(deploy 'place=the moon')"]))[0]
    assert not (await asked_about("run", "ask", allow=["deploy(deploy place=mars)"]))[0]
    assert not (await asked_about("run", "allow", deny=["deploy(*moon*)"]))[0]
