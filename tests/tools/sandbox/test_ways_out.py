"""A program that tries every way out of the sandbox gets none of them, and nothing outside is changed or told."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.tools.support import Call
from tests.tools.world import tree
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.launching import bubblewrap
from tui_agent.tools.sandbox.sandbox import Kind, Mechanism, Places, Sandbox, mechanism
from tui_agent.tools.shell.background import BackgroundCommands
from tui_agent.tools.shell.run_command import RunCommand

ROOT = Path(__file__).parents[3]
HIDDEN = str(ROOT).startswith(("/tmp/", "/var/tmp/"))
"""Whether this checkout lies among temporary files, of which commands have their own."""
AMONG_TEMPORARY = {"pipe_outside", "change_permissions_of_the_program"}
"""There a file of the same path is another one, and what is shown read-only takes what is written into a pipe."""
WAYS_OUT = Path(__file__).with_name("ways_out.py")

BEYOND_LANDLOCK = {
    *("guarded_hook", "guarded_config", "guarded_by_renaming_the_folder", "guarded_by_removing"),
    "list_keys_of_the_home",
}
"""What Landlock cannot refuse. Guarded files are put back when the command has ended."""
BEYOND: dict[Kind, set[str]] = {"landlock": BEYOND_LANDLOCK}

HARMLESS = [
    *("write_outside", "rename_from_inside", "hard_link_in", "change_mode_outside", "change_time_outside"),
    *("pipe_outside", "guarded_hook", "guarded_config", "key_of_the_home", "list_keys_of_the_home"),
    *("permissions_of_the_program", "change_permissions_of_the_program", "network_ipv4", "network_ipv6", "unix_socket"),
    *("unix_socket_in_the_project", "abstract_socket", "unix_datagram_of_a_pair", "write_on_the_users_terminal"),
]
"""Ways that are tried without a sandbox as well, in a place made for it."""


def kinds() -> list[Kind]:
    """What can be tried here."""
    found: list[Kind] = [mechanism().kind] if mechanism().kind not in {"none", "seatbelt"} else []
    if found and kernel.landlock_version():
        found.append("landlock")
    if found and bubblewrap():
        found.append("bubblewrap")
    return list(dict.fromkeys(found))


class Outside:
    """A place that commands see, with a home full of keys, servers that wait for them, and a terminal."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.project, self.outside, self.home, self.state = (
            place / name for name in ("project", "outside", "home", "state")
        )
        for folder in (self.project, self.outside, self.home / ".ssh", self.home / ".aws", self.state / "session"):
            folder.mkdir(parents=True)
        (self.outside / "file.txt").write_text("as it was\n")
        os.mkfifo(self.outside / "pipe")
        self.pipe = os.open(self.outside / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        for name in (".ssh/id_ed25519", ".aws/credentials", ".netrc"):
            (self.home / name).write_text("a SECRET\n")
        (self.state / "permissions.json").write_text('{"SECRET": 1}')
        (self.project / "AGENTS.md").write_text("Be kind.\n")
        git = ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "init.defaultBranch=main"]
        for line in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            subprocess.run([*git, *line], cwd=self.project, check=True, capture_output=True)
        self.guarded = tree(self.project / ".git" / "hooks") | {"config": (self.project / ".git/config").read_text()}
        self._servers = {
            "ipv4": self._server(socket.AF_INET, ("", 0)),
            "ipv6": self._server(socket.AF_INET6, ("::1", 0)),
            "datagram": self._server(socket.AF_INET, ("", 0), socket.SOCK_DGRAM),
            "unix": self._server(socket.AF_UNIX, str(self.outside / "s.sock")),
            "service": self._server(socket.AF_UNIX, str(self.project / "service.sock")),
            "unix_datagram": self._server(socket.AF_UNIX, str(self.outside / "d.sock"), socket.SOCK_DGRAM),
            "abstract": self._server(socket.AF_UNIX, f"\0tui-agent-{os.getpid()}"),
        }
        self.terminal, self._terminal_end = os.openpty()
        os.set_blocking(self.terminal, False)
        self.before = self.now()

    @property
    def facts(self) -> dict[str, Any]:
        """What the program is told of the place."""
        ports = {name: one.getsockname()[1] for name, one in self._servers.items() if one.family != socket.AF_UNIX}
        return {
            **{"outside": str(self.outside), "home": str(self.home), "project": str(self.project)},
            **{"state": str(self.state), "program": os.getpid(), "address": _address(), **ports},
            **{"unix": str(self.outside / "s.sock"), "unix_datagram": str(self.outside / "d.sock")},
            **{"abstract": f"tui-agent-{os.getpid()}", "terminal": os.ttyname(self._terminal_end)},
        }

    @property
    def places(self) -> Places:
        return Places(
            folders=(self.project,),
            project=self.project,
            program=self.state,
            session=self.state / "session",
            shown=(self.state / "session", *self._shown_besides),
            home=self.home,
        )

    @property
    def _shown_besides(self) -> tuple[Path, ...]:
        """What a command sees anyway, unless this checkout itself lies among temporary files."""
        return (self.outside, Path(sys.prefix)) if HIDDEN else ()

    def now(self) -> dict[str, tuple[int, int, str]]:
        """All that no command may change, but for the folder that the tool itself keeps its output in."""
        whole = tree(self.outside) | tree(self.home) | tree(self.state)
        return {path: what for path, what in whole.items() if not path.startswith(str(self.state / "session"))}

    def changed(self) -> set[str]:
        """What is not as it was."""
        return {path for path, _ in self.now().items() ^ self.before.items()}

    def heard(self) -> list[str]:
        """The servers, and the terminal, that somebody spoke to."""
        found = [name for name, one in self._servers.items() if _spoken_to(one)]
        for name, descriptor in (("terminal", self.terminal), ("pipe", self.pipe)):
            with suppress(OSError):
                found += [name] if os.read(descriptor, 100) else []
        return found

    def close(self) -> None:
        for one in self._servers.values():
            one.close()
        for descriptor in (self.terminal, self._terminal_end, self.pipe):
            os.close(descriptor)
        shutil.rmtree(self.place)

    def _server(self, family: int, address: Any, kind: int = socket.SOCK_STREAM) -> socket.socket:
        one = socket.socket(family, kind)
        one.bind(address)
        if kind == socket.SOCK_STREAM:
            one.listen()
        one.setblocking(False)
        return one


