"""Commands as real processes: their output, their end and what they leave behind."""

# ruff: noqa: ASYNC110, ASYNC240 - processes and their files tell nobody when they change

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.launching import AVAILABLE, Launcher
from tui_agent.tools.shell.processes import RunningCommand

BASH = "/bin/bash"


@pytest.fixture(params=["launched", "own"], autouse=True)
def way(request: pytest.FixtureRequest) -> str:
    """How commands are started: by a launcher where there is one, or as children of this process."""
    global own
    own = request.param == "own"
    return str(request.param)


own = False


def start(script: str, folder: Path, on_output: Callable[[bytes], None] = lambda _: None) -> RunningCommand:
    request = Request([BASH, "-c", script], str(folder), dict(os.environ))
    return RunningCommand(request, on_output=on_output, own=own or not AVAILABLE)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def pids(folder: Path, count: int) -> list[int]:
    """The process ids that scripts have written into files of `folder`, once there are `count`."""
    found = [text for file in folder.glob("*.pid") if (text := file.read_text().strip())]
    return list(map(int, found)) if len(found) >= count else []


async def test_who_can_end_well_is_given_the_time_and_its_last_words_are_passed_on(tmp_path: Path) -> None:
    said: list[bytes] = []
    command = start("trap 'echo bye; exit 0' TERM; touch up; while :; do sleep 0.01; done", tmp_path, said.append)
    await until((tmp_path / "up").exists)
    asyncio.get_running_loop().remove_reader(command._output)  # as if the loop had other things to do
    await command.stop()
    assert b"".join(said).endswith(b"bye\n")
    assert (await command.ended()).exit_code == 0


GROUP = """
echo $$ > shell.pid
(trap '' TERM; echo $BASHPID > stubborn.pid; while :; do sleep 1; done) &
((echo $BASHPID > daemon.pid; exec sleep 1000) &)
"""
TREE = f"""{GROUP}
setsid bash -c 'echo $$ > session.pid; sleep 1000' &
(setsid bash -c '(echo $BASHPID > detached.pid; exec sleep 1000) &' &)
"""
"""Only a launcher finds what has left the process group."""


def start_tree(folder: Path) -> tuple[RunningCommand, int]:
    """A command with descendants, and the number of their files with process ids."""
    launched = AVAILABLE and not own
    return start(f"{TREE if launched else GROUP}\nsleep 1000", folder), 5 if launched else 3


async def test_output_and_exit_code(tmp_path: Path) -> None:
    pieces: list[bytes] = []
    ended = await start("echo out; echo err >&2; pwd; cat; exit 3", tmp_path, pieces.append).ended()
    assert b"".join(pieces).decode() == f"out\nerr\n{tmp_path.resolve()}\n"
    assert pieces[-1] == b""
    assert (ended.exit_code, ended.left, ended.left_open) == (3, (), False)
    assert (await start("kill -9 $$", tmp_path).ended()).exit_code == -9


async def test_all_of_a_large_output_arrives(tmp_path: Path) -> None:
    size = 0

    def count(data: bytes) -> None:
        nonlocal size
        size += len(data)

    await start("head -c 20000000 /dev/zero", tmp_path, count).ended()
    assert size == 20_000_000


async def test_the_whole_tree_is_ended(tmp_path: Path) -> None:
    command, count = start_tree(tmp_path)
    await until(lambda: len(pids(tmp_path, count)) == count)
    family = pids(tmp_path, count)
    assert all(map(alive, family))
    await command.stop()
    await until(lambda: not any(map(alive, family)))


