"""Commands as processes of their own session, and an end of them that leaves nothing behind.

A command's whole family (`tools/families.py`) ends with this program at the latest: by `kill_all` when it exits, by
`tools/supervision.py` when it is killed.
"""

import asyncio
import atexit
import contextlib
import os
import signal
import subprocess
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tui_agent.tools.shell import families
from tui_agent.tools.shell.supervision import Supervisor

TERMINATE_GRACE = 2.0
"""Seconds between the request to end and the end by force."""
DRAIN_GRACE = 0.25
"""Seconds output may still come after the command itself has ended and something else keeps the pipe open."""

_PIECE = 16_384  # small enough that emulating one piece of the worst output is not felt at the keyboard
_POLL = 0.02
_supervisor = Supervisor()


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
        _supervisor.add(self._mark)
        try:
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                env={**environment, families.MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except BaseException:
            _supervisor.remove(self._mark)
            os.close(self._output)
            raise
        finally:
            os.close(output)
        _supervisor.add(self._mark, self.pid)
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
            families.send(self.pid, self._mark, signal.SIGTERM, self._leads())
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
        families.kill(self.pid, self._mark, self._leads())
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
        return not self._exited.is_set() or bool(families.members(self.pid, self._mark))

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
        self._left = tuple(families.members(self.pid, self._mark))
        if not self._left:
            _supervisor.remove(self._mark)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._exited.set)


@atexit.register
def kill_all() -> None:
    """End everything any command of this program left running."""
    _supervisor.close()
