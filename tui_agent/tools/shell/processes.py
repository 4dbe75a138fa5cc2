"""Running commands as processes, each in a session of its own, and ending them so that nothing is left behind.

On Linux a launcher starts them (see `tools/sandbox/launcher.py`), confined or not, and ends everything they started
once this program is gone, however it ended. Elsewhere a command is a child of this process, and everything it started
is its family (see `families`). `kill_all` ends it when the program exits; if the program is killed, the `Supervisor`
does: a small process that reads from a pipe whose other end only this program has, so that the system closes it.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.launching import AVAILABLE, LaunchedChild
from tui_agent.tools.sandbox.sandbox import launch
from tui_agent.tools.shell import families

TERMINATE_GRACE = 2.0
"""Seconds between asking a command to end and killing it."""
DRAIN_GRACE = 0.25
"""Seconds to go on reading after the command itself has ended and something else keeps the pipe open."""

_PIECE = 16_384  # small enough that emulating a piece of even the worst output does not delay a key
_POLL = 0.02
_TIMEOUT_S = 2.0


class Ended(msgspec.Struct, frozen=True):
    """How a command ended.

    `exit_code` is minus the signal's number if a signal ended it. `left` are processes it started that were still
    running then; `left_open`: one of them kept the command's output open.
    """

    exit_code: int
    left: tuple[int, ...] = ()
    left_open: bool = False


class RunningCommand:
    """A running command, started by a launcher if there is one, else as a child of this process.

    `on_output` is called on the event loop with each piece of the output (standard output and errors in one stream),
    and finally with an empty piece. Raises OSError if the command cannot be started, as `started` does, and ValueError
    for arguments with NUL or half a surrogate pair in them.
    """

    def __init__(self, request: Request, *, on_output: Callable[[bytes], None], own: bool = not AVAILABLE) -> None:
        """`own`: run it as a child of this process in any case."""
        self._loop = asyncio.get_running_loop()
        self.on_output = on_output
        self._output_ended = asyncio.Event()
        self._failure: BaseException | None = None
        self._output, output = os.pipe()
        try:
            self._child = start_child(request, output, own=own)
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(output)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._read)

    @property
    def pid(self) -> int:
        """The process id of the command or of its keeper; 0 until it has started."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._child.exit_code

    async def started(self) -> None:
        """Wait until it runs. Raises OSError if it cannot be started; if cancelled, ends it first."""
        try:
            await self._child.started()
        except asyncio.CancelledError:
            await self.stop()
            raise
        except BaseException:
            self.kill()
            raise

    async def ended(self) -> Ended:
        """Wait for the end of the command and of its output. Raises what `on_output` raised."""
        await self._child.exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_GRACE):
                await self._output_ended.wait()
        left_open = not self._output_ended.is_set()
        self.stop_reading()
        if self._failure:
            await self._child.wait_until_gone()
            raise self._failure
        return Ended(self._child.exit_code or 0, self._child.left, left_open)

    async def stop(self) -> None:
        """End the whole family: ask it to end, and kill it after `TERMINATE_GRACE` seconds, or at once if cancelled."""
        self._child.terminate()
        try:
            async with asyncio.timeout(TERMINATE_GRACE):
                await self._child.wait_until_gone()
        except TimeoutError:
            pass
        finally:
            self.kill()
        await self._child.exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERMINATE_GRACE):
                await self._child.wait_until_gone()

    async def wait_until_gone(self) -> None:
        """Wait until all its processes are gone."""
        await self._child.wait_until_gone()

    def kill(self) -> None:
        """Kill the whole family now."""
        self._child.kill()
        self.stop_reading()

    def stop_reading(self) -> None:
        """Close the output. A process that still writes to it gets an error."""
        if self._output < 0:
            return
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._output = -1
        self._output_ended.set()
        self._pass_on(b"")

    def _read(self) -> None:
        try:
            data = os.read(self._output, _PIECE)
        except BlockingIOError:
            return
        if not data:
            self.stop_reading()
        elif not self._pass_on(data):
            self.kill()

    def _pass_on(self, data: bytes) -> bool:
        try:
            self.on_output(data)
        except Exception as error:  # re-raised to whoever waits for the command
            self._failure = error
            return False
        return True


