"""Stands between the program and a server on this machine, and keeps what was asked."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any


class Relay:
    """Passes bytes on both ways. `asked` are the bodies of the questions to the model so far, in their order."""

    def __init__(self, port: int) -> None:
        self.asked: list[dict[str, Any]] = []
        self._to = port

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Takes connections; the port."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._to)
        back = asyncio.ensure_future(_pass_on(up_reader, writer))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                if b"/chat/completions " in head.partition(b"\r\n")[0]:
                    self.asked.append(json.loads(body))
                up_writer.write(head + body)
                await up_writer.drain()
        # Whoever asked is gone: so the server has to be told.
        up_writer.close()
        await back


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0
