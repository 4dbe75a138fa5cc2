"""Protecting this process: the user's other processes cannot read its memory, nor API keys in ``/proc``."""

import contextlib
import ctypes
import sys
from pathlib import Path
from typing import Final

from tui_agent.tools.environment import is_secret

_PR_SET_DUMPABLE: Final = 4
_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48
"""Indexes of the two addresses in proc_pid_stat(5), counted after the program's name."""


def keep_private() -> None:
    """Prevent tracing and core dumps of this process, and wipe secrets from its initial environment in ``/proc``.

    `os.environ` keeps them; a child process that inherits the environment block gets them empty. Linux only; if the
    system refuses, nothing changes. Root can still read everything.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, ValueError, IndexError):
        _wipe_environment()
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def _wipe_environment() -> None:
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
