"""Starts the real command in processes that are forked from one in which all is imported already.

What a test sees is a process of its own, with its own arguments, folder, environment and streams or terminal, that runs
`python -m tui_agent` from its first line to the interpreter's own end. Only the imports are shared: they take most of
the time of a short run. How long they take, and what is imported when, is tested elsewhere: in `tests/test_cli.py`, and
by the terminals of `tests/tui/app/test_terminal_app.py` that start an interpreter.
"""

import atexit
import fcntl
import gc
import json
import os
import pty
import runpy
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from select import PIPE_BUF, select
from typing import IO, Final, NoReturn

import pexpect

ROOT: Final = Path(__file__).resolve().parents[2]
IMPORTED: Final = (
    "tui_agent.cli",
    "tui_agent.headless",
    "tui_agent.acp",
    "tui_agent.session",
    "tui_agent.reports.sessions",
    "tui_agent.reports.trace",
    "tui_agent.agent.commands.table",
    "tui_agent.agent.subtasks",
    "tui_agent.models.anthropic.adapter",
    "tui_agent.models.gemini.adapter",
    "tui_agent.models.ollama.adapter",
    "tui_agent.models.offline.adapter",
    "tui_agent.context.stats",
    "anthropic.resources.models",
    "anthropic.resources.beta.messages",
    "google.genai",
    "ollama",
    "anyio._backends._asyncio",
    "jsonschema",
    "PIL.Image",
    "tui_agent.tui.app.app",
    "tui_agent.tui.app.start",
    "tui_agent.tui.session.turns",
    "tui_agent.tui.context.panel",
    "tui_agent.tui.dialogs.permission",
    "tui_agent.tui.dialogs.sessions_screen",
    "tui_agent.tui.terminal.driver",
    "linkify_it",
    "markdown_it.presets",
    "textual.drivers.linux_driver",
    "textual.layouts.factory",
    "textual.scrollbar",
)
_MOST_BYTES: Final = 1 << 20


class Forked:
    """A process that was forked, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, command: list[str], told: int) -> None:
        self.args = command
        self.returncode: int | None = None
        self._told = told
        self.pid = _number(told)

    def poll(self) -> int | None:
        """The exit status, where it has ended."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, once it has ended. Raises `subprocess.TimeoutExpired`."""
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        """Send it a signal, while it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, while it runs."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select([self._told], [], [], timeout)[0]:
            self.returncode = _number(self._told)
            os.close(self._told)
        return self.returncode


class Started(Forked):
    """One whose output and errors are read here."""

    def __init__(self, command: list[str], told: int, out: int, err: int) -> None:
        super().__init__(command, told)
        self.stdout = os.fdopen(out, encoding="utf-8")
        self.stderr = os.fdopen(err, encoding="utf-8")

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left to read of its output and its errors. Raises `subprocess.TimeoutExpired`."""
        read: dict[str, str] = {}

        def reading(name: str, stream: IO[str]) -> threading.Thread:
            thread = threading.Thread(target=lambda: read.update({name: stream.read()}), daemon=True)
            thread.start()
            return thread

        threads = [reading("out", self.stdout), reading("err", self.stderr)]
        self.wait(timeout)
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.stdout.close()
        self.stderr.close()
        return read["out"], read["err"]


