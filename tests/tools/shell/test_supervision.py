"""Nothing of a program's commands survives it, also when it was killed outright."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tui_agent.tools.sandbox.launching import AVAILABLE, Launcher

PROGRAM = """
import asyncio, os, pathlib, sys
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.shell.processes import RunningCommand
folder = pathlib.Path(sys.argv[1])
SCRIPT = '''
echo $$ > shell.pid
(trap "" TERM HUP INT; echo $BASHPID > stubborn.pid; while :; do sleep 1; done) &
(DETACHED bash -c '(echo $BASHPID > daemon.pid; exec sleep 1000) &' &)
sleep 1000
'''.replace("DETACHED", "env -i setsid" if sys.argv[2] == "launched" else "")
async def main():
    request = Request(["/bin/bash", "-c", SCRIPT], str(folder), {"PATH": "/usr/bin:/bin"})
    command = RunningCommand(request, on_output=lambda _: None, own=sys.argv[2] == "own")
    await command.started()
    print(command.pid, flush=True)
    await command.ended()
asyncio.run(main())
"""
ROOT = Path(__file__).parents[3]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pids(folder: Path) -> list[int]:
    return [int(text) for file in folder.glob("*.pid") if (text := file.read_text().strip())]


def launchers(pid: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children() if "launcher" in " ".join(child.cmdline())]


@pytest.mark.parametrize("way", ["own", *(["launched"] if AVAILABLE else [])])
@pytest.mark.parametrize("whole_group", [False, True])
def test_killed_outright(tmp_path: Path, whole_group: bool, way: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), way], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    until(lambda: len(pids(tmp_path)) == 3)
    family, starters = pids(tmp_path), launchers(program.pid)
    if whole_group:
        os.killpg(program.pid, signal.SIGKILL)
    else:
        program.kill()
    program.communicate()
    until(lambda: not any(map(alive, family)))
    until(lambda: not any(alive(each.pid) for each in starters))


@pytest.mark.skipif(not AVAILABLE, reason="there are no launchers here")
def test_a_launcher_that_ends_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(OSError, match="it ended at once"):
        Launcher("plain").ready()
