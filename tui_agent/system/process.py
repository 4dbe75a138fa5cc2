"""This process: its memory is private, so are the API keys in ``/proc``; and what the C library's heap keeps."""

import contextlib
import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48
"""Indexes of the two addresses in proc_pid_stat(5), counted after the program's name."""


def keep_private(is_secret: Callable[[str], bool]) -> None:
    """Prevent tracing and core dumps of this process, and wipe secrets from its initial environment in ``/proc``.

    `is_secret`: whether a variable of this name is one.

    `os.environ` keeps them; a child process that inherits the environment block gets them empty. Linux only; if the
    system refuses, nothing changes. Root can still read everything.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        _wipe_environment(is_secret)
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _wipe_environment(is_secret: Callable[[str], bool]) -> None:
    """Overwrite the values of secret variables in the environment block that the kernel created at the start."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[_ENVIRONMENT_START]), int(fields[_ENVIRONMENT_END])
    if not 0 < start < end:
        return
    place = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and is_secret(name.decode(errors="replace")):
            ctypes.memset(place + len(name) + 1, 0, len(value))
        place += len(entry) + 1


_M_ARENA_MAX: Final = -8


def share_heap() -> None:
    """Let all threads share the heaps there are. For the program's own entry: it holds for the whole process.

    glibc gives each thread a heap of its own, up to eight for each processor, and what one has freed the others cannot
    use: after 600 turns 12 of 98 MB were free and in use by nobody, and 4 of 90 MB where threads share.
    """
    if (set_option := _function("mallopt")) is not None:
        set_option(_M_ARENA_MAX, 1)


def give_back_freed() -> None:
    """Return memory that long work has freed to the system. Takes some milliseconds, best in a thread.

    glibc keeps freed memory: 4 to 25 MB after a session of 5,000 turns was read.
    """
    if (trim := _function("malloc_trim")) is not None:
        trim(0)


def _function(name: str) -> Callable[..., int] | None:
    """A function of glibc; None with another C library."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
