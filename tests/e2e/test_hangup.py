"""The terminal is closed, or the program told to end, while a command runs: nothing of it stays behind."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.e2e.program import Program
from tests.e2e.starter import STARTER, OnTerminal

PATIENCE_S = 60.0


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
    arguments = ["--model", "offline", "--yolo", "run sleep 600"]
    environment = {**program.environment, "TERM": "xterm-256color"}
    app = STARTER.open(arguments, folder=program.project, environ=environment, size=(24, 80))
    try:
        until(lambda: read(app) and bool(sleepers(app.pid)))
        left = sleepers(app.pid)
        if number == signal.SIGHUP:
            app.close()
        else:
            app.send_signal(number)
            until(lambda: not read(app))
        app.wait(PATIENCE_S)
    finally:
        app.kill()
        app.close()
    assert are_gone(left)
    assert not (program.home / "logs").exists()


def test_the_app_ends_with_its_terminal_whatever_its_parent_left_it(tmp_path: Path) -> None:
    def leave() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})

    program = Program.in_folder(tmp_path)
    command, *arguments = [*program.command, "--model", "offline"]
    app = pexpect.spawn(
        command,
        arguments,
        cwd=program.project,
        env={**program.environment, "TERM": "xterm-256color"},
        preexec_fn=leave,
        timeout=PATIENCE_S,
    )
    try:
        app.expect("ready")
        os.close(app.child_fd)
        until(lambda: not app.isalive())
        assert app.exitstatus == 130
    finally:
        if app.isalive():
            os.kill(app.pid, signal.SIGKILL)


def read(app: OnTerminal) -> bool:
    """Take in what was printed, so that the app never waits for its terminal; False when it has left it."""
    try:
        app.read_nonblocking(65_536, timeout=0.05)
    except pexpect.TIMEOUT:
        return True
    except pexpect.EOF:
        return False
    return True
