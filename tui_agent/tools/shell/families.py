"""Families of processes: finding all that a command has started, and ending it, even for a program that was killed.

A family is found in three ways: by its process group, by its session with every descendant, and by a mark in the
environment, which processes keep that have left the session and whose parents are gone. The last two need Linux's
``/proc``; elsewhere only the process group is ended, and only while its leader lives.

Run as a script this is the process of the supervisor (see `processes`). It reads from standard input what runs, and
when that closes, because its program has ended in whatever way, it ends what is left. It imports only the standard
library, so that it starts fast.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

MARK = "TUI_AGENT_COMMAND"

_PROC = Path("/proc")
_SWEEPS = 50


def members(session: int, mark: str) -> list[int]:
    """The living processes of a family, as far as the system tells. `session` is 0 while it is not known."""
    if not _tells():
        return []
    parents: dict[int, int] = {}
    marked: set[int] = set()
    sign = f"{MARK}={mark}".encode()
    for entry in os.listdir(_PROC):  # noqa: PTH208 - names are enough
        if not entry.isdigit():
            continue
        pid = int(entry)
        try:
            state, parent, _, its_session = _stat(pid)
            if state in {"Z", "X"}:
                continue
            parents[pid] = parent
            ours = session > 0 and its_session == session
            if ours or sign in _PROC.joinpath(entry, "environ").read_bytes().split(b"\0"):
                marked.add(pid)
        except (OSError, ValueError):
            continue
    marked.discard(os.getpid())
    return sorted(pid for pid in parents if _descends(pid, parents, marked))


def kill(session: int, mark: str, leads: bool) -> None:
    """End a family by force. `leads`: the process group `session` certainly still belongs to the family."""
    # A process may start another while the list is made, so it is made until it is empty.
    for _ in range(_SWEEPS):
        if not send(session, mark, signal.SIGKILL, leads):
            return
        leads = False
        time.sleep(0.001)


def end(session: int, mark: str) -> None:
    """End a family that may have ended already. Where the system tells only of groups, its leader must still live."""
    kill(session, mark, leads=session > 0 and not _tells())


def send(session: int, mark: str, number: int, leads: bool) -> bool:
    """Send a signal to a family. Whether there was a process to send it to."""
    found = members(session, mark)
    if leads:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, number)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(found)


def supervise(lines: Iterable[bytes]) -> None:
    """Note the families that lines name (``+MARK SESSION`` begins one, ``-MARK`` ends it); at last, end what is left.

    A family is named before its first process starts, with the session 0. That process holds the pipe until it carries
    the mark, so that none is missed.
    """
    families: dict[str, int] = {}
    for line in lines:
        mark, _, number = line[1:].decode().strip().partition(" ")
        if line.startswith(b"+"):
            families[mark] = int(number)
        else:
            families.pop(mark, None)
    for mark, session in families.items():
        end(session, mark)


def _tells() -> bool:
    """Whether the system has a list of all processes."""
    return _PROC.joinpath("self", "stat").exists()


def _descends(pid: int, parents: Mapping[int, int], ancestors: set[int]) -> bool:
    seen: set[int] = set()
    while pid in parents and pid not in seen:
        if pid in ancestors:
            return True
        seen.add(pid)
        pid = parents[pid]
    return False


def _stat(pid: int) -> tuple[str, int, int, int]:
    """State, parent, process group and session; see proc_pid_stat(5). The name before them may hold anything."""
    fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3])


if __name__ == "__main__":
    supervise(sys.stdin.buffer)
