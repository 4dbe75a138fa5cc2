"""Ollama's client, extended to send our encoded request bodies.

Import it only where the package is imported. The package's own `chat` lacks ``truncate`` and ``shift``, without which
Ollama silently drops the oldest messages of a request that is too long, and its types drop the ids of calls.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx
import msgspec
from ollama import AsyncClient, ResponseError

from tui_agent.models.errors import error_text_in
from tui_agent.models.ollama.address import Address
from tui_agent.tls import tls

CONNECT_TIMEOUT_S = 10.0


class StreamingClient(AsyncClient):
    """Streams Ollama's answers. After `idle_timeout_s` seconds without a byte it raises `httpx.TimeoutException`.

    A refusal raises `ollama.ResponseError`, with `status_code` -1 in the middle of a stream.
    """

    def __init__(self, address: Address, idle_timeout_s: float) -> None:
        timeout = httpx.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S)
        super().__init__(address.url, timeout=timeout, verify=tls(), trust_env=not address.local)

    async def aclose(self) -> None:
        """Release the connections."""
        await self._client.aclose()

    async def lines(self, body: bytes) -> AsyncGenerator[object, None]:
        """Send a chat request and yield the answer's lines, parsed. Closing the iterator ends the call."""
        async with aclosing(self._lines("/api/chat", body)) as told:
            async for line in told:
                yield line

    async def pulled(self, model: str) -> AsyncGenerator[object, None]:
        """Download a model and yield the progress lines, parsed. Closing the iterator stops it; parts are kept."""
        async with aclosing(self._lines("/api/pull", msgspec.json.encode({"model": model, "stream": True}))) as told:
            async for line in told:
                yield line

    async def _lines(self, path: str, body: bytes) -> AsyncGenerator[object, None]:
        """The answer's lines, split only at LF: the SDK would split at every line separator of Unicode."""
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
        """The answer to a GET, or to a POST of `fields`, as parsed JSON."""
        method = "GET" if fields is None else "POST"
        answer: httpx.Response = await self._client.request(method, path, json=fields, timeout=timeout_s)
        if not answer.is_success:
            raise _refused(answer)
        value: object = answer.json()
        return value


def _told_in(line: bytes) -> object:
    """Parse a line. Raises `ResponseError` if it reports an error, and `json.JSONDecodeError`."""
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
    """The SDK's error for an error value; it parses its text as JSON, so that must be an object."""
    return ResponseError(json.dumps({"error": error_text_in(told)}), status)
