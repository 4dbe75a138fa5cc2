"""What a tool is: a name, a description, a schema made from its signature, what it may affect, and a run.

A tool gets its arguments checked against its signature and answers with a `ToolOutput`; it raises `ToolFailure` for
anything the model can mend. What it may touch is decided before it runs, by `tools/permissions.py`.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Image, ToolDefinition, valid_text

Effect: TypeAlias = Literal["read", "write", "run", "network", "none"]
"""The worst a call can do: read files, change files, run a command, reach the network, or touch nothing outside."""


class ToolFailure(Exception):
    """The call cannot be done: `why`, which the user sees as well, and what the model may do `instead`."""

    def __init__(self, why: str, instead: str = "") -> None:
        super().__init__(f"{why} {instead}".strip())
        self.why = why
        self.instead = instead


class Access(msgspec.Struct, frozen=True):
    """One thing a call wants to touch: a path (resolved, links followed), a command, or a URL.

    `inside`: within the workspace; `own`: the session's own artifacts, a skill or a memory note; `guarded`: a place
    whose edit always asks (``.git/``, ``.agents/``, instruction files).
    """

    effect: Effect
    target: str
    inside: bool = True
    own: bool = False
    guarded: bool = False


class Preview(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person is shown before they decide: a command line, or a unified diff, or plain text."""

    title: str
    command: str = ""
    diff: str = ""
    text: str = ""


class ToolOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call's answer. `text` is the raw result, not yet cut to any limit; `raw_path` names a file that already holds
    more of it (a command's raw stream); `diff` and `summary` are for people only.
    """

    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    summary: str = ""
    diff: str = ""
    raw_path: str = ""
    paged: bool = False
    """`text` is one page within the output limits: it is never cut or evicted again."""


def bounded_error(output: ToolOutput, limit: int) -> ToolOutput:
    """An error with at most `limit` UTF-8 bytes of its text: both ends, and a line that says how much is missing.

    What a command printed stays as it is: it has a limit of its own, and its raw stream lies in a file.
    """
    data = valid_text(output.text).encode()
    if not output.is_error or output.raw_path or len(data) <= limit:
        return output
    first, last = data[: limit - limit // 2], data[len(data) - limit // 2 :]
    missing = f"[... {len(data) - len(first) - len(last):,} bytes of this error are left out ...]"
    text = "\n".join((first.decode(errors="ignore"), missing, last.decode(errors="ignore")))
    return msgspec.structs.replace(output, text=text)


class ToolContext(Protocol):
    """What a running call may use."""

    @property
    def workspace(self) -> "WorkspaceView":
        """The folders this session works in."""
        ...

    @property
    def artifacts(self) -> Path:
        """The session's own folder: what a tool writes for itself goes below it."""
        ...

    @property
    def call_id(self) -> str: ...

    @property
    def accesses(self) -> tuple[Access, ...]:
        """What this call may touch: what `access()` answered when the call was let through.

        A path is resolved again when it is used; one that no longer leads to a target named here is refused.
        """
        ...

    @property
    def page_bytes(self) -> int:
        """The most UTF-8 bytes one page of a result should have, so that it takes a fair part of the window at most."""
        ...

    def progress(self, text: str) -> None:
        """Show live output to the user: the whole of what should be seen now (bounded by the caller), not a delta."""
        ...


class WorkspaceView(Protocol):
    """The folders a session works in, and how a path given by the model becomes a real one."""

    @property
    def root(self) -> Path:
        """The folder relative paths start from."""
        ...

    def resolve(self, path: str) -> Path:
        """The real path, links followed. Raises `ToolFailure` for text that cannot be a path."""
        ...

    def contains(self, path: Path) -> bool:
        """Whether a resolved path lies in one of the session's folders."""
        ...

    def owns(self, path: Path) -> bool:
        """Whether a resolved path may always be read: it lies among the session's artifacts or a skill's files."""
        ...


class Tool(Protocol):
    """A tool the model can call."""

    @property
    def definition(self) -> ToolDefinition: ...

    @property
    def effect(self) -> Effect:
        """The worst any call can do. Calls with effect ``read`` or ``none`` run in parallel."""
        ...

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        """What this call would touch. Raises `ToolFailure` for arguments that do not fit."""
        ...

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        """What a person sees before they allow it. Slow (reads files): call it off the event loop."""
        ...

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        """Do it. `arguments` is JSON text. Raises `ToolFailure`. Cancelling it stops everything it started."""
        ...


class PermissionQuestion(msgspec.Struct, frozen=True):
    """A call that needs a person's word. `pattern` is what "always" would allow, e.g. ``run_command(git status*)``."""

    call_id: str
    tool: str
    arguments: str
    accesses: tuple[Access, ...]
    preview: Preview
    reason: str
    pattern: str


class PermissionAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the person said. `always` is remembered for this project; `feedback` is passed on to the model."""

    allowed: bool
    always: bool = False
    feedback: str = ""


Ask: TypeAlias = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
"""How a front end puts a question to the user; one that cannot ask raises `tools.permissions.NobodyToAsk`."""
