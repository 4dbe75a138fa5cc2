"""The tool `run_command`, with real commands."""

import asyncio
import json
import os
import resource
import subprocess
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from tests.tools.shell.test_processes import alive, until
from tui_agent.tools.base import (
    Access,
    CallStopped,
    PermissionAnswer,
    PermissionQuestion,
    SubtaskProgress,
    ToolFailure,
    ToolOutput,
)
from tui_agent.tools.environment import child_environment
from tui_agent.tools.gate.permissions import NobodyToAsk
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.shell.background import BackgroundCommands
from tui_agent.tools.shell.output import RawStream
from tui_agent.tools.shell.run_command import RunCommand


class Context:
    """What a call may use, with its live output kept."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace(folder / "work")
        self.artifacts = folder / "session"
        self.call_id = "toolu_01/../" + "x" * 300
        self.page_bytes = 50_000
        self.deps: object = None
        self.accesses: tuple[Access, ...] = ()
        self.seen: list[tuple[float, str]] = []
        self.above = 0
        (folder / "work").mkdir(exist_ok=True)

    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        raise NobodyToAsk(question)

    def progress(self, text: str, above: int = 0, subtask: SubtaskProgress | None = None) -> None:
        self.seen.append((time.monotonic(), text))
        self.above = above


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path)


async def run(context: Context, command: str, tool: RunCommand | None = None, **arguments: object) -> ToolOutput:
    return await (tool or RunCommand()).run(json.dumps({"command": command, **arguments}), context)


async def test_output_then_exit_code(context: Context) -> None:
    answer = await run(context, "pwd; printf '\\033[31mred\\033[0m\\n'; printf 'a\\rb\\n' >&2")
    lines = answer.text.split("\n")
    assert lines[:3] == [str(context.workspace.root), "red", "b"]
    assert lines[3].startswith("[exit code 0, ")
    assert not answer.is_error
    assert answer.outcome.notes == 1
    (raw,) = (context.artifacts / "raw").iterdir()
    assert raw.read_bytes() == f"{context.workspace.root}\n\x1b[31mred\x1b[0m\na\rb\n".encode()
    assert raw.stat().st_mode & 0o777 == 0o600


async def test_a_failure_is_an_error(context: Context) -> None:
    answer = await run(context, "exit 7")
    assert answer.is_error
    assert answer.text.startswith("[no output]\n[exit code 7, ")
    assert answer.outcome.notes == 2
    assert not (context.artifacts / "raw").exists()
    assert answer.summary.startswith("exit code 7")


async def test_a_timeout_ends_all_of_it_and_keeps_the_output(context: Context) -> None:
    pid = context.workspace.root / "pid"
    for seconds in (1, 10, 60):
        answer = await run(context, "echo before; sleep 1000 & echo $! > pid; sleep 1000", timeout=seconds)
        assert answer.is_error
        assert f"[timeout: ended after {seconds} s" in answer.text
        if pid.exists() and pid.read_text():  # else the machine was too busy to come so far
            break
    assert answer.text.startswith("before\n[timeout: ")
    assert answer.outcome.notes == 1
    await until(lambda: not alive(int(pid.read_text())))


async def test_cancelling_ends_the_command(context: Context) -> None:
    task = asyncio.create_task(run(context, "echo $$ > pid; echo started; sleep 1000"))
    await until(lambda: bool(context.seen))
    task.cancel()
    with pytest.raises(CallStopped) as stopped:
        await task
    assert stopped.value.output.text.startswith("started\n[interrupted: stopped by the user after ")
    await until(lambda: not alive(int((context.workspace.root / "pid").read_text())))


async def test_a_command_that_is_waited_for_goes_on_in_the_background_when_the_user_says_so(context: Context) -> None:
    commands = BackgroundCommands()
    line = "echo started; until [ -e enough ]; do sleep 0.01; done; echo ended"
    task = asyncio.create_task(run(context, line, RunCommand(background=commands)))
    assert not commands.send_back()
    await until(lambda: bool(context.seen and commands.awaited))
    assert commands.send_back()
    answer = await task
    assert answer.text.startswith("started\n[the user let it go on in the background as process ")
    (command,) = commands.all().values()
    assert (answer.outcome.left_running, command.is_running) == (command.command.pid, True)
    (context.workspace.root / "enough").touch()
    assert "ended" in (await command.look(60)).text
    assert not commands.send_back()


async def test_live_output_is_the_whole_of_what_should_be_seen_and_not_too_often(context: Context) -> None:
    task = asyncio.create_task(
        run(context, "echo first; until [ -e enough ]; do printf '\\r%s%%' $((i += 1)); sleep 0.01; done")
    )
    await until(lambda: len(context.seen) >= 9)
    (context.workspace.root / "enough").touch()
    await task
    times = [moment for moment, _ in context.seen]
    assert context.seen[0][1].startswith("first\n")
    assert all("\r" not in text and text.startswith("first\n") for _, text in context.seen)
    # Where the machine stands still between two, the second comes soon after the first.
    assert median(later - earlier for earlier, later in pairwise(times)) > 0.08


async def test_what_is_shown_meanwhile_tells_how_many_lines_came_before(context: Context) -> None:
    await run(context, "seq 1000; sleep 0.3")
    _, text = context.seen[-1]
    assert text.endswith("1000\n")
    assert context.above == 1_000 - text.count("\n") > 900


async def test_very_long_output_keeps_its_end_and_the_raw_start(context: Context) -> None:
    tool = RunCommand(stream_bytes=1000, raw_stream_bytes=5000)
    answer = await run(context, "seq 100000", tool)
    lines = answer.text.split("\n")
    (raw,) = (context.artifacts / "raw").iterdir()
    assert "bytes (" in lines[0]
    assert f"the first 5,000 bytes of the raw output are in {raw}" in lines[0]
    assert lines[-2] == "100000"
    assert len(answer.text) < 1400
    assert answer.outcome.line_count == 100_001  # with the note on how it ended
    assert raw.stat().st_size == 5000


async def test_a_folder_that_is_gone_is_named(context: Context) -> None:
    context.workspace.root.rmdir()
    with pytest.raises(ToolFailure, match="There is no folder") as failure:
        await run(context, "ls")
    assert str(context.workspace.root) in str(failure.value)
    assert "moved or deleted" in str(failure.value)


async def test_no_keys_no_input_no_colours(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret-1")
    monkeypatch.setenv("MY_TOKEN", "secret-2")
    answer = await run(context, "env; cat; echo $TERM", RunCommand(keep_variables=("MY_TOKEN",)))
    assert "secret-1" not in answer.text
    assert "secret-2" in answer.text
    assert "\ndumb\n" in answer.text


async def test_what_is_left_running_is_said(context: Context) -> None:
    answer = await run(context, "sleep 1000 & echo $!")
    assert "a process it started is still running and can no longer write" in answer.text
    os.kill(int(answer.text.split("\n")[0]), 9)


async def test_what_cannot_run_says_what_to_do(context: Context) -> None:
    cannot: list[tuple[dict[str, object], str]] = [
        ({"command": "  "}, "empty"),
        ({"command": "a\0b"}, "NUL"),
        ({"command": "x" * 3_000_000}, "file"),
        ({"command": "true", "timeout": 0}, "timeout"),
        ({}, "missing"),
    ]
    for arguments, says in cannot:
        with pytest.raises(ToolFailure, match=says):
            await RunCommand().run(json.dumps(arguments), context)


async def test_a_full_disk_costs_the_raw_file_only(context: Context) -> None:
    context.artifacts = Path("/dev/null/session")
    answer = await run(context, "echo works")
    assert answer.text.startswith("works\n")
    assert "could not be stored" in answer.text
    assert not answer.is_error


def test_a_disk_that_gets_full_leaves_the_beginning(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    raw = RawStream(tmp_path, "call", limit=1_000)
    assert raw.description == "the raw output was not stored"
    raw.write(b"first\n")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
        raw.write(b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    raw.write(b"third\n")
    raw.close()
    assert raw.path is not None
    assert raw.path.read_bytes() == b"first\nseco"
    assert raw.failure == "File too large"
    assert raw.description == f"the first 10 bytes of the raw output are in {raw.path}"
    assert raw.tail(100, 1) == "seco"
    raw.path.unlink()
    assert raw.tail(100, 1) == "[the output cannot be read: No such file or directory]"


KEYS = (
    "ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN GEMINI_API_KEY GOOGLE_API_KEY GOOGLE_APPLICATION_CREDENTIALS "
    "OPENAI_API_KEY GITHUB_TOKEN GH_TOKEN HF_TOKEN NPM_TOKEN AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID "
    "AWS_SESSION_TOKEN MY_SECRET DB_PASSWORD PGPASSWORD DATABASE_URL SENTRY_DSN stripe_api_key SSH_PRIVATE_KEY "
    "CLIENT_SECRET MYTOKEN DJANGO_SECRET_KEY"
)
NEEDED = (
    "PATH HOME LANG VIRTUAL_ENV SSH_AUTH_SOCK AWS_REGION AWS_PROFILE GOOGLE_CLOUD_PROJECT KEYMAP GPG_KEY_ID_LENGTH "
    "XDG_SESSION_ID PWD OLDPWD MONKEY HOSTNAME TOKENIZERS_PARALLELISM"
)


def test_keys_do_not_reach_commands_and_what_they_need_does() -> None:
    for name in KEYS.split():
        assert name not in child_environment({name: "x", "PATH": "/bin"})
        assert child_environment({name: "x"}, keep=(name,))[name] == "x"
    for name in NEEDED.split():
        assert child_environment({name: "x"})[name] == "x"


def test_output_is_for_reading_and_a_plain_cd_goes_where_it_says() -> None:
    environment = child_environment({"TERM": "xterm-256color", "FORCE_COLOR": "1", "CDPATH": "/"})
    assert (environment["TERM"], environment["NO_COLOR"]) == ("dumb", "1")
    assert not {"FORCE_COLOR", "CDPATH"} & environment.keys()


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
