"""`tui-agent web`: the real program, its address by HTTP, and the app over its WebSocket as the page speaks to it."""

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pyte
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from tests.e2e.program import ROOT

pytest.importorskip("textual_serve")
COLUMNS, ROWS, PATIENCE_S = 90, 30, 40


class Server:
    """The program, and requests to it."""

    def __init__(self, folder: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        environ |= {"TUI_AGENT_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "TMUX": "not ours"}
        command = [sys.executable, "-m", "tui_agent", "web", "--model", "offline"]
        self.process = subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = urlsplit(self.process.stdout.readline().strip())
        self.root = f"http://{self.address.netloc}"

    def status(self, path: str, **headers: str) -> int:
        line = HTTPConnection(self.address.netloc, timeout=PATIENCE_S)
        line.request("GET", path, headers=headers)
        return line.getresponse().status

    @contextmanager
    def tab(self, *, origin: str = "", path: str = "") -> "Iterator[Tab]":
        where = f"ws://{self.address.netloc}{path or self.address.path}socket?width={COLUMNS}&height={ROWS}"
        with connect(where, origin=Origin(origin or self.root)) as line:
            yield Tab(line)

    def apps(self) -> list[psutil.Process]:
        found: list[psutil.Process] = psutil.Process(self.process.pid).children()
        return found


class Tab:
    """What the page does: it shows what comes and sends what is typed."""

    def __init__(self, line: ClientConnection) -> None:
        self.line = line
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)

    def sees(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not any(words in line for line in self.screen.display):
            assert time.monotonic() < deadline, "\n".join(self.screen.display)
            with suppress(TimeoutError):
                self._take(1)

    def says(self, *message: object) -> None:
        self.line.send(json.dumps(message))

    def ends(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                self._take(PATIENCE_S)

    def _take(self, seconds: float) -> None:
        data = self.line.recv(seconds)
        assert isinstance(data, bytes)
        self._stream.feed(data)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.process.kill()
    server.process.wait()


def test_only_its_own_page_at_the_printed_address_can_use_it_and_gives_its_terminal_the_keyboard(
    server: Server,
) -> None:
    path = server.address.path
    assert server.address.hostname == "127.0.0.1"
    assert server.status(path) == server.status(f"{path}static/js/textual.js") == 200
    wrong = path[:-2] + ("A" if path[-2] != "A" else "B") + "/"
    for each in ("/", wrong, f"{wrong}static/js/textual.js", "/static/js/textual.js"):
        assert server.status(each) == 403, each
    assert server.status(path, Host="localhost:1") == 200, "a tunnel"
    for headers in ({"Host": "rebound.example"}, {"Origin": "http://other.example"}, {"Origin": "null"}):
        assert server.status(path, **headers) == server.status(f"{path}socket", **headers) == 403, headers
    assert server.status(f"{path}socket", Upgrade="websocket") == 403, "no browser's"
    for refused in ({"origin": "http://127.0.0.1:1"}, {"path": wrong}):
        with pytest.raises(InvalidStatus, match="403"), server.tab(**refused):
            pass
    assert server.apps() == []
    line = HTTPConnection(server.address.netloc, timeout=PATIENCE_S)
    line.request("GET", path)
    reply = line.getresponse()
    script = reply.read().decode().partition("<script>")[2].partition("</script>")[0]
    assert ".focus()" in script
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    assert f"'sha256-{allowed}'" in reply.headers["Content-Security-Policy"]


def test_each_tab_is_the_app_with_a_session_of_its_own(server: Server, tmp_path: Path) -> None:
    with server.tab() as other, server.tab() as tab:
        for each in (tab, other):
            each.sees("For example:")
        assert len(server.apps()) == 2
        tab.sees(f"╭{'─' * (COLUMNS - 2)}╮")
        tab.says("stdin", "!echo $((6*7)) :$TMUX:\r")
        tab.sees("42 ::")
        tab.says("no such message", {"to": "ignore"})
        tab.line.send("not JSON")
        tab.says("resize", {"width": 60, "height": 20})
        tab.sees(f"╭{'─' * 58}╮")
        tab.says("stdin", "/exit\r")
        tab.ends()
        (left,) = server.apps()
    left.wait(PATIENCE_S)
    assert len(list((tmp_path / "home" / "sessions").glob("2*"))) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_however_it_ends_no_app_outlives_it(server: Server, number: int) -> None:
    with server.tab() as tab:
        tab.sees("For example:")
        apps = [each for app in server.apps() for each in (app, *app.children(recursive=True))]
        assert apps
        server.process.send_signal(number)
    assert server.process.wait(PATIENCE_S) == (0 if number == signal.SIGINT else -number)
    _, alive = psutil.wait_procs(apps, PATIENCE_S)
    assert alive == []
