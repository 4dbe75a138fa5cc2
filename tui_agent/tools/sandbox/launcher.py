"""The process that starts commands. It is small and has one thread, so that it can fork and enter namespaces.

``launcher.py KIND`` serves requests on its standard input, a socket, until that closes; then it ends everything it has
started, and itself. If the kernel allows user namespaces only to bubblewrap, and that is installed, bubblewrap creates
one, which the launcher joins. The kinds:

- ``plain``: commands run unconfined.
- ``offline``, ``online``: commands share a user, process and IPC namespace of the launcher, and those with the same
view of the files a mount namespace; offline, their network has only a loopback interface, with a socket on `PROXY_PORT`
whose descriptor comes with the first answer. Since they share the process namespace, one command can end what another
left running, and everything ends with the launcher.

A request is its length (4 bytes, network order), accompanied by two descriptors (the command's output and a status
socket; with a third for its errors, the first is a socket for its input too), then a `Request` as JSON. The status
socket reports, one JSON object a line, that the command started or failed to, and how it ended, and closes when nothing
of it is left. Sending it ``T`` asks all processes of the command to end, ``K`` or closing it kills them.

Each command has a keeper: a process that adopts orphaned descendants (``PR_SET_CHILD_SUBREAPER``), so that nothing gets
away by forking twice. In its namespaces the keeper has all capabilities; the command has none. Forking this process
takes a millisecond, so the next keeper and its command already wait while a request is awaited.
"""

import contextlib
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, NoReturn

from tui_agent.tools.sandbox import kernel
from tui_agent.tools.sandbox.landlock import ReachableFolders, Rules
from tui_agent.tools.sandbox.mounts import Views
from tui_agent.tools.sandbox.supervisor import Supervisor
from tui_agent.tools.sandbox.system_calls import AF_INET, AF_INET6, AF_NETLINK, LandlockOnly, command_filter

KINDS: Final = ("plain", "offline", "online")
PROXY_PORT: Final = 3128
"""The port, on the loopback interface of ``offline``, of a socket that this program's proxy listens on."""

_NETWORK_FAMILIES: Final = (AF_INET, AF_INET6, AF_NETLINK)
_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID = 0, 1, 3, 4, 5, 6, 7
_FILE_CAPABILITIES: Final = (_CHOWN, _DAC_OVERRIDE, _FOWNER, _FSETID, _KILL, _SETGID, _SETUID)
"""The capabilities that root keeps: over files and users, within the limits of the mounts and Landlock."""
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x41
_BUBBLEWRAP: Final = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap")
_NO_CORE: Final = 1
"""Bytes: below 2, neither a core file is written nor a program started for it, see core(5)."""
_SWEEPS: Final = 200
_LONGEST = 64 * 1024 * 1024
_WAITS_S: Final = 5.0
"""Seconds that a waiting process may take for a request."""


class Request(NamedTuple):
    """A command to start. Paths are resolved.

    `confined`: with the seccomp filter and Landlock, and without capabilities. `mounts`: in a view of the files built
    by mounts; else Landlock alone protects files. `network`: network sockets are allowed. `landlock` is the version of
    its ABI to use, 0 for none. Confined, only what is in `writable`, `readonly` and `temporary` is there, without what
    is `hidden` in it.
    """

    arguments: list[str]
    folder: str
    environment: dict[str, str]
    confined: bool = False
    mounts: bool = False
    network: bool = False
    landlock: int = 0
    writable: list[str] = []  # noqa: RUF012 - a tuple's default, never changed
    readonly: list[str] = []  # noqa: RUF012
    hidden: list[str] = []  # noqa: RUF012
    temporary: str = ""

    @property
    def parts(self) -> ReachableFolders:
        """What it can reach."""
        places = (tuple(self.writable), tuple(self.readonly), tuple(self.hidden))
        return ReachableFolders(*places, self.temporary, self.landlock, self.network)

    @property
    def passed(self) -> int:
        """How many descriptors confine it: its mount namespace, if it has one, and its Landlock rules."""
        return int(self.mounts) + int(bool(self.landlock) if self.mounts else self.confined)


def main(kind: str) -> None:
    """Serve requests until the program that started this process is gone."""
    control = socket.socket(fileno=0)
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not os.path.exists("/proc/self/stat"):
        why = "/proc is not mounted here, and without it what a command leaves running cannot be ended"
        control.sendall(_line(refused=errno.ENOSYS, why=why))
        return
    if kind == "plain":
        _serve(control)
        return
    try:
        server, how = _in_namespaces(network=kind == "online")
    except OSError as error:
        control.sendall(_line(refused=error.errno, why=error.strerror))
        return
    if server:
        control.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()
        return
    _serve(control, socket.create_server(("127.0.0.1", PROXY_PORT)) if kind == "offline" else None, how)


