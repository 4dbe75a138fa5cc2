"""Running commands as processes, each in a session of its own, and ending them so that nothing is left behind.

On Linux a launcher starts them (see `tools/sandbox/launcher.py`), confined or not, and ends everything they started
once this program is gone, however it ended. Elsewhere a command is a child of this process; its process group is ended,
and once this program is gone, a small process in that group does so: it reads from a pipe whose other end only this
program has, so that the system closes it.
"""

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.launching import AVAILABLE, LaunchedChild, launcher_of

TERMINATE_GRACE = 2.0
"""Seconds between asking a command to end and killing it."""
DRAIN_GRACE = 0.25
"""Seconds to go on reading after the command itself has ended and something else keeps the pipe open."""

_PIECE = 16_384  # small enough that emulating a piece of even the worst output does not delay a key
_PIPE: Final = 1 << 20
"""Bytes that a pipe holds at most, if its size was not raised by root (pipe(7))."""
_WATCHED: Final = "exec 3<&0; { trap '' HUP INT TERM; read end || kill -KILL -$$; } <&3 >/dev/null 2>&1 3<&- & "
"""What a shell does before it becomes the command: a process of its group waits for the end of this program."""


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
            for _ in range(_PIPE // _PIECE):
                if self._output >= 0:
                    self._read()
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
    return _OwnChild(request, *streams) if own else LaunchedChild(launcher_of(request).launch(request, *streams))


class _OwnChild:
    """A command as a child of this process, in a process group of its own."""

    def __init__(self, request: Request, output: int, errors: int = -1) -> None:
        self._loop = asyncio.get_running_loop()
        self.left: tuple[int, ...] = ()
        self.exited = asyncio.Event()
        self._ending = False
        if not os.access(request.arguments[0], os.X_OK):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), request.arguments[0])
        watched, self._alive = os.pipe()
        stream = "/dev/null" if errors < 0 else "&1"
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", f'{_WATCHED} exec "$@" <{stream} 3<&-', "sh", *request.arguments],
                cwd=request.folder,
                env=request.environment,
                stdin=watched,
                stdout=output,
                stderr=output if errors < 0 else errors,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._alive)
            raise
        finally:
            os.close(watched)
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
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    async def wait_until_gone(self) -> None:
        await self.exited.wait()

    def _send(self, number: int) -> None:
        self._ending = True
        # Later the group's number may belong to others.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _wait_for_exit(self) -> None:
        self._process.wait()
        with contextlib.suppress(OSError):
            if self._ending:
                os.killpg(self.pid, signal.SIGKILL)  # what waits for the end still is of this group
            else:
                os.write(self._alive, b"\n")
        os.close(self._alive)
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self.exited.set)


Child: TypeAlias = LaunchedChild | _OwnChild
"""A process that was started, with everything it starts."""
