"""The lock of a session's only writer. The operating system releases it however the process ends."""

import errno
import fcntl
import os
import socket
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Final

import msgspec

from tui_agent.storage.errors import SessionBusy, explain_os_error
from tui_agent.system.durable import PRIVATE_FILE
from tui_agent.system.lenient import decoded_file
from tui_agent.system.programs import is_running

LOCK_NAME: Final = "lock"
LEFT_BEHIND_S: Final = 2.0
"""Seconds to wait for a lock whose holder is dead."""
_LOCK_HELD = {errno.EAGAIN, errno.EACCES, errno.EDEADLK}


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The holder of a lock: its process id, host name, and since when (local time, ISO 8601)."""

    pid: int
    host: str
    since: str


class SessionLock:
    """Held from `acquire` until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, folder: Path) -> "SessionLock":
        """Take the lock of the session in `folder`; may block for `LEFT_BEHIND_S`.

        Raises `SessionBusy`, naming the process that holds it, or `StorageError` where no lock file can be made.
        """
        path = folder / LOCK_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        except OSError as error:
            raise explain_os_error(error, path) from error
        try:
            _lock_patiently(descriptor, path)
            _sign(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in _LOCK_HELD:
                raise _busy(folder, path) from error
            raise explain_os_error(error, path) from error
        return cls(descriptor)

    @staticmethod
    def is_held(folder: Path) -> bool:
        """Whether a process has the session in `folder` open for writing; changes nothing."""
        try:
            descriptor = os.open(folder / LOCK_NAME, os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in _LOCK_HELD
        finally:
            os.close(descriptor)
        return False

    def release(self) -> None:
        """Release the lock. May be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # A child that is being started has a copy of the descriptor, which would hold the lock on.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock_patiently(descriptor: int, path: Path) -> None:
    """Lock the file. If the holder is dead, wait: a child it was just starting may still hold the lock for a moment."""
    until = monotonic() + LEFT_BEHIND_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _LOCK_HELD or monotonic() > until or not _is_left_behind(path):
                raise
        sleep(0.02)


def _is_left_behind(path: Path) -> bool:
    """Whether the holder was a process on this machine that has died."""
    holder = decoded_file(path, Holder)
    return holder is not None and holder.host == socket.gethostname() and not is_running(holder.pid)


def _sign(descriptor: int) -> None:
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.write(descriptor, msgspec.json.encode(Holder(os.getpid(), socket.gethostname(), now)))


def _busy(folder: Path, path: Path) -> SessionBusy:
    hint, holder = "Close it there first, or start a new session here.", decoded_file(path, Holder)
    if holder is None:
        return SessionBusy(f"Session {folder.name} is open in another process.", hint)
    elsewhere = f" on {holder.host}" if holder.host != socket.gethostname() else ""
    since = holder.since.replace("T", " ")[:19]
    return SessionBusy(
        f"Session {folder.name} is open in process {holder.pid}{elsewhere} since {since}.",
        hint,
        pid=holder.pid,
        since=holder.since,
    )
