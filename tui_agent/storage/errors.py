"""The errors of storage, with messages for users."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final


class StorageError(Exception):
    """Something could not be stored or read. `message` says what happened and what was kept, `hint` what to do."""

    kind = "storage"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class DiskFull(StorageError):
    """The disk is full. Everything written before is intact."""

    kind = "disk_full"


class ReadOnly(StorageError):
    """The session can be read but not added to."""

    kind = "read_only"


class Damaged(StorageError):
    """The file is not a database, not one of ours, or its contents are inconsistent."""

    kind = "damaged"


class SessionBusy(StorageError):
    """Another process has this session open. `pid` is 0 and `since` empty if the lock does not say."""

    kind = "session_busy"

    def __init__(self, message: str, hint: str = "", *, pid: int = 0, since: str = "") -> None:
        super().__init__(message, hint)
        self.pid = pid
        self.since = since


FULL_HINT: Final = "Free some space on that disk, then send the last message again."
PERMISSION_HINT: Final = "Check who owns the folder and that it may be written, or set TUI_AGENT_HOME to another one."


def explain_os_error(error: OSError, path: Path) -> StorageError:
    """The `StorageError` for an error while reading or writing `path`."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return DiskFull(f"There is no space left to write {path}. Everything saved before is intact.", FULL_HINT)
    if error.errno == errno.EROFS:
        return ReadOnly(f"{path} lies on a read-only file system.", PERMISSION_HINT)
    if error.errno in {errno.EACCES, errno.EPERM}:
        return ReadOnly(f"{path} may not be opened for writing.", PERMISSION_HINT)
    reason = error.strerror or str(error)
    return StorageError(f"{path} cannot be used: {reason}. Everything saved before is intact.")


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """A context that turns errors of the operating system into `StorageError`."""
    try:
        yield
    except OSError as error:
        raise explain_os_error(error, path) from error
