"""Stands in for an interpreter: has its code run by a process that is forked from another, and lives as long.

Its arguments are the socket where it asks for that, then those of the interpreter, whose last is the code. Where nobody
answers, it becomes the interpreter.
"""

import json
import os
import signal
import socket
import sys
from typing import Final

STARTED: Final = b"s"


def main() -> None:
    """Ask, hand the streams over, and wait for the end."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(sys.argv[1])
            task = json.dumps({"code": sys.argv[-1], "environ": dict(os.environ)}).encode()
            socket.send_fds(asking, [len(task).to_bytes(4, "big")], [0, 1, 2])
            asking.sendall(task)
            started = asking.recv(1) == STARTED
        except OSError:
            started = False
        if not started:
            os.execv(sys.executable, [sys.executable, *sys.argv[2:]])  # noqa: S606
        # The end of the worker is the end of its streams.
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):
            os.dup2(nothing, number)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asking.recv(1)


if __name__ == "__main__":
    main()
