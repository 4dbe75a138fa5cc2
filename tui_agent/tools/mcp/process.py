"""A server as a process: its messages over standard input and output, its errors in a file, and an end of all of it.

It is started as commands are (`tools/shell/processes.py`), so that nothing of it outlives this program, however that
ends. What floods is ended; what is no message goes into the file with the errors.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.durable import PRIVATE_FILE, make_private_folder
from tui_agent.settings import ToolServer
from tui_agent.text import one_line
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.sandbox import ready
from tui_agent.tools.shell.processes import Child, start_child

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

    Reads = MemoryObjectReceiveStream[SessionMessage | Exception]
    Writes = MemoryObjectSendStream[SessionMessage]

MOST_MESSAGE: Final = 32 * 1024 * 1024
"""Bytes of one message."""
MOST_UNASKED: Final = 2_000
"""Messages that answer nothing, and lines that are none, which a server may send in `PERIOD_S`."""
PERIOD_S: Final = 10.0
MOST_LOG: Final = 5_000_000
"""Bytes of what a server writes to its standard error that are kept."""
CLOSING_S: Final = 1.0
"""Seconds a server has to end once its input is closed, and again once it is asked to end."""
LAST_LINES: Final = 5

_PIECE: Final = 65_536
_LARGE: Final = 262_144
_PAUSE_S: Final = 0.01
_DRAIN_S: Final = 0.25


TOO_MANY: Final = f"it sent more than {MOST_UNASKED:,} messages in {PERIOD_S:g} s that nobody asked for"


class Unasked:
    """Counts what a server sends that nobody asked for."""

    def __init__(self) -> None:
        self._count = 0
        self._since = time.monotonic()

    def add(self) -> None:
        """One more."""
        now = time.monotonic()
        if now - self._since > PERIOD_S:
            self._count, self._since = 0, now
        self._count += 1

    @property
    def too_many(self) -> bool:
        """Whether the server floods."""
        return self._count > MOST_UNASKED


class ErrorLog:
    """The file that takes what a server writes to its standard error, up to `MOST_LOG` bytes of it. Thread-safe.

    What comes beyond that is read slowly and dropped, so that the server neither fails nor keeps a core busy.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        """The newest lines, made safe."""
        self.settled = threading.Event()
        """All that was written has been read."""
        self._lock = threading.Lock()
        self._size = 0

    def follow(self, pipe: int) -> None:
        """Read a pipe to its end, in a thread, and close it."""
        self.settled.clear()
        threading.Thread(target=self._follow, args=(pipe,), name=f"log of {self.path.stem}", daemon=True).start()

    def write(self, data: bytes) -> None:
        """Add to the file. A disk that takes nothing costs only that."""
        lines = [one_line(line.decode(errors="replace"), 300) for line in data[-_PIECE:].splitlines() if line.strip()]
        with self._lock:
            self.last.extend(lines[-LAST_LINES:])
            if self._size >= MOST_LOG:
                return
            data = data[: MOST_LOG - self._size]
            self._size += len(data)
            with contextlib.suppress(OSError):
                make_private_folder(self.path.parent)
                descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(data)

    def _follow(self, pipe: int) -> None:
        with os.fdopen(pipe, "rb", buffering=0) as stream:
            while data := stream.read(_PIECE):
                self.write(data)
                if self._size >= MOST_LOG:
                    time.sleep(_PAUSE_S)
        self.settled.set()


@asynccontextmanager
async def running(
    server: ToolServer,
    environment: Mapping[str, str],
    folder: Path,
    log: ErrorLog,
    over: Callable[[str], None],
) -> AsyncGenerator[tuple["Reads", "Writes"], None]:
    """Run a server; the streams of its messages, as the SDK's client takes them. Nothing of it is left afterwards.

    `over` is told, once, why it is over before it was asked to be. Raises OSError where it cannot be started.
    """
    import anyio

    request = await asyncio.to_thread(_request, server, environment, folder)
    await ready(request)
    child, ours = _started(request, log)
    try:
        await child.started()
        arriving, reads = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
        writes, leaving = anyio.create_memory_object_stream["SessionMessage"](0)
        wire = _Wire(child, ours, log, over)
        async with anyio.create_task_group() as group:
            group.start_soon(wire.read, arriving)
            group.start_soon(wire.write, leaving)
            try:
                yield reads, writes
            finally:
                wire.closing = True
                with anyio.CancelScope(shield=True):
                    writes.close()
                    reads.close()
                    await _end(child, ours)
                group.cancel_scope.cancel()
    finally:
        child.kill()
        ours.close()


