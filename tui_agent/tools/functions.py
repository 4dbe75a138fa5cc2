"""Plain functions as tools: `tool`."""

import asyncio
import inspect
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar, get_args, get_origin, get_type_hints, overload

import msgspec

from tui_agent.conversation.blocks import valid_text
from tui_agent.regex import regex
from tui_agent.system.durable import being_cancelled
from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView, as_text
from tui_agent.tools.schema import Signature
from tui_agent.tools.threads import in_thread

P = ParamSpec("P")
R = TypeVar("R")

_NAME = regex(r"[a-zA-Z0-9_-]{1,64}")
_LONGEST_MESSAGE = 4_000


@overload
def tool(function: Callable[P, R], /, *, name: str = "", effect: Effect = "run") -> "FunctionTool[P, R]": ...


@overload
def tool(*, name: str = "", effect: Effect = "run") -> Callable[[Callable[P, R]], "FunctionTool[P, R]"]: ...


def tool(
    function: Callable[P, R] | None = None, /, *, name: str = "", effect: Effect = "run"
) -> "FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]":
    """Make a tool of a plain function, as a decorator or by a call::

        @tool(effect="read")
        def open_tickets(project: str, limit: int = 20) -> list[dict[str, str]]:
            \"""List the open tickets of a project, newest first.

            Args:
                project: The project's short name.
                limit: The most tickets to list.
            \"""

        tools = [open_tickets, tool(library.search, effect="network", name="search_library")]

    Decorate a function of your own, which can still be called as before; wrap somebody else's where you list the
    tools. A bare function in a list of tools is taken as ``tool(function)``.

    The function needs type hints that JSON can express (numbers, strings, lists, dicts, literals, dataclasses …) and a
    docstring, which the model sees as the description. ``Args:`` may describe parameters. A first parameter of type
    `ToolContext` receives the call's context and is not shown to the model.

    It may be ``async``; otherwise it runs in a thread, which cancelling the call cannot stop. It returns a string,
    None, a `ToolOutput`, or anything msgspec can encode as JSON. An exception becomes the error result: its message,
    without a traceback; a `ToolFailure` as it is.

    `effect` is the worst the function can do, which decides when the user is asked: by default ("run"), before every
    call. "read" and "write" refer to files of the workspace. Calls with "read" and "none" run without asking, and in
    parallel. `name` is the tool's name, by default the function's.

    Raises TypeError that says what is missing, for a function that cannot be described.
    """
    if function is None:
        return lambda decorated: FunctionTool(decorated, name=name, effect=effect)
    return FunctionTool(function, name=name, effect=effect)


class FunctionTool(Generic[P, R]):
    """A function as a `Tool`, made by `tool`. Calling it calls the function."""

    def __init__(self, function: Callable[P, R], *, name: str = "", effect: Effect = "run") -> None:
        """Raises TypeError for what cannot be a tool."""
        name = name or getattr(function, "__name__", "")
        self._context = _context_parameter(function)
        hints = get_type_hints(function) if self._context else {}
        wanted = [each for name in self._context for each in get_args(hints[name])]
        self.needs = wanted[0] if wanted and isinstance(wanted[0], type) and wanted[0] is not object else None
        """The type of the dependencies that the function asks for; None: any."""
        _check(function, name, self._context)
        self._signature = Signature.of(function, name, ours=self._context, described=False)
        self._function = function
        self._call: Callable[..., object] = function
        self.effect: Effect = effect
        self.definition = self._signature.definition
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        """One access for every call, so that rules about the tool apply: to the workspace for ``read`` and ``write``,
        otherwise to the call written as a command, such as ``deploy place=staging``.
        """
        given = self._signature.parse(arguments)
        if self.effect in {"read", "write"}:
            return (Access(self.effect, str(workspace.root)),)
        words = [f"{name}={shlex.quote(_as_text(value))}" for name, value in given.items()]
        return (Access(self.effect, " ".join([self.definition.name, *words])),)

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        return Preview(f"Call {self.definition.name}", text=as_text(self._signature.parse(arguments)))

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        ours = (context,) if self._context else ()
        given = self._signature.parse(arguments)
        with self._explained():
            if inspect.iscoroutinefunction(self._call):
                result: object = self._call(*ours, **given)
            else:
                result = await in_thread(lambda _: self._called(ours, given))
            if inspect.isawaitable(result):
                result = await result
        return self._output(result)

    def _called(self, ours: tuple[ToolContext, ...], given: dict[str, object]) -> object:
        with self._explained():  # in the thread already: a StopIteration cannot be set on a future
            return self._call(*ours, **given)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn whatever the function raises into a ToolFailure."""
        try:
            yield
        except ToolFailure:
            raise
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            # Something that the function awaited was cancelled, not this call.
            raise self._failure("was cancelled from within") from error
        except (Exception, SystemExit) as error:
            raise self._failure(f"failed: {_message(error)}") from error

    def _output(self, result: object) -> ToolOutput:
        if isinstance(result, ToolOutput):
            return result
        if result is None or isinstance(result, str):
            return ToolOutput(valid_text(result or ""))
        try:
            return ToolOutput(msgspec.json.encode(result).decode())
        except Exception as error:
            what = f"returned a {type(result).__name__} that cannot be written as JSON: {_message(error)}"
            raise self._failure(what) from error

    def _failure(self, what: str) -> ToolFailure:
        return ToolFailure(f"{self.definition.name} {what}.", "Call it otherwise, or go on without it.")


def _check(function: Callable[..., object], name: str, context: tuple[str, ...]) -> None:
    """Raises TypeError for a function that a model could not call."""
    if not _NAME.fullmatch(name):
        raise TypeError(
            f"{name!r} is no name for a tool: give one of letters, digits, _ and - (at most 64), as in tool(name=...)"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{name} cannot be a tool: it yields, and a tool returns one value")
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in {"self", "cls"} and parameter.annotation is parameter.empty:
            raise TypeError(
                f"{name} cannot be a tool: it is a method; make one of the bound method, tool(object.{name})"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name not in context:
            raise TypeError(f"{name} cannot be a tool: the parameter `{parameter.name}` is positional-only")


def _context_parameter(function: Callable[..., object]) -> tuple[str, ...]:
    """The name of the first parameter if it is a `ToolContext`. Raises TypeError if this is not a function."""
    if not inspect.isroutine(function):
        raise TypeError(f"{function!r} is neither a tool nor a function")
    try:
        names = tuple(inspect.signature(function).parameters)
        hints = get_type_hints(function)
    except NameError:
        return ()  # `Signature.of` reports it
    except (TypeError, ValueError) as error:
        raise TypeError(f"{function!r} cannot be a tool: it has no signature to read") from error
    contexts = tuple(name for name in names if ToolContext in {hints.get(name), get_origin(hints.get(name))})
    if contexts not in {(), names[:1]}:
        raise TypeError(f"{function.__name__} cannot be a tool: only its first parameter can be the ToolContext")
    return contexts


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()


def _message(error: BaseException) -> str:
    """The exception's name and message; the name alone if there is no message."""
    try:
        said = valid_text(str(error)).strip().rstrip(".")
    except Exception:  # str() itself failed
        said = ""
    name = type(error).__name__
    return f"{name}: {said[:_LONGEST_MESSAGE]}" if said else name
