"""Watching folders for changes, so that a project in which nothing happened need not be looked at again. Linux only.

inotify(7) reports every change that is made by name in a watched folder of this machine. It does not report what is
written through a hard link elsewhere or by another machine: so it can spare a look before a command, whose result is
then that of the look before, but never the look after it.
"""

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from typing import Final

MOST: Final = 2_000
"""The most folders that are watched: the system's number is limited, and other programs of the user need some."""

_CHANGES: Final = 0x0000_0FCE
"""Every event of inotify(7) but those of opening and reading."""
_LOCAL: Final = frozenset({0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1})
"""The file systems that only this machine changes: ext, XFS, Btrfs, tmpfs, overlay, F2FS, ZFS; see statfs(2)."""


class Watched:
    """A queue of changes in some folders. Every method may be called in a thread, one at a time."""

    def __init__(self) -> None:
        self._queue = -1
        self._watches: set[int] = set()
        self._ended = not sys.platform.startswith("linux")

    def add(self, folder: int) -> None:
        """Watch the folder that a descriptor refers to; without success, nothing is known from now on."""
        if self._ended:
            return
        if self._queue < 0:
            self._queue = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        place = f"/proc/self/fd/{folder}".encode()
        watch = _libc().inotify_add_watch(self._queue, place, _CHANGES) if _is_local(folder) else -1
        self._watches.add(watch)
        if watch < 0 or len(self._watches) > MOST:
            self.close()

    def is_quiet(self) -> bool:
        """Whether nothing has changed since this was last asked."""
        if self._queue < 0:
            return False
        quiet = True
        with suppress(BlockingIOError):
            while os.read(self._queue, 65_536):
                quiet = False
        return quiet

    def close(self) -> None:
        """Watch nothing any more."""
        self._ended = True
        if self._queue >= 0:
            os.close(self._queue)
            self._queue = -1

    def __del__(self) -> None:
        self.close()


def _is_local(folder: int) -> bool:
    found = ctypes.create_string_buffer(256)
    _libc().fstatfs(folder, found)  # which leaves zeros if it fails
    return ctypes.c_long.from_buffer(found).value & 0xFFFF_FFFF in _LOCAL


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
