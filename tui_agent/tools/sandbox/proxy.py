"""The network of commands in the sandbox: a proxy of this program, which lets through the domains that are allowed.

It listens on a socket that only that sandbox has (see `launcher`), and speaks HTTP (CONNECT, and plain requests) and
SOCKS 5. It resolves the names itself and connects only to public addresses. What is sent is passed on as it is: what is
encrypted stays encrypted.
"""

import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from tui_agent.conversation.blocks import ToolCall, ToolDefinition
from tui_agent.regex import regex
from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.gate.permissions import PermissionGate
from tui_agent.tools.gate.rules import NETWORK, Rule, catching_address
from tui_agent.tools.sandbox.launcher import PROXY_PORT
from tui_agent.tools.web.addresses import Address, WebAddress, is_public, read_address, resolve

EVERYTHING: Final = "*"
VARIABLES: Final = {
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "npm_config_proxy", "npm_config_https_proxy"),
        f"http://127.0.0.1:{PROXY_PORT}",
    ),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
    "NODE_USE_ENV_PROXY": "1",
}
"""What tells programs of the proxy."""

KNOWN: Final = (
    ("the Python package index", ("pypi.org", "files.pythonhosted.org")),
    ("the npm registry", ("registry.npmjs.org",)),
    ("the Yarn registry", ("registry.yarnpkg.com", "repo.yarnpkg.com")),
    ("the Rust package registry", ("index.crates.io", "static.crates.io", "crates.io")),
    ("the Go module proxy", ("proxy.golang.org", "sum.golang.org")),
    ("the Ruby package registry", ("rubygems.org", "index.rubygems.org")),
    ("Maven Central", ("repo.maven.apache.org", "repo1.maven.org")),
    ("GitHub", ("github.com", "codeload.github.com", "objects.githubusercontent.com")),
)
"""Servers that people know by another name, and that belong together."""

