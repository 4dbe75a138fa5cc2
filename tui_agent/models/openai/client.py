"""The HTTP client of every server that speaks one of OpenAI's APIs.

It is ours, over ``httpx2``, which Anthropic's SDK needs anyway, and not OpenAI's SDK: importing that takes 0.6 s of CPU
and 24 MB more, for types that the servers in question do not keep to; it walks every request on the event loop, ends a
stream whose text holds U+2028 in the middle of a line, and takes a server's page of HTML for an empty answer.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import httpx2
import msgspec

from tui_agent.models.adapter import CONNECT_TIMEOUT_S
from tui_agent.models.address import host_of, is_local
from tui_agent.models.errors import Refusal, SomethingElseError, parse_retry_after
from tui_agent.tls import tls

LONGEST_REFUSAL = 100_000
"""Bytes of a refusal that are read."""


class ServerRefusedError(Exception):
    """The server answered with an error."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


class HttpClient:
    """Asks one server. After `idle_timeout_s` seconds without a byte a call fails with `httpx2.TimeoutException`."""

    def __init__(self, url: str, key: str, idle_timeout_s: float) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        host = host_of(url)
        if key and host.endswith(".azure.com"):
            headers["api-key"] = key
        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S),
            verify=tls(),
            trust_env=not is_local(host),
        )

    async def aclose(self) -> None:
        """Release the connections."""
        await self._http.aclose()

    async def events(self, path: str, body: bytes) -> AsyncGenerator[bytes, None]:
        """The data of each event of a stream; of an answer in one piece, that. Closing it ends the connection.

        Raises `ServerRefusedError`, `SomethingElseError`, and what ``httpx2`` raises.
        """
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        async with self._http.stream("POST", self.url + path, content=body, headers=headers) as answer:
            if not answer.is_success:
                raise ServerRefusedError(_refusal(answer, await _beginning(answer)))
            kind = answer.headers.get("content-type", "")
            if "html" in kind:
                raise SomethingElseError(self.url)
            if "application/json" in kind:
                yield await answer.aread()
                return
            async with aclosing(_events_in(answer.aiter_bytes())) as events:
                async for data in events:
                    yield data

    async def told(self, url: str, timeout_s: float, asked: bytes | None = None) -> bytes:
        """What the server answers at once, to JSON where there is any. Raises as `events` does.

        For what may be asked twice: a connection that was kept may have been closed meanwhile.
        """
        method, headers = ("GET", {}) if asked is None else ("POST", {"content-type": "application/json"})
        try:
            answer = await self._http.request(method, url, content=asked, headers=headers, timeout=timeout_s)
        except httpx2.RemoteProtocolError:
            answer = await self._http.request(method, url, content=asked, headers=headers, timeout=timeout_s)
        if not answer.is_success:
            raise ServerRefusedError(_refusal(answer, answer.content[:LONGEST_REFUSAL]))
        if "html" in answer.headers.get("content-type", ""):
            raise SomethingElseError(self.url)
        return answer.content


async def _events_in(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The data of server-sent events. Lines end at LF, CR LF or CR alone, and nowhere else (HTML, server-sent events).

    An ``error:`` line is llama.cpp's way to fail in the middle of a stream.
    """
    rest = b""
    data: list[bytes] = []
    async for piece in pieces:
        *lines, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n")
        for line in lines:
            name, _, value = line.rstrip(b"\r").partition(b":")
            value = value.removeprefix(b" ")
            if not line.strip():
                if data:
                    yield b"\n".join(data)
                data = []
            elif name == b"data":
                data.append(value)
            elif name == b"error":
                yield b'{"error":%b}' % value
    if data:
        yield b"\n".join(data)


async def _beginning(answer: httpx2.Response) -> bytes:
    read = b""
    async for piece in answer.aiter_bytes():
        read += piece
        if len(read) >= LONGEST_REFUSAL:
            break
    return read[:LONGEST_REFUSAL]


def _refusal(answer: httpx2.Response, body: bytes) -> Refusal:
    kind, text = read_error(body)
    return Refusal(answer.status_code, kind, text, _wait(answer.headers))


def read_error(body: bytes) -> tuple[str, str]:
    """The code and the text of an error, in whatever shape a server has them.

    OpenAI, and most after it: ``{"error": {"message", "type", "code"}}``; OpenRouter adds what the server behind it
    said as ``metadata.raw``. vLLM of old: ``{"object": "error", "message", "type"}``; text-generation-inference and LM
    Studio: ``{"error": "…"}``; FastAPI: ``{"detail": …}``.
    """
    try:
        told = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "", body.decode(errors="replace")
    if not isinstance(told, dict):
        return "", str(told)
    error = told.get("error", told)
    if not isinstance(error, dict):
        return str(told.get("error_type") or ""), str(error)
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    parts = [error.get("message") or error.get("detail") or "", raw or ""]
    kind = next((str(each) for each in (error.get("code"), error.get("type")) if isinstance(each, str | int)), "")
    return kind, " ".join(
        part if isinstance(part, str) else msgspec.json.encode(part).decode() for part in parts if part
    )


def _wait(headers: Mapping[str, str]) -> float | None:
    """OpenAI tells the milliseconds as well."""
    exact = parse_retry_after(headers.get("retry-after-ms"))
    return exact / 1000 if exact is not None else parse_retry_after(headers.get("retry-after"))
