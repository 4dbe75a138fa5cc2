"""An editor made of the official client library: it keeps what it is told and answers questions as a test wants."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.schema import (
    AcceptElicitationResponse,
    AgentMessageChunk,
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    PermissionOption,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

from tests.acp.protocol import Checked
from tests.e2e.program import Program
from tests.e2e.starter import STARTER, Forked

T = TypeVar("T")


@dataclass
class Editor:
    """`answers` are the options to choose, one a question; without one it never answers."""

    answers: list[str] = field(default_factory=list)
    told: list[tuple[str, Any]] = field(default_factory=list)
    asked: list[tuple[ToolCallUpdate, list[PermissionOption]]] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    buffers: dict[str, str] | None = None
    """Files that it has open, by path, which it reads and writes for the agent; None: it offers neither."""
    filled_in: list[dict[str, Any]] = field(default_factory=list)
    """What its user fills in, one a form; without one it shows no forms."""
    forms: list[tuple[str, Any]] = field(default_factory=list)
    terminals: list[asyncio.subprocess.Process] | None = None
    """What runs in its terminals, which have the numbers of this list; None: it offers none."""
    shown: list[str] = field(default_factory=list)
    """What each terminal has shown."""
    reading: list[asyncio.Future[int]] = field(default_factory=list)
    """What reads each terminal, to the exit code of its command."""

    def on_connect(self, conn: object) -> None:
        pass

    async def session_update(self, session_id: str, update: Any, **_: object) -> None:
        self.told.append((session_id, update))
        self.news.set()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        self.asked.append((tool_call, options))
        self.told.append((session_id, tool_call))
        self.news.set()
        if not self.answers:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answers.pop(0)))

    async def read_text_file(self, path: str, **_: object) -> ReadTextFileResponse:
        if path in (self.buffers or {}):
            return ReadTextFileResponse(content=(self.buffers or {})[path])
        raise RequestError.resource_not_found(path)

    async def write_text_file(self, content: str, path: str, **_: object) -> WriteTextFileResponse:
        if self.buffers is not None:
            self.buffers[path] = content
        await asyncio.to_thread(Path(path).write_text, content)
        return WriteTextFileResponse()

    async def create_elicitation(self, message: str, mode: Any, **_: object) -> AcceptElicitationResponse:
        self.forms.append((message, mode))
        return AcceptElicitationResponse(action="accept", content=self.filled_in.pop(0))

    async def create_terminal(self, command: str, args: list[str] | None = None, **_: object) -> CreateTerminalResponse:
        started = await asyncio.create_subprocess_exec(command, *(args or ()), stdout=asyncio.subprocess.PIPE)
        assert self.terminals is not None
        self.terminals.append(started)
        self.shown.append("")
        number = len(self.reading)
        self.reading.append(asyncio.ensure_future(self._read(number, started)))
        return CreateTerminalResponse(terminal_id=str(number))

    async def _read(self, number: int, started: asyncio.subprocess.Process) -> int:
        assert started.stdout is not None
        while piece := await started.stdout.read(1 << 16):
            self.shown[number] += piece.decode()
            self.news.set()
        return await started.wait()

    async def wait_for_terminal_exit(self, terminal_id: str, **_: object) -> WaitForTerminalExitResponse:
        return WaitForTerminalExitResponse(exit_code=await self.reading[int(terminal_id)])

    async def release_terminal(self, terminal_id: str, **_: object) -> ReleaseTerminalResponse:
        assert self.reading[int(terminal_id)].done()
        return ReleaseTerminalResponse()

    @property
    def capabilities(self) -> ClientCapabilities:
        shares = self.buffers is not None
        able = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=shares, write_text_file=shares))
        able.terminal = self.terminals is not None
        if self.filled_in:
            able.elicitation = ElicitationCapabilities(form=ElicitationFormCapabilities())
        return able

    def of(self, kind: type[T], session: str = "") -> list[T]:
        """What was told of one kind, by default in any session."""
        return [update for name, update in self.told if isinstance(update, kind) and session in ("", name)]

    def text(self, session: str = "") -> str:
        return "".join(each.content.text for each in self.of(AgentMessageChunk, session))

    async def until(self, kind: type[object], count: int = 1) -> None:
        """Wait until so much was told of one kind."""
        await self._until(lambda: len(self.of(kind)) >= count)

    async def until_shown(self, words: str) -> None:
        """Wait until a terminal shows these."""
        await self._until(lambda: any(words in shown for shown in self.shown))

    async def _until(self, true: Callable[[], bool]) -> None:
        while not true():
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)


class Process:
    """The command that was started: what a test needs of a process."""

    def __init__(self, forked: Forked, stdin: asyncio.StreamWriter) -> None:
        self.pid = forked.pid
        self.stdin = stdin
        self.send_signal = forked.send_signal
        self._forked = forked

    async def wait(self) -> int:
        return await asyncio.to_thread(self._forked.wait, 60)


@asynccontextmanager
async def editing(
    program: Program, editor: Editor, *arguments: str
) -> AsyncIterator[tuple[ClientSideConnection, Process]]:
    """The real command at the other end of the connection; it must end by itself once its input has ended."""
    forked, given, out = STARTER.converse(["acp", *arguments], folder=program.project, environ=program.environment)
    loop, checked = asyncio.get_running_loop(), Checked()
    reader = asyncio.StreamReader(limit=1 << 20)
    reading, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(out, "rb"))
    writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(given, "wb"))
    process = Process(forked, asyncio.StreamWriter(writing, flow, None, loop))
    connection = ClientSideConnection(
        editor,  # type: ignore[arg-type]
        process.stdin,
        reader,
        use_unstable_protocol=True,
        observers=[checked],
    )
    try:
        await connection.initialize(protocol_version=1, client_capabilities=editor.capabilities)
        yield connection, process
        process.stdin.close()
        await process.wait()
    finally:
        forked.kill()
        await connection.close()
        reading.close()
    assert checked.count > 1
    assert checked.violations == []