def _in_namespaces(*, network: bool) -> tuple[int, str]:
    """Fork the first process of new namespaces; returns 0 in it, and its process id in this one, which outlives it, and
    who made the user namespace, if not this program. Raises OSError.
    """
    try:
        return _fork_into(network=network, users=-1), ""
    except OSError as error:
        program = next((path for path in _BUBBLEWRAP if os.access(path, os.X_OK)), "")
        if not program:
            raise
        why = error.strerror
    try:
        return _fork_into(network=network, users=_users_of(program)), " through bubblewrap"
    except OSError as error:
        raise OSError(error.errno, f"{why}; bubblewrap: {error.strerror}") from error


def _fork_into(*, network: bool, users: int) -> int:
    """`users` is a descriptor of the user namespace to join, -1 to make one."""
    ready, go, alive = os.pipe(), os.pipe(), os.pipe()
    between = os.fork()
    if between == 0:
        try:
            os.close(alive[1])
            flags = kernel.CLONE_NEWNS | kernel.CLONE_NEWPID | kernel.CLONE_NEWIPC
            flags |= 0 if network else kernel.CLONE_NEWNET
            if users >= 0:
                kernel.join(users, kernel.CLONE_NEWUSER)
            else:
                flags |= kernel.CLONE_NEWUSER
            kernel.unshare(flags)
            # Some systems allow the namespace, and nothing in it.
            kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
            os.write(ready[1], b"\0")
            if os.read(go[0], 1) != b"\0":
                os._exit(1)
            first = os.fork()
        except OSError as error:
            os.write(ready[1], struct.pack("B", error.errno or 1))
            os._exit(1)
        if first == 0:
            for end in (*ready, *go):
                os.close(end)
            _become_first(network=network, adopted=alive[0])
            return 0
        os._exit(0)
    for end in (ready[1], go[0], alive[0]):
        os.close(end)
    said = os.read(ready[0], 1)
    number = said[0] if said else 1
    if number == 0:
        try:
            if users < 0:
                _map_users(between)
            os.write(go[1], b"\0")
        except OSError as error:
            number = error.errno or 1
    os.close(go[1])
    os.waitpid(between, 0)
    os.close(alive[1])
    if number:
        raise OSError(number, f"new namespaces: {os.strerror(number)}")
    return between


def _users_of(bubblewrap: str) -> int:
    """A descriptor of a user namespace made by bubblewrap, in which this process, as its parent, has all capabilities.

    Raises OSError.
    """
    command = [bubblewrap, "--unshare-user", "--dev-bind", "/", "/", "/bin/sh", "-c", "echo $$; read end"]
    reading, tell = os.pipe2(os.O_CLOEXEC)
    wait, end = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.dup2(wait, 0)
        os.dup2(tell, 1)
        try:
            os.execve(bubblewrap, command, {})  # noqa: S606
        finally:
            os._exit(127)
    os.close(tell)
    os.close(wait)
    try:
        with os.fdopen(reading) as stream:
            process = stream.readline().strip()
        if not process:
            raise OSError(1, f"{bubblewrap} makes no user namespace")
        return os.open(f"/proc/{process}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(end)
        os.waitpid(child, 0)


def _become_first(*, network: bool, adopted: int) -> None:
    """Die with the launcher, and bring up the loopback interface. `adopted` is readable once that is the parent."""
    os.read(adopted, 1)
    os.close(adopted)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    if not network:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP_RUNNING))


def _map_users(process: int) -> None:
    """Map user ids to themselves: all of them if this process is permitted to, else only its own."""
    whole = [line.split() for line in _text("/proc/self/uid_map").splitlines()]
    if os.geteuid() == 0:
        users = "".join(f"{inside} {inside} {count}\n" for inside, _, count in whole)
        groups = [line.split() for line in _text("/proc/self/gid_map").splitlines()]
        with contextlib.suppress(OSError):
            _write(f"/proc/{process}/gid_map", "".join(f"{inside} {inside} {count}\n" for inside, _, count in groups))
            _write(f"/proc/{process}/uid_map", users)
            return
    _write(f"/proc/{process}/setgroups", "deny")
    _write(f"/proc/{process}/gid_map", f"{os.getegid()} {os.getegid()} 1")
    _write(f"/proc/{process}/uid_map", f"{os.geteuid()} {os.geteuid()} 1")