_PORTS: Final = (80, 443)
_MOST_AT_ONCE: Final = 64
_MOST_HEAD: Final = 32_768
_HEAD_S: Final = 20.0
_CONNECT_S: Final = 20.0
_IDLE_S: Final = 300.0
_LOOK_S: Final = 0.2
_PIECE: Final = 65_536
_REQUEST: Final = regex(rb"([A-Z]+) (\S+) HTTP/1\.[01]\r\n")
_OF_THE_HOP: Final = {b"host", b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization"}
_SOCKS: Final = 5
_SOCKS_REFUSED, _SOCKS_FAILED = 2, 1

Ask: TypeAlias = Callable[[str], Awaitable[bool]]
"""Asks whether a domain may be reached, given as the origin of its address."""


class _Refused(Exception):
    """The connection is not made; the message says why."""


class Proxy:
    """The proxy of one sandbox. `allowed` are domains: ``example.org``, or ``*.example.org`` for all below it. About
    those that one of the rules in `limits` names it asks all the same.

    Names are resolved by `resolver`; connections go only to addresses that `reaches` accepts.
    """

    def __init__(
        self,
        allowed: Iterable[str],
        limits: Iterable[Rule] = (),
        *,
        resolver: Callable[[WebAddress], Awaitable[tuple[Address, ...]]] = resolve,
        reaches: Callable[[Address], bool] = is_public,
    ) -> None:
        self._resolve, self._reaches = resolver, reaches
        self._allowed = tuple(domain.lower().rstrip(".") for domain in allowed)
        self._limits = tuple(rule for rule in limits if rule.names(NETWORK))
        self._ask: Ask | None = None
        self._decided: dict[str, asyncio.Future[bool]] = {}
        self._waiting: Counter[asyncio.Future[bool]] = Counter()
        self._refused: dict[str, str] = {}
        self._server: asyncio.Server | None = None
        self._listener: socket.socket | None = None
        self._open = 0

    async def serve(self, listener: socket.socket, ask: Ask | None) -> None:
        """Serve this socket, unless that is done already. From now on `ask`, of the next command, is asked about
        domains: a mere yes was for the command before, and who allowed one for longer is not asked again by it.
        """
        if ask is not None:
            self._ask = ask
            for origin, asked in tuple(self._decided.items()):
                if asked.done() and (asked.cancelled() or asked.result()):
                    del self._decided[origin]
        if listener is self._listener:
            return
        await self.close()
        self._listener = listener
        listener.setblocking(False)
        # The launcher may start again; the socket belongs to it.
        self._server = await asyncio.start_server(self._connected, sock=listener.dup(), limit=_MOST_HEAD)

    def take_refused(self) -> list[str]:
        """What was refused since this was last called, and why; each a few words."""
        refused, self._refused = self._refused, {}
        return [f"{host}: {why}" for host, why in refused.items()]

    async def close(self) -> None:
        """End it, with all connections."""
        if self._server is not None:
            self._server.close()
            self._server.close_clients() if hasattr(self._server, "close_clients") else None
        self._server = self._listener = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MOST_AT_ONCE:
                await self._answer(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError, KeyError):
            pass  # whoever connected has gone, or speaks nothing known
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_S):
            first = await reader.readexactly(1)
            if first[0] == _SOCKS:
                host, port = await _socks_request(reader, writer)
                head = b""
            else:
                whole = first + await reader.readuntil(b"\r\n\r\n")
                host, port, head = _http_request(whole)
        try:
            theirs, away = await self._reach(reader, host, port, secure=port != 80)
        except _Refused as why:
            if len(self._refused) < _MOST_AT_ONCE:
                self._refused[host] = str(why)
            writer.write(_socks_answer(_SOCKS_REFUSED) if first[0] == _SOCKS else _http_refusal(host, str(why)))
            await writer.drain()
            return
        try:
            if first[0] == _SOCKS:
                writer.write(_socks_answer(0))
            elif head:
                away.write(head)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _pass_on_both(reader, writer, theirs, away)
        finally:
            away.close()

    async def _reach(
        self, reader: asyncio.StreamReader, host: str, port: int, *, secure: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a host if it is allowed. Raises `_Refused`."""
        try:
            address = read_address(f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}/")
        except ToolFailure as failure:
            raise _Refused(failure.why) from None
        if address.port != port:  # of `a.example/:22` it would be a part of the path
            raise _Refused("it is no name of a server")
        if address.is_local:
            raise _Refused("it is not on the public network")
        if not self._is_allowed(address, port) and not await self._was_allowed(address.origin, reader):
            raise _Refused("it was not allowed")
        try:
            async with asyncio.timeout(_CONNECT_S):
                for each in await self._resolve(address):
                    if not self._reaches(each):
                        continue
                    with contextlib.suppress(OSError):
                        return await asyncio.open_connection(str(each), port, limit=_PIECE)
        except (OSError, UnicodeError, TimeoutError) as error:
            raise _Refused(f"it cannot be reached ({getattr(error, 'strerror', None) or error})") from None
        raise _Refused("it cannot be reached at a public address")

    def _is_allowed(self, address: WebAddress, port: int) -> bool:
        if catching_address(self._limits, f"{address.origin}/"):
            return False
        names = (f"{address.host}:{port}", *((address.host,) if port in _PORTS else ()))
        return any(
            domain in (EVERYTHING, name) or (domain.startswith("*.") and name.endswith(domain[1:]))
            for domain in self._allowed
            for name in names
        )

    async def _was_allowed(self, origin: str, reader: asyncio.StreamReader) -> bool:
        """Whether the user allows it; asked once for a command, for as long as one of those who want it waits."""
        if (asked := self._decided.get(origin)) is None:
            asked = asyncio.ensure_future(self._asked(origin))
            self._decided.update(dict.fromkeys(belonging_to(origin), asked))
        self._waiting[asked] += 1
        try:
            while not (await asyncio.wait((asked,), timeout=_LOOK_S))[0] and not reader.at_eof():
                pass
        finally:
            self._waiting[asked] -= 1
            if not self._waiting[asked]:
                del self._waiting[asked]
                asked.cancel()
        return asked.done() and asked.result()

    async def _asked(self, origin: str) -> bool:
        if self._ask is None:
            return False
        try:
            return await self._ask(origin)
        except BaseException:
            # It was not answered: the next connection asks again.
            for each in belonging_to(origin):
                self._decided.pop(each, None)
            return False


def belonging_to(origin: str) -> tuple[str, ...]:
    """The origins that are allowed together with this one, itself included."""
    host = urlsplit(origin).hostname
    for _, hosts in KNOWN:
        if host in hosts and origin == f"https://{host}":
            return tuple(f"https://{each}" for each in hosts)
    return (origin,)


def _http_request(head: bytes) -> tuple[str, int, bytes]:
    """The host and port of a request, and what to send on; nothing of CONNECT. Raises ValueError."""
    found = _REQUEST.match(head)
    if not found:
        raise ValueError("no request")
    if found[1] == b"CONNECT":
        host, colon, port = found[2].decode("ascii").rpartition(":")
        if not colon:
            raise ValueError("no port")
        return host.strip("[]"), int(port), b""
    parts = urlsplit(found[2].decode("ascii"))
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("no address")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = head[found.end() : -4].split(b"\r\n")
    # Some servers take a mere LF for the end of a line.
    whole = (line for line in lines if line and b"\n" not in line)
    kept = [line for line in whole if line.partition(b":")[0].strip().lower() not in _OF_THE_HOP]
    first = found[1] + b" " + path.encode("ascii") + b" HTTP/1.1"
    # What was allowed is this host, whatever else the request may say.
    host = b"Host: " + parts.netloc.rpartition("@")[2].encode("ascii")
    return parts.hostname, parts.port or 80, b"\r\n".join((first, host, *kept, b"Connection: close")) + b"\r\n\r\n"


def _http_refusal(host: str, why: str) -> bytes:
    text = f"The sandbox does not let this command reach {host}: {why}.\n".encode()
    head = f"HTTP/1.1 403 Not allowed by the sandbox\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
    return head.encode() + text


async def _socks_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    """Read what a SOCKS 5 client asks for (RFC 1928). Raises ValueError."""
    await reader.readexactly((await reader.readexactly(1))[0])
    writer.write(bytes((_SOCKS, 0)))
    _, command, _, kind = await reader.readexactly(4)
    if command != 1:
        writer.write(_socks_answer(7))
        raise ValueError("only connections")
    if kind == 3:
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("ascii")
    else:
        host = str(ip_address(await reader.readexactly({1: 4, 4: 16}[kind])))
    return host, int.from_bytes(await reader.readexactly(2), "big")


def _socks_answer(code: int) -> bytes:
    return bytes((_SOCKS, code, 0, 1)) + bytes(6)


async def _pass_on_both(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, theirs: asyncio.StreamReader, away: asyncio.StreamWriter
) -> None:
    there = asyncio.create_task(_pass_on(reader, away))
    try:
        await _pass_on(theirs, writer)
    finally:
        there.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError, TimeoutError):
            await there


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while True:
        async with asyncio.timeout(_IDLE_S):
            piece = await source.read(_PIECE)
        if not piece:
            break
        target.write(piece)
        await target.drain()
    if target.can_write_eof():
        target.write_eof()


def asking(gate: PermissionGate, context: ToolContext, command: str) -> Ask:
    """A function that asks whether this command may reach an origin, such as ``https://pypi.org``."""

    async def ask(origin: str) -> bool:
        arguments = json.dumps({"address": f"{origin}/", "command": command})
        verdict = await gate.check(_ReachDomain(), ToolCall(context.call_id, NETWORK, arguments), context.ask)
        return verdict.allowed

    return ask


class _ReachDomain:
    """What the gate judges: the reaching of a domain by a command that runs."""

    effect: Effect = "network"
    definition = ToolDefinition(NETWORK, "", "{}")

    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        origin = json.loads(arguments)["address"].removesuffix("/")
        return tuple(Access("network", f"{each}/", inside=False) for each in belonging_to(origin))

    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        given = json.loads(arguments)
        address = urlsplit(given["address"])
        reached = " and ".join(urlsplit(each).netloc for each in belonging_to(given["address"].removesuffix("/")))
        known = next((f"{name} ({reached})" for name, hosts in KNOWN if address.hostname in hosts), reached)
        return Preview(title=f"Let it reach {known}", command=given["command"])

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        raise NotImplementedError("it is asked about, not called")
