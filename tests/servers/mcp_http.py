"""A server of tools on 127.0.0.1, written from the specification, without SDK: over streamable HTTP (MCP 2025-06-18) at
``/mcp``, and over the transport before it (HTTP with SSE, MCP 2024-11-05) at ``/sse``.

With ``oauth`` it wants a token, and is its own authorization server (RFC 6749, 7591, 7636, 8414, 9728): it enforces
PKCE and one use of each code and refresh token, and whoever opens the address to sign in is signed in. A `secret` makes
it know one client only (RFC 6749, 2.3.1), which has to send it.
"""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from typing_extensions import override

ECHO = {
    "name": "echo",
    "description": "Say the same again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}
LARGE = {"name": "large", "description": "An answer of that many bytes.", "inputSchema": {"type": "object"}}
FLOOD = {"name": "flood", "description": "Notifications without end.", "inputSchema": {"type": "object"}}
PACKED = {"name": "packed", "description": "The same, packed.", "inputSchema": {"type": "object"}}


class McpHttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *, oauth: bool = False, secret: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.oauth = oauth
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.codes: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.registered = 0
        self.secret = secret
        self.renewals: set[str] = set()
        self.renewed = 0
        self.asked: list[dict[str, str]] = []
        """What was asked at ``/authorize``."""
        self.streams: dict[str, io.BufferedIOBase] = {}
        self.headers: list[dict[str, str]] = []


class _Handler(BaseHTTPRequestHandler):
    server: McpHttpServer

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        url, here = urlsplit(self.path), self.server.url
        if url.path.startswith("/.well-known/oauth-protected-resource"):
            self._answer(200, {"resource": f"{here}/mcp", "authorization_servers": [here]})
        elif url.path.startswith("/.well-known/oauth-authorization-server"):
            self._answer(
                200,
                {
                    "issuer": here,
                    "authorization_endpoint": f"{here}/authorize",
                    "token_endpoint": f"{here}/oauth/token",
                    **({} if self.server.secret else {"registration_endpoint": f"{here}/register"}),
                    "response_types_supported": ["code"],
                    "grant_types_supported": ["authorization_code", "refresh_token"],
                    "code_challenge_methods_supported": ["S256"],
                    "token_endpoint_auth_methods_supported": ["client_secret_post" if self.server.secret else "none"],
                },
            )
        elif url.path == "/authorize":
            given = {name: values[0] for name, values in parse_qs(url.query).items()}
            self.server.asked.append(given)
            code = secrets.token_hex(8)
            self.server.codes[code] = given["code_challenge"]
            back = urlencode({"code": code, "state": given["state"]})
            self._answer(302, {}, Location=f"{given['redirect_uri']}?{back}")
        elif url.path == "/sse":
            self._events()
        else:
            self._answer(405, {})

    def _events(self) -> None:
        """The stream on which everything is answered; it ends with the server or the client."""
        name = secrets.token_hex(8)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"event: endpoint\ndata: /messages?session={name}\n\n".encode())
        self.server.streams[name] = self.wfile
        with contextlib.suppress(OSError):
            self.connection.recv(1)  # returns when the client hangs up

    def do_DELETE(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        match urlsplit(self.path).path:
            case "/register":
                self.server.registered += 1
                self._answer(201, {**json.loads(body), "client_id": "me", "token_endpoint_auth_method": "none"})
            case "/oauth/token":
                self._token({name: values[0] for name, values in parse_qs(body.decode()).items()})
            case "/mcp":
                self.server.headers.append(dict(self.headers))
                self._message(json.loads(body))
            case "/messages":
                self.stream = self.server.streams[parse_qs(urlsplit(self.path).query)["session"][0]]
                self._message(json.loads(body))
                self._send(202, b"")
            case _:
                self._answer(404, {})

    def _token(self, given: dict[str, str]) -> None:
        if self.server.secret and given.get("client_secret") != self.server.secret:
            self._answer(401, {"error": "invalid_client"})
            return
        if given.get("grant_type") == "refresh_token":
            if given.get("refresh_token") not in self.server.renewals:
                self._answer(400, {"error": "invalid_grant"})
                return
            self.server.renewals.discard(given["refresh_token"])
            self.server.renewed += 1
            self._issue()
            return
        challenge = self.server.codes.pop(given.get("code", ""), "")
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != challenge:
            self._answer(400, {"error": "invalid_grant"})
            return
        self._issue()

    def _issue(self) -> None:
        token, renewal = secrets.token_hex(16), secrets.token_hex(16)
        self.server.tokens.add(token)
        self.server.renewals.add(renewal)
        told = {"access_token": token, "token_type": "Bearer", "expires_in": 3600}
        self._answer(200, {**told, "refresh_token": renewal})

    def _message(self, message: dict[str, Any]) -> None:
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if self.server.oauth and token not in self.server.tokens:
            place = f'Bearer resource_metadata="{self.server.url}/.well-known/oauth-protected-resource"'
            self._answer(401, {"error": "invalid_token"}, **{"WWW-Authenticate": place})
            return
        result: dict[str, Any]
        match message.get("method"), message.get("id"):
            case _, None:
                self._answer(202, {})
                return
            case "initialize", _:
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                result["serverInfo"] = {"name": "web", "version": "1"}
            case "tools/list", _:
                result = {"tools": [ECHO, LARGE, PACKED, FLOOD]}
            case "tools/call", _:
                asked, given = message["params"]["name"], message["params"]["arguments"]
                if asked == "flood":
                    self._flood()
                    return
                text = given["text"] if asked == "echo" else "x" * given["size"]
                result = {"content": [{"type": "text", "text": text}]}
                if asked == "packed":
                    data = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
                    self._send(200, data, **{"Content-Encoding": "gzip"})
                    return
            case method, _:
                error = {"code": -32601, "message": f"no method {method}"}
                self._answer(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
                return
        self._answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    stream: io.BufferedIOBase | None = None

    def _answer(self, status: int, body: dict[str, Any], **headers: str) -> None:
        if self.stream is not None:
            if body:
                self.stream.write(b"event: message\ndata: " + json.dumps(body).encode() + b"\n\n")
            return
        self._send(status, json.dumps(body).encode(), **headers)

    def _flood(self) -> None:
        """An answer as a stream of events that never comes to its end."""
        told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 200}}
        event = b"event: message\ndata: " + json.dumps(told).encode() + b"\n\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(event)

    def _send(self, status: int, data: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # who is told too much hangs up
            self.wfile.write(data)


@contextmanager
def serving(*, oauth: bool = False, secret: str = "") -> Iterator[McpHttpServer]:
    server = McpHttpServer(oauth=oauth, secret=secret)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
