"""The HTTP client for all providers but Anthropic's, and the reader of all their streams.

It is our own, on ``httpx2``, which Anthropic's SDK needs anyway. The other SDKs encode every request on the event
loop. Google's also takes comments and a byte order mark in a stream for errors, and has no timeout for a silent server.
OpenAI's takes 0.6 s of CPU and 24 MB to import, splits lines of a stream at U+2028, takes a web page for an empty
answer, and has types that other servers do not conform to. Ollama's lacks ``truncate`` and ``shift``, without which the
server silently drops the oldest messages of a request that is too long, and drops the ids of calls.
"""

import socket
from collections.abc import AsyncGenerator, AsyncIterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec import structs

from tui_agent.models.adapter import CONNECT_TIMEOUT_S
from tui_agent.models.errors import (
    ErrorReply,
    ServerRefusedError,
    WrongServerError,
    error_text_in,
    status_of,
)
from tui_agent.models.refusals import seconds_to_reset
from tui_agent.system.network import host_of, is_local, tls

if TYPE_CHECKING:
    import httpx2

_BOM = b"\xef\xbb\xbf"
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
LONGEST_REFUSAL = 100_000
"""The most bytes of an error response that are read."""


class HttpClient:
    """Calls one server, with the `key` as a bearer's token or in `key_header`, or as `auth` signs its requests in.

    After `idle_timeout_s` seconds without a byte it raises `httpx2.TimeoutException`. Raises `ServerRefusedError` for a
    key that no header can hold.
    """

    def __init__(
        self,
        url: str,
        key: str,
        idle_timeout_s: float,
        *,
        key_header: str = "",
        auth: "httpx2.Auth | None" = None,
    ) -> None:
        import httpx2

        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise ServerRefusedError(ErrorReply(401, "", "the key has characters that no key has"))
        headers = {key_header or "authorization": key if key_header else f"Bearer {key}"} if key else {}
        host = host_of(url)
        if key and host.endswith(".azure.com"):
            headers["api-key"] = key
        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(
            headers=headers,
            auth=auth,
            timeout=httpx2.Timeout(idle_timeout_s, connect=CONNECT_TIMEOUT_S),
            verify=tls(),
            trust_env=not is_local(host),
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def events(self, path: str, body: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the data of each event of a stream, or an unstreamed answer as one. Closing the iterator ends the call.

        Raises `ServerRefusedError`, `WrongServerError`, and what ``httpx2`` raises.
        """
        async with aclosing(self._pieces(path, body)) as pieces, aclosing(events_in(pieces)) as events:
            async for data in events:
                yield data

    async def lines(self, path: str, body: bytes) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a stream, without blank ones. Raises as `events` does."""
        async with aclosing(self._pieces(path, body)) as pieces, aclosing(lines_in(pieces)) as lines:
            async for line in lines:
                if line.strip():
                    yield line

    async def _pieces(self, path: str, body: bytes) -> AsyncGenerator[bytes, None]:
        headers = {"content-type": "application/json", "accept": "text/event-stream, application/x-ndjson"}
        async with self._http.stream("POST", self.url + path, content=body, headers=headers) as answer:
            if answer.is_error:
                raise ServerRefusedError(read_error(await _beginning(answer), answer.headers, answer.status_code))
            _check_kind(self.url, answer)
            async for piece in answer.aiter_bytes():
                yield piece

    async def fetch(self, url: str, timeout_s: float, asked: bytes | None = None) -> bytes:
        """The body of the answer to a GET, or to a POST of the JSON `asked`. Raises as `events` does.

        Only for idempotent requests: it repeats one if a pooled connection turns out to be closed.
        """
        import httpx2

        method, headers = ("GET", {}) if asked is None else ("POST", {"content-type": "application/json"})
        try:
            answer = await self._http.request(method, url, content=asked, headers=headers, timeout=timeout_s)
        except httpx2.RemoteProtocolError:
            answer = await self._http.request(method, url, content=asked, headers=headers, timeout=timeout_s)
        if answer.is_error:
            raise ServerRefusedError(read_error(answer.content[:LONGEST_REFUSAL], answer.headers, answer.status_code))
        _check_kind(self.url, answer)
        return answer.content


def _check_kind(url: str, answer: "httpx2.Response") -> None:
    """Raise `WrongServerError` for a web page or a redirect, which no API answers with; a key must not follow one."""
    if answer.is_redirect or "html" in answer.headers.get("content-type", ""):
        raise WrongServerError(url)


LIST_TIMEOUT_S = 1.5
_PROBE_TIMEOUT_S = 0.25


@contextmanager
def local_client(url: str, key: str = "") -> "Iterator[httpx2.Client]":
    """A client for the few short questions that a list of models needs, if something listens at a local server's URL.

    Raises OSError or ValueError at once if nothing does, and turns what ``httpx2`` raises into ValueError. Blocks.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    socket.create_connection((parts.hostname or "", port), _PROBE_TIMEOUT_S).close()
    import httpx2

    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx2.Client(
            base_url=url, headers=headers, timeout=LIST_TIMEOUT_S, trust_env=not is_local(host_of(url))
        ) as client:
            yield client
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ValueError(str(error)) from error


async def events_in(pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the data of server-sent events, or the whole body if it is JSON, whatever its content type.

    llama.cpp reports a failure in the middle of a stream as an ``error:`` line.
    """
    data: list[bytes] = []
    whole: list[bytes] = []
    async for line in lines_in(pieces):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if whole or (not data and (line.lstrip().startswith((b"{", b"[{")) or line.strip() == b"[")):
            whole.append(line)
        elif not line:
            if any(data):  # an event without data is none (HTML standard, server-sent events)
                yield b"\n".join(data)
            data = []
        elif name == b"data":
            data.append(value)
        elif name == b"error":
            yield b'{"error":%b}' % value
    if whole or data:
        yield b"\n".join(whole or data)


async def lines_in(pieces: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the lines, which end with LF, CR LF or CR, without a byte order mark at the beginning."""
    rest, begun, after_cr = b"", False, False
    async for piece in pieces:
        rest += piece.removeprefix(b"\n") if after_cr else piece
        if not begun and _BOM.startswith(rest):
            continue
        rest, begun, after_cr = rest if begun else rest.removeprefix(_BOM), True, piece.endswith(b"\r")
        *lines, rest = *rest.splitlines(keepends=True), b""
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            rest = lines.pop()
        for line in lines:
            yield line.rstrip(b"\r\n")
    if rest:
        yield rest


async def _beginning(answer: "httpx2.Response") -> bytes:
    read = b""
    async for piece in answer.aiter_bytes():
        read += piece
        if len(read) >= LONGEST_REFUSAL:
            break
    return read[:LONGEST_REFUSAL]


def read_error(body: bytes, headers: Mapping[str, str] = _NO_HEADERS, status: int = 0) -> ErrorReply:
    """Parse an error in any server's format. Without a `status`, it is the one in the body, else 0.

    OpenAI and most others: ``{"error": {"message", "type", "code"}}``; OpenRouter adds the upstream server's answer as
    ``metadata.raw``. Older vLLM: ``{"object": "error", "message", "type"}``; text-generation-inference and LM Studio:
    ``{"error": "…"}``; FastAPI: ``{"detail": …}``; Gemini: ``{"error": {"message", "status", "code", "details"}}``.
    """
    parsed: object = None
    try:
        parsed = msgspec.json.decode(body)
        refusal = _error_in(parsed)
    except (msgspec.DecodeError, UnicodeDecodeError):
        refusal = ErrorReply(0, "", body.decode(errors="replace"))
    waits = seconds_to_reset(headers, parsed, refusal.text)
    return structs.replace(refusal, status=status or refusal.status, retry_after=waits)


def _error_in(parsed: object) -> ErrorReply:
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    if not isinstance(parsed, dict):
        return ErrorReply(0, "", error_text_in(parsed))
    error = parsed.get("error", parsed)
    if not isinstance(error, dict):
        return ErrorReply(0, str(parsed.get("error_type") or ""), error_text_in(error))
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    parts = [error.get("message") or error.get("detail") or "", raw or ""]
    status = error.get("status")
    named = (status if str(status).isupper() else None, error.get("code"), error.get("type"))
    kinds = [str(each) for each in named if isinstance(each, str | int) and each]
    text = " ".join(part if isinstance(part, str) else msgspec.json.encode(part).decode() for part in parts if part)
    statuses = [each for each in map(error.get, ("status_code", "status", "code")) if isinstance(each, int)]
    number = next((each for each in statuses if each >= 400), 0) or max(map(status_of, kinds), default=0)
    return ErrorReply(number, kinds[0] if kinds else "", text, written=str(error.get("failed_generation") or ""))
