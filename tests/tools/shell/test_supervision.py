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

from tui_agent.tools.sandbox.launching import AVAILABLE, Launcher, Refused
from tui_agent.tools.shell.processes import Supervisor

PROGRAM = """
import asyncio, os, pathlib, sys
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.shell.processes import RunningCommand
folder = pathlib.Path(sys.argv[1])
SCRIPT = '''
echo $$ > shell.pid
(trap "" TERM HUP INT; echo $BASHPID > stubborn.pid; while :; do sleep 1; done) &
(CLEAN setsid bash -c '(echo $BASHPID > daemon.pid; exec sleep 1000) &' &)
sleep 1000
'''.replace("CLEAN", "env -i" if sys.argv[2] == "launched" else "")
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


def children(pid: int) -> list[psutil.Process]:
    names = ("families", "launcher")
    return [child for child in psutil.Process(pid).children() if any(n in " ".join(child.cmdline()) for n in names)]


@pytest.mark.parametrize("way", ["own", *(["launched"] if AVAILABLE else [])])
@pytest.mark.parametrize("whole_group", [False, True])
def test_killed_outright(tmp_path: Path, whole_group: bool, way: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path), way], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True
    )
    until(lambda: len(pids(tmp_path)) == 3)
    family, (supervisor,) = pids(tmp_path), children(program.pid)
    if whole_group:
        os.killpg(program.pid, signal.SIGKILL)
    else:
        program.kill()
    program.communicate()
    until(lambda: not any(map(alive, family)))
    until(lambda: not alive(supervisor.pid))


STARTING = """
import os, subprocess, sys
from tui_agent.tools.shell import families
from tui_agent.tools.sandbox.launching import AVAILABLE, Launcher, Refused
from tui_agent.tools.shell.processes import Supervisor
supervisor = Supervisor()
def start():
    mark = "test" + os.urandom(8).hex()
    supervisor.add(mark)
    environment = {"PATH": os.environ["PATH"], families.MARK: mark, "OF": sys.argv[1]}
    return subprocess.Popen(["sleep", "1000"], env=environment, start_new_session=True)
"""


@pytest.mark.parametrize("moment", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.008])
def test_killed_while_a_command_starts(tmp_path: Path, moment: float) -> None:
    """A command that was just being started is missed at no instant."""
    starting = f"print(1, flush=True); [start() for _ in range(50)]; import time; time.sleep({moment}); os._exit(1)"
    program = [sys.executable, "-c", f"{STARTING}{starting}", str(tmp_path)]
    subprocess.run(program, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    until(lambda: not _with_environment(f"OF={tmp_path}".encode()))


def _with_environment(sign: bytes) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if sign in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process.pid)
        except OSError:
            continue
    return found


def test_a_supervisor_that_somebody_ended_is_replaced(tmp_path: Path) -> None:
    program = f"""{STARTING}
import psutil
first = start()
(old,) = [child for child in psutil.Process().children() if child.pid != first.pid]
old.kill()
old.wait()
second = start()
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=False, timeout=60)
    until(lambda: not _with_environment(f"OF={tmp_path}".encode()))


def test_it_ends_when_it_is_closed() -> None:
    supervisor = Supervisor()
    before = {child.pid for child in psutil.Process().children()}
    supervisor.add("nothing", 0)
    (child,) = [child for child in psutil.Process().children() if child.pid not in before]
    supervisor.close()
    assert not alive(child.pid)
    assert supervisor.families == {}


@pytest.mark.skipif(not AVAILABLE, reason="there are no launchers here")
def test_a_launcher_that_ends_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(Refused, match="it ended at once"):
        Launcher("plain").ready()
