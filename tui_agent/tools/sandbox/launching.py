"""Starting commands: through a launcher (see `launcher`) on Linux, this program's side of it; on macOS in Seatbelt."""

import asyncio
import atexit
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tui_agent.tools.sandbox.launcher import Request

AVAILABLE: Final = sys.platform == "linux"
"""Whether launchers work on this system."""

_SO_PASSCRED, _SCM_CREDENTIALS = 16, 2
_TIMEOUT_S: Final = 20.0
_ENDING_S: Final = 2.0
_BOOT: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from tui_agent.tools.sandbox.launcher import main; "
    "main(*sys.argv[1:])"
)


SEATBELT: Final = "/usr/bin/sandbox-exec"
_OF_PEOPLE: Final = ("/Users", "/Volumes", "/private/tmp", "/private/var/folders", "/private/var/root")
"""Where people and programs keep their files."""


class LaunchedChild:
    """A command that a launcher was asked to start, with everything it starts. Create it on the event loop."""

    def __init__(self, status: socket.socket) -> None:
        self.pid = 0
        """The process that keeps the command, as this program's system numbers it; 0 before it has started."""
        self.exit_code: int | None = None
        self.left: tuple[int, ...] = ()
        """What the command had left running when it ended, as its own namespace numbers processes."""
        self.exited = asyncio.Event()
        self.gone = asyncio.Event()
        """Nothing of it is left."""
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._status = status
        self._unread = b""
        status.setblocking(False)
        self._loop.add_reader(status, self._read)

    async def started(self) -> None:
        """Wait until it runs. Raises OSError if it could not be started."""
        await asyncio.shield(self._started)

    def terminate(self) -> None:
        """Ask all its processes to end."""
        self._say(b"T")

    def kill(self) -> None:
        """Kill all its processes; `wait_until_gone` tells when that is done."""
        self._say(b"K")

    async def wait_until_gone(self) -> None:
        """Wait until all its processes are gone."""
        await self.gone.wait()

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            self._status.send(word)

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._status.recvmsg(65_536, socket.CMSG_SPACE(12))
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SCM_CREDENTIALS) and not self.pid:
                (self.pid,) = struct.unpack("i", value[:4])
        if not data:
            self._ended()
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._take(json.loads(line))

    def _take(self, news: dict[str, Any]) -> None:
        if "started" in news and not self._started.done():
            self._started.set_result(None)
        elif "failed" in news:
            self._fail(OSError(news["failed"], news["why"]))
            self._ended()
        elif "exit" in news:
            self.exit_code, self.left = news["exit"], tuple(news["left"])
            self.exited.set()

    def _fail(self, error: OSError) -> None:
        if not self._started.done():
            self._started.set_exception(error)
            self._started.exception()  # or asyncio would log it if nobody waits for the start

    def _ended(self) -> None:
        """Nothing is left; or the keeper was killed and, in a process namespace, all the rest with it."""
        self._fail(OSError(0, "the process that starts commands has ended"))
        if self.exit_code is None:
            self.exit_code = -9
        if self._status.fileno() >= 0:
            self._loop.remove_reader(self._status)
            self._status.close()
        self.exited.set()
        self.gone.set()


