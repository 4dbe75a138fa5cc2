"""Commands as processes of their own session, and an end of them that leaves nothing behind.

A command's whole family is found in three ways: its process group, its session with every descendant, and a mark in the
environment that also those carry who left the session and whose parents are gone. The last two need Linux's ``/proc``;
elsewhere only the process group is ended, and only while its leader lives.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

MARK = "TUI_AGENT_COMMAND"
TERMINATE_GRACE = 2.0
"""Seconds between the request to end and the end by force."""
DRAIN_GRACE = 0.25
"""Seconds output may still come after the command itself has ended and something else keeps the pipe open."""

_PIECE = 16_384  # small enough that emulating one piece of the worst output is not felt at the keyboard
_POLL = 0.02
_SWEEPS = 50
_PROC = Path("/proc")


class Ended(msgspec.Struct, frozen=True):
    """How a command ended: its exit code, or minus the signal that ended it. `left`: processes it started that still
    ran then; `left_open`: one of them held on to its output.
    """

    exit_code: int
    left: tuple[int, ...] = ()
    left_open: bool = False


class Command:
    """A running command. `on_output` gets its output (standard output and errors in one stream) on the event loop, and
    an empty piece when no more is read.

    Raises OSError when it cannot be started, ValueError for arguments that hold NUL.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        on_output: Callable[[bytes], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.on_output = on_output
        self._mark = uuid.uuid4().hex
        self._output_ended = asyncio.Event()
        self._left: tuple[int, ...] = ()
        self._exited = asyncio.Event()
        self._failure: BaseException | None = None
        self._output, output = os.pipe()
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**environment, MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except BaseException:
            os.close(self._output)
            raise
        finally:
            os.close(output)
        _families[self._mark] = self.pid
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._read)
        threading.Thread(target=self._wait_for_exit, name=f"wait for {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        """The command's process, process group and session."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.returncode

    async def ended(self) -> Ended:
        """Wait for the end of the command and of its output. Raises what `on_output` raised."""
        await self._exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_GRACE):
                await self._output_ended.wait()
        left_open = not self._output_ended.is_set()
        self.stop_reading()
        if self._failure:
            raise self._failure
        return Ended(self._process.returncode, self._left, left_open)

    async def stop(self) -> None:
        """End the whole family: asked first, forced after `TERMINATE_GRACE`, at once if this is cancelled."""
        try:
            _signal(self.pid, self._mark, signal.SIGTERM, self._leads())
            async with asyncio.timeout(TERMINATE_GRACE):
                while await asyncio.to_thread(self._lives):  # noqa: ASYNC110 - the system tells nobody
                    await asyncio.sleep(_POLL)
        except TimeoutError:
            pass
        finally:
            self.kill()
        await self._exited.wait()

    def kill(self) -> None:
        """End the whole family by force, now."""
        _kill(self.pid, self._mark, self._leads())
        self.stop_reading()

    def stop_reading(self) -> None:
        """Let go of the output. What still writes to it gets an error."""
        if self._output < 0:
            return
        self._loop.remove_reader(self._output)
        os.close(self._output)
        self._output = -1
        self._output_ended.set()
        self._pass_on(b"")

    def _lives(self) -> bool:
        return not self._exited.is_set() or bool(_members(self.pid, self._mark))

    def _leads(self) -> bool:
        """Whether the process group certainly still is this command's own."""
        return self._process.returncode is None

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
        except Exception as error:  # handed to whoever waits for the command
            self._failure = error
            return False
        return True

    def _wait_for_exit(self) -> None:
        self._process.wait()
        self._left = tuple(_members(self.pid, self._mark))
        if not self._left:
            _families.pop(self._mark, None)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._exited.set)


_families: dict[str, int] = {}
"""Commands that were started and may have left something behind: mark → session."""


@atexit.register
def kill_all() -> None:
    """End everything any command of this program left running."""
    for mark, session in list(_families.items()):
        _kill(session, mark, leads=False)
        _families.pop(mark, None)


def _kill(session: int, mark: str, leads: bool) -> None:
    # A process may start another while the list is made, so it is made until it is empty.
    for _ in range(_SWEEPS):
        if not _signal(session, mark, signal.SIGKILL, leads):
            return
        leads = False
        time.sleep(0.001)


def _signal(session: int, mark: str, number: int, leads: bool) -> bool:
    """Send a signal to the family; whether there was anyone."""
    members = _members(session, mark)
    if leads:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, number)
    for pid in members:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(members)


def _members(session: int, mark: str) -> list[int]:
    """Living processes of the family, as far as the system tells."""
    if not _PROC.joinpath("self", "stat").exists():
        return []
    parents: dict[int, int] = {}
    marked: set[int] = set()
    sign = f"{MARK}={mark}".encode()
    for entry in os.listdir(_PROC):  # noqa: PTH208 - names are enough
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            state, parent, _, its_session = _stat(pid)
            if state in {"Z", "X"}:
                continue
            parents[pid] = parent
            if its_session == session or sign in _PROC.joinpath(entry, "environ").read_bytes().split(b"\0"):
                marked.add(pid)
        except (OSError, ValueError):
            continue
    marked.discard(os.getpid())
    return sorted(pid for pid in parents if _descends(pid, parents, marked))


def _descends(pid: int, parents: Mapping[int, int], ancestors: set[int]) -> bool:
    seen: set[int] = set()
    while pid in parents and pid not in seen:
        if pid in ancestors:
            return True
        seen.add(pid)
        pid = parents[pid]
    return False


def _stat(pid: int) -> tuple[str, int, int, int]:
    """State, parent, process group and session; see proc_pid_stat(5). The name in front may hold anything."""
    fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3])