def _serve(control: socket.socket, proxy: socket.socket | None = None, how: str = "") -> None:
    """Start commands until the socket closes; then end what they left running. `how` is told at first."""
    # Let the kernel reap ended processes, including orphans of a keeper that was killed.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    command_filter(_NETWORK_FAMILIES)  # once, for all that are forked
    views, rules = Views(), Rules()
    waiting: _Waiting | None = _forked(_keep, control)
    socket.send_fds(control, [_line(ready=how)], [proxy.fileno()] if proxy else [])
    if proxy:
        proxy.close()
    while True:
        data, descriptors = _received(control)
        if len(descriptors) not in (2, 3) or not data:
            break
        try:
            request = Request(**json.loads(data))
            confining: list[int] = []
            if request.mounts:
                confining = views.of(request.parts).passed
            elif request.confined:
                confining = [rules.of(request.parts)]
                _filter_alone(request, supervised=True)
            if waiting is None or not waiting.take(data, [*descriptors, *confining]):
                # It was killed, as any process of the commands can be by another.
                waiting = _forked(_keep, control)
                waiting.take(data, [*descriptors, *confining])
        except OSError as error:
            with socket.socket(fileno=os.dup(descriptors[1])) as status, contextlib.suppress(OSError):
                status.sendall(_failure(error))
        for descriptor in descriptors:
            os.close(descriptor)
        try:
            waiting = _forked(_keep, control)
        except OSError:
            waiting = None
    # With the first process of a namespace the kernel ends all others in it; /proc has other numbers for them.
    if os.getpid() != 1:
        _end_all()


class _Waiting(NamedTuple):
    """A process that was forked and waits for a request."""

    process: int
    channel: socket.socket

    def take(self, data: bytes, descriptors: Sequence[int]) -> bool:
        """Pass it a request; returns whether it lived."""
        try:
            os.kill(self.process, signal.SIGCONT)  # another command may have stopped it
            socket.send_fds(self.channel, [struct.pack("!I", len(data))], descriptors)
            self.channel.sendall(data)
        except OSError:
            return False
        return True


def _forked(work: Callable[[socket.socket], NoReturn], *without: socket.socket) -> _Waiting:
    """Fork a process that does this `work`, with its end of a socket, and without these others. Raises OSError."""
    ours, theirs = socket.socketpair()
    ours.settimeout(_WAITS_S)
    process = os.fork()
    if process == 0:
        for each in (ours, *without):
            each.close()
        work(theirs)
    theirs.close()
    return _Waiting(process, ours)


