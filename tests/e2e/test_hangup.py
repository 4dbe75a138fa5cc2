"""The terminal is closed, or the program told to end, while a command runs: nothing of it stays behind."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.e2e.program import Program

PATIENCE_S = 30.0


def until(holds: Callable[[], bool]) -> None:
    """Wait for it. Raises TimeoutError."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def sleepers(pid: int) -> list[psutil.Process]:
    """The commands that the program with this process id has running."""
    return [child for child in psutil.Process(pid).children(recursive=True) if _runs_sleep(child)]


def _runs_sleep(process: psutil.Process) -> bool:
    try:
        return bool(process.name() == "sleep")
    except psutil.NoSuchProcess:
        return False


def are_gone(processes: list[psutil.Process]) -> bool:
    return not any(map(_lives, processes))


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_one_shot_ends_its_command(tmp_path: Path, number: signal.Signals) -> None:
    program = Program.in_folder(tmp_path)
    running = program.start("-p", "run sleep 600", "--model", "offline", "--yolo")
    until(lambda: bool(sleepers(running.pid)))
    left = sleepers(running.pid)
    running.send_signal(number)
    running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert are_gone(left)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_the_app_ends_its_command(tmp_path: Path, number: signal.Signals) -> None:
    program = Program.in_folder(tmp_path)
    arguments = [*program.command[1:], "--model", "offline", "--yolo", "run sleep 600"]
    environment = {**program.environment, "TERM": "xterm-256color"}
    app = pexpect.spawn(
        sys.executable, arguments, cwd=str(program.project), env=environment, dimensions=(24, 80), timeout=PATIENCE_S
    )
    until(lambda: read(app) and bool(sleepers(app.pid)))
    left, process = sleepers(app.pid), psutil.Process(app.pid)
    if number == signal.SIGHUP:
        os.close(app.child_fd)
    else:
        app.kill(number)
    until(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE)
    assert are_gone(left)
    assert not (program.home / "logs").exists()


def read(app: "pexpect.spawn[bytes]") -> bool:
    """Take in what was printed, so that the app never waits for its terminal."""
    try:
        app.read_nonblocking(65_536, timeout=0.05)
    except pexpect.TIMEOUT:
        return True
    return True
