"""Watching folders for changes, so that a project in which nothing happened need not be looked at again. Linux only.

inotify(7) reports every change that is made by name in a watched folder of this machine. It does not report what is
written through a hard link elsewhere or by another machine: so it can spare a look before a command, whose result is
then that of the look before, but never the look after it. There it tells of files that were written through memory,
which need not change their times.
"""

import ctypes
import os
import struct
import sys
from contextlib import suppress
from functools import cache
from typing import Final

MOST: Final = 2_000
"""The most folders that are watched: the system's number is limited, and other programs of the user need some."""

_CHANGES: Final = 0x0000_0FCE
"""Every event of inotify(7) but those of opening and reading."""
_CLOSED, _LOST = 0x8, 0x4000
"""Events: nobody has a file open for writing or in memory any more; there were too many events, and some were lost."""
_EVENT: Final = struct.Struct("iIII")
_IN_MEMORY: Final = frozenset({0x0102_1994, 0x8584_58F6})
"""File systems on which writing through memory changes no times: tmpfs, ramfs."""
_LOCAL: Final = frozenset({0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630, 0xF2F5_2010, 0x2FC1_2FC1})
"""The file systems that only this machine changes: ext, XFS, Btrfs, tmpfs, overlay, F2FS, ZFS; see statfs(2)."""


class Watched:
    """A queue of changes in some folders. Every method may be called in a thread, one at a time."""

    def __init__(self) -> None:
        self._queue = -1
        self._paths: dict[int, str] = {}
        self._events: list[bytes] = []
        self._ended = not sys.platform.startswith("linux")

    def add(self, folder: int, path: str) -> None:
        """Watch the folder that a descriptor refers to; `path` is its relative path. Without success, nothing is known
        from now on.
        """
        if self._ended:
            return
        if self._queue < 0:
            self._queue = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        place = f"/proc/self/fd/{folder}".encode()
        watch = _libc().inotify_add_watch(self._queue, place, _CHANGES) if _kind_of(folder) in _LOCAL else -1
        self._paths[watch] = path
        if watch < 0 or len(self._paths) > MOST:
            self.close()

    def is_quiet(self) -> bool:
        """Whether nothing has changed since `take_written` was last called."""
        if self._queue < 0:
            return False
        with suppress(BlockingIOError):
            while piece := os.read(self._queue, 65_536):
                self._events.append(piece)
        return not self._events

    def take_written(self) -> frozenset[str] | None:
        """The relative paths of files that were closed after writing since this was last called; None if not known."""
        if self._queue < 0:
            return None
        self.is_quiet()
        events, self._events = self._events, []
        written: set[str] = set()
        for piece in events:
            at = 0
            while at < len(piece):
                watch, kind, _, size = _EVENT.unpack_from(piece, at)
                at += _EVENT.size + size
                if kind & _LOST:
                    return None
                if kind & _CLOSED:
                    name = os.fsdecode(piece[at - size : at].rstrip(b"\0"))
                    path = self._paths.get(watch, "")
                    written.add(f"{path}/{name}" if path else name)
        return frozenset(written)

    def close(self) -> None:
        self._ended = True
        if self._queue >= 0:
            os.close(self._queue)
            self._queue = -1

    def __del__(self) -> None:
        self.close()


def is_in_memory(folder: int | str) -> bool:
    """Whether a file in a folder, a path or a descriptor, may be written without a change of its times."""
    return sys.platform.startswith("linux") and _kind_of(folder) in _IN_MEMORY


def _kind_of(folder: int | str) -> int:
    found = ctypes.create_string_buffer(256)
    # Both leave zeros if they fail.
    _libc().statfs(os.fsencode(folder), found) if isinstance(folder, str) else _libc().fstatfs(folder, found)
    return ctypes.c_long.from_buffer(found).value & 0xFFFF_FFFF


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
