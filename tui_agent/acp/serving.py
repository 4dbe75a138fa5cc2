"""Serving one connection: its pipes, its end, and closing all its sessions."""

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
from typing import Any, Final, TextIO, cast

import msgspec
from acp.agent.connection import AgentSideConnection
from acp.router import MessageRouter
from acp.schema import DeleteSessionRequest
from typing_extensions import override

from tui_agent.acp.front_end import FrontEnd, Load
from tui_agent.arguments import ExitCode, UsageError
from tui_agent.conversation.blocks import valid_text

LINE_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of one message; a prompt may contain pictures."""
CLOSING_S: Final = 3.0
"""Seconds to write pending output: a client that has stopped reading must not keep sessions open."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(load: Load) -> int:
    """Serve one client until it disconnects or the process is told to end; returns the exit code.

    `load` loads the arguments and settings of a session in a folder. Raises `UsageError` if there can be no client.
    """
    if not (_is_pipe(sys.stdin) and _is_pipe(sys.stdout)):
        raise UsageError("`tui-agent acp` is started by an editor, which talks to it over pipes (docs/editors.md)")
    return asyncio.run(_serve(load))


async def _serve(load: Load) -> int:
    over, ended_by_signal = asyncio.Event(), asyncio.Event()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, ended_by_signal.set)
    reader, writer = await _pipes(over)
    front_end = FrontEnd(load)
    connection = AgentSideConnection(front_end, writer, reader, listening=False, use_unstable_protocol=True)
    # The SDK knows the messages of this method, but does not route it yet.
    router = cast("MessageRouter", connection._conn._handler)
    router.route_request("session/delete", DeleteSessionRequest, front_end, "delete_session")
    listening = asyncio.create_task(connection.listen())
    ends = [listening, asyncio.create_task(over.wait()), asyncio.create_task(ended_by_signal.wait())]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await asyncio.wait(ends)
        # Closing the connection cancels pending requests; each turn ends with a valid log.
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(connection.close(), CLOSING_S)
        await front_end.close()
    if ended_by_signal.is_set():
        return ExitCode.INTERRUPTED
    broke = listening.done() and not listening.cancelled() and listening.exception() is not None
    return ExitCode.FAILED if broke else ExitCode.DONE


def _is_pipe(stream: TextIO | None) -> bool:
    if stream is None:
        return False
    mode = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _Output(asyncio.StreamReaderProtocol):
    """Standard output, whose reader may disconnect."""

    def __init__(self, over: asyncio.Event) -> None:
        super().__init__(asyncio.StreamReader())
        self._over = over

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._over.set()


async def _pipes(over: asyncio.Event) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Streams of standard input and output. From now on, all other prints go to standard error."""
    loop = asyncio.get_running_loop()
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    transport, protocol = await loop.connect_write_pipe(lambda: _Output(over), output)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    reader = _Input(writer)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader, writer


class _Input(asyncio.StreamReader):
    """The lines of a client. One that is no JSON object is answered here, since the library would break at it."""

    def __init__(self, answers: asyncio.StreamWriter) -> None:
        super().__init__(limit=LINE_BYTES)
        self._answers = answers

    @override
    async def readuntil(self, separator: Any = b"\n") -> bytes:
        while True:
            line = _with_whole_characters(await super().readuntil(separator))
            error = _error_in(line)
            if error is None:
                return line
            reply = {"jsonrpc": "2.0", "id": None, "error": error}
            self._answers.write(msgspec.json.encode(reply) + b"\n")


class _Message(msgspec.Struct):
    """What the library relies on."""

    id: int | float | str | None = None
    method: str | None = None


def _with_whole_characters(line: bytes) -> bytes:
    """A line without half characters, which JavaScript writes where it cut a text: they cannot be sent back."""
    if b"\\ud" in line or b"\\uD" in line:
        with contextlib.suppress(ValueError, RecursionError):
            return valid_text(json.dumps(json.loads(line), ensure_ascii=False)).encode() + b"\n"
    return line


def _error_in(line: bytes) -> dict[str, str | int] | None:
    """The JSON-RPC error for a line that is no message."""
    if not line.strip():
        return None
    try:
        msgspec.json.decode(line, type=_Message)
    except msgspec.ValidationError as error:
        return {"code": -32600, "message": f"Invalid request, there are no batches: {error}."}
    except (msgspec.DecodeError, RecursionError):
        return {"code": -32700, "message": "Parse error: this line is no JSON."}
    return None
