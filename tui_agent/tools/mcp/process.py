"""Servers as processes: messages over standard input and output, standard error in a file, and a clean end.

A server is started like a command (`tools/shell/processes.py`), so that nothing of it outlives this program, however
that ends. One that floods is ended; output that is not a message goes into the error file.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.settings import ToolServer
from tui_agent.system.durable import PRIVATE_FILE, make_private_folder
from tui_agent.system.programs import find_program, with_search_path
from tui_agent.text import expanded, one_line
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.sandbox import ready
from tui_agent.tools.shell.processes import Child, start_child

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage
    from mcp_types import JSONRPCMessage

    Reads = MemoryObjectReceiveStream[SessionMessage | Exception]
    Writes = MemoryObjectSendStream[SessionMessage]

MAX_MESSAGE: Final = 32 * 1024 * 1024
"""The most bytes of one message."""
MAX_UNSOLICITED: Final = 2_000
"""The most unsolicited messages, and lines that are not messages, that a server may send in `PERIOD_S` seconds."""
PERIOD_S: Final = 10.0
_DEEPEST: Final = 100
_VERSION: Final = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_FIRST_ID: Final = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb',\s*)?"id"\s*:\s*(\d{1,15})')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*(?:,\s*' + _VERSION + rb")?\}\s*\Z")
MAX_LOG: Final = 5_000_000
"""The most bytes of a server's standard error that are kept."""
CLOSING_S: Final = 1.0
"""Seconds a server has to end after its input is closed, again after it is asked to end, and after it has closed its
output: its exit code is the reason people are shown."""
LAST_LINES: Final = 5

_PIECE: Final = 65_536
_LARGE: Final = 262_144
_PAUSE_S: Final = 0.01
_DRAIN_S: Final = 0.25


TOO_MANY: Final = f"it sent more than {MAX_UNSOLICITED:,} messages in {PERIOD_S:g} s that nobody asked for"


class Unsolicited:
    """Counts a server's unsolicited messages."""

    def __init__(self) -> None:
        self._count = 0
        self._since = time.monotonic()

    def add(self) -> None:
        now = time.monotonic()
        if now - self._since > PERIOD_S:
            self._count, self._since = 0, now
        self._count += 1

    @property
    def too_many(self) -> bool:
        return self._count > MAX_UNSOLICITED


class ErrorLog:
    """The file for a server's standard error, up to `MAX_LOG` bytes. Thread-safe.

    Anything beyond that is read slowly and dropped, so that the server neither fails nor keeps a core busy.
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
        """Append to the file. Errors of the disk are ignored."""
        lines = [one_line(line.decode(errors="replace"), 300) for line in data[-_PIECE:].splitlines() if line.strip()]
        with self._lock:
            self.last.extend(lines[-LAST_LINES:])
            if self._size >= MAX_LOG:
                return
            data = data[: MAX_LOG - self._size]
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
                if self._size >= MAX_LOG:
                    time.sleep(_PAUSE_S)
        self.settled.set()


@asynccontextmanager
async def running(
    server: ToolServer, environment: Mapping[str, str], folder: Path, log: ErrorLog, over: Callable[[str], None]
) -> AsyncGenerator[tuple["Reads", "Writes"], None]:
    """Run a server; yields its message streams for the SDK's client. No process of it is left afterwards.

    If it ends before it is asked to, `over` is called once with the reason. Raises OSError if it cannot be started.
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
    """Raises OSError, and ValueError for arguments with NUL."""
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
    """Close its input, then ask it to end, then kill it (MCP, lifecycle: shutdown)."""
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
    """The messages of one run, as lines of JSON."""

    def __init__(self, child: Child, ours: socket.socket, log: ErrorLog, over: Callable[[str], None]) -> None:
        self._child = child
        self._socket = ours
        self._log = log
        self._over = over
        self._unasked = Unsolicited()
        self.closing = False

    async def read(self, arriving: "MemoryObjectSendStream[SessionMessage | Exception]") -> None:
        """Pass on the server's messages until it ends or must be ended."""
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
        """Pass on messages to the server."""
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
        """Pass on messages; returns why that must end, or an empty text if the server ended by itself."""
        loop = asyncio.get_running_loop()
        unread = bytearray()
        while True:
            try:
                piece = await loop.sock_recv(self._socket, _PIECE)
            except OSError:  # such as ECONNRESET: it ended with a message unread
                piece = b""
            if not piece:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSING_S):
                        await self._child.exited.wait()
                await asyncio.to_thread(self._log.settled.wait, _DRAIN_S)
                return ""
            start = len(unread)
            unread += piece
            if piece.find(b"\n") < 0:
                if len(unread) > MAX_MESSAGE:
                    return f"it sent a message of more than {MAX_MESSAGE // (1024 * 1024)} MB"
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
        """Parse a line; None if it is not a message."""
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
            found = await asyncio.to_thread(_read_deep, line)
            if found is None:
                self._unasked.add()
                await asyncio.to_thread(self._log.write, line[:_PIECE] + b"\n")
                return None
            read = found
        if not isinstance(read, JSONRPCResponse | JSONRPCError):
            self._unasked.add()
        return SessionMessage(read)

    async def _exited(self) -> None:
        """Wait for the exit: a process that the server left running may keep its output open."""
        await self._child.exited.wait()
        await asyncio.sleep(_DRAIN_S)

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _how_it_ended(self) -> str:
        code = self._child.exit_code
        how = "it closed its output" if code is None else f"it ended by itself (exit code {code})"
        return f"{how}: {self._log.last[-1]}" if self._log.last else how


def _read_deep(line: bytes) -> "JSONRPCMessage | None":
    """A message nested deeper than pydantic reads and writes (200 levels), without what is too deep; or an error in
    place of an answer that is too deep for Python as well: nobody would wait for what was thrown away. None for what is
    no message.
    """
    from mcp_types import ErrorData, JSONRPCError, jsonrpc_message_adapter

    def pruned(value: object, levels: int) -> object:
        if isinstance(value, dict):
            return {name: pruned(each, levels - 1) for name, each in value.items()} if levels else None
        if isinstance(value, list):
            return [pruned(each, levels - 1) for each in value] if levels else None
        return value

    try:
        return jsonrpc_message_adapter.validate_python(pruned(json.loads(line), _DEEPEST), by_name=False)
    except ValueError:
        return None
    except RecursionError:
        found = _FIRST_ID.match(line) or _LAST_ID.search(line[-_PIECE:])
        error = ErrorData(code=-32700, message="its answer is nested too deep to be read")
        return JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error) if found else None


def _request(server: ToolServer, environment: Mapping[str, str], folder: Path) -> Request:
    """The request that starts it. Reads folders: call it off the event loop. Raises OSError for a missing program."""
    place = Path(folder, expanded(server.cwd))
    if not place.is_dir():
        raise FileNotFoundError(2, f"there is no folder {place}")
    command = os.path.expanduser(server.command)  # noqa: PTH111 - a bare name must stay bare
    # A path in the project is the user's choice; the program by a name is never the project's.
    if "/" in command:
        found = shutil.which(str(Path(place, command)))
    else:
        found = find_program(command, environment.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(2, f"there is no program {one_line(server.command, 200)}")
    environment = dict(environment) if "PATH" in server.env else with_search_path(environment)
    return Request([found, *server.args], str(place), environment)