def _received(channel: socket.socket) -> tuple[bytes, list[int]]:
    """A request and its descriptors; empty if the socket was closed."""
    try:
        # `socket.recv_fds` passes no flags on, and the command would inherit what confines it.
        head, ancillary, _, _ = channel.recvmsg(4, socket.CMSG_SPACE(20), socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return b"", []
    descriptors = [
        number
        for level, kind, data in ancillary
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
        for number in struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
    ]
    if head:
        head += _exactly(channel, 4 - len(head))
    size = struct.unpack("!I", head)[0] if len(head) == 4 else _LONGEST + 1
    return (_exactly(channel, size) if size <= _LONGEST else b""), descriptors


def _exactly(control: socket.socket, size: int) -> bytes:
    pieces = []
    while size:
        piece = control.recv(min(size, 1 << 20))
        if not piece:
            return b""
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _keep(channel: socket.socket) -> NoReturn:
    """Wait for a request, start its command, and wait until nothing of it is left."""
    status = None
    try:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        # Keep the user's other processes from tracing this one, which has capabilities that they lack.
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        os.setsid()
        woken = _wake_on_children()
        command = _forked(_become, channel)
        data, descriptors = _received(channel)
        if data:
            if not command.take(data, descriptors):
                command = _forked(_become, channel)
                command.take(data, descriptors)
            request, status = Request(**json.loads(data)), socket.socket(fileno=descriptors[1])
            if request.mounts:
                kernel.join(descriptors[-request.passed], kernel.CLONE_NEWNS)
            for descriptor in (descriptors[0], *descriptors[2:]):
                os.close(descriptor)
            started, supervisor = _started(request, command.channel, status)
            if started:
                _follow(command.process, status, woken, supervisor)
    except BaseException as error:
        if status is not None:
            with contextlib.suppress(OSError):
                status.sendall(_failure(error))
        _end_all()
    os._exit(0)


def _wake_on_children() -> int:
    """A descriptor that becomes readable when a child has ended."""
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return woken


def _started(request: Request, requests: socket.socket, status: socket.socket) -> tuple[bool, Supervisor | None]:
    """Report whether the command was started; returns that, and its supervisor."""
    problem, listener, data = b"", -1, b"\0"
    with requests:
        requests.settimeout(None)
        while data:
            data, given, _, _ = socket.recv_fds(requests, 4096, 1)
            listener = given[0] if given else listener
            problem += b"" if given else data
    if problem:
        number, _, why = problem.decode(errors="replace").partition(" ")
        status.sendall(_line(failed=int(number), why=why))
        return False, None
    status.sendall(_line(started=True))
    return True, Supervisor(listener, request.parts, descendants) if listener >= 0 else None


def _become(channel: socket.socket) -> NoReturn:
    """Wait for a request, and turn this process into its command."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        data, descriptors = _received(channel)
        if not data:
            os._exit(0)
        request = Request(**json.loads(data))
        output, _, *others = descriptors
        errors, confining = others[: len(others) - request.passed], others[len(others) - request.passed :]
        if request.mounts:
            kernel.join(confining.pop(0), kernel.CLONE_NEWNS)
        os.chdir(request.folder)
        if request.confined:
            _confine(request, channel, confining)
        os.dup2(output if errors else os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(errors[0] if errors else output, 2)
        os.execve(request.arguments[0], request.arguments, request.environment)  # noqa: S606 - its purpose
    except BaseException as error:
        text = f"{getattr(error, 'errno', None) or 5} {getattr(error, 'strerror', None) or error}"
        channel.sendall(text.encode(errors="replace"))
    os._exit(127)


def _confine(request: Request, tell: socket.socket, rules: Sequence[int]) -> None:
    """Give up every right that the command must not have. `rules`: its Landlock rules, if it has any."""
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.keep_capabilities(_FILE_CAPABILITIES if os.geteuid() == 0 else ())
    # A core dump would be written, or piped to a system program, outside the sandbox.
    resource.setrlimit(resource.RLIMIT_CORE, (_NO_CORE, _NO_CORE))
    for each in rules:
        kernel.landlock_restrict(each)
    if request.mounts:
        kernel.seccomp(command_filter(_NETWORK_FAMILIES))
        return
    try:
        listener = kernel.seccomp(_filter_alone(request, supervised=True), listened=True)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        # An ancestor listens already, as in some containers: refuse these calls altogether.
        kernel.seccomp(_filter_alone(request, supervised=False))
    else:
        socket.send_fds(tell, [b"\0"], [listener])
        os.close(listener)


def _filter_alone(request: Request, *, supervised: bool) -> bytes:
    families = _NETWORK_FAMILIES if request.network else ()
    return command_filter(families, LandlockOnly(request.landlock, supervised=supervised))


def _follow(command: int, status: socket.socket, woken: int, supervisor: Supervisor | None) -> None:
    """Report how the command ended, and that nothing of it is left; meanwhile obey ``T`` and ``K``."""
    watched = select.poll()
    for descriptor in (status.fileno(), woken, *([supervisor.listener] if supervisor else [])):
        watched.register(descriptor, select.POLLIN)
    while True:
        ready = dict(watched.poll())
        if supervisor and supervisor.listener in ready:
            if ready[supervisor.listener] & select.POLLIN:
                supervisor.answer()
            else:  # nobody is left to ask
                watched.unregister(supervisor.listener)
            if len(ready) == 1:
                continue
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
        if status.fileno() in ready:
            asked = b""
            with contextlib.suppress(OSError):
                asked = status.recv(1)
            if asked == b"T":
                _signal_all(signal.SIGTERM)
            else:
                _end_all(command, status)
                return
        nothing_left, ended = _reap(command)
        if ended is not None:
            with contextlib.suppress(OSError):
                status.sendall(_line(exit=ended, left=[] if nothing_left else descendants()))
        if nothing_left:
            return


def _reap(command: int) -> tuple[bool, int | None]:
    """Reap ended children; returns whether none are left, and the exit code of `command` if it was among them."""
    code = None
    while True:
        try:
            process, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True, code
        if process == 0:
            return False, code
        if process == command:
            code = os.waitstatus_to_exitcode(found)


def _end_all(command: int = 0, status: socket.socket | None = None) -> None:
    """Kill all descendants, and report it if anybody still listens."""
    for _ in range(_SWEEPS):
        _signal_all(signal.SIGKILL)
        nothing_left, ended = _reap(command)
        if status is not None and ended is not None:
            with contextlib.suppress(OSError):
                status.sendall(_line(exit=ended, left=[]))
        if nothing_left:
            break
        time.sleep(0.001)


def _signal_all(number: int) -> None:
    for process in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def descendants() -> list[int]:
    """The process ids of living descendants, as numbered in this process's namespace."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = _text(f"/proc/{entry}/stat").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry) if fields[0] not in "ZX" else -int(entry))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        below = children.pop(waiting.pop(), [])
        found += [process for process in below if process > 0]
        waiting += map(abs, below)
    return sorted(found)


def _failure(error: BaseException) -> bytes:
    return _line(failed=getattr(error, "errno", None) or errno.EIO, why=f"{type(error).__name__}: {error}")


def _line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def _text(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:
        return stream.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
