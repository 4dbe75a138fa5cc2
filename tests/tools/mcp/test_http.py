"""Servers that listen at an address, and signing in at them."""

import asyncio
import json
import math
import socket
import stat
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.servers.mcp_http import serving
from tests.tools.mcp.connecting import talking
from tui_agent.settings import ToolServer
from tui_agent.settings.schema import McpSettings, OAuth
from tui_agent.tools.mcp import process
from tui_agent.tools.mcp.configuration import ServerUnavailable
from tui_agent.tools.mcp.servers import ToolServers

Opens: TypeAlias = Callable[..., ToolServers]


@pytest.fixture
def open_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opens:
    """Opens the servers of a session with one at this address, which is called web; the browser does nothing."""
    monkeypatch.setenv("BROWSER", "true")

    def opened(url: str, oauth: OAuth | None = None) -> ToolServers:
        settings = McpSettings(servers={"web": ToolServer(url=f"{url}/mcp", oauth=oauth)})
        return ToolServers.opened(settings, tmp_path / "home", tmp_path / "session", [tmp_path], None)

    return opened


async def sign_in(servers: ToolServers) -> bytes:
    """Sign in at web as a user does in a browser; the page that is seen in the end."""
    address = await servers.sign_in("web")
    with await asyncio.to_thread(urllib.request.urlopen, address) as page:
        seen: bytes = page.read()
    await servers._signing_in["web"]
    return seen


async def test_a_server_at_an_address_is_called_with_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", "t-1")
    with serving() as server:
        asked = ToolServer(url=f"{server.url}/mcp", headers={"X-Key": "${TOKEN_OF_MINE}"})
        async with talking(asked, tmp_path) as talk:
            assert (await talk.call("echo", text="hello")).text == "hello"
        assert all(headers["X-Key"] == "t-1" for headers in server.headers)


@pytest.mark.parametrize("tool", ["large", "packed"])
async def test_an_answer_at_an_address_is_bounded_as_one_of_a_program_is(tool: str, tmp_path: Path) -> None:
    with serving() as server:
        async with talking(ToolServer(url=f"{server.url}/mcp"), tmp_path) as talk:
            assert len((await talk.call(tool, size=1_000_000)).text) == 1_000_000
            with pytest.raises(ServerUnavailable, match=r"server test answers cannot be read: .* more than 32 MB"):
                await talk.call(tool, size=40_000_000)
            assert (await talk.call("echo", text="on")).text == "on"


async def test_a_flood_from_an_address_is_named_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PERIOD_S", math.inf)  # on a slow machine it takes longer to flood
    with serving() as server:
        async with talking(ToolServer(url=f"{server.url}/mcp"), tmp_path) as talk:
            with pytest.raises(ServerUnavailable, match="more than 2,000 messages in 10 s that nobody asked for"):
                await talk.call("flood")
            assert (await talk.call("echo", text="on")).text == "on"


async def test_an_address_where_nobody_listens_is_named(tmp_path: Path) -> None:
    async with talking(ToolServer(url="http://127.0.0.1:9/mcp"), tmp_path) as talk:
        with pytest.raises(ServerUnavailable, match="The server test cannot be used"):
            await talk.connection.start()


async def test_signing_in_is_asked_for_done_once_and_remembered(tmp_path: Path, open_web: Opens) -> None:
    with serving(oauth=True) as server:
        servers = open_web(server.url)
        await servers.learn()
        (status,) = servers.statuses()
        assert "asks you to sign in: /mcp login web" in status.error
        assert server.registered == 0, "nothing happens before the user wants it"
        assert b"Signed in" in await sign_in(servers)
        assert [status.standing for status in servers.statuses()] == ["started"]
        await servers.close()
        (file,) = (tmp_path / "home" / "mcp" / "sign-ins").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        again = open_web(server.url)
        assert again.unknown == ()
        await again._connections["web"].start()
        await again.close()
        assert server.registered == 1
        assert not any(token in str(status) for token in server.tokens for status in again.statuses())


async def test_a_sign_in_that_is_refused_says_why(open_web: Opens) -> None:
    with serving(oauth=True) as server:
        servers = open_web(server.url)
        asked = dict(parse_qsl(urlsplit(await servers.sign_in("web")).query))
        answer = urlencode({"error": "access_denied", "error_description": "Not you.", "state": asked["state"]})
        with await asyncio.to_thread(urllib.request.urlopen, f"{asked['redirect_uri']}?{answer}") as page:
            assert b"Signed in" not in page.read()
        with pytest.raises(ServerUnavailable, match="the sign-in was refused: Not you; it asks you to sign in: /mcp"):
            await servers._signing_in["web"]
        await servers.close()


async def test_a_token_that_is_refused_later_asks_to_sign_in_again(open_web: Opens) -> None:
    with serving(oauth=True) as server:
        servers = open_web(server.url)
        for _ in range(2):
            await sign_in(servers)
            server.tokens.clear()
            with pytest.raises(ServerUnavailable, match="asks you to sign in: /mcp login web"):
                await servers._connections["web"].read("x://y")
        await servers.close()


async def test_the_transport_before_streamable_http_is_spoken(tmp_path: Path) -> None:
    with serving() as server:
        for asked in (ToolServer(url=f"{server.url}/sse"), ToolServer(url=f"{server.url}/sse?x=1", type="sse")):
            async with talking(asked, tmp_path) as talk:
                assert (await talk.call("echo", text="hello")).text == "hello"


async def test_a_registered_client_signs_in_with_its_secret_scopes_and_port(
    monkeypatch: pytest.MonkeyPatch, open_web: Opens
) -> None:
    monkeypatch.setenv("SECRET_OF_MINE", "s-1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(oauth=True, secret="s-1") as server:
        oauth = OAuth(client_id="mine", client_secret="${SECRET_OF_MINE}", scopes=("read", "write"), callback_port=port)
        servers = open_web(server.url, oauth)
        await sign_in(servers)
        assert [status.standing for status in servers.statuses()] == ["started"]
        await servers.close()
        (asked,) = server.asked
        assert (asked["client_id"], asked["scope"]) == ("mine", "read write")
        assert asked["redirect_uri"] == f"http://localhost:{port}/callback"
        assert server.registered == 0


async def test_a_token_that_expired_between_two_runs_is_renewed_without_the_user(
    tmp_path: Path, open_web: Opens
) -> None:
    with serving(oauth=True, secret="s-1") as server:
        oauth = OAuth(client_id="mine", client_secret="s-1")
        servers = open_web(server.url, oauth)
        await sign_in(servers)
        await servers.close()
        server.tokens.clear()
        (file,) = (tmp_path / "home" / "mcp" / "sign-ins").iterdir()
        file.write_text(json.dumps({**json.loads(file.read_text()), "expires": "1"}))
        again = open_web(server.url, oauth)
        await again._connections["web"].start()
        await again.close()
        assert server.renewed == 1
        assert len(server.asked) == 1, "nobody signed in again"
