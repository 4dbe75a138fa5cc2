"""A program that tries every way out of the sandbox gets none of them, and nothing outside is changed or told."""

import asyncio
import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tools.support import Call
from tests.tools.world import tree
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.sandbox import HELD, JOURNALS, Kind, Sandbox, SandboxFolders, SandboxMechanism, mechanism
from tui_agent.tools.shell.background import BackgroundCommands
from tui_agent.tools.shell.run_command import RunCommand

ROOT = Path(__file__).parents[3]
WAYS_OUT = Path(__file__).with_name("ways_out.py")

BEYOND_LANDLOCK = {
    *("guarded_hook", "guarded_config", "guarded_by_renaming_the_folder", "guarded_by_removing"),
    *("guarded_config_by_git", "guarded_by_exchanging_the_folder", "guarded_by_a_hard_link"),
}
"""What Landlock cannot refuse. Guarded files are put back when the command has ended."""
BEYOND: dict[Kind, set[str]] = {"landlock": BEYOND_LANDLOCK}

LIBC = ctypes.CDLL(None, use_errno=True)
MEMORY = ctypes.create_string_buffer(b"as it was")
_MQ_OPEN, _MQ_UNLINK = (240, 241) if os.uname().machine == "x86_64" else (180, 181)

HARMLESS = [
    *("write_outside", "rename_from_inside", "hard_link_in", "change_mode_outside", "change_time_outside"),
    *("pipe_outside", "guarded_hook", "guarded_config", "key_of_the_home", "list_keys_of_the_home"),
    *("permissions_of_the_program", "change_permissions_of_the_program", "network_ipv4", "network_ipv6", "unix_socket"),
    *("unix_socket_in_the_project", "abstract_socket", "unix_datagram_of_a_pair", "write_on_the_users_terminal"),
    *("change_owner_by_descriptor", "change_owner_by_an_empty_path", "change_time_by_descriptor", "change_time_to_now"),
    *("change_mode_by_the_name_of_a_descriptor", "change_mode_by_a_folders_descriptor", "change_mode_through_a_link"),
    *("hard_link_by_the_name_of_a_descriptor", "truncate_by_opening"),
    *("exchange_with_a_file_outside", "program_without_a_file", "guarded_config_by_git", "shared_memory_file"),
    *("shared_memory_of_the_user", "messages_of_the_user", "semaphores_of_the_user", "message_queue_of_the_user"),
    *("unix_datagram_of_a_raw_pair", "watch_the_keys", "write_memory_of_the_program", "settings_of_the_program"),
]
"""Ways that are tried without a sandbox as well, in a place made for it."""


def kinds() -> list[Kind]:
    """What can be tried here."""
    found: list[Kind] = [mechanism().kind] if mechanism().kind not in {"none", "seatbelt"} else []
    if found and kernel.landlock_version():
        found.append("landlock")
    return list(dict.fromkeys(found))


EACH_KIND = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.skipif(kind not in kinds(), reason=f"no {kind} here"))
        for kind in ("namespaces", "landlock")
    ],
)


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
        for name in (JOURNALS, HELD):
            (self.state / name).mkdir()
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
            "unix": self._server(socket.AF_UNIX, "../outside/s.sock"),
            "service": self._server(socket.AF_UNIX, "service.sock"),
            "unix_datagram": self._server(socket.AF_UNIX, "../outside/d.sock", socket.SOCK_DGRAM),
            "abstract": self._server(socket.AF_UNIX, f"\0tui-agent-{os.getpid()}"),
        }
        self._key = 0x7E57_0000 | os.getpid() & 0xFFFF
        self._shared = [LIBC.shmget(self._key, 4096, 0o1600), LIBC.msgget(self._key, 0o1600)]
        self._shared.append(LIBC.semget(self._key, 1, 0o1600))
        self._queue = LIBC.syscall(_MQ_OPEN, f"tui-agent-{os.getpid()}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
        self.shared = Path(f"/dev/shm/tui-agent-{os.getpid()}")
        self.shared.write_text("as it was\n")
        MEMORY.value = b"as it was"
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
            # From the project, where commands run: an address of this kind has 107 bytes at most.
            **{"unix": "../outside/s.sock", "unix_datagram": "../outside/d.sock"},
            **{"abstract": f"tui-agent-{os.getpid()}", "terminal": os.ttyname(self._terminal_end)},
            **{"shared_file": str(self.shared), "shared_key": self._key, "queue": f"tui-agent-{os.getpid()}"},
            **{"memory": ctypes.addressof(MEMORY), "terminals": os.fstat(self._terminal_end).st_dev},
            **{"keys": (self.home / ".ssh").stat().st_ino},
        }

    @property
    def places(self) -> SandboxFolders:
        return SandboxFolders(
            folders=(self.project,),
            project=self.project,
            program=self.state,
            session=self.state / "session",
            shown=(self.state / "session",),
            home=self.home,
        )

    def now(self) -> dict[str, tuple[int, int, str]]:
        """All that no command may change, but for the folders that the tool itself and its sandbox write in."""
        whole = tree(self.outside) | tree(self.home) | tree(self.state)
        written = tuple(str(self.state / name) for name in ("session", JOURNALS, HELD))
        return {path: what for path, what in whole.items() if not path.startswith(written)}

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
        for descriptor in (self.terminal, self._terminal_end, self.pipe, self._queue):
            os.close(descriptor)
        memory, messages, semaphores = self._shared
        for failed in (LIBC.shmctl(memory, 0, None), LIBC.msgctl(messages, 0, None), LIBC.semctl(semaphores, 0, 0)):
            assert not failed
        LIBC.syscall(_MQ_UNLINK, f"tui-agent-{os.getpid()}".encode())
        self.shared.unlink()
        shutil.rmtree(self.place)

    def _server(self, family: int, address: Any, kind: int = socket.SOCK_STREAM) -> socket.socket:
        one = socket.socket(family, kind)
        with chdir(self.project):
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
    # The place outside is shown, so that more than its absence protects it.
    places = msgspec.structs.replace(outside.places, added=(outside.outside,))
    sandbox = Sandbox("auto", places, offered=SandboxMechanism(kind, "as the test has it"))
    background = BackgroundCommands()
    return RunCommand(background=background, sandbox=sandbox), background, sandbox


