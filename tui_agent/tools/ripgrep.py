"""Running ``rg``, the binary in the ``ripgrep`` package."""

import asyncio
import os
import resource
import signal
import sys
import sysconfig
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from tui_agent.system.durable import to_completion
from tui_agent.system.programs import find_program, with_search_path
from tui_agent.tools.base import ToolFailure

TIMEOUT = 60.0
"""Seconds a search may take."""

MEMORY = 1 << 30
"""Bytes of memory a search may take, on Linux: an ignore file may be a link to ``/dev/zero``, and is read whole."""

OPEN_FILES = "/proc/self/fd"
"""Where Linux has what a process has open."""

_CHUNK = 1 << 16
_MAX_ERRORS = 8_000
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "XDG_CONFIG_HOME")


class RunningSearch:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = asyncio.ensure_future(_first_bytes(process.stderr))

    async def records(self, separator: bytes) -> AsyncIterator[bytes]:
        """The output, cut at each `separator`, which ends a record too: less than one comes only from a killed process.

        A record is held in memory, so the caller must keep them short: with ``--max-columns``, or by asking for paths.
        """
        async for records in self.batches(separator):
            for record in records:
                yield record

    async def batches(self, separator: bytes) -> AsyncIterator[list[bytes]]:
        """As `records`, in batches as they arrive; yields to the event loop in between.

        Raises ToolFailure after the last one if the search was killed before it was done.
        """
        output = self._process.stdout
        if output is None:
            return
        rest = b""
        while chunk := await output.read(_CHUNK):
            *whole, rest = (rest + chunk).split(separator)
            yield whole
            # Reading buffered data does not yield.
            await asyncio.sleep(0)
        if (status := await self._process.wait()) < 0:
            raise ToolFailure(
                f"The search broke off (signal {-status}): it may have taken over {MEMORY >> 30} GB of memory.",
                "Narrow the path, or see whether an ignore file such as .gitignore is a link to something endless.",
            )

    async def errors(self) -> str:
        """Wait until it ends; returns its error output if it failed (exit code 1 means that nothing matched)."""
        status = await self._process.wait()
        errors = await self._errors
        return errors.decode(errors="replace").strip() or f"rg ended with {status}" if status not in {0, 1} else ""

    async def close(self) -> None:
        """End the process and everything it started, and wait until it is gone."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await to_completion(self._gone())

    async def _gone(self) -> None:
        """Drain the pipes, since asyncio counts a process as ended only then, and wait for the end."""
        while self._process.stdout is not None and await self._process.stdout.read(_CHUNK):
            pass
        await self._errors
        await self._process.wait()


@asynccontextmanager
async def search(arguments: Sequence[str], folder: int, stdin: BinaryIO | None = None) -> AsyncIterator[RunningSearch]:
    """Run ``rg`` in the folder that the descriptor `folder` is open on, for at most `TIMEOUT` seconds.

    The process is gone afterwards in any case, also after cancellation. Raises ToolFailure.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            find_rg(),
            "--no-config",
            *arguments,
            stdin=stdin or asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=_as_cwd(folder),
            env=with_search_path({name: os.environ[name] for name in _PASSED_ON if name in os.environ}),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ToolFailure(f"The search could not be started: {error}.", "Use a command such as grep.") from error
    running = RunningSearch(process)
    if limit := getattr(resource, "prlimit", None):
        with suppress(OSError):  # it has ended
            limit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
    try:
        async with asyncio.timeout(TIMEOUT):
            yield running
    except TimeoutError as error:
        raise ToolFailure(
            f"The search took longer than {TIMEOUT:.0f} s and was stopped.", "Narrow the path."
        ) from error
    finally:
        await running.close()


@cache
def find_rg() -> str:
    """The path of ``rg``: beside this Python, in the package, or on PATH. Raises ToolFailure."""
    with_python = (folder / "rg" for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))))
    for candidate in chain(with_python, _of_package()):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    if on_path := find_program("rg"):
        return on_path
    raise ToolFailure(
        "ripgrep (rg) is not installed, so files cannot be searched.",
        "Use a command such as grep; the user can install it with `pip install ripgrep`.",
    )


def _of_package() -> Iterator[Path]:
    from importlib import metadata  # imported here because it is slow to import and rarely needed

    with suppress(metadata.PackageNotFoundError):
        for file in metadata.distribution("ripgrep").files or ():
            if file.name == "rg":
                yield Path(str(file.locate())).resolve()


def _as_cwd(folder: int) -> str:
    """A path of an open folder; under Linux one that cannot be redirected."""
    own = Path(OPEN_FILES, str(folder))
    if own.exists():
        return str(own)
    import fcntl

    if not hasattr(fcntl, "F_GETPATH"):
        raise ToolFailure(f"There is no {OPEN_FILES} here, so files cannot be searched.", "Use a command such as grep.")
    path = fcntl.fcntl(folder, fcntl.F_GETPATH, b"\0" * 1024)
    return os.fsdecode(path.rstrip(b"\0"))


async def _first_bytes(stream: asyncio.StreamReader | None) -> bytes:
    """The first bytes of `stream`; reads it to the end, so that the writer never blocks."""
    kept = b""
    while stream is not None and (chunk := await stream.read(_CHUNK)):
        kept = (kept + chunk)[:_MAX_ERRORS]
    return kept
