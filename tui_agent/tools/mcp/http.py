"""Servers at an address: streamable HTTP or the older SSE, with OAuth sign-in if the server asks for it.

The SDK's own providers implement OAuth: discovery, registration, PKCE, renewal. This module stores their tokens, in a
private file, and serves the redirect address on this machine while somebody signs in.
"""

import asyncio
import contextlib
import re
import time
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from typing_extensions import override

from tui_agent.settings import ToolServer
from tui_agent.settings.schema import OAuth
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded_file
from tui_agent.tools.mcp.process import MAX_MESSAGE

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthMetadata, OAuthToken

SIGNING_IN_S: Final = 300.0
"""Seconds the user has to sign in."""
DONE: Final = "<!doctype html><title>tui-agent</title><p>Signed in. You can close this page and go back."
FAILED: Final = "<!doctype html><title>tui-agent</title><p>That did not work. Go back and try again."


class Unauthorized:
    """Records that the server asked for a sign-in, and for which scopes where the present ones do not suffice."""

    def __init__(self) -> None:
        self.asked = False
        self.scopes = ""

    async def note(self, response: "httpx2.Response") -> None:
        challenge = response.headers.get("www-authenticate", "")
        more = response.status_code == 403 and "insufficient_scope" in challenge  # RFC 6750
        self.asked = self.asked or response.status_code == 401 or more
        if more and (named := re.search(r'scope="([^"]*)"', challenge)):
            self.scopes = named[1]


async def bound(response: "httpx2.Response") -> None:
    """Make reading the body raise StreamError once it is longer than a message may be, compressed or decompressed.

    The SDK limits events, but reads any other body without a limit.
    """
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, whole: httpx2.Response) -> None:
            self._whole = whole

        @override
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._whole.aiter_bytes():
                size += len(piece)
                if size > MAX_MESSAGE:
                    raise httpx2.StreamError(f"it sent a message of more than {MAX_MESSAGE // (1024 * 1024)} MB")
                yield piece

        @override
        async def aclose(self) -> None:
            await self._whole.aclose()

    if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
        whole = httpx2.Response(response.status_code, headers=response.headers, stream=response.stream)
        response.stream = Bounded(whole)
        response.headers.pop("content-encoding", None)  # it is decompressed here


