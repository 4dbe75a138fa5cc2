"""`tui-agent web`: the same app in the browser, each tab with a terminal and a session of its own.

The page and what it says over its WebSocket are those of `textual-serve`. Whoever has the address can run commands as
the user, so it carries a token, without which nothing is served, and no other page may use it: the `Host` must not be a
name that somebody else's DNS could point here, and a WebSocket must come from this very page. The token stands in the
path and in no cookie: cookies go to every server of the host, whatever its port.
"""

import asyncio
import fcntl
import hmac
import json
import os
import signal
import struct
import sys
import termios
from base64 import b64encode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from html import escape
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe
from typing import Final
from urllib.parse import urlsplit

import textual_serve
from aiohttp import WSMsgType, web

END_S: Final = 10
"""How long an app may take to end before it is killed."""
MAX_CELLS: Final = 1_000
"""The most columns or rows that a tab may ask for."""
MAX_MESSAGE_BYTES: Final = 64 * 1024**2
"""The longest message of a tab, which is a paste."""
PIECE_BYTES: Final = 65_536
NOT_INHERITED: Final = ("COLUMNS", "LINES", "TMUX", "STY", "TERM_PROGRAM", "TERM_PROGRAM_VERSION", "WT_SESSION")
"""Environment variables that are about the terminal the server runs in."""
SCRIPT: Final = """
new MutationObserver((_, observer) => {
  const keys = document.querySelector(".xterm-helper-textarea");
  if (keys) { keys.focus(); observer.disconnect(); }
}).observe(document, { childList: true, subtree: true });
"""
"""Gives the terminal the keyboard as soon as it is there: nobody should have to click first."""
_SCRIPT_HASH: Final = b64encode(sha256(SCRIPT.encode()).digest()).decode()
HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; script-src 'self' 'sha256-{_SCRIPT_HASH}'; "
    "style-src 'self' 'unsafe-inline'; "
    "font-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="static/css/xterm.css">
