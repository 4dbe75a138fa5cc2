"""What a tool is, what it gets and what it gives back.

A tool has a definition (a name, a description, a JSON Schema of its arguments), an effect, and a `run`. Before a call
runs, `access` says what it would touch, and the permission gate (`gate/permissions.py`) decides.

`functions.tool` makes a tool from a plain function. A class of one's own, as below, is for more than that: it says
exactly which paths or addresses a call would touch, and what a person should see before they allow it::

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

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from tui_agent.conversation.blocks import Image, ToolDefinition, valid_text

Effect: TypeAlias = Literal["read", "write", "run", "network", "call", "none"]
"""The worst a call can do: read files, change files, run something, reach the network, call a tool of a server, which
may do anything, or touch nothing outside."""


class ToolFailure(Exception):
    """Raised by a tool: the call cannot be done, and the model should know why.

    `why` says what is in the way, in whole sentences that the user reads as well; `instead` says what the model may do
    about it, also in whole sentences. Both become the call's error result. It is meant for everything the model can
    mend or must accept: a file that is not there, an argument that does not fit, a server that refuses. A defect of
    the tool itself should be any other exception.
    """

    def __init__(self, why: str, instead: str = "") -> None:
        super().__init__(f"{why} {instead}".strip())
        self.why = why
        self.instead = instead


class Access(msgspec.Struct, frozen=True):
    """One thing that a call wants to touch.

    `target` is a path (resolved, with all links followed), a command line, a URL, or ``SERVER/TOOL``, as `effect` has
    it. For paths:
    `inside` the workspace, or not; `own`: one of the session's own artifacts, a skill or a memory note, which may
    always be read; `guarded`: a place whose change is always asked about (`gate/guarded.py`). For command lines:
    `outside`: it is to run, or may run, outside the sandbox.
    """

    effect: Effect
    target: str
    inside: bool = True
    own: bool = False
    guarded: bool = False
    outside: bool = False


class Preview(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person is shown before they allow a call: a title, and a command line, a unified diff or plain text."""

    title: str
    command: str = ""
    diff: str = ""
    text: str = ""


class ToolOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a call.

    `text` is what the model reads, whole: whoever runs the tool shortens and stores it where it is too long, and says
    that there was no output where it is empty. With `is_error` it is an error result, as from a `ToolFailure`: for
    calls that were done and went wrong, such as a command with an exit code.
    """

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    """Pictures the model is to look at, beside the text."""
    summary: str = ""
    """A few words for people, shown on the folded card: ``12 files``."""
    diff: str = ""
    """A unified diff of what the call changed, for people only."""
    stream: bool = False
    """`text` is what a command printed: it has a limit of its own (`output.stream_bytes`)."""
    tools: tuple[ToolDefinition, ...] = ()
    """Tools that the call has found: the model can call them from now on."""
    paged: bool = False
    """`text` is one page that the tool has cut itself, within `ToolContext.page_bytes`: it is never cut again."""


def bounded_error(output: ToolOutput, limit: int) -> ToolOutput:
    """An error with at most `limit` UTF-8 bytes of its text: both ends, and a line that says how much is missing.

    What a command printed stays as it is: it has a limit of its own.
    """
    data = valid_text(output.text).encode()
    if not output.is_error or output.stream or len(data) <= limit:
        return output
    first, last = data[: limit - limit // 2], data[len(data) - limit // 2 :]
    missing = f"[... {len(data) - len(first) - len(last):,} bytes of this error are left out ...]"
    text = "\n".join((first.decode(errors="ignore"), missing, last.decode(errors="ignore")))
    return msgspec.structs.replace(output, text=text)


class ToolContext(Protocol):
    """What a running call may use. One context belongs to one call."""

    @property
    def workspace(self) -> "WorkspaceView":
        """The folders this session works in."""
        ...

    @property
    def artifacts(self) -> Path:
        """The session's own folder: what a tool writes for itself goes below it. It need not exist yet."""
        ...

    @property
    def call_id(self) -> str:
        """The call's id, as the provider gave it. It may hold any characters."""
        ...

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What this call may touch: what `Tool.access` answered when the call was allowed.

        A path must be resolved again when it is used, and refused where it no longer leads to a target named here;
        `gate.workspace.granted_path` does both.
        """
        ...

    @property
    def page_bytes(self) -> int:
        """The most UTF-8 bytes one page of a result should have, so that it takes a fair part of the window at most."""
        ...

    async def ask(self, question: "PermissionQuestion") -> "PermissionAnswer":
        """Put a question to the user; see `Ask`. Raises `gate.permissions.NobodyToAsk`."""
        ...

    def progress(self, text: str, above: int = 0) -> None:
        """Show the user what can be seen of the call by now; `above`: lines that came before these.

        `text` takes the place of what was shown before: it is no addition to it. Keep it short (some 40 lines) and do
        not call this more often than about ten times a second. To be called on the event loop.
        """
        ...


class WorkspaceView(Protocol):
    """The folders a session works in, and how a path given by the model becomes a real one."""

    @property
    def root(self) -> Path:
        """The folder relative paths start from."""
        ...

    def resolve(self, path: str) -> Path:
        """The real path, with all links followed. Raises `ToolFailure` for text that cannot be a path."""
        ...

    def contains(self, path: Path) -> bool:
        """Whether a resolved path lies in one of the session's folders."""
        ...

    def owns(self, path: Path) -> bool:
        """Whether a resolved path may always be read: it lies among the session's artifacts or a skill's files."""
        ...

    @property
    def guarded(self) -> tuple[Path, ...]:
        """Folders in which a change is always asked about, wherever they lie: the program's own."""
        ...


