"""A small HTTP/1.1 server on 127.0.0.1: keep-alive, chunked answers, and ways to fail that a framework hides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

HEAD_LIMIT = 1 << 16
BODY_LIMIT = 1 << 28


@dataclass(frozen=True)
class Request:
    """One request as it came over the wire. Header names are lower case; ``body`` is the raw bytes."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


class ClientGone(Exception):
    """The client closed the connection while it was being answered."""


class Exchange:
    """The answer side of one request. ``respond`` answers at once; ``start`` / ``send`` / ``finish`` stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.keep_alive = True

    async def respond(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        """Answer with a JSON body."""
        body = json.dumps(value, ensure_ascii=False).encode()
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self._write(_head(status, fields) + body)

    async def page(self, text: str, kind: str = "text/html", status: int = 200) -> None:
        """Answer with a page, as what is no API does, or with text of another kind."""
        body = text.encode()
        await self._write(_head(status, {"content-type": kind, "content-length": str(len(body))}) + body)

    async def start(self, headers: dict[str, str] | None = None) -> None:
        """Begin a 200 ``text/event-stream`` answer in chunked transfer coding."""
        fields = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        await self._write(_head(200, {**fields, "transfer-encoding": "chunked", **(headers or {})}))

    async def send(self, data: bytes) -> None:
        await self._write(b"%x\r\n%b\r\n" % (len(data), data))

    async def finish(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def close(self) -> None:
        """Close the connection in an orderly way (FIN), whatever was or was not sent."""
        self.keep_alive = False
        self._writer.close()

    async def reset(self) -> None:
        """Abort the connection (RST): the client sees "connection reset by peer"."""
        self.keep_alive = False
        connection: socket.socket | None = self._writer.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def wait(self, seconds: float) -> None:
        """Send nothing for ``seconds``. Raises ClientGone as soon as the client hangs up."""
        try:
            data = await asyncio.wait_for(self._reader.read(1), seconds)
        except TimeoutError:
            return
        except ConnectionError as error:
            raise ClientGone from error
        if not data:
            raise ClientGone
        raise RuntimeError("pipelined requests are not supported")

    async def _write(self, data: bytes) -> None:
        if self._writer.is_closing():
            raise ClientGone
        self._writer.write(data)
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise ClientGone from error


Handler = Callable[[Request, Exchange], Awaitable[None]]


class HttpServer:
    """Listens on 127.0.0.1 and hands each request to ``handler``."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def listen(self, port: int = 0) -> int:
        """Start; returns the port (0 asks the system for a free one)."""
        self._listener = await asyncio.start_server(self._connected, "127.0.0.1", port, limit=HEAD_LIMIT)
        chosen: int = self._listener.sockets[0].getsockname()[1]
        return chosen

    async def close(self) -> None:
        """Stop listening and end every open connection."""
        if self._listener is None:
            return
        self._listener.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._listener = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        try:
            # A cancelled connection task is how close() ends it; asyncio would log it as an error otherwise.
            with contextlib.suppress(asyncio.CancelledError, ConnectionError, ClientGone, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader)) is not None:
            exchange = Exchange(reader, writer)
            await self._handler(request, exchange)
            if not exchange.keep_alive or request.headers.get("connection", "").lower() == "close":
                return


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """Read one request; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lines = head.decode("latin-1").split("\r\n")
    method, target, _version = lines[0].split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, separator, value = line.partition(":")
        if separator:
            headers[name.strip().lower()] = value.strip()
    url = urlsplit(target)
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    return Request(method, unquote(url.path), query, headers, await _read_body(reader, headers))


async def _read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(min(int(headers.get("content-length", "0")), BODY_LIMIT))
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return bytes(body)


def _head(status: int, fields: dict[str, Any]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Overloaded" if status == 529 else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")
