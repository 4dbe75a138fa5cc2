"""Ollama's own client, sending a chat's body as it was encoded.

Imported only where the package is. Its `chat` knows neither ``truncate`` nor ``shift``, without which Ollama silently
leaves out the oldest messages of a request that is too long, and its types drop the ids of calls.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx
import msgspec
from ollama import AsyncClient, ResponseError

from tui_agent.models.errors import said_in
from tui_agent.models.ollama.address import Address
from tui_agent.tls import tls

CONNECT_TIMEOUT_S = 10.0


class StreamingClient(AsyncClient):
    """After `idle_timeout_s` seconds without a byte a call fails with `httpx.TimeoutException`.

    A refusal is an `ollama.ResponseError`, its `status_code` -1 where it came in the middle of a stream.
    """

    def __init__(self, address: Address, idle_timeout_s: float) -> None:
        timeout = httpx.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S)
        super().__init__(address.url, timeout=timeout, verify=tls(), trust_env=not address.local)

    async def aclose(self) -> None:
        """Release the connections."""
        await self._client.aclose()

    async def lines(self, body: bytes) -> AsyncGenerator[object, None]:
        """A chat's answer, line by line. Closing it ends the connection."""
        async with aclosing(self._lines("/api/chat", body)) as told:
            async for line in told:
                yield line

    async def pulled(self, model: str) -> AsyncGenerator[object, None]:
        """What is told of a download. Closing it stops that; what is there by then stays."""
        async with aclosing(self._lines("/api/pull", msgspec.json.encode({"model": model, "stream": True}))) as told:
            async for line in told:
                yield line

    async def _lines(self, path: str, body: bytes) -> AsyncGenerator[object, None]:
        """A line ends at LF alone: the SDK's own reading ends one at every sign that Unicode calls a line's end."""
        async with self._client.stream("POST", path, content=body) as answer:
            if not answer.is_success:
                await answer.aread()
                raise _refused(answer)
            rest = b""
            async for piece in answer.aiter_bytes():
                *lines, rest = (rest + piece).split(b"\n")
                for line in filter(bytes.strip, lines):
                    yield _told_in(line)
            if rest.strip():
                yield _told_in(rest)

    async def told(self, path: str, timeout_s: float, fields: dict[str, str] | None = None) -> object:
        """What the server answers at once: to `fields` where they are given."""
        method = "GET" if fields is None else "POST"
        answer: httpx.Response = await self._client.request(method, path, json=fields, timeout=timeout_s)
        if not answer.is_success:
            raise _refused(answer)
        value: object = answer.json()
        return value


def _told_in(line: bytes) -> object:
    """Raises `ResponseError` where it tells of a failure, and `json.JSONDecodeError`."""
    told: object = json.loads(line)
    if isinstance(told, dict) and told.get("error"):
        raise _error(told["error"])
    return told


def _refused(answer: httpx.Response) -> ResponseError:
    try:
        told: object = json.loads(answer.text)
    except ValueError:
        told = answer.text
    return _error(told, answer.status_code)


def _error(told: object, status: int = -1) -> ResponseError:
    """The SDK's error takes text apart that is JSON, which must be an object."""
    return ResponseError(json.dumps({"error": said_in(told)}), status)