<style>
@font-face {{ font-family: "Roboto Mono"; src: url("static/fonts/RobotoMono-VariableFont_wght.ttf"); }}
body {{ background: #000; }}
p {{ display: none; position: fixed; z-index: 10; inset: auto 0 0; margin: 0; padding: 1em; text-align: center;
  font-family: sans-serif; color: #fff; background: #333; }}
p a {{ color: inherit; }}
body.-closed p {{ display: block; }}
</style>
<script>{script}</script>
<script src="static/js/textual.js"></script>
</head>
<body>
<p>The session has ended. <a href="">Begin another</a></p>
<div id="terminal" class="textual-terminal" data-session-websocket-url="{socket}" data-font-size="{font}"></div>
</body>
</html>
"""


class BrowserTab:
    """An app at a terminal of its own. If this process ends, however it ends, the app's terminal is gone with it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        terminal: int,
        reader: asyncio.StreamReader,
        output: asyncio.ReadTransport,
        keys: asyncio.WriteTransport,
    ) -> None:
        """See `open`."""
        self._process = process
        self._terminal = terminal
        self._reader = reader
        self._output = output
        self._input = keys

    @classmethod
    async def open(cls, command: Sequence[str], columns: int, rows: int) -> "BrowserTab":
        """Start the app. Raises OSError."""
        terminal, inside = os.openpty()
        environment = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
        try:
            _resize(terminal, columns, rows)
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=inside,
                stdout=inside,
                stderr=inside,
                env=environment | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
                start_new_session=True,
                preexec_fn=partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0),
            )
        except BaseException:
            os.close(terminal)
            raise
        finally:
            os.close(inside)
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(PIECE_BYTES)
        keys, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(os.dup(terminal), "wb", buffering=0))
        output, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(terminal, "rb", buffering=0)
        )
        return cls(process, terminal, reader, output, keys)

    async def show(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send what the app prints until it ends. Raises OSError if nobody takes it any more."""
        with suppress(OSError):  # how a terminal says that nobody has it open
            while piece := await self._reader.read(PIECE_BYTES):
                await send(piece)

    def receive(self, message: str) -> None:
        """Take in a message of the page; what is none of its messages is ignored."""
        try:
            parsed = json.loads(message)
        except ValueError:
            return
        match parsed:
            case ["stdin", str(keys)]:
                self._input.write(keys.encode("utf-8", "replace"))
            case ["resize", {"width": int(columns), "height": int(rows)}] if not self._output.is_closing():
                with suppress(OSError):
                    _resize(self._terminal, columns, rows)

    async def close(self) -> None:
        """End the app by hanging up, which it takes as any terminal's end; if it does not end, kill it."""
        if not self._input.is_closing():  # asyncio lets nothing be aborted twice
            self._input.abort()
        self._output.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()


def _resize(terminal: int, columns: int, rows: int) -> None:
    columns, rows = (min(max(size, 1), MAX_CELLS) for size in (columns, rows))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Server:
    """Serves one command to whoever has the token. `names`: the hosts it may be called by, besides addresses."""

    def __init__(self, command: Sequence[str], title: str, names: Sequence[str]) -> None:
        self.token = token_urlsafe(32)
        self._command = command
        self._title = title
        self._names = {"localhost", *(name.lower() for name in names)}
        self._tabs: set[BrowserTab] = set()

    def application(self) -> web.Application:
        """What `aiohttp` is to serve."""

        async def guarded(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            if why := self._refused(request):
                return web.Response(status=403, text=f"{why}\n", headers=HEADERS)
            return await handler(request)

        async def with_headers(_request: web.Request, response: web.StreamResponse) -> None:
            response.headers.update(HEADERS)

        application = web.Application(middlewares=[web.middleware(guarded)])
        application.on_response_prepare.append(with_headers)
        application.on_shutdown.append(self._close)
        place = f"/{self.token}"
        application.router.add_get(f"{place}/", self._page)
        application.router.add_get(f"{place}/socket", self._socket)
        application.router.add_static(f"{place}/static", Path(str(textual_serve.__file__)).parent / "static")
        return application

    def _refused(self, request: web.Request) -> str:
        """Why a request is not answered; empty if it is."""
        given = request.path.split("/")[1]
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            return "This needs the address that `tui-agent web` printed, with its token."
        if not self._is_ours(request.headers.get("Host", "")):
            return "This is not the address that `tui-agent web` printed: it may be another site's name for it."
        origin = request.headers.get("Origin")
        if origin is None:
            return "A WebSocket needs an Origin." if "Upgrade" in request.headers else ""
        return "" if urlsplit(origin).netloc == request.headers["Host"] else "Another site may not use this."

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ip_address(name)
        except ValueError:
            return name in self._names
        return True  # an address names no machine but this one

    async def _page(self, request: web.Request) -> web.Response:
        secure = request.headers.get("X-Forwarded-Proto") == "https"
        socket = f"{'wss' if secure else 'ws'}://{request.headers['Host']}/{self.token}/socket"
        font = request.query.get("fontsize", "")
        font = font if font.isdecimal() else "16"
        page = PAGE.format(title=escape(self._title), script=SCRIPT, socket=escape(socket), font=font)
        return web.Response(text=page, content_type="text/html")

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(heartbeat=30, max_msg_size=MAX_MESSAGE_BYTES)
        await socket.prepare(request)
        columns, rows = (_number(request.query.get(name, ""), at) for name, at in (("width", 80), ("height", 24)))
        tab = await BrowserTab.open(self._command, columns, rows)
        self._tabs.add(tab)
        showing = asyncio.create_task(_shown(tab, socket))
        try:
            async for message in socket:
                if message.type is WSMsgType.TEXT:
                    tab.receive(message.data)
        finally:
            showing.cancel()
            await tab.close()
            self._tabs.discard(tab)
        return socket

    async def _close(self, _application: web.Application) -> None:
        await asyncio.gather(*(tab.close() for tab in self._tabs))


async def _shown(tab: BrowserTab, socket: web.WebSocketResponse) -> None:
    with suppress(ConnectionError):
        await tab.show(socket.send_bytes)
    await socket.close()


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else default


def serve(words: Sequence[str], title: str, host: str, port: int, say: Callable[[str], None]) -> None:
    """Serve the app with these command-line words until Ctrl+C; `say` gets the address. Raises OSError."""
    # -P: a module of this name in the folder at hand is not ours.
    command = [sys.executable, "-P", "-m", "tui_agent", *words]
    asyncio.run(_serve(Server(command, title, [host]), host, port, say))


async def _serve(server: Server, host: str, port: int, say: Callable[[str], None]) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        bound = runner.addresses[0][1]
        at = f"[{host}]" if ":" in host else host
        say(f"http://{at}:{bound}/{server.token}/")
        await ended.wait()
    finally:
        await runner.cleanup()