async def run(
    tool: RunCommand, outside: Outside, command: str, workspace: Workspace | None = None, **more: object
) -> str:
    workspace = workspace or Workspace(outside.project)
    arguments = json.dumps({"command": command, **more})
    context = Call(workspace, tool.access(arguments, workspace), outside.state / "session")
    return (await tool.run(arguments, context)).text


@EACH_KIND
async def test_a_folder_of_programs_does_not_show_the_keys_beside_it(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(tempfile.mkdtemp(prefix="outside-", dir="/tmp"))
    outside = Outside(place)
    program = place / "bin" / "shown-program"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    tool, background, sandbox = tools_in(outside, kind)
    try:
        text = await run(tool, outside, f"shown-program; cat {outside.home}/.ssh/id_ed25519 {outside.home}/.netrc")
        assert "it runs" in text
        assert "SECRET" not in text
    finally:
        await background.close()
        sandbox.close()
        outside.close()


@EACH_KIND
async def test_no_way_out(outside: Outside, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a SECRET")
    for name in ("SSH_AUTH_SOCK", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS"):
        monkeypatch.setenv(name, f"unix://{outside.facts['unix']}")
    signals: list[int] = []
    numbers = (signal.SIGUSR1, signal.SIGURG)
    before = [signal.signal(number, lambda number, frame: signals.append(number)) for number in numbers]
    standing = standing_of_this_process()
    tool, background, sandbox = tools_in(outside, kind)
    shutil.copy(WAYS_OUT, outside.project)
    command = f"{sys.executable} ways_out.py '{json.dumps(outside.facts)}'"
    try:
        text = await run(tool, outside, command)
        found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
        assert len(found) >= 120
        allowed = BEYOND.get(kind, set())
        assert {name: got for name, got in found.items() if got and name not in allowed} == {}, found
        assert outside.changed() == set()
        assert outside.heard() == []
        assert signals == []
        assert standing_of_this_process() == standing
        assert (MEMORY.value, outside.shared.read_text()) == (b"as it was", "as it was\n")
        git = outside.project / ".git"
        assert tree(git / "hooks") | {"config": (git / "config").read_text()} == outside.guarded
        assert (outside.project / "AGENTS.md").read_text() == "Be kind.\n"
    finally:
        await background.close()
        sandbox.close()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    await still(outside.project / "heartbeat")


def standing_of_this_process() -> list[object]:
    """What others may change of how this process runs."""
    name = Path("/proc/self/oom_score_adj").read_text()
    nice, limits = os.getpriority(os.PRIO_PROCESS, 0), resource.getrlimit(resource.RLIMIT_NOFILE)
    return [nice, limits, os.sched_getaffinity(0), os.sched_getscheduler(0), name]


async def still(heartbeat: Path) -> None:
    """Nothing writes to this file any more."""
    if not await asyncio.to_thread(heartbeat.exists):
        return  # ended before it began
    async with asyncio.timeout(60):
        while time.time() - float(await asyncio.to_thread(heartbeat.read_text) or 0) < 0.5:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_the_ways_are_ways_out_where_there_is_no_sandbox(outside: Outside) -> None:
    """What cannot fail proves nothing: without the sandbox the files, the keys and the servers are reached."""
    shutil.copy(WAYS_OUT, outside.project)
    tool = RunCommand()
    facts = outside.facts | {"only": HARMLESS}
    text = await run(tool, outside, f"{sys.executable} ways_out.py '{json.dumps(facts)}'")
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    assert [name for name in HARMLESS if not found[name] and name != "unix_datagram_of_a_pair"] == []
    assert {"ipv4", "unix", "service", "unix_datagram", "abstract", "terminal"} <= set(outside.heard())
