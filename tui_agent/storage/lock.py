"""One writer per session: a lock the operating system holds, and releases when its process dies in whatever way."""

import errno
import os
import socket
import sys
from datetime import datetime
from pathlib import Path

import msgspec

from tui_agent.durable import PRIVATE_FILE
from tui_agent.storage.errors import SessionBusy, explain_os_error

LOCK_NAME = "lock"

_HELD = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a lock: its process id, its machine's name, and since when (local time, ISO 8601)."""

    pid: int
    host: str
    since: str


class SessionLock:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, folder: Path) -> "SessionLock":
        """Take the lock of the session in `folder`.

        Raises `SessionBusy`, naming the process that holds it, or `StorageError` where no lock file can be made.
        """
        path = folder / LOCK_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as error:
            raise explain_os_error(error, path) from error
        try:
            _lock(descriptor)
            _sign(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _HELD:
                raise _busy(folder, path) from error
            raise explain_os_error(error, path) from error
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back; a second time does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _sign(descriptor: int) -> None:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.write(descriptor, msgspec.json.encode(Holder(os.getpid(), socket.gethostname(), now)))


def _busy(folder: Path, path: Path) -> SessionBusy:
    hint = "Close it there first, or start a new session here."
    try:
        holder = msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return SessionBusy(f"Session {folder.name} is open in another process.", hint)
    elsewhere = f" on {holder.host}" if holder.host != socket.gethostname() else ""
    since = holder.since.replace("T", " ")[:19]
    return SessionBusy(
        f"Session {folder.name} is open in process {holder.pid}{elsewhere} since {since}.",
        hint,
        pid=holder.pid,
        since=holder.since,
    )


if sys.platform == "win32":
    import msvcrt

    # A region locked on Windows cannot be read by others, so the lock lies far behind the holder's name.
    _LOCK_OFFSET = 1 << 30

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
