"""Process families: finding and ending all processes that a command has started, even after this program was killed.

A family is found in three ways: by its process group, by its session with all descendants, and by a marker variable in
the environment, which also finds processes that left the session and whose parents are gone. The last two need Linux's
``/proc``; elsewhere only the process group is ended, and only while its leader lives.

Run as a script, this is the supervisor process (see `processes`). It reads from standard input which families run, and
ends those that are left when the input closes, because the program has ended in whatever way. It imports only the
standard library, so that it starts fast.
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
    """The living processes of a family, as far as the system tells. `session` is 0 while it is unknown."""
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
    """Kill a family. `leads`: the process group `session` certainly still belongs to the family."""
    # Repeat until the list is empty: a process may start another while it is made.
    for _ in range(_SWEEPS):
        if not send(session, mark, signal.SIGKILL, leads):
            return
        leads = False
        time.sleep(0.001)


def end(session: int, mark: str) -> None:
    """Kill a family that may have ended already. Without ``/proc``, its leader must still be alive."""
    kill(session, mark, leads=session > 0 and not _tells())


def send(session: int, mark: str, number: int, leads: bool) -> bool:
    """Send a signal to a family; False if there was no process to send it to."""
    found = members(session, mark)
    if leads:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(session, number)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return bool(found)


def supervise(lines: Iterable[bytes]) -> None:
    """Track families by the lines read (``+MARK SESSION`` adds one, ``-MARK`` removes it); at the end, kill those left.

    A family is added before its first process starts, with session 0. That process keeps the pipe open until it has the
    marker, so that none is missed.
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
    """Whether the system lists all processes."""
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
    """State, parent, process group and session; see proc_pid_stat(5). The name before them may contain anything."""
    fields = _PROC.joinpath(str(pid), "stat").read_bytes().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3])


if __name__ == "__main__":
    supervise(sys.stdin.buffer)
