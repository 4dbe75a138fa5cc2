"""The proxy lets through what is allowed, asks about the rest once, and reaches only public addresses."""

import asyncio
import json
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import pytest

from tests.tools.sandbox.test_ways_out import Outside, kinds, outside
from tests.tools.support import Call
from tui_agent.tools.gate.rules import Rule
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox.proxy import Ask, Proxy
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxMechanism
from tui_agent.tools.shell.run_command import RunCommand
from tui_agent.tools.web.addresses import Address, WebAddress

__all__ = ["outside"]

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


async def here(address: WebAddress) -> tuple[Address, ...]:
    """Every name leads to this machine."""
    return (ip_address("127.0.0.1"),)


@asynccontextmanager
async def server() -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that says hello; its port, and what it was told."""
    told: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    found = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with found:
        yield found.sockets[0].getsockname()[1], told


@asynccontextmanager
async def serving(proxy: Proxy, ask: Ask | None = None) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await proxy.serve(listener, ask)
        yield listener.getsockname()[1]
        await proxy.close()


async def say(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


def connect(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\nGET / HTTP/1.1\r\n\r\n".encode()


async def test_what_is_allowed_is_let_through_in_each_way() -> None:
    async with server() as (port, told):
        proxy = Proxy([f"a.example:{port}"], resolver=here, reaches=lambda address: True)
        async with serving(proxy) as at:
            assert (await say(at, connect("a.example", port))).endswith(ANSWER)
            plain = f"GET http://a.example:{port}/x?y HTTP/1.1\r\nhOST : evil\r\nY: 1\nHost: evil\r\nX: 1\r\n"
            assert await say(at, f"{plain}Proxy-Authorization: z\r\n\r\n".encode()) == ANSWER
            assert await say(at, f"GET http://a.example:{port}/ HTTP/1.0\r\n\r\n".encode()) == ANSWER
            socks = b"\x05\x01\x00\x05\x01\x00\x03\x09a.example" + port.to_bytes(2, "big")
            assert (await say(at, socks + b"GET / HTTP/1.1\r\n\r\n")).endswith(ANSWER)
    assert told[2] == f"GET / HTTP/1.1\r\nHost: a.example:{port}\r\nConnection: close\r\n\r\n".encode()
    assert told[1] == f"GET /x?y HTTP/1.1\r\nHost: a.example:{port}\r\nX: 1\r\nConnection: close\r\n\r\n".encode()


async def test_it_asks_once_for_a_command_about_a_domain_and_those_that_belong_to_it() -> None:
    asked: list[str] = []

    async def ask(origin: str) -> bool:
        asked.append(origin)
        return "pypi" in origin

    with socket.create_server(("127.0.0.1", 0)) as listener:
        at, proxy = listener.getsockname()[1], Proxy([], resolver=here, reaches=lambda address: True)
        hosts = ("b.example", "b.example", "pypi.org", "files.pythonhosted.org")
        await proxy.serve(listener, ask)
        answers = [await say(at, connect(host, 443)) for host in hosts]
        # Its own port is not the one that was asked about.
        for name in ("pypi.org/", "pypi.org?", "pypi.org#"):
            assert (await say(at, connect(name, 22))).endswith(b": it is no name of a server.\n")
        # The next command: what was refused stays so, what was allowed is asked about anew.
        await proxy.serve(listener, ask)
        answers += [await say(at, connect(host, 443)) for host in hosts]
        await proxy.close()
    assert asked == ["https://b.example", *2 * ["https://pypi.org"]]
    assert [answer[9:12] for answer in answers[:2]] == [b"403", b"403"]
    assert b"it was not allowed" in answers[0]
    assert b"it was not allowed" not in answers[2] + answers[3]
    assert proxy.take_refused()[0] == "b.example: it was not allowed"
    assert proxy.take_refused() == []


async def test_a_question_is_withdrawn_once_nobody_waits_for_its_answer() -> None:
    withdrawn = asyncio.Event()

    async def ask(origin: str) -> bool:
        try:
            await asyncio.Event().wait()
        finally:
            withdrawn.set()
        return True

    async with serving(Proxy([], resolver=here), ask) as at:
        (_, one), (_, two) = [await asyncio.open_connection("127.0.0.1", at) for _ in range(2)]
        for writer in (one, two):
            writer.write(b"CONNECT b.example:443 HTTP/1.1\r\n\r\n")
        one.close()
        await asyncio.sleep(0.6)
        assert not withdrawn.is_set()
        two.close()
        async with asyncio.timeout(10):
            await withdrawn.wait()


PRIVATE = (
    *("127.0.0.1", "localhost", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[::1]", "[fe80::1]", "0x7f000001"),
    *("2130706433", "127.1", "metadata.internal", "[::ffff:127.0.0.1]", "100.64.0.1", "0.0.0.0"),
)


async def test_nobody_reaches_a_private_address_by_it() -> None:
    async with serving(Proxy(["*"])) as at:
        for host in PRIVATE:
            for port in (80, 443, 22):
                assert (await say(at, connect(host, port))).startswith(b"HTTP/1.1 403"), host
        for address in (b"\x01\x7f\x00\x00\x01", b"\x04" + bytes(15) + b"\x01"):
            told = await say(at, b"\x05\x01\x00\x05\x01\x00" + address + (80).to_bytes(2, "big"))
            assert told[:4] == bytes((5, 0, 5, 2))
    async with serving(Proxy(["a.example"], resolver=here)) as at:  # a name that leads to one
        assert b"at a public address" in await say(at, connect("a.example", 443))


async def test_a_domain_is_allowed_with_the_ports_of_the_web_and_where_no_rule_names_it() -> None:
    limits = map(Rule.read, ("network(https://bad.example/*)", "network(https://9.9.9.8/*)", "read_file(*)"))
    async with serving(Proxy(["*.example", "*.a.example:22", "9.9.9.9", "9.9.9.8"], limits, resolver=here)) as at:
        for host, port, allowed in (
            *(("a.example", 443, True), ("a.example.", 80, True), ("a.example", 22, False), ("b.a.example", 22, True)),
            *(("example", 443, False), ("bad.example", 443, False), ("BAD.example.", 443, False)),
            *(("bad.example", 80, False), ("9.9.9.8", 80, False)),
            *(("9.9.9.9", 443, True), ("151587081", 443, True), ("9.9.9.8", 443, False), ("0x9090908", 443, False)),
        ):
            assert (b"at a public address" in await say(at, connect(host, port))) == allowed, host


async def test_nonsense_ends_the_connection_and_nothing_else() -> None:
    async with server() as (port, _):
        proxy = Proxy([f"a.example:{port}"], resolver=here, reaches=lambda address: True)
        async with serving(proxy) as at:
            socks = (b"\x05\x00\x05\x02\x00\x01", b"\x05\x00\x05\x01\x00\x09")
            for data in (b"x\r\n\r\n", b"x" * 100_000, b"CONNECT a HTTP/1.1\r\n\r\n", *socks):
                with_answer = b""
                with suppress(ConnectionResetError):
                    with_answer = await say(at, data)
                assert b"200" not in with_answer
            assert (await say(at, connect("a.example", port))).endswith(ANSWER)


@pytest.mark.soak
async def test_a_connection_takes_little_time() -> None:
    async with server() as (port, _):
        proxy = Proxy([f"a.example:{port}"], resolver=here, reaches=lambda address: True)
        async with serving(proxy) as at:
            taken: dict[bool, list[float]] = {True: [], False: []}
            for number in range(200):
                by_proxy, began = bool(number % 2), time.perf_counter()
                data = connect("a.example", port) if by_proxy else b"GET / HTTP/1.1\r\n\r\n"
                assert (await say(at if by_proxy else port, data)).endswith(ANSWER)
                taken[by_proxy].append(time.perf_counter() - began)
    assert statistics.median(taken[True]) - statistics.median(taken[False]) < 0.05


@pytest.mark.parametrize("kind", [kind for kind in kinds() if kind != "landlock"])
async def test_a_command_reaches_what_is_allowed_and_is_told_what_is_not(outside: Outside, kind: str) -> None:
    async with server() as (port, told):
        sandbox = Sandbox("auto", outside.places, offered=SandboxMechanism(kind, ""))  # type: ignore[arg-type]
        sandbox.proxy = Proxy([f"a.example:{port}"], resolver=here, reaches=lambda address: True)
        tool = RunCommand(sandbox=sandbox)
        fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).read())"
        context = Call(Workspace(outside.project), (), outside.state / "session")

        async def run(line: str) -> str:
            return (await tool.run(json.dumps({"command": line}), context)).text

        assert "hello" in await run(f"{sys.executable} -c '{fetch}' http://a.example:{port}/x")
        text = await run(f"{sys.executable} -c '{fetch}' http://b.example/")
        assert "[the sandbox did not let it reach b.example: it was not allowed]" in text
        past = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert "Error" in await run(f'{sys.executable} -c "{past}"')
        await sandbox.proxy.close()
        sandbox.close()
    assert len(told) == 1
