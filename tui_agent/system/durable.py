"""Durable writing: atomic file replacement, private folders, work that cancellation cannot cut short."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def make_private_folder(folder: Path) -> None:
    """Make `folder` and its missing parents, accessible only by the user, and sync their directory entries.

    Raises OSError.
    """
    missing = [folder]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for path in reversed(missing):
        try:
            path.mkdir(mode=PRIVATE_FOLDER)
        except FileExistsError:
            if not path.is_dir():
                raise
            continue
        sync_folder(path.parent)


def write_file(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` with `data` atomically: after a power failure the file is either as before or complete.

    durable: otherwise nothing is synced, so that after a power failure it may be neither. Raises OSError, and leaves
    nothing behind then.
    """
    temporary = path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold an exclusive lock between programs, on the file `lock`, which is made if missing. Raises OSError."""
    import fcntl

    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def append_to_file(path: Path, data: bytes) -> None:
    """Append `data` to `path`, a private file that is made if missing, and sync it. Raises OSError.

    A crash in between leaves at most a part of `data`, to which nothing refers.
    """
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE_FILE)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    if is_new:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the directory entries of `folder`. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def being_cancelled() -> bool:
    """Whether this task is being cancelled; if not, a `CancelledError` comes from what it awaited."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in a thread
        return False
    return task is not None and task.cancelling() > 0


async def to_completion(work: Coroutine[None, None, Result]) -> Result:
    """Run `work` to its end even if this task is cancelled before or meanwhile; returns its result or raises its error.

    A cancellation is raised once `work` is done. So put everything that belongs together into `work`: the write, and
    the program's record of it. Only the end of the event loop itself cuts it short.
    """
    inner = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not inner.done():
        try:
            await asyncio.wait([inner])
        except asyncio.CancelledError as error:
            cancelled = error
    result = inner.result()
    if cancelled is not None:
        raise cancelled
    return result


def uncancelled(
    work: Callable[Parameters, Coroutine[None, None, Result]],
) -> Callable[Parameters, Coroutine[None, None, Result]]:
    """A coroutine function that runs to its end even if cancelled; see `to_completion`."""

    @wraps(work)
    async def whole(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await to_completion(work(*args, **kwargs))

    return whole


def threaded(work: Callable[Parameters, Result]) -> Callable[Parameters, Coroutine[None, None, Result]]:
    """A function that works in a thread, to be awaited."""

    @wraps(work)
    async def awaited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return await asyncio.to_thread(work, *args, **kwargs)

    return awaited


async def in_thread(work: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
    """`asyncio.to_thread`, but waits for the end of `work` even if cancelled: what it reads must not change before."""
    return await to_completion(asyncio.to_thread(work, *args, **kwargs))