class Launcher:
    """A launcher of one kind. Its process starts when first needed, and again if somebody ended it. Thread-safe."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self.proxy: socket.socket | None = None
        """The socket for the proxy of its commands, if it has one."""
        self.how = ""
        """Who made its user namespace, if not this program: words to put after "namespaces"."""

    @property
    def runs(self) -> bool:
        """Whether the process is running."""
        return self._control is not None and self._process is not None and self._process.returncode is None

    def ready(self) -> None:
        """Start the process if it is not running, which takes about 50 ms. Raises OSError."""
        with self._lock:
            if self._control is None or self._process is None or self._process.poll() is not None:
                self._stop()
                self._start()

    def launch(self, request: Request, *streams: int) -> socket.socket:
        """Request a command; returns its status socket. `streams` are descriptors of its output and, if that is its
        input too, of its errors.

        Raises OSError, and ValueError for text that no command line can hold.
        """
        _check(request)
        data = json.dumps(request._asdict()).encode()
        ours, theirs = socket.socketpair()
        try:
            ours.setsockopt(socket.SOL_SOCKET, _SO_PASSCRED, 1)
            try:
                self._send(data, streams, theirs)
            except OSError:
                self.close()
                self.ready()
                self._send(data, streams, theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def close(self) -> None:
        """End the process, and with it everything that it started."""
        with self._lock:
            self._stop()

    def _send(self, data: bytes, streams: tuple[int, ...], status: socket.socket) -> None:
        with self._lock:
            if self._control is None:
                raise BrokenPipeError
            socket.send_fds(self._control, [struct.pack("!I", len(data))], [streams[0], status.fileno(), *streams[1:]])
            self._control.sendall(data)

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        package = str(Path(__file__).resolve().parents[3])
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, package, self._kind],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                start_new_session=True,
            )
            # If it ends without an answer, the socket closes only if this end is closed here.
            theirs.close()
            ours.settimeout(_TIMEOUT_S)
            reply, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
            self.how = _answered(reply)
            self.proxy = socket.socket(fileno=descriptors[0]) if descriptors else None
            ours.settimeout(None)
        except BaseException:
            ours.close()
            self._stop()
            raise
        finally:
            theirs.close()
        self._control = ours

    def _stop(self) -> None:
        control, self._control = self._control, None
        if self.proxy is not None:
            self.proxy.close()
            self.proxy = None
        process, self._process = self._process, None
        if control is not None:
            control.close()
        if process is not None:
            try:
                process.wait(_ENDING_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answered(reply: bytes) -> str:
    answer = json.loads(reply or b'{"refused": 0, "why": "it ended at once"}')
    if "refused" in answer:
        raise OSError(answer["refused"], answer["why"])
    return str(answer["ready"])


def _check(request: Request) -> None:
    texts = [*request.arguments, request.folder, *request.environment, *request.environment.values()]
    if any("\0" in text for text in texts):
        raise ValueError("embedded null byte")
    for text in texts:
        os.fsencode(text)


launchers: Final[dict[tuple[str, str], Launcher]] = {}
"""The launchers of this program, by kind and by sandbox."""
_making: Final = threading.Lock()


def launcher_of(request: Request) -> Launcher:
    """The launcher for such a request: each sandbox has its own, named by its temporary folder."""
    key = ("plain", "")
    if request.mounts:
        key = ("online" if request.network else "offline", request.temporary)
    with _making:
        return launchers.setdefault(key, Launcher(key[0]))


def close_launchers(temporary: str) -> None:
    """End the launchers of a sandbox, and with them all its commands. May take two seconds: call it off the loop."""
    with _making:
        keys = [key for key in launchers if key[1] == temporary]
        ended = [launchers.pop(key) for key in keys]
    for launcher in ended:
        launcher.close()


@atexit.register
def close_all() -> None:
    """End every launcher of this program, and with them all commands."""
    for launcher in list(launchers.values()):
        launcher.close()


def in_seatbelt(request: Request) -> list[str]:
    """The command line that runs a request under Seatbelt. Not tested on a Mac.

    The language of profiles is documented only by examples: man 7 sandbox, and those in /System/Library/Sandbox. The
    last rule that matches an operation decides.
    """
    writable = [*request.writable, request.temporary]
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    devices = (
        '(literal "/dev/null") (literal "/dev/zero") (literal "/dev/tty") (literal "/dev/ptmx") (regex #"^/dev/ttys")'
    )
    rules.append(f"(allow file-write* {devices} {_subpaths(writable)})")
    if request.readonly:
        rules.append(f"(deny file-write* {_subpaths(request.readonly)})")
    rules += [f"(deny file-read* {_subpaths(_OF_PEOPLE)})", "(allow file-read-metadata)"]
    rules.append(f"(allow file-read* {_subpaths([*writable, *request.readonly])})")
    if request.hidden:
        rules.append(f"(deny file-read* file-write* {_subpaths(request.hidden)})")
        inner = [path for path in request.readonly if any(path.startswith(f"{place}/") for place in request.hidden)]
        rules += [f"(allow file-read* {_subpaths(inner)})"] if inner else []
    if not request.network:
        local = '(allow network-bind network-inbound (local ip "localhost:*"))'
        rules += ["(deny network*)", local, '(allow network-outbound (remote ip "localhost:*"))']
    rules += ['(deny mach-lookup (global-name-prefix "com.apple.securityd"))', "(deny appleevent-send)"]
    return [SEATBELT, "-p", "\n".join(rules), *request.arguments]


def _subpaths(paths: Sequence[str]) -> str:
    # Seatbelt's strings are written like JSON's.
    return " ".join(f"(subpath {json.dumps(path, ensure_ascii=False)})" for path in paths)
