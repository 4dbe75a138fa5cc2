"""The workers of a run of all tests, forked from one process in which these are collected already.

What tests import takes most of the time of collecting them, and would be imported by each worker again. The process
from which `tests/e2e/starter.py` has commands forked is one for all workers, too, and has never seen a test.
"""

import gc
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Final

import anyio
import execnet
import pytest

from tests.e2e.starter import as_interpreter, import_commands, receive, serve_all, start_at
from tests.forked_worker import STARTED

_ENTRY: Final = Path(__file__).with_name("forked_worker.py")
_WORKERS: Final = "workers"
_COMMANDS: Final = "commands"
_END_S: Final = 60.0


def fork_from_one(config: pytest.Config, specs: Sequence[execnet.XSpec]) -> None:
    """Have these workers forked from a process that this begins, and ends with `config`."""
    folder = Path(tempfile.mkdtemp(prefix="tests-", dir="/tmp"))
    alive, ours = os.pipe()
    listening = [_listen(folder / name) for name in (_WORKERS, _COMMANDS)]
    numbers = [each.fileno() for each in listening]
    arguments = [str(argument) for argument in config.invocation_params.args]
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; from tests.workers import serve; "
        f"serve({alive}, {numbers!r}, {str(folder)!r}, {arguments!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(alive, *numbers)
    )
    os.close(alive)
    for each in listening:
        each.close()

    def end() -> None:
        os.close(ours)
        try:
            process.wait(_END_S)
        finally:
            process.kill()

    config.add_cleanup(end)
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.join([sys.executable, "-S", str(_ENTRY), str(folder / _WORKERS)])


def _listen(path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(64)
    return listening


# In the process that is forked from


def serve(alive: int, numbers: Sequence[int], folder: str, arguments: Sequence[str]) -> None:
    """Collect the tests, then fork a worker for each that asks, until the other end of `alive` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    workers, commands = (socket.socket(fileno=number) for number in numbers)
    import_commands()
    if not os.fork():
        workers.close()
        serve_all(commands, alive)
        os._exit(0)
    commands.close()
    start_at(Path(folder, _COMMANDS))
    # A plugin of pytest that was imported before it: nothing in it is asserted here.
    anyio.__doc__ = "PYTEST_DONT_REWRITE"
    # What is wrong with a test is told by the workers.
    pytest.main([*arguments, "-n0", "--collect-only", "-qq"])
    gc.collect()
    gc.freeze()
    wakes, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while True:
        told: list[int | socket.socket] = [alive, wakes, workers, *running.values()]
        ready, _, _ = select(told, [], [])
        if alive in ready:
            break
        if wakes in ready:
            os.read(wakes, 4096)
        for pid, asked in list(running.items()):
            if asked in ready:
                # Who asked for it was killed.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, os.WNOHANG)[0]:
                running.pop(pid).close()
        if workers in ready:
            _fork(workers, running, (alive, wakes, woken))
    shutil.rmtree(folder)
    for pid, asked in running.items():
        asked.close()
        os.kill(pid, signal.SIGKILL)
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def _fork(workers: socket.socket, running: dict[int, socket.socket], own: Sequence[int]) -> None:
    asked, _ = workers.accept()
    task, streams = receive(asked)
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for other in (workers, asked, *running.values()):
            other.close()
        for number in own:
            os.close(number)
        environ, code = task["environ"], task["code"]
        assert isinstance(environ, dict)
        assert isinstance(code, str)
        os.environ.clear()
        os.environ.update(environ)
        for place, stream in enumerate(streams):
            os.dup2(stream, place)
            os.close(stream)
        as_interpreter(lambda: exec(code, sys.modules["__main__"].__dict__))  # noqa: S102 - as `python -c` does
    for stream in streams:
        os.close(stream)
    running[pid] = asked
    asked.sendall(STARTED)