async def test_a_cancelled_stop_ends_by_force_at_once(tmp_path: Path) -> None:
    command, count = start_tree(tmp_path)
    await until(lambda: len(pids(tmp_path, count)) == count)
    family = pids(tmp_path, count)
    stopping = asyncio.create_task(command.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    await until(lambda: not any(map(alive, family)))


async def test_a_background_child_that_keeps_the_output_open_does_not_hang_the_call(tmp_path: Path) -> None:
    started = time.monotonic()
    command = start("echo now; sleep 1000 & echo $! > child.pid", tmp_path)
    ended = await command.ended()
    assert time.monotonic() - started < 60
    (child,) = pids(tmp_path, 1)
    assert ended.left_open
    assert alive(child)
    if own:
        os.kill(child, 9)
        return
    assert child in ended.left
    command.kill()
    await until(lambda: not alive(child))


async def test_a_failing_reader_ends_the_command_and_is_heard(tmp_path: Path) -> None:
    def fail(data: bytes) -> None:
        raise MemoryError(len(data))

    command = start("echo $$ > shell.pid; yes", tmp_path, fail)
    with pytest.raises(MemoryError):
        await command.ended()
    assert not any(map(alive, pids(tmp_path, 1)))


async def test_cancelling_at_random_moments_leaves_nothing(tmp_path: Path) -> None:
    moments = random.Random(7)

    async def run(folder: Path) -> None:
        command = start("echo $$ > shell.pid; (echo $BASHPID > child.pid; exec sleep 1000) & sleep 1000", folder)
        try:
            await command.ended()
        except asyncio.CancelledError:
            await command.stop()
            raise

    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        task = asyncio.create_task(run(folder))
        await asyncio.sleep(moments.uniform(0, 0.06))
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        await until(lambda place=folder: not any(map(alive, pids(place, 0))))  # type: ignore[misc]


PROGRAM = """
import asyncio, pathlib, sys
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.shell.processes import RunningCommand
folder, own = pathlib.Path(sys.argv[1]), sys.argv[2] == "own"
SCRIPT = '''
echo $$ > shell.pid
(trap "" TERM HUP INT; echo $BASHPID > stubborn.pid; while :; do sleep 1; done) &
(DETACHED bash -c '(echo $BASHPID > daemon.pid; exec sleep 1000 >/dev/null 2>&1) &' &)
sleep 1000
'''.replace("DETACHED", "" if own else "env -i setsid")
async def main():
    request = Request(["/bin/bash", "-c", SCRIPT], str(folder), {"PATH": "/usr/bin:/bin"})
    command = RunningCommand(request, on_output=lambda _: None, own=own)
    while not (folder / "end").exists():
        await asyncio.sleep(0.01)
asyncio.run(main())
"""


@pytest.mark.parametrize("end", ["by itself", "killed outright", "killed with its group"])
def test_nothing_survives_the_program(tmp_path: Path, end: str, way: str) -> None:
    way = way if AVAILABLE else "own"
    line = [sys.executable, "-c", PROGRAM, str(tmp_path), way]
    program = subprocess.Popen(line, cwd=Path(__file__).parents[3], start_new_session=True)
    # Without a launcher only what outlives a kill is ended then, and the rest has time to end well.
    asyncio.run(until(lambda: len(pids(tmp_path, 3)) == 3))
    children = psutil.Process(program.pid).children()
    family = [*pids(tmp_path, 3), *(each.pid for each in children if "launcher" in " ".join(each.cmdline()))]
    assert len(family) == 3 + (way == "launched")
    if end == "by itself":
        (tmp_path / "end").touch()
    else:
        program.kill() if end == "killed outright" else os.killpg(program.pid, signal.SIGKILL)
    program.wait()
    # Who ends them learns of the program's end a moment after it.
    asyncio.run(until(lambda: not any(map(alive, family))))


@pytest.mark.skipif(not AVAILABLE, reason="there are no launchers here")
def test_a_launcher_that_ends_at_once_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(OSError, match="it ended at once"):
        Launcher("plain").ready()


async def start_once(folder: Path) -> None:
    await start("exit 0", folder).ended()


def test_what_cannot_start_says_so_and_nothing_that_was_started_leaves_a_file_open(tmp_path: Path) -> None:
    async def missing(program: str, folder: Path) -> None:
        request = Request([program], str(folder), {})
        await RunningCommand(request, on_output=lambda _: None, own=own or not AVAILABLE).started()

    asyncio.run(start_once(tmp_path))
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0  # noqa: PTH208
    for program, folder in (("/no/such/program", tmp_path), (BASH, tmp_path / "no such folder")):
        with pytest.raises(FileNotFoundError):
            asyncio.run(missing(program, folder))
    asyncio.run(start_once(tmp_path))
    if sys.platform == "linux":
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
