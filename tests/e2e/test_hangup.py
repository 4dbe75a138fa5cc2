"""The terminal is closed, the program is told to end or is killed while commands run: nothing of it stays behind."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pexpect
import psutil
import pytest

from tests.e2e.program import MODELS, Program
from tests.e2e.starter import STARTER, OnTerminal
from tests.servers.coding_task import PROMPT
from tests.servers.running import in_process
from tests.servers.script import Call, Script, Step
from tui_agent.tools.sandbox.sandbox import mechanism

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


STARTS = {"command": "setsid sleep 600 & sleep 601 & wait", "background": True}


@pytest.mark.parametrize(
    ("provider", "number"),
    [
        ("anthropic", signal.SIGKILL),
        ("gemini", signal.SIGTERM),
        pytest.param("anthropic", signal.SIGTERM, marks=pytest.mark.soak),
        pytest.param("gemini", signal.SIGKILL, marks=pytest.mark.soak),
    ],
)
def test_background_commands_end_with_the_program(tmp_path: Path, provider: str, number: signal.Signals) -> None:
    script = Script.of(
        Step(calls=(Call("run_command", STARTS),)), Step(calls=(Call("run_command", {"command": "sleep 602"}),))
    )
    with in_process(provider, tmp_path, script) as server:
        program = Program.in_folder(tmp_path, server.environment)
        running = program.start("-p", PROMPT, "--model", MODELS[provider], "--yolo")
        until(lambda: len(sleepers(running.pid)) == 3)
        left = sleepers(running.pid)
        os.kill(running.pid, number)
        running.communicate(timeout=PATIENCE_S)
    until(lambda: are_gone(left))


@pytest.mark.skipif(mechanism().kind == "none", reason=mechanism().detail)
def test_temporary_folders_of_a_killed_program_go_at_a_later_start(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    program = Program.in_folder(tmp_path, {"TMPDIR": str(there)})
    running = program.start("-p", "run sleep 603", "--model", "offline")
    until(lambda: bool(sleepers(running.pid)))
    left = sleepers(running.pid)
    (own,) = there.glob("tui-agent-*")
    kept = there / "tui-agent-of-something-else"
    kept.mkdir()
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=PATIENCE_S)
    until(lambda: are_gone(left))
    assert own.exists()
    again = program.start("-p", "run sleep 604", "--model", "offline")
    until(lambda: not own.exists())
    until(lambda: bool(sleepers(again.pid)))
    # That of a program that runs stays, whatever else starts.
    (own,) = set(there.glob("tui-agent-*")) - {kept}
    assert program.run("-p", "run true", "--model", "offline").returncode == 0
    assert own.exists()
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=PATIENCE_S)
    until(lambda: list(there.glob("tui-agent-*")) == [kept])
