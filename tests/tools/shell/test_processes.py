"""Commands as real processes: their output, their end and what they leave behind."""

# ruff: noqa: ASYNC110, ASYNC240 - processes and their files tell nobody when they change

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tui_agent.tools.environment import child_environment
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.sandbox.launching import AVAILABLE
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


async def test_last_words_that_nobody_has_read_yet_are_passed_on(tmp_path: Path) -> None:
    said: list[bytes] = []
    command = start("trap 'echo bye; exit 0' TERM; touch up; while :; do sleep 0.01; done", tmp_path, said.append)
    await until((tmp_path / "up").exists)
    asyncio.get_running_loop().remove_reader(command._output)  # as if the loop had other things to do
    await command.stop()
    assert b"".join(said).endswith(b"bye\n")


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


async def test_who_can_end_well_is_given_the_time(tmp_path: Path) -> None:
    pieces: list[bytes] = []
    command = start("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done", tmp_path, pieces.append)
    await until(lambda: b"ready\n" in b"".join(pieces))
    await command.stop()
    assert b"bye" in b"".join(pieces)
    assert (await command.ended()).exit_code == 0


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


def test_nothing_survives_the_program(tmp_path: Path) -> None:
    program = f"""
import asyncio, pathlib
from tui_agent.tools.sandbox.launcher import Request
from tui_agent.tools.shell.processes import RunningCommand
async def main():
    folder = pathlib.Path({str(tmp_path)!r})
    def start(script):
        request = Request(["/bin/bash", "-c", script], str(folder), {{"PATH": "/usr/bin:/bin"}})
        return RunningCommand(request, on_output=lambda _: None, own={own or not AVAILABLE})
    one = start("echo $$ > one.pid; exec sleep 1000")
    two = start("(echo $BASHPID > two.pid; exec sleep 1000 >/dev/null 2>&1) & sleep 1000")
    while len([f for f in folder.glob("*.pid") if f.read_text()]) < 2:
        await asyncio.sleep(0.01)
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, cwd=Path(__file__).parents[3])
    family = pids(tmp_path, 2)
    assert len(family) == 2
    # Who ends them learns of the program's end a moment after it.
    asyncio.run(until(lambda: not [pid for pid in family if alive(pid)]))


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


@pytest.mark.parametrize(
    "name",
    [
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "OPENAI_API_KEY",
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "HF_TOKEN",
        "NPM_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "MY_SECRET",
        "DB_PASSWORD",
        "PGPASSWORD",
        "DATABASE_URL",
        "SENTRY_DSN",
        "stripe_api_key",
        "SSH_PRIVATE_KEY",
        "CLIENT_SECRET",
        "MYTOKEN",
        "DJANGO_SECRET_KEY",
    ],
)
def test_keys_do_not_reach_commands(name: str) -> None:
    assert name not in child_environment({name: "x", "PATH": "/bin"})
    assert child_environment({name: "x"}, keep=(name,))[name] == "x"


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "LANG",
        "VIRTUAL_ENV",
        "SSH_AUTH_SOCK",
        "AWS_REGION",
        "AWS_PROFILE",
        "GOOGLE_CLOUD_PROJECT",
        "KEYMAP",
        "GPG_KEY_ID_LENGTH",
        "XDG_SESSION_ID",
        "PWD",
        "OLDPWD",
        "MONKEY",
        "HOSTNAME",
        "TOKENIZERS_PARALLELISM",
    ],
)
def test_what_commands_need_stays(name: str) -> None:
    assert child_environment({name: "x"})[name] == "x"


def test_output_is_for_reading() -> None:
    environment = child_environment({"TERM": "xterm-256color", "FORCE_COLOR": "1"})
    assert environment["TERM"] == "dumb"
    assert environment["NO_COLOR"] == "1"
    assert "FORCE_COLOR" not in environment


def test_a_plain_cd_goes_where_it_says() -> None:
    assert "CDPATH" not in child_environment({"CDPATH": "/"})


def test_git_takes_no_orders_from_a_bare_repository_in_the_project(tmp_path: Path) -> None:
    """Its configuration may name a program that `git status` runs."""
    subprocess.run(["git", "init", "-q", "--bare", tmp_path / "bare"], check=True)
    with (tmp_path / "bare/config").open("a") as config:
        config.write(f"[core]\nbare = false\nworktree = {tmp_path}\nfsmonitor = touch {tmp_path}/evil\n")
    for environment, runs in ((dict(os.environ), True), (child_environment(os.environ), False)):
        subprocess.run(["git", "status"], cwd=tmp_path / "bare", env=environment, check=False, capture_output=True)
        assert (tmp_path / "evil").exists() == runs
        (tmp_path / "evil").unlink(missing_ok=True)


def test_what_the_user_told_git_stays() -> None:
    environment = child_environment({"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"})
    assert environment["GIT_CONFIG_COUNT"] == "2"
    assert environment["GIT_CONFIG_KEY_0"] == "a.b"
    assert environment["GIT_CONFIG_KEY_1"] == "safe.bareRepository"
    # git says itself what is wrong with that.
    assert child_environment({"GIT_CONFIG_COUNT": "many"})["GIT_CONFIG_COUNT"] == "many"