def _address() -> str:
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("192.0.2.1", 9))
        return str(one.getsockname()[0])
    return "127.0.0.1"


def _spoken_to(one: socket.socket) -> bool:
    try:
        if one.type == socket.SOCK_STREAM:
            one.accept()[0].close()
        else:
            one.recv(10)
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def outside() -> Iterator[Outside]:
    # Commands have a folder for temporary files of their own: what they shall see must lie elsewhere.
    (ROOT / ".pytest_cache").mkdir(exist_ok=True)
    found = Outside(Path(tempfile.mkdtemp(prefix="outside-", dir=ROOT / ".pytest_cache")).resolve())
    yield found
    found.close()


def tools_in(outside: Outside, kind: Kind) -> tuple[RunCommand, BackgroundCommands, Sandbox]:
    sandbox = Sandbox("auto", outside.places, offered=Mechanism(kind, "as the test has it"))
    background = BackgroundCommands()
    return RunCommand(background=background, sandbox=sandbox), background, sandbox


async def run(tool: RunCommand, outside: Outside, command: str, **more: object) -> str:
    workspace = Workspace(outside.project)
    arguments = json.dumps({"command": command, **more})
    context = Call(workspace, tool.access(arguments, workspace), outside.state / "session")
    return (await tool.run(arguments, context)).text


@pytest.mark.parametrize("kind", kinds())
async def test_no_way_out(outside: Outside, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a SECRET")
    signals: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: signals.append(number))
    tool, background, sandbox = tools_in(outside, kind)
    shutil.copy(WAYS_OUT, outside.project / "ways_out.py")
    command = f"{sys.executable} ways_out.py '{json.dumps(outside.facts)}'"
    try:
        text = await run(tool, outside, command)
        found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        assert len(found) >= 60
        allowed = BEYOND.get(kind, set()) | (AMONG_TEMPORARY if HIDDEN else set())
        assert {name: got for name, got in found.items() if got and name not in allowed} == {}, found
        assert outside.changed() == set()
        assert outside.heard() == (["pipe"] if HIDDEN and kind != "landlock" else [])
        assert signals == []
        git = outside.project / ".git"
        assert tree(git / "hooks") | {"config": (git / "config").read_text()} == outside.guarded
        assert (outside.project / "AGENTS.md").read_text() == "Be kind.\n"
    finally:
        await background.close()
        sandbox.close()
        signal.signal(signal.SIGUSR1, before)
    await still(outside.project / "heartbeat")


async def still(heartbeat: Path) -> None:
    """Nothing writes to this file any more."""
    if not await asyncio.to_thread(heartbeat.exists):
        return  # ended before it began
    async with asyncio.timeout(20):
        while time.time() - float(await asyncio.to_thread(heartbeat.read_text) or 0) < 0.5:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_the_ways_are_ways_out_where_there_is_no_sandbox(outside: Outside) -> None:
    """What cannot fail proves nothing: without the sandbox the files, the keys and the servers are reached."""
    shutil.copy(WAYS_OUT, outside.project / "ways_out.py")
    tool = RunCommand()
    facts = outside.facts | {"only": HARMLESS}
    text = await run(tool, outside, f"{sys.executable} ways_out.py '{json.dumps(facts)}'")
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert [name for name in HARMLESS if not found[name] and name != "unix_datagram_of_a_pair"] == []
    assert {"ipv4", "unix", "service", "unix_datagram", "abstract", "terminal"} <= set(outside.heard())
