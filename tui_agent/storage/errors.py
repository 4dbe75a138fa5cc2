"""What can go wrong with what lasts: one error, said in plain words."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StorageError(Exception):
    """Something could not be stored or read. `message` says what happened and what was kept, `hint` what to do."""

    kind = "storage"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class DiskFull(StorageError):
    """There is no room for the next write; what was written before is intact."""

    kind = "disk_full"


class ReadOnly(StorageError):
    """The session can be read but not added to."""

    kind = "read_only"


class Damaged(StorageError):
    """The file is no database, not one of ours, or its contents no longer hold together."""

    kind = "damaged"


class SessionBusy(StorageError):
    """Another process writes to this session. `pid` is 0 and `since` empty where the lock does not say."""

    kind = "session_busy"

    def __init__(self, message: str, hint: str = "", *, pid: int = 0, since: str = "") -> None:
        super().__init__(message, hint)
        self.pid = pid
        self.since = since


_FULL_HINT = "Free some space on that disk, then send the last message again."
_PERMISSION_HINT = "Check who owns the folder and that it may be written, or set TUI_AGENT_HOME to another one."


def explain_os_error(error: OSError, path: Path) -> StorageError:
    """`error`, met while reading or writing `path`, as a `StorageError`."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return DiskFull(f"There is no space left to write {path}. Everything saved before is intact.", _FULL_HINT)
    if error.errno == errno.EROFS:
        return ReadOnly(f"{path} lies on a read-only file system.", _PERMISSION_HINT)
    if error.errno in {errno.EACCES, errno.EPERM}:
        return ReadOnly(f"{path} may not be opened for writing.", _PERMISSION_HINT)
    reason = error.strerror or str(error)
    return StorageError(f"{path} cannot be used: {reason}. Everything saved before is intact.")


def explain_sqlite_error(error: sqlite3.Error, path: Path) -> StorageError:
    """`error`, met while using the database at `path`, as a `StorageError` (result codes: sqlite.org/rescode.html)."""
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & 0xFF
    if code == sqlite3.SQLITE_FULL or extended == sqlite3.SQLITE_IOERR_WRITE:
        return DiskFull(f"There is no space left to write {path}. Everything saved before is intact.", _FULL_HINT)
    if code in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}:
        return ReadOnly(f"{path} may not be written.", _PERMISSION_HINT)
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return Damaged(f"{path} is damaged ({error}).")
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StorageError(
            f"{path} is in use by another program. Nothing was lost.", "Close the program that has it open."
        )
    return StorageError(f"{path} cannot be used: {error}. Everything saved before is intact.", _PERMISSION_HINT)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what sqlite and the operating system raise inside into `StorageError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain_sqlite_error(error, path) from error
    except OSError as error:
        raise explain_os_error(error, path) from error
