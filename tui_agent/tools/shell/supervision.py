"""The supervisor: a small process of its own that ends all commands when this program is gone, however it ended.

It holds the reading end of a pipe whose other end only this program has. Killed outright, the program cannot end
anything itself; but then the system closes the pipe.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Mapping

from tui_agent.tools.shell import families

_PATIENCE_S = 2.0


class Supervisor:
    """Started with the first family it is told of; started anew when somebody ended it. Thread-safe.

    Where no further process can be started, commands run without it: then only a program that is killed outright
    leaves something behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._families: dict[str, int] = {}

    @property
    def families(self) -> Mapping[str, int]:
        """Those that were started and may have left something behind: mark → session, 0 while it starts."""
        with self._lock:
            return dict(self._families)

    def add(self, mark: str, session: int = 0) -> None:
        """To be called before the family's first process starts, and again when its session is known."""
        with self._lock:
            self._families[mark] = session
            if not self._told(f"+{mark} {session}\n"):
                self._start()

    def remove(self, mark: str) -> None:
        """Nothing is left of the family."""
        with self._lock:
            if self._families.pop(mark, None) is not None:
                self._told(f"-{mark}\n")

    def close(self) -> None:
        """End every family, then the supervisor."""
        for mark, session in self.families.items():
            families.end(session, mark)
            self.remove(mark)
        with self._lock:
            process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_S)

    def _told(self, line: str) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), line.encode())
        except OSError:
            return False
        return True

    def _start(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", families.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                env={},
                start_new_session=True,
            )
        except (OSError, ValueError):
            self._process = None
            return
        for mark, session in self._families.items():
            self._told(f"+{mark} {session}\n")
