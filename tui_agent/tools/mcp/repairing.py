"""The messages of a server, repaired so that one bad definition in a list does not make the SDK reject the others.

This module imports the SDK: import it only where that is loaded already.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from anyio import EndOfStream
from anyio.abc import ObjectReceiveStream
from mcp.client import Transport
from mcp.client._transport import ReadStream, TransportStreams
from mcp.shared.message import SessionMessage
from typing_extensions import override

from tui_agent.tools.mcp.known import mend
from tui_agent.tools.mcp.process import Unsolicited


@asynccontextmanager
async def repaired(transport: Transport, flooded: Callable[[], None]) -> AsyncGenerator[TransportStreams, None]:
    """The transport's streams, repaired. Calls `flooded` if too many unsolicited messages arrive; for a process,
    `process` checks that itself.
    """
    async with transport as (reads, writes):
        yield _RepairedStream(reads, flooded), writes


class _RepairedStream(ObjectReceiveStream[SessionMessage | Exception]):
    """A stream of messages with lists of tools that the SDK accepts; it ends if it becomes a flood."""

    def __init__(self, reads: ReadStream[SessionMessage | Exception], flooded: Callable[[], None]) -> None:
        self._reads = reads
        self._flooded = flooded
        self._unasked = Unsolicited()

    @override
    async def receive(self) -> SessionMessage | Exception:
        message = await self._reads.receive()
        if isinstance(message, Exception):
            return message
        mend(getattr(message.message, "result", None))
        if hasattr(message.message, "method"):
            self._unasked.add()
            if self._unasked.too_many:
                self._flooded()
                raise EndOfStream
        return message

    @override
    async def aclose(self) -> None:
        await self._reads.aclose()