class Tokens:
    """The SDK's token storage for one server, in a private file. Tokens are never logged."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def there(self) -> bool:
        """Whether the user has signed in."""
        return self._path.exists()

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)

    async def get_tokens(self) -> "OAuthToken | None":
        from mcp.shared.auth import OAuthToken

        text = self._read().get("tokens")
        return OAuthToken.model_validate_json(text) if text else None

    async def set_tokens(self, tokens: "OAuthToken") -> None:
        ends = str(time.time() + tokens.expires_in) if tokens.expires_in else ""
        await asyncio.to_thread(self._write, {"tokens": tokens.model_dump_json(), "expires": ends})

    async def get_client_info(self) -> "OAuthClientInformationFull | None":
        from mcp.shared.auth import OAuthClientInformationFull

        text = self._read().get("client")
        return OAuthClientInformationFull.model_validate_json(text) if text else None

    async def set_client_info(self, client_info: "OAuthClientInformationFull") -> None:
        await asyncio.to_thread(self._write, {"client": client_info.model_dump_json()})

    async def set_metadata(self, metadata: "OAuthMetadata") -> None:
        """Store where tokens are renewed."""
        await asyncio.to_thread(self._write, {"metadata": metadata.model_dump_json()})

    def renewal(self) -> "tuple[float | None, OAuthMetadata | None]":
        """When the token expires, and where it is renewed."""
        from mcp.shared.auth import OAuthMetadata

        kept = self._read()
        metadata, ends = kept.get("metadata"), kept.get("expires")
        return float(ends) if ends else None, OAuthMetadata.model_validate_json(metadata) if metadata else None

    def _read(self) -> dict[str, str]:
        return decoded_file(self._path, dict[str, str]) or {}

    def _write(self, more: dict[str, str]) -> None:
        make_private_folder(self._path.parent)
        write_file(self._path, msgspec.json.encode({**self._read(), **more}))


class SignIn:
    """One sign-in: calls `show` with the address to open. Enter this context before it begins.

    `scopes` are asked for besides what the server names; `port` is that of the redirect address (0: any).
    """

    def __init__(self, show: Callable[[str], None], scopes: str = "", port: int = 0) -> None:
        self._show = show
        self.scopes = scopes
        self._port = port
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @property
    def address(self) -> str:
        if self._port:
            return f"http://localhost:{self._port}/callback"  # as it is registered, by the pages of most servers
        port = self._server.sockets[0].getsockname()[1] if self._server else 0
        return f"http://127.0.0.1:{port}/callback"

    async def __aenter__(self) -> "SignIn":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        self._answer.cancel()

    async def open(self, url: str) -> None:
        """Ask the user to sign in at `url`. Once this sign-in is over, the SDK's error of one that nobody attends."""
        if self._server is None:
            from mcp.client.auth import OAuthFlowError

            raise OAuthFlowError("it asks to sign in again")
        if urlsplit(url).scheme not in ("https", "http"):
            raise ValueError("the address to sign in at is not one of the web")
        if self._answer.done():  # the server asks once more, as for other scopes
            self._answer = asyncio.get_running_loop().create_future()
        self._show(url)
        import webbrowser

        with contextlib.suppress(webbrowser.Error, OSError):
            await asyncio.to_thread(webbrowser.open, url)

    async def code(self) -> "AuthorizationCodeResult":
        """The authorization code that the browser brings back. Raises TimeoutError, ValueError."""
        from mcp.shared.auth import AuthorizationCodeResult

        async with asyncio.timeout(SIGNING_IN_S):
            answer = await self._answer
        if "code" not in answer:
            raise ValueError(
                f"the sign-in was refused: {answer.get('error_description') or answer.get('error', 'no code')}"
            )
        return AuthorizationCodeResult(code=answer["code"], state=answer.get("state"), iss=answer.get("iss"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0].decode("latin-1")
            target = urlsplit(line.split(" ")[1] if line.count(" ") == 2 else "/")
            found = target.path == "/callback"
            fields = {name: values[0] for name, values in parse_qs(target.query).items()}
            page = (DONE if "code" in fields else FAILED).encode()
            head = f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nContent-Type: text/html\r\n"
            writer.write(f"{head}Content-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode() + page)
            await writer.drain()
            if found and not self._answer.done():
                self._answer.set_result(fields)
        writer.close()


@asynccontextmanager
async def listening(
    server: ToolServer, tokens: Tokens, unauthorized: Unauthorized, sign_in: SignIn | None = None
) -> AsyncGenerator["TransportStreams", None]:
    """The server's message streams for the SDK's client. With `sign_in`, the user signs in if the server asks."""
    from mcp.shared._httpx_utils import create_mcp_http_client

    alone = server.oauth is not None and server.oauth.grant == "client_credentials"
    auth = _provider(server, tokens, sign_in) if alone or sign_in is not None or tokens.there else None

    def client(
        headers: dict[str, str] | None = None,
        timeout: "httpx2.Timeout | None" = None,
        auth: "httpx2.Auth | None" = auth,
    ) -> "httpx2.AsyncClient":
        made = create_mcp_http_client(headers=server.headers or None, timeout=timeout, auth=auth)
        made.event_hooks["response"] += [unauthorized.note, bound]
        return made

    if server.type == "sse" or (not server.type and urlsplit(server.url).path.endswith("/sse")):
        from mcp.client.sse import sse_client

        async with sse_client(server.url, httpx_client_factory=client, auth=auth) as streams:
            yield streams
        return
    from mcp.client.streamable_http import streamable_http_client

    async with (
        client() as http,
        streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


def _provider(server: ToolServer, tokens: Tokens, sign_in: SignIn | None) -> "OAuthClientProvider":
    """The SDK's provider for a server: one of its own for programs that sign in by themselves."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.extensions import client_credentials
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
    from pydantic import AnyUrl

    oauth = server.oauth or OAuth()
    known, scopes = oauth.client_id, " ".join(oauth.scopes)
    if oauth.grant == "client_credentials":
        scope, issuer = scopes or None, oauth.issuer or None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing issuer; it is the user's to name
            if not oauth.private_key:
                return client_credentials.ClientCredentialsOAuthProvider(
                    server.url, tokens, known, oauth.client_secret, scope=scope, issuer=issuer
                )
            signed = client_credentials.SignedJWTParameters(
                issuer=known, subject=known, signing_key=oauth.private_key, signing_algorithm=oauth.algorithm
            )
            return client_credentials.PrivateKeyJWTOAuthProvider(
                server.url, tokens, known, signed.create_assertion_provider(), scope, issuer
            )

    class Provider(OAuthClientProvider):
        """Also takes a registered client, and renews a token that expired between two runs of the program."""

        @override
        async def _initialize(self) -> None:
            await super()._initialize()
            ends, metadata = await asyncio.to_thread(tokens.renewal)
            self.context.token_expiry_time = ends
            self.context.oauth_metadata = metadata
            if known and not described:
                self.context.client_info = OAuthClientInformationFull(
                    client_id=known, client_secret=oauth.client_secret or None, redirect_uris=[AnyUrl(address)]
                )
                self._choose_method()

        @override
        async def _perform_authorization(self) -> "httpx2.Request":
            context = self.context
            more = sign_in.scopes if sign_in is not None else ""
            wanted = f"{scopes or context.client_metadata.scope or ''} {more}".split()
            context.client_metadata.scope = " ".join(dict.fromkeys(wanted)) or None
            self._choose_method()
            if context.oauth_metadata is not None:
                await tokens.set_metadata(context.oauth_metadata)
            return await super()._perform_authorization()

        def _choose_method(self) -> None:
            """How a registered client sends its secret: the standard's way, unless the server takes only the other."""
            client, metadata = self.context.client_info, self.context.oauth_metadata
            if client is None or not known or described:
                return
            taken = (metadata and metadata.token_endpoint_auth_methods_supported) or ["client_secret_basic"]
            basic = "client_secret_basic" in taken or "client_secret_post" not in taken
            secret = "client_secret_basic" if basic else "client_secret_post"
            client.token_endpoint_auth_method = secret if oauth.client_secret else "none"

    described = known.startswith("https://")
    address = sign_in.address if sign_in is not None else "http://127.0.0.1/callback"
    metadata = OAuthClientMetadata(client_name="tui-agent", redirect_uris=[AnyUrl(address)])
    shown, answered = (sign_in.open, sign_in.code) if sign_in is not None else (None, None)
    return Provider(server.url, metadata, tokens, shown, answered, known if described else None)