def start_child(request: Request, *streams: int, own: bool = not AVAILABLE) -> "Child":
    """Start a process that ends with this program, however that ends. Call it on the event loop.

    `streams` are descriptors of its output and, if that is its input too, of its errors. Raises as `RunningCommand`.
    """
    return _OwnChild(request, *streams) if own else launch(request, *streams)


class _OwnChild:
    """A command as a child of this process. What leaves its session is found by a marker in the environment."""

    def __init__(self, request: Request, output: int, errors: int = -1) -> None:
        self._loop = asyncio.get_running_loop()
        self._mark = uuid.uuid4().hex
        self.left: tuple[int, ...] = ()
        self.exited = asyncio.Event()
        _supervisor.add(self._mark)
        try:
            self._process = subprocess.Popen(
                request.arguments,
                cwd=request.folder,
                env={**request.environment, families.MARK: self._mark},
                stdin=subprocess.DEVNULL if errors < 0 else output,
                stdout=output,
                stderr=output if errors < 0 else errors,
                start_new_session=True,
            )
        except BaseException:
            _supervisor.remove(self._mark)
            raise
        _supervisor.add(self._mark, self.pid)
        threading.Thread(target=self._wait_for_exit, name=f"wait for {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    async def started(self) -> None:
        """Returns at once: it has been running from the beginning."""

    def terminate(self) -> None:
        families.send(self.pid, self._mark, signal.SIGTERM, self._leads())

    def kill(self) -> None:
        families.kill(self.pid, self._mark, self._leads())

    async def wait_until_gone(self) -> None:
        while await asyncio.to_thread(self._lives):  # noqa: ASYNC110 - the system sends no event
            await asyncio.sleep(_POLL)

    def _lives(self) -> bool:
        return not self.exited.is_set() or bool(families.members(self.pid, self._mark))

    def _leads(self) -> bool:
        """Whether the process group certainly still belongs to this command."""
        return self._process.returncode is None

    def _wait_for_exit(self) -> None:
        self._process.wait()
        self.left = tuple(families.members(self.pid, self._mark))
        if not self.left:
            _supervisor.remove(self._mark)
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self.exited.set)


Child: TypeAlias = LaunchedChild | _OwnChild
"""A process that was started, with everything it starts."""


class Supervisor:
    """Ends all families once this program is gone, however it ended. Thread-safe.

    Its process starts with the first family, and again if somebody ended it. If no further process can be started,
    commands run without it; then a program that is killed may leave processes behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._families: dict[str, int] = {}

    @property
    def families(self) -> Mapping[str, int]:
        """The session of each family that may still have processes, by mark; 0 while it is being started."""
        with self._lock:
            return dict(self._families)

    def add(self, mark: str, session: int = 0) -> None:
        """Watch a family. Call it before its first process starts, and again once its session is known."""
        with self._lock:
            self._families[mark] = session
            if not self._tell(f"+{mark} {session}\n"):
                self._start()

    def remove(self, mark: str) -> None:
        """Forget a family whose processes are all gone."""
        with self._lock:
            if self._families.pop(mark, None) is not None:
                self._tell(f"-{mark}\n")

    def close(self) -> None:
        """End every family, then the supervisor."""
        for mark, session in self.families.items():
            families.end(session, mark)
            self.remove(mark)
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TIMEOUT_S)

    def _tell(self, line: str) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), line.encode())
        except OSError:
            return False
        return True

    def _start(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", families.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={},
                start_new_session=True,
            )
        except (OSError, ValueError):
            self._process = None
            return
        for mark, session in self._families.items():
            self._tell(f"+{mark} {session}\n")


_supervisor = Supervisor()


@atexit.register
def kill_all() -> None:
    """End everything that commands of this program left running."""
    _supervisor.close()