@runtime_checkable
class Tool(Protocol):
    """A tool the model can call. The module's docstring shows a whole one.

    Everything a model writes reaches a tool as `arguments`: the text of a JSON object, which may hold anything.
    `schema.Signature` reads it by the type hints of a method, and refuses what does not fit with a `ToolFailure`.
    """

    @property
    def definition(self) -> ToolDefinition:
        """The name, description and JSON Schema that the model is told. It must not change during a session."""
        ...

    @property
    def effect(self) -> Effect:
        """The worst any call can do. Calls of tools with the effect ``read`` or ``none`` run in parallel."""
        ...

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        """What this call would touch. The gate decides by it, so it must name everything.

        Called in a thread, and once more after the user was asked. Raises `ToolFailure` for arguments that do not fit.
        """
        ...

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        """What a person sees before they allow the call. Called in a thread: it may read files.

        It must not fail for want of a file; what stands in the way of the call belongs into the preview.
        """
        ...

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        """Do the call. Raises `ToolFailure`; whatever else it raises also becomes an error result.

        Cancelling it must stop everything it started, and return only when that has ended.
        """
        ...


class PermissionQuestion(msgspec.Struct, frozen=True):
    """A call that needs a person's word. `rules` say in words what "always" would allow; nothing where no rule could
    let the call through. `outside`: the sandbox stopped the command, and this is about running it outside.

    `kind`: ``call`` is about whether it may run; ``question`` is one of the model's own, in `preview.text`, with the
    answers it offers as `choices`; ``plan`` asks for the approval of the plan in `preview.text`, with the modes in
    which it may be carried out as `choices`.
    """

    call_id: str
    tool: str
    arguments: str
    accesses: tuple[Access, ...]
    preview: Preview
    reason: str
    rules: tuple[str, ...] = ()
    outside: bool = False
    kind: Literal["call", "question", "plan"] = "call"
    choices: tuple[str, ...] = ()


class PermissionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the person said. `always` is remembered for this project; `feedback` is passed on to the model.

    `choice` is the choice they took, or their own words in place of one; `edited` the plan as they changed it.
    """

    allowed: bool
    always: bool = False
    feedback: str = ""
    choice: str = ""
    edited: str = ""


Ask: TypeAlias = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
"""How a front end puts a question to the user; one that cannot ask raises `gate.permissions.NobodyToAsk`."""
