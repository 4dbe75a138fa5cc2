"""Background commands: their new output, their end, and how many there may be."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tools.shell.test_processes import alive, until
from tests.tools.support import Call
from tui_agent.conversation.blocks import ToolCall
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, Tool, ToolFailure, ToolOutput
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.shell import processes
from tui_agent.tools.shell.background import MAX_RUNNING, BackgroundCommands, CommandOutput, StopCommand
from tui_agent.tools.shell.run_command import RunCommand


class Shell:
    """The three tools over one session's background commands."""

    def __init__(self, folder: Path, stream_bytes: int = 262_144) -> None:
        self.commands = BackgroundCommands(stream_bytes)
        self.workspace = Workspace(folder)
        self.artifacts = folder / "session"
        self._run = RunCommand(background=self.commands, stream_bytes=stream_bytes)
        self._output, self._stop = CommandOutput(self.commands), StopCommand(self.commands)

    async def start(self, command: str) -> ToolOutput:
        return await self._call(self._run, command=command, background=True)

    async def started(self, command: str) -> int:
        return process_of(await self.start(command))

    async def look(self, process: int | None = None, wait: int = 0) -> ToolOutput:
        return await self._call(self._output, process=process, wait=wait)

    async def stop(self, process: int) -> ToolOutput:
        return await self._call(self._stop, process=process)

    async def until(self, process: int, text: str) -> str:
        """All that was read up to this text."""
        read = ""
        async with asyncio.timeout(60):
            while text not in read:
                read += (await self.look(process)).text
                await asyncio.sleep(0.02)
        return read

    async def _call(self, tool: Tool, **arguments: object) -> ToolOutput:
        return await tool.run(json.dumps(arguments), Call(self.workspace, (), self.artifacts))


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    await shell.commands.close()


def process_of(answer: ToolOutput) -> int:
    found = re.search(r"as process (\d+)", answer.text)
    assert found, answer.text
    return int(found[1])


async def test_the_user_sees_what_the_model_has_not_read_and_takes_nothing_from_it(shell: Shell) -> None:
    counted: list[int] = []
    shell.commands.on_change = lambda: counted.append(len(shell.commands.running))
    process = await shell.started("echo one; echo two; exec sleep 1000")
    (job,) = shell.commands.all().values()
    await until(lambda: job.newest_output(1) == "two")
    assert job.newest_output(5) == "one\ntwo"
    await job.stop()
    assert counted == [1, 0]
    assert "[ended by signal" in (await shell.look(process)).text


async def test_each_look_shows_what_is_new(shell: Shell, tmp_path: Path) -> None:
    answer = await shell.start("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; sleep 1000")
    assert answer.text.startswith("one\n[still running in the background as process ")
    process = process_of(answer)
    assert (await shell.look(process)).text.startswith("[no new output]\n[still running after ")
    (tmp_path / "go").touch()
    read = await shell.until(process, "two")
    assert "one" not in read
    assert (await shell.look(process)).text.startswith("[no new output]\n")
    (raw,) = (shell.artifacts / "raw").iterdir()
    assert str(raw) in answer.text
    assert raw.read_text() == "one\ntwo\n"


async def test_waiting_ends_with_the_command_and_tells_its_exit_code(shell: Shell, tmp_path: Path) -> None:
    process = await shell.started("while [ ! -e go ]; do sleep 0.02; done; echo done; exit 3")
    waiting = asyncio.create_task(shell.look(process, wait=60))
    await asyncio.sleep(0)
    (tmp_path / "go").touch()
    answer = await waiting
    assert answer.text == "done\n[exit code 3]"
    assert answer.is_error
    again = await shell.look(process)
    assert again.text == "[no new output]\n[exit code 3]"


async def test_stopping_ends_all_of_it_and_shows_the_last_words(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine the last words may come later than anybody waits for them.
    monkeypatch.setattr(processes, "TERMINATE_GRACE", 60.0)
    process = await shell.started(
        "trap 'echo bye; exit 0' TERM; sleep 1000 & echo $! > child.new; mv child.new child; wait"
    )
    await until((tmp_path / "child").exists)
    child = int((tmp_path / "child").read_text())
    answer = await shell.stop(process)
    assert answer.text == "bye\n[stopped, with everything it had started]"
    assert not answer.is_error
    # Killed is not dead yet where the machine is busy.
    await until(lambda: not alive(process) and not alive(child))
    assert (await shell.stop(process)).text == "[no new output]\n[exit code 0]"


async def test_a_wait_has_an_end_and_does_not_hold_up_a_stop(shell: Shell) -> None:
    process = await shell.started("sleep 1000")
    assert "still running after" in (await shell.look(process, wait=1)).text
    waiting = asyncio.create_task(shell.look(process, wait=600))
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await shell.stop(process)
        assert "ended by signal 15" in (await waiting).text


async def test_output_is_emulated_across_looks(shell: Shell, tmp_path: Path) -> None:
    """A character and a colour that are cut in two between looks are still one character and no text."""
    script = (
        "printf 'a\\xc3'; while [ ! -e go ]; do sleep 0.02; done; printf '\\xa9\\033[3'; sleep 0.2; "
        "printf '1mb\\n50%%\\r100%%\\n'; sleep 1000"
    )
    process = process_of(await shell.start(script))
    (tmp_path / "go").touch()
    read = await shell.until(process, "100%")
    assert "é" in read
    assert "b\n100%\n" in read
    assert "\ufffd" not in read
    assert "[3" not in read
    assert "50%" not in read


async def test_very_long_output_keeps_its_end(tmp_path: Path) -> None:
    shell = Shell(tmp_path, stream_bytes=1000)
    process = await shell.started("while [ ! -e go ]; do sleep 0.02; done; seq 100000")
    (tmp_path / "go").touch()
    answer = await shell.look(process, wait=60)
    lines = answer.text.split("\n")
    assert re.match(r"\[[\d,]+ bytes before this were printed", lines[0])
    assert lines[-2:] == ["100000", "[exit code 0]"]
    assert len(answer.text) < 2_000


async def test_those_there_are_are_listed(shell: Shell) -> None:
    assert "There are none" in (await shell.look()).text
    one, two = await asyncio.gather(shell.started("sleep 1001"), shell.started("sleep 1002"))
    await shell.stop(two)
    listed = (await shell.look()).text
    assert re.search(rf"process {one}: running for \d+ s, 0 bytes unread: sleep 1001", listed)
    assert f"process {two}: ended, signal 15" in listed
    with pytest.raises(ToolFailure, match=f"(?s)process id 1;.*process {one}: running"):
        await shell.stop(1)
    answer = await shell.start("echo oops; exit 2")
    assert answer.is_error
    assert answer.text == "oops\n[the background command has already ended, exit code 2]"


async def test_there_is_a_bound_and_all_end_with_the_session(shell: Shell) -> None:
    processes = await asyncio.gather(*(shell.started("sleep 1000") for _ in range(MAX_RUNNING)))
    with pytest.raises(ToolFailure, match=r"(?s)which is the most.*stop_command.*sleep 1000"):
        await shell.start("sleep 1000")
    await shell.commands.close()
    await until(lambda: not any(map(alive, processes)))


async def test_reading_and_stopping_never_ask(shell: Shell) -> None:
    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        raise AssertionError(question)

    modes: tuple[Mode, ...] = ("plan", "ask", "auto", "allow")
    for mode in modes:
        for tool in (CommandOutput(shell.commands), StopCommand(shell.commands)):
            call = ToolCall("c", tool.definition.name, json.dumps({"process": 1}))
            assert (await PermissionGate(mode, shell.workspace).check(tool, call, ask)).allowed
