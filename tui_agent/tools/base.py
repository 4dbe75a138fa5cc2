"""The interface of tools: `Tool`, what a running call may use (`ToolContext`), and its result (`ToolOutput`).

A tool has a definition (a name, a description, a JSON Schema of its arguments), an effect, and a `run`. Before a call
runs, `access` says what it would touch, and the permission gate (`gate/permissions.py`) decides.

`functions.tool` makes a tool from a plain function. Write a class, as below, to say exactly which paths or addresses a
call would touch, and what a person should see before they allow it::

    class CountLines:
        effect: Effect = "read"

        def __init__(self) -> None:
            self._signature = Signature.of(self._count, "count_lines")
            self.definition = self._signature.definition

        def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
            return (access_to(workspace, str(self._signature.parse(arguments)["path"]), "read"),)

        def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
            return Preview("Count lines", text=arguments)

        async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
            return self._signature.call(self._count, arguments, context)

        def _count(self, context: ToolContext, /, path: str) -> ToolOutput:
            \"""Count the lines of a file.

            Args:
                path: The file.
            \"""
            with open_file(granted_path(context, path)) as stream:
                return ToolOutput(f"{sum(1 for _ in stream)} lines")
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
from typing_extensions import TypeVar

from tui_agent.conversation.blocks import Image, ToolDefinition, valid_text
from tui_agent.conversation.entries import NO_OUTCOME, Outcome
from tui_agent.text import counted, money_text
from tui_agent.visible import visible_line

Effect: TypeAlias = Literal["read", "write", "run", "network", "call", "none"]
"""The worst a call can do: read files, change files, run a command, use the network, call a tool of a server (which
may do anything), or none of these."""


class ToolFailure(Exception):
    """Raised by a tool if a call cannot be done, to tell the model why.

    `why` says what is wrong, in full sentences that the user reads as well; `instead` says what the model may do about
    it, also in full sentences. Both become the call's error result. Raise it for everything the model can correct or
    must accept: a missing file, an argument that does not fit, a server that refuses. For a defect of the tool itself,
    raise any other exception.
    """

    def __init__(self, why: str, instead: str = "") -> None:
        super().__init__(f"{why} {instead}".strip())
        self.why = why
        self.instead = instead


class Access(msgspec.Struct, frozen=True):
    """One thing that a call wants to touch: a path, a command line, a URL or a tool of a server.

    `target`, depending on `effect`: a path (resolved, with all links followed), a command line, a URL, or
    ``SERVER/TOOL``. For paths: `inside` means in the workspace; `own`, one of the session's own artifacts, a skill or a
    memory note, which may always be read; `guarded`, a path that the user is always asked about before it is changed
    (`gate/guarded.py`). For command lines: `outside` means that it asks, or is allowed, to run outside the sandbox.
    """

    effect: Effect
    target: str
    inside: bool = True
    own: bool = False
    guarded: bool = False
    outside: bool = False


class Change(msgspec.Struct, frozen=True):
    """A file that has changed since the user last allowed what runs it: a sentence, and a unified diff."""

    title: str
    diff: str


class Preview(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user sees before they allow a call: a title, and a command line, a unified diff or plain text.

    All of it is untrusted and complete; front ends show all of its visible form (`tui_agent.visible`). `changes`: files
    that the call would run or read first. `failure`: `why` and `instead` of the `ToolFailure` that the call would raise
    as things are.
    """

    title: str
    command: str = ""
    diff: str = ""
    text: str = ""
    changes: tuple[Change, ...] = ()
    failure: tuple[str, ...] = ()


class ToolOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call.

    `text` is the full text for the model: the agent stores and shortens it if it is too long, and notes that there was
    no output if it is empty. `is_error` marks an error result, as from a `ToolFailure`: for calls that ran and failed,
    such as a command with a non-zero exit code.
    """

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    """Pictures for the model, in addition to the text."""
    outcome: Outcome = NO_OUTCOME
    """Facts about the result for the program, such as a command's exit code."""
    cost_usd: float = 0.0
    """What a service was paid for it, in USD."""
    summary: str = ""
    """A few words for the user, shown on the folded card: ``12 files``."""
    diff: str = ""
    """A unified diff of what the call changed, for the user only."""
    stream: bool = False
    """`text` is what a command printed, which has its own limit (`output.stream_bytes`)."""
    tools: tuple[ToolDefinition, ...] = ()
    """Tools that the call found; the model can call them from now on."""
    paged: bool = False
    """`text` is one page, cut by the tool to fit `ToolContext.page_bytes`; it is not cut again."""


class CallStopped(asyncio.CancelledError):
    """Raised by a tool in place of `CancelledError`: the call was stopped, and `output` is what it had given."""

    def __init__(self, output: ToolOutput) -> None:
        super().__init__()
        self.output = output


def as_text(given: Mapping[str, object]) -> str:
    """The arguments of a call for a preview: each on a line, its name and its value as JSON, so that none can look like
    another.
    """
    lines = (f"{visible_line(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
    # Half a surrogate pair is no valid text, but has a form in JSON.
    return re.sub(r"[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", "\n".join(lines))


def bounded_error(output: ToolOutput, limit: int) -> ToolOutput:
    """Shorten an error to about `limit` UTF-8 bytes of text: its two ends, and a line that says how much is missing.

    Other results, and what a command printed, are returned unchanged: they have their own limits.
    """
    data = valid_text(output.text).encode()
    if not output.is_error or output.stream or len(data) <= limit:
        return output
    first, last = data[: limit - limit // 2], data[len(data) - limit // 2 :]
    missing = f"[... {len(data) - len(first) - len(last):,} bytes of this error are left out ...]"
    text = "\n".join((first.decode(errors="ignore"), missing, last.decode(errors="ignore")))
    return msgspec.structs.replace(output, text=text)


Deps_co = TypeVar("Deps_co", covariant=True, default=object)


class SubtaskProgress(msgspec.Struct, frozen=True):
    """How a subtask stands.

    `model` and `doing` (what it does now) are for people; `cost_usd`: None if prices are unknown. `calls` are the names
    and arguments of its newest tool calls, after `earlier` others. `log`: the id of its record, once it has ended.
    """

    model: str
    doing: str
    tokens: int = 0
    cost_usd: float | None = None
    calls: tuple[tuple[str, str], ...] = ()
    earlier: int = 0
    log: str = ""

    @property
    def figures(self) -> tuple[str, ...]:
        """Its model, what it does, its tokens and its cost."""
        if not self.model:
            return (self.doing,)
        cost = () if self.cost_usd is None else (money_text(self.cost_usd),)
        return (self.model, self.doing, f"{self.tokens:,} tokens", *cost)

    @property
    def text(self) -> str:
        """All of it, for where there are only words."""
        earlier = [f"… {counted(self.earlier, 'call')} before"] if self.earlier else []
        calls = (f"{name} {arguments}" for name, arguments in self.calls)
        return "\n".join([" · ".join(self.figures), *earlier, *calls, *([f"log {self.log}"] if self.log else [])])


class ToolContext(Protocol[Deps_co]):
    """What a running call may use. One context belongs to one call.

    ``ToolContext[Database]`` as the type of a tool's first parameter says that the tool needs a ``Database``, which
    `Agent(deps=…)` provides.
    """

    @property
    def deps(self) -> Deps_co:
        """What the program gave its agent for its tools: a connection, a client, the current user."""
        ...

    @property
    def workspace(self) -> "WorkspaceView":
        """The folders this session works in."""
        ...

    @property
    def artifacts(self) -> Path:
        """The session's own folder, for files that a tool writes for itself. It may not exist yet."""
        ...

    @property
    def call_id(self) -> str:
        """The call's id, as the provider gave it. It may contain any characters."""
        ...

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What this call may touch: what `Tool.access` returned when the call was allowed.

        Resolve a path again when you use it, and refuse it if it no longer leads to one of these targets;
        `gate.workspace.granted_path` does both.
        """
        ...

    @property
    def page_bytes(self) -> int:
        """The most UTF-8 bytes that one page of a result should have, so that it does not crowd the context window."""
        ...

    async def ask(self, question: "PermissionQuestion") -> "PermissionAnswer":
        """Put a question to the user; see `Ask`. Raises `gate.permissions.NobodyToAsk`."""
        ...

    def progress(self, text: str, above: int = 0, subtask: SubtaskProgress | None = None) -> None:
        """Show the user the call's output so far; `above` is the number of earlier lines that `text` leaves out.

        `text` replaces what was shown before; `subtask` is the same as data, for a call that runs a subtask. Keep it
        short (about 40 lines), and call this at most about ten times a second, on the event loop.
        """
        ...


class WorkspaceView(Protocol):
    """The folders a session works in, and how a path from the model is resolved."""

    @property
    def root(self) -> Path:
        """The folder that relative paths start from."""
        ...

    def resolve(self, path: str) -> Path:
        """The real path, with all links followed. Raises `ToolFailure` for text that cannot be a path."""
        ...

    def contains(self, path: Path) -> bool:
        """Whether a resolved path lies in one of the session's folders."""
        ...

    def owns(self, path: Path) -> bool:
        """Whether a resolved path may always be read: it is one of the session's artifacts or of a skill's files."""
        ...

    @property
    def guarded(self) -> tuple[Path, ...]:
        """The program's own folders: the user is always asked before anything in them is changed."""
        ...


@runtime_checkable
class Tool(Protocol):
    """A tool the model can call. The module's docstring has a complete example.

    A tool gets what the model wrote as `arguments`: the text of a JSON object, with any content.
    `schema.Signature` parses it by the type hints of a method, and raises a `ToolFailure` for what does not fit.
    """

    @property
    def definition(self) -> ToolDefinition:
        """The name, description and JSON Schema that the model sees. It must not change during a session."""
        ...

    @property
    def effect(self) -> Effect:
        """The worst any call can do. Calls of tools with the effect ``read`` or ``none`` run in parallel."""
        ...

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        """Everything that this call would touch; the gate decides by it.

        Called in a thread, and again after the user was asked. Raises `ToolFailure` for arguments that do not fit.
        """
        ...

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        """What the user sees before they allow the call. Called in a thread: it may read files.

        A missing file must not make it fail: the preview says why the call would fail.
        """
        ...

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        """Do the call. Raises `ToolFailure`; whatever else it raises also becomes an error result.

        If it is cancelled, it must stop everything it started, and return only once that has ended.
        """
        ...


class PermissionQuestion(msgspec.Struct, frozen=True):
    """A question to the user, most often whether a call may run.

    `rules` are the rules that "always" and "for this session" would add; empty if no rule could allow the call.
    `outside`: the sandbox stopped the command, and the question is whether to run it outside.
    `lasts`: a yes counts until the session is closed, and there is no other.

    `kind`: ``call`` asks whether the call may run; ``question`` is the model's own question, in `preview.text`, with
    the answers it offers as `choices`; ``plan`` asks to approve the plan in `preview.text`, with the permission modes
    in which it may be carried out as `choices`.
    """

    call_id: str
    tool: str
    arguments: str
    accesses: tuple[Access, ...]
    preview: Preview
    reason: str
    rules: tuple[str, ...] = ()
    outside: bool = False
    lasts: bool = False
    kind: Literal["call", "question", "plan"] = "call"
    choices: tuple[str, ...] = ()

    @property
    def asked(self) -> str:
        """What is asked, in a few words; untrusted text."""
        return self.preview.text if self.kind == "question" else self.preview.title


class PermissionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The user's answer. `always` is remembered for this project, `for_session` until the session is closed; `feedback`
    is passed on to the model.

    `choice` is the choice they took, or their own words instead; `edited` is the plan as they changed it.
    """

    allowed: bool
    always: bool = False
    feedback: str = ""
    choice: str = ""
    edited: str = ""
    for_session: bool = False


Ask: TypeAlias = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
"""Asks the user; a front end that cannot ask raises `gate.permissions.NobodyToAsk`."""