def _started(request: Request, log: ErrorLog) -> tuple[Child, socket.socket]:
    """Raises OSError, and ValueError for text that no command line can hold."""
    ours, theirs = socket.socketpair()
    reading, errors = os.pipe()
    try:
        log.follow(reading)
        child = start_child(request, theirs.fileno(), errors)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
        os.close(errors)
    ours.setblocking(False)
    return child, ours


async def _end(child: Child, ours: socket.socket) -> None:
    """Close its input, then ask it to end, then end it by force (MCP, lifecycle: shutdown)."""
    with contextlib.suppress(OSError):
        ours.shutdown(socket.SHUT_WR)
    for harder in (child.terminate, child.kill):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_S):
                await child.wait_until_gone()
                return
        harder()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CLOSING_S):
            await child.wait_until_gone()


class _Wire:
    """The messages of one run, a JSON object a line."""

    def __init__(self, child: Child, ours: socket.socket, log: ErrorLog, over: Callable[[str], None]) -> None:
        self._child = child
        self._socket = ours
        self._log = log
        self._over = over
        self._unasked = Unasked()
        self.closing = False

    async def read(self, arriving: "MemoryObjectSendStream[SessionMessage | Exception]") -> None:
        """Pass on what the server says until it ends or must be ended."""
        import anyio

        exiting = asyncio.ensure_future(self._exited())
        reading = asyncio.current_task()
        exiting.add_done_callback(lambda _: self._hang_up() if reading and not exiting.cancelled() else None)
        why = ""
        try:
            async with arriving:
                why = await self._pass_on(arriving)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # nobody listens any more
        finally:
            exiting.cancel()
            if not self.closing:
                self._child.kill()
                self._over(why or self._how_it_ended())

    async def write(self, leaving: "MemoryObjectReceiveStream[SessionMessage]") -> None:
        """Pass on what the server is told."""
        loop = asyncio.get_running_loop()
        async with leaving:
            async for message in leaving:
                data = message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                try:
                    await loop.sock_sendall(self._socket, data)
                except OSError:
                    self._hang_up()
                    return

    async def _pass_on(self, arriving: "MemoryObjectSendStream[SessionMessage | Exception]") -> str:
        """Why that is over, where the server did not end by itself."""
        loop = asyncio.get_running_loop()
        unread = bytearray()
        while True:
            try:
                piece = await loop.sock_recv(self._socket, _PIECE)
            except OSError:
                return ""
            if not piece:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_DRAIN_S):
                        await self._child.exited.wait()
                await asyncio.to_thread(self._log.settled.wait, _DRAIN_S)
                return ""
            start = len(unread)
            unread += piece
            if piece.find(b"\n") < 0:
                if len(unread) > MOST_MESSAGE:
                    return f"it sent a message of more than {MOST_MESSAGE // (1024 * 1024)} MB"
                continue
            end = unread.rfind(b"\n", start) + 1
            lines, unread = bytes(unread[:end]).splitlines(), unread[end:]
            for line in lines:
                message = await self._message(line)
                if message is not None:
                    await arriving.send(message)
                if self._unasked.too_many:
                    return TOO_MANY

    async def _message(self, line: bytes) -> "SessionMessage | None":
        """A line as a message; None for what is none."""
        from mcp.shared.message import SessionMessage
        from mcp_types import JSONRPCError, JSONRPCResponse, jsonrpc_message_adapter

        if not line.strip():
            return None
        try:
            if len(line) > _LARGE:
                read = await asyncio.to_thread(jsonrpc_message_adapter.validate_json, line, by_name=False)
            else:
                read = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            self._unasked.add()
            await asyncio.to_thread(self._log.write, line[:_PIECE] + b"\n")
            return None
        if not isinstance(read, JSONRPCResponse | JSONRPCError):
            self._unasked.add()
        return SessionMessage(read)

    async def _exited(self) -> None:
        """Something that the server left running may hold its output open."""
        await self._child.exited.wait()
        await asyncio.sleep(_DRAIN_S)

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _how_it_ended(self) -> str:
        code = self._child.exit_code
        how = "it closed its output" if code is None else f"it ended by itself (exit code {code})"
        return f"{how}: {self._log.last[-1]}" if self._log.last else how


def _request(server: ToolServer, environment: Mapping[str, str], folder: Path) -> Request:
    """How to start it. Looks at folders: called off the event loop. Raises OSError where there is no such program."""
    place = Path(folder, server.cwd).expanduser()
    if not place.is_dir():
        raise FileNotFoundError(2, f"there is no folder {place}")
    command = os.path.expanduser(server.command)  # noqa: PTH111 - a bare name stays one
    if "/" in command:
        command = str(Path(place, command))
    found = shutil.which(command, path=environment.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(2, f"there is no program {one_line(server.command, 200)}")
    return Request([found, *server.args], str(place), dict(environment))