class OnTerminal(Forked):
    """One at a pseudo-terminal of its own, whose other end is `child_fd`, as tests use `pexpect.spawn`."""

    def __init__(self, command: list[str], told: int, terminal: int) -> None:
        super().__init__(command, told)
        self.child_fd = terminal

    @property
    def exitstatus(self) -> int | None:
        """As `pexpect` has it: None where a signal ended it."""
        return self.returncode if self.returncode is not None and self.returncode >= 0 else None

    def send(self, keys: str | bytes) -> None:
        """Type these keys."""
        left = memoryview(keys.encode() if isinstance(keys, str) else keys)
        while left:
            left = left[os.write(self.child_fd, left) :]

    def read_nonblocking(self, size: int, timeout: float) -> bytes:
        """What is printed within these seconds. Raises `pexpect.TIMEOUT`; where all have left it, `pexpect.EOF`."""
        if not select([self.child_fd], [], [], timeout)[0]:
            raise pexpect.TIMEOUT("nothing was printed")
        with suppress(OSError):
            if data := os.read(self.child_fd, size):
                return data
        raise pexpect.EOF("the terminal was left")

    def setwinsize(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self.child_fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Close the terminal, once."""
        if self.child_fd >= 0:
            os.close(self.child_fd)
            self.child_fd = -1


class Starter:
    """One process to fork from, started at the first use and ended with the tests."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def run(
        self, arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str], stdin: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` does. Raises `subprocess.TimeoutExpired`."""
        process = self.start(arguments, folder=folder, environ=environ, stdin=stdin)
        try:
            out, err = process.communicate(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.wait(), out, err)

    def start(self, arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str], stdin: str = "") -> Started:
        """The command in a session of its own, as `subprocess.Popen` starts it."""
        told, tells = os.pipe()
        takes, given = os.pipe()
        out, writes_out = os.pipe()
        err, writes_err = os.pipe()
        data = stdin.encode()
        # What a pipe holds is there before it starts, however long this process is held up then.
        if len(data) <= PIPE_BUF:
            _write(given, data)
        self._send(arguments, folder, environ, (takes, writes_out, writes_err, tells))
        if len(data) > PIPE_BUF:
            threading.Thread(target=_write, args=(given, data), daemon=True).start()
        return Started(_command(arguments), told, out, err)

    def converse(
        self, arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str]
    ) -> tuple[Forked, int, int]:
        """The command, its open input and its output; its errors are told where ours are."""
        told, tells = os.pipe()
        takes, given = os.pipe()
        out, writes_out = os.pipe()
        self._send(arguments, folder, environ, (takes, writes_out, os.dup(2), tells))
        return Forked(_command(arguments), told), given, out

    def open(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environ: Mapping[str, str],
        size: tuple[int, int],
        imports: bool = False,
    ) -> OnTerminal:
        """The command at a terminal of so many rows and columns. imports: by an interpreter that is started for it."""
        told, tells = os.pipe()
        here, there = open_terminal()
        streams = (there, os.dup(there), os.dup(there), tells)
        fcntl.ioctl(here, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self._send(arguments, folder, environ, streams, imports=imports)
        return OnTerminal(_command(arguments), told, here)

    def _send(
        self,
        arguments: Sequence[str],
        folder: Path,
        environ: Mapping[str, str],
        streams: tuple[int, ...],
        *,
        imports: bool = False,
    ) -> None:
        """Have it started; these ends of its streams, and of what its end is told through, are its own from here on."""
        task = {"argv": list(arguments), "folder": str(folder), "environ": dict(environ), "imports": imports}
        try:
            self._give(json.dumps(task).encode(), streams)
        finally:
            for end in streams:
                os.close(end)

    def _give(self, task: bytes, streams: tuple[int, ...]) -> None:
        with self._lock:
            if self._socket is None:
                self._begin()
            assert self._socket is not None
            socket.send_fds(self._socket, [len(task).to_bytes(4, "big")], streams)
            self._socket.sendall(task)

    def _begin(self) -> None:
        if _started_at is not None:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(str(_started_at))
            return
        mine, its = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from tests.e2e.starter import serve; serve({its.fileno()})"],
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            pass_fds=(its.fileno(),),
        )
        its.close()
        self._socket = mine
        atexit.register(self._end)

    def _end(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.wait(60)


STARTER: Final = Starter()
_started_at: Path | None = None


def start_at(socket_path: Path) -> None:
    """Have the commands of this process, and of those forked from it, started by who listens there (`serve_all`)."""
    global _started_at
    _started_at = socket_path


def open_terminal() -> tuple[int, int]:
    """Both ends of a pseudo-terminal, the person's first."""
    here, there = pty.openpty()
    settings = termios.tcgetattr(there)
    # Else Ctrl+C, as a signal, drops what was printed and not read yet; a terminal reads faster than a test may.
    settings[3] |= termios.NOFLSH
    termios.tcsetattr(there, termios.TCSANOW, settings)
    return here, there


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "tui_agent", *arguments]


def _number(told: int) -> int:
    data = os.read(told, 8)
    if len(data) < 8:
        raise ChildProcessError("the process to fork from has ended")
    return int.from_bytes(data, "big", signed=True)


def _write(given: int, text: bytes) -> None:
    with os.fdopen(given, "wb", buffering=0) as pipe:
        try:
            pipe.write(text)
        except BrokenPipeError:
            return


# In the process that is forked from


def serve(number: int) -> None:
    """Import all, then fork a process for each task that comes over this socket, until it is closed."""
    import_commands()
    _serve([socket.socket(fileno=number)])


def serve_all(listening: socket.socket, alive: int) -> None:
    """As `serve` does, for all who connect, until the other end of `alive` is closed."""
    _serve([], listening, alive)


def import_commands() -> None:
    """Import, and work out, what is shared by the processes that are forked from this one."""
    from google.genai.types import GenerateContentConfig, GenerateContentResponse

    from tui_agent.conversation.profile import ModelProfile
    from tui_agent.models.prices import look_up
    from tui_agent.system.network import tls

    for name in IMPORTED:
        import_module(name)
    for kind in (GenerateContentConfig, GenerateContentResponse):
        kind.model_validate({})
    look_up(ModelProfile("anthropic", "claude-opus-5-5", catalogue="anthropic"))
    tls()


def _serve(connected: list[socket.socket], listening: socket.socket | None = None, alive: int | None = None) -> None:
    # What is shared is never looked at by a collector, which would copy it.
    gc.collect()
    gc.freeze()
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, int] = {}
    more = [each for each in (listening, alive) if each is not None]
    while connected or listening is not None:
        ready, _, _ = select([wakes, *more, *connected], [], [])
        if wakes in ready:
            os.read(wakes, 4096)
            _tell_of_ended(running, os.WNOHANG)
        if alive in ready:
            break
        if listening is not None and listening in ready:
            connected.append(listening.accept()[0])
        for tasks in [each for each in connected if each in ready]:
            own = [wakes, woken, *(each if isinstance(each, int) else each.fileno() for each in (*more, *connected))]
            if not _take(tasks, running, own):
                connected.remove(tasks)
                tasks.close()
    _tell_of_ended(running, 0)


def receive(asked: socket.socket) -> tuple[dict[str, object], list[int]]:
    """The next task that comes over this socket, and its streams: both empty where no more will come."""
    head, streams, _, _ = socket.recv_fds(asked, 4, 4)
    if not head:
        return {}, []
    task = b""
    size = int.from_bytes(head, "big")
    while len(task) < size:
        task += asked.recv(min(_MOST_BYTES, size - len(task)))
    return json.loads(task), list(streams)


def _take(tasks: socket.socket, running: dict[int, int], own: Sequence[int]) -> bool:
    """Fork a process for the task that has come; False: no more will come."""
    task, streams = receive(tasks)
    if not streams:
        return False
    *its, tells = streams
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for other in (*own, *running.values(), tells):
            os.close(other)
        _become(task, its)
    for stream in its:
        os.close(stream)
    running[pid] = tells
    _tell(tells, pid)
    return True


def _tell_of_ended(running: dict[int, int], options: int) -> None:
    """Tell whoever started them how those ended that have."""
    while running:
        pid, status = os.waitpid(-1, options)
        if not pid:
            return
        tells = running.pop(pid)
        _tell(tells, os.waitstatus_to_exitcode(status))
        os.close(tells)


def _tell(tells: int, number: int) -> None:
    try:
        os.write(tells, number.to_bytes(8, "big", signed=True))
    except BrokenPipeError:
        return


def _become(task: dict[str, object], streams: Sequence[int]) -> NoReturn:
    """Be the command."""
    os.setsid()
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
        os.close(stream)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115 - as at any terminal
    argv, environ, folder = task["argv"], task["environ"], task["folder"]
    assert isinstance(argv, list)
    assert isinstance(environ, dict)
    os.chdir(str(folder))
    if task["imports"]:
        os.execve(sys.executable, _command(argv), environ)  # noqa: S606
    os.environ.clear()
    os.environ.update(environ)
    sys.argv[1:] = argv
    as_interpreter(lambda: runpy.run_module("tui_agent", run_name="__main__", alter_sys=True))


def as_interpreter(program: Callable[[], object]) -> NoReturn:
    """Run it to its end, which is this process's: as the interpreter's, but for taking apart what is shared."""
    try:
        program()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    else:
        code = 0
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
