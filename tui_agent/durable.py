"""Writing so that it lasts: files whole or absent, folders for the user alone, work that no cancellation cuts short."""

import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600


def make_private_folder(folder: Path) -> None:
    """Make `folder` and its missing parents, each for the user alone, and sync the entries that name them.

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


def write_file(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that, whenever the power goes, the file is either as before or whole.

    Raises OSError; then nothing is left behind.
    """
    temporary = path.with_name(f".{path.name[:100]}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Let one program at a time do what is inside, by a lock on the file `lock`, made if missing. Raises OSError."""
    import fcntl

    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def append_to_file(path: Path, data: bytes) -> None:
    """Add `data` at the end of `path`, made if it is missing, and sync it; for the user alone. Raises OSError.

    A crash in between leaves a part of `data` at the most, which nothing points at.
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
    """Sync the names in `folder`; Windows has no such call and needs none. Raises OSError."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def being_cancelled() -> bool:
    """Whether somebody cancelled this task. A `CancelledError` that comes otherwise is an error of what was awaited."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def to_completion(work: Coroutine[None, None, Result]) -> Result:
    """Do `work` to its end, also when this task is cancelled before or meanwhile, and return or raise what it gives.

    A cancellation is raised once `work` is done. So `work` holds everything that belongs together: the write and what
    the program remembers of it. Only the end of the event loop itself cuts it short.
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
