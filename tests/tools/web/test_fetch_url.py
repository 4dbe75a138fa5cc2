import asyncio
import base64
import gzip
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.tools.support import Call
from tui_agent.tools.base import Access, ToolFailure, ToolOutput
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.gate.rules import Rule
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.web.addresses import named_by, read_address
from tui_agent.tools.web.fetch_url import FetchUrl
from tui_agent.tools.web.fetching import FetchLimits
from tui_agent.tools.web.html import convert

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
Request = dict[str, str]
Handler = Callable[[Request, asyncio.StreamWriter], Awaitable[None]]


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    length = [] if "Content_Length" in headers else [f"Content-Length: {len(body)}"]
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, *length, "Connection: close", "", ""]).encode() + body


@asynccontextmanager
async def server(pages: dict[str, bytes] | Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator["Served"]:
    """A real server on 127.0.0.1: a fixed answer for each path, or whatever a handler writes."""
    seen: list[Request] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            request = {
                "path": first.split()[1],
                **{k.lower(): v for k, _, v in (line.partition(": ") for line in lines)},
            }
            seen.append(request)
            if callable(pages):
                await pages(request, writer)
            else:
                writer.write(pages.get(request["path"], answer(b"no such page", "404 Not Found")))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield Served(listening.sockets[0].getsockname()[1], seen)
    finally:
        listening.close()


class Served:
    def __init__(self, port: int, seen: list[Request]) -> None:
        self.port = port
        self.seen = seen
        self.url = f"http://127.0.0.1:{port}"


def gate(where: Path, *allow: str, mode: Mode = "auto", deny: tuple[str, ...] = ()) -> PermissionGate:
    return PermissionGate(mode, Workspace(where), allow=allow, deny=deny)


async def fetch(
    where: Path,
    url: str,
    *allow: str,
    mode: Mode = "auto",
    deny: tuple[str, ...] = (),
    limits: FetchLimits | None = None,
) -> ToolOutput:
    """One call as a turn makes it; without `allow`, the rule that names the server's host."""
    rules = allow or ("fetch_url(http://127.0.0.1:*/*)",)
    tool = FetchUrl(gate(where, *rules, mode=mode, deny=deny), limits)
    workspace = Workspace(where)
    arguments = json.dumps({"url": url})
    return await tool.run(arguments, Call(workspace, tool.access(arguments, workspace), where))


async def failing(where: Path, url: str, *allow: str, limits: FetchLimits | None = None, mode: Mode = "auto") -> str:
    with pytest.raises(ToolFailure) as failure:
        await fetch(where, url, *allow, limits=limits, mode=mode)
    return str(failure.value)


async def test_a_page_comes_as_markdown_with_its_title_and_absolute_links(tmp_path: Path) -> None:
    page = (
        b"<!doctype html><title>A\n page</title><script>var secret</script><h1>Head</h1>"
        b"<p>One <b>bold</b> <a href='/x?y=1'>link</a> <img src='p.png' alt='A plan'>"
    )
    async with server({"/d/p": answer(page, Content_Type="text/html; charset=utf-8")}) as served:
        output = await fetch(tmp_path, f"{served.url}/d/p#part")
    words = f"# Head\n\nOne **bold** [link]({served.url}/x?y=1) ![A plan]({served.url}/d/p.png)"
    assert output.text == f"URL: {served.url}/d/p\nTitle: A page\n\n{words}"
    assert served.seen[0]["host"] == f"127.0.0.1:{served.port}"


PRINTED: list[tuple[bytes, str, str]] = [
    ("grün €".encode(), "text/plain; charset=iso-8859-1", "grün €"),
    ("привет".encode("koi8-r"), "text/plain; charset=KOI8-R", "привет"),
    ("日本".encode("shift_jis"), "text/plain; charset='Shift_JIS'", "日本"),
    ("<html><meta charset=windows-1251><p>мир".encode("cp1251"), "text/html", "мир"),
    ("<html><meta http-equiv=x content='text/html; charset=windows-1251'>мир".encode("cp1251"), "text/html", "мир"),
    (b"plain", "text/plain; charset=punycode", "plain"),
    (b"gr\xfcn \xff", "text/plain; charset=no-such", "grün ÿ"),
    (b'{"a": [1]}', "application/json", '{"a": [1]}'),
    (b"<feed><entry/></feed>", "application/atom+xml", "<feed><entry/></feed>"),
    (b"<!-- c --> <!DOCTYPE html><p>x <i>y</i>", "", "x *y*"),
    (b"a,b\n1,2", "application/octet-stream", "a,b\n1,2"),
]


async def test_text_is_read_whatever_its_charset_is_said_to_be(tmp_path: Path) -> None:
    pages = {
        f"/{number}": answer(body, **({"Content_Type": kind} if kind else {}))
        for number, (body, kind, _) in enumerate(PRINTED)
    }
    async with server(pages) as served:
        texts = [(await fetch(tmp_path, served.url + page)).text.split("\n\n", 1)[1] for page in pages]
    assert texts == [words for _, _, words in PRINTED]


async def test_pictures_are_shown_and_other_kinds_named(tmp_path: Path) -> None:
    pages = {
        "/p": answer(PNG, Content_Type="text/plain"),
        "/pdf": answer(b"%PDF-1.7\n\0", Content_Type="application/pdf"),
        "/zip": answer(b"PK\x03\x04\0\0", Content_Type="application/zip"),
        "/bin": answer(b"\0\1\2\3", Content_Type="application/x-thing"),
        "/big": answer(PNG + bytes(4_000_000), Content_Type="image/png"),
        "/none": answer(b"", "204 No Content"),
        "/script": answer(b"<html><body><div id=app></div><script>run()</script>", Content_Type="text/html"),
    }
    async with server(pages) as served:
        picture = await fetch(tmp_path, f"{served.url}/p")
        assert base64.b64decode(picture.images[0].data) == PNG
        assert "pdftotext" in await failing(tmp_path, f"{served.url}/pdf")
        assert "application/zip" in await failing(tmp_path, f"{served.url}/zip")
        assert "application/x-thing" in await failing(tmp_path, f"{served.url}/bin")
        assert (await fetch(tmp_path, f"{served.url}/big")).images
        assert "it is empty" in (await fetch(tmp_path, f"{served.url}/none")).text
        assert "built by scripts" in (await fetch(tmp_path, f"{served.url}/script")).text


async def test_too_much_is_refused_before_it_is_in_memory(tmp_path: Path) -> None:
    limits = FetchLimits(bytes=100_000)
    bomb = gzip.compress(bytes(20_000_000), 9)
    sent = 0

    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if request["path"] == "/bomb":
            writer.write(answer(bomb, Content_Type="text/plain", Content_Encoding="gzip"))
        elif request["path"] == "/twice":
            writer.write(answer(gzip.compress(bomb), Content_Encoding="gzip, gzip"))
        elif request["path"] == "/declared":
            writer.write(answer(b"x", Content_Length="99999999"))
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
            while True:
                writer.write(b"x" * 50_000)
                await writer.drain()
                sent += 50_000
        await writer.drain()

    async with server(endless) as served:
        for path in ("/bomb", "/endless", "/declared"):
            text = await failing(tmp_path, served.url + path, limits=limits)
            assert "too large" in text
            assert "curl" in text
        assert "packed as gzip, gzip" in await failing(tmp_path, f"{served.url}/twice", limits=limits)
    assert sent < 50_000_000


async def test_packed_text_is_unpacked_and_damage_is_said(tmp_path: Path) -> None:
    pages = {
        "/gzip": answer(gzip.compress(b"words"), Content_Encoding="gzip", Content_Type="text/plain"),
        "/deflate": answer(zlib.compress(b"words"), Content_Encoding="deflate", Content_Type="text/plain"),
        "/damaged": answer(b"not gzip", Content_Encoding="gzip"),
        "/other": answer(b"??", Content_Encoding="br"),
        "/short": answer(b"x", Content_Length="10"),
    }
    async with server(pages) as served:
        assert (await fetch(tmp_path, f"{served.url}/gzip")).text.endswith("\n\nwords")
        assert (await fetch(tmp_path, f"{served.url}/deflate")).text.endswith("\n\nwords")
        assert "damaged" in await failing(tmp_path, f"{served.url}/damaged")
        assert "packed as br" in await failing(tmp_path, f"{served.url}/other")
        assert "broke the connection off" in await failing(tmp_path, f"{served.url}/short")


async def test_a_silent_and_a_dripping_server_are_given_up(tmp_path: Path) -> None:
    gone = asyncio.Event()

    async def slow(request: Request, writer: asyncio.StreamWriter) -> None:
        if request["path"] == "/silent":
            await gone.wait()
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while not gone.is_set():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with server(slow) as served:
        silent = FetchLimits(seconds=30, silence=0.2)
        assert "did not answer within 0.2 seconds" in await failing(tmp_path, f"{served.url}/silent", limits=silent)
        dripping = FetchLimits(seconds=0.5, silence=5)
        assert "did not arrive within 0.5 seconds" in await failing(tmp_path, f"{served.url}/drip", limits=dripping)
        gone.set()


async def test_a_page_made_to_be_slow_is_given_up_and_one_nested_deep_is_read(tmp_path: Path) -> None:
    slow = "<table><tr><td>x<td>y<tr><td>" * 40_000
    with pytest.raises(ToolFailure, match=r"longer than 0\.5 seconds.*curl"):
        await convert(slow, "https://example.org/", timeout_s=0.5)
    deep = "<div>" * 20_000 + "<b>bottom" + "<" * 200_000
    assert (await convert(deep, "https://example.org/")).text.startswith("**bottom")


async def test_cancelling_closes_the_connection(tmp_path: Path) -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def wait(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        asked.set()
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    async with server(wait) as served:
        task = asyncio.create_task(fetch(tmp_path, served.url))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(closed.wait(), 60)


async def test_redirects_of_one_site_are_followed_up_to_a_limit(tmp_path: Path) -> None:
    pages = {f"/{n}": answer(b"", "302 Found", Location=f"/{n - 1}") for n in range(1, 20)}
    pages["/0"] = answer(b"there", Content_Type="text/plain")
    pages["/odd"] = answer(b"kept", "301 Moved", Content_Type="text/plain")
    async with server(pages) as served:
        output = await fetch(tmp_path, f"{served.url}/5")
        assert output.text == f"URL: {served.url}/0 (redirected)\n\nthere"
        assert "10 redirects were followed" in await failing(tmp_path, f"{served.url}/19")
        assert len(served.seen) == 6 + 11
        assert (await fetch(tmp_path, f"{served.url}/odd")).text.endswith("kept")


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:1/", "http://a.local/", "http://[fd00::1]/", "http://169.254.169.254/latest/"]
)
async def test_addresses_off_the_public_network_are_refused_at_first_and_after_a_redirect(
    tmp_path: Path, target: str
) -> None:
    for mode in ("auto", "allow"):
        text = await failing(tmp_path, target, "fetch_url", "fetch_url(http://*)", "fetch_url(*)", mode=mode)
        assert "not on the public network" in text
        assert "permissions.allow" in text
    async with server({"/": answer(b"", "307 Temporary Redirect", Location=target)}) as served:
        text = await failing(tmp_path, served.url, f"fetch_url({served.url}/*)", mode="allow")
    assert "not on the public network" in text


async def test_a_name_that_leads_to_a_private_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [["127.0.0.1", "10.1.2.3", "fd00::1"]]
    asked: list[str] = []

    async def resolver(
        loop: asyncio.AbstractEventLoop, host: str, port: int, **options: object
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        asked.append(host)
        return [(2, 1, 6, "", (address, port)) for address in answers[min(len(asked), len(answers)) - 1]]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolver)
    text = await failing(tmp_path, "http://rebound.example/", mode="allow")
    assert "http://rebound.example leads to 127.0.0.1, 10.1.2.3, fd00::1, which is not on the public network" in text
    assert asked == ["rebound.example"]
    async with server({"/": answer(b"inner", Content_Type="text/plain")}) as served:
        asked.clear()
        answers[:] = [["127.0.0.1"], ["192.0.2.1"]]
        url = f"http://inner.example:{served.port}"
        output = await fetch(tmp_path, url, f"fetch_url({url}/*)")
        assert output.text.endswith("inner")
        # One look-up a request: the connection went to the address that was checked, the name to the server.
        assert asked == ["inner.example"]
        assert served.seen[0]["host"] == f"inner.example:{served.port}"


async def test_another_site_is_followed_only_where_the_gate_would_let_it_through(tmp_path: Path) -> None:
    async with (
        server({"/": answer(b"other", Content_Type="text/plain")}) as other,
        server({"/": answer(b"", "302 Found", Location=f"{other.url}/")}) as served,
    ):
        only = f"fetch_url({served.url}/*)"
        named = "fetch_url(http://127.0.0.1:*/nothing)"
        text = await failing(tmp_path, served.url, only, named)
        assert f"another site, which was not asked for: {other.url}/." in text
        assert not other.seen
        assert (await fetch(tmp_path, served.url, only, f"fetch_url({other.url}/*)")).text.endswith("other")
        assert (await fetch(tmp_path, served.url, only, named, mode="allow")).text.endswith("other")
        with pytest.raises(ToolFailure, match="another site"):
            await fetch(tmp_path, served.url, only, named, mode="allow", deny=(f"fetch_url({other.url}/*)",))


async def test_a_password_goes_to_its_own_origin_and_into_no_text(tmp_path: Path) -> None:
    async with server({"/": answer(b"other", Content_Type="text/plain")}) as other:
        pages = {
            "/": answer(b"", "302 Found", Location="/in"),
            "/in": answer(b"", "302 Found", Location=f"{other.url}/"),
            "/here": answer(b"<a href=x>y</a>", Content_Type="text/html"),
        }
        async with server(pages) as served:
            private = served.url.replace("//", "//me:pa%20ss@")
            output = await fetch(tmp_path, f"{private}/")
            wanted = f"Basic {base64.b64encode(b'me:pa ss').decode()}"
            assert [request.get("authorization") for request in served.seen] == [wanted, wanted]
            assert "authorization" not in other.seen[0]
            here = await fetch(tmp_path, f"{private}/here")
            missing = await failing(tmp_path, f"{private}/missing")
    tool = FetchUrl(gate(tmp_path, "fetch_url(http://127.0.0.1:*/*)"))
    arguments = json.dumps({"url": f"{private}/"})
    workspace = Workspace(tmp_path)
    access = tool.access(arguments, workspace)
    assert access == (Access("network", f"{served.url}/", inside=False),)
    for text in (output.text, here.text, missing, str(tool.preview(arguments, workspace)), str(access)):
        assert "pa%20ss" not in text
        assert "pa ss" not in text
        assert "me:" not in text
    assert "s3cret" not in await failing(tmp_path, "ftp://me:s3cret@example.org/")


STATUSES = {
    "400 Bad Request": "refused it: check the address",
    "401 Unauthorized": "wants a login",
    "402 Payment Required": "wants to be paid",
    "403 Forbidden": "turns away automatic readers",
    "404 Not Found": "404 Not Found. There is no such page",
    "405 Method Not Allowed": "cannot be read with GET",
    "410 Gone": "gone for good",
    "418 ": "418 I'm a Teapot",
    "429 Too Many Requests": "Too many requests",
    "451 Unavailable": "legal reasons",
    "499 Odd": "refused it: check the address",
    "500 Internal": "trouble of its own",
    "503 Service Unavailable": "trouble of its own",
    "599 ": "599 an error",
}


async def test_an_error_of_the_server_is_said_with_what_to_do_and_the_beginning_of_its_text(tmp_path: Path) -> None:
    plain = {"Content_Type": "text/plain", "Retry_After": "17"}
    pages = {f"/{status[:3]}": answer(b"Oh\n" + b"x" * 5_000, status, **plain) for status in STATUSES}
    pages |= {"/page": answer(b"<h1>Oh</h1>", "404 Not Found", Content_Type="text/html")}
    pages |= {"/zip": answer(b"PK\3\4" + bytes(100), "500 Internal", Content_Type="application/zip")}
    pages |= {"/long": answer(b"Gone away. " * 2_000, "500 Internal", Content_Type="text/plain")}
    async with server(pages) as served:
        for status, words in STATUSES.items():
            text = await failing(tmp_path, f"{served.url}/{status[:3]}")
            assert words in text
            assert "asks to wait: 17 seconds." in text
            assert "The server says:\nOh\nxxx" in text
            assert len(text) < 1_500
        assert "The server says:\n# Oh" in await failing(tmp_path, f"{served.url}/page")
        assert "The server says" not in await failing(tmp_path, f"{served.url}/zip")
        text = await failing(tmp_path, f"{served.url}/long", limits=FetchLimits(bytes=1_000))
    assert "500 Internal" in text
    assert "The server says:\nGone away." in text
    assert len(text) < 1_500


async def test_what_does_not_answer_is_said_plainly(tmp_path: Path) -> None:
    async with server({}) as served:
        url = served.url
    assert "nothing answers there" in await failing(tmp_path, url)
    rule = "fetch_url(http://no-such-host.invalid/*)"
    assert "no-such-host.invalid was not found" in await failing(tmp_path, "http://no-such-host.invalid/", rule)

    async def garbage(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n\r\n")

    async with server(garbage) as served:
        assert "did not speak HTTP" in await failing(tmp_path, served.url)


async def test_an_invalid_certificate_is_named_and_a_valid_one_checked_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = _certificate(tmp_path, "localhost")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    down = answer(b"", "302 Found", Location="http://localhost:1/")
    async with server({"/": answer(b"safe", Content_Type="text/plain"), "/down": down}, tls) as served:
        rules = tuple(
            f"fetch_url({each}:*/*)" for each in ("https://localhost", "https://127.0.0.1", "http://localhost")
        )
        named = f"https://localhost:{served.port}/"
        assert "certificate of https://localhost" in await failing(tmp_path, named, *rules)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert (await fetch(tmp_path, named, *rules)).text.endswith("safe")
        assert "redirects to an address without encryption" in await failing(tmp_path, f"{named}down", *rules)
        text = await failing(tmp_path, f"https://127.0.0.1:{served.port}/", *rules)
        assert "is not valid" in text


async def test_a_server_that_speaks_no_tls_is_said(tmp_path: Path) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        assert f"No encrypted connection to {url}" in await failing(tmp_path, url, f"fetch_url({url}/*)")


async def test_the_proxy_of_the_environment_is_used_and_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        server({"/": answer(b"direct", Content_Type="text/plain")}) as served,
        server({"http://far.invalid/x": answer(b"by proxy", Content_Type="text/plain")}) as proxy,
    ):
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert (await fetch(tmp_path, "http://far.invalid/x")).text.endswith("by proxy")
        assert proxy.seen[0]["host"] == "far.invalid"
        assert (await fetch(tmp_path, served.url)).text.endswith("direct")
        # What is known here to be private is not asked of the proxy either.
        assert "not on the public network" in await failing(tmp_path, "http://10.0.0.1/")
        assert len(proxy.seen) == 1
        # One that turns away what is to be encrypted, one where nothing answers, and one of a kind nothing here speaks.
        monkeypatch.setenv("https_proxy", proxy.url)
        text = await failing(tmp_path, "https://far.invalid/")
        assert "proxy that the environment names refused the connection to https://far.invalid: 404" in text
    for odd, told in (
        ("socks5://127.0.0.1:9", "could be made through the proxy: nothing answers there"),
        ("gopher://127.0.0.1:9", "The proxy that the environment names cannot be used"),
    ):
        monkeypatch.setenv("https_proxy", odd)
        assert told in await failing(tmp_path, "https://far.invalid/")


async def test_only_what_was_let_through_is_fetched(tmp_path: Path) -> None:
    async with server({}) as served:
        passed = (Access("network", f"{served.url}/a", inside=False),)
        with pytest.raises(ToolFailure, match="not the address the call was let through for"):
            await FetchUrl(gate(tmp_path)).run(
                json.dumps({"url": f"{served.url}/b"}), Call(Workspace(tmp_path), passed, tmp_path)
            )
    assert served.seen == []


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("http://10.0.0.1/*", True),
        ("http://10.0.0.1:*/x", True),
        ("http://10.0.0.1:81/*", False),
        ("http://10.0.0.*/*", False),
        ("http:///*", False),
        ("http://exa mple/*", False),
        ("10.0.0.1", False),
    ],
)
def test_a_rule_names_a_host_only_in_full(pattern: str, named: bool) -> None:
    rules = [Rule("fetch_url", "http://a b/*"), Rule("fetch_url", pattern)]
    assert named_by(rules, read_address("http://10.0.0.1/")) == named


async def test_the_gate_asks_about_the_host_that_is_meant(tmp_path: Path) -> None:
    tool = FetchUrl(gate(tmp_path))
    access = tool.access(
        json.dumps({"url": "https://docs.python.org@evil.example/a b".replace(" ", "%20")}), Workspace(tmp_path)
    )
    assert access[0].target == "https://evil.example/a%20b"
    assert not gate(tmp_path, "fetch_url(https://docs.python.org/*)").passes("fetch_url", access[0])


def _certificate(folder: Path, name: str) -> Path:
    """A self-signed certificate with its key, in one file."""
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path
