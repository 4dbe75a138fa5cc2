"""Where things are, read from what the real tools answer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.context.talks import Talk
from tests.tools.support import Call
from tui_agent.context.compaction.state import RAN, where_things_are
from tui_agent.conversation.blocks import ToolCall, ToolResult
from tui_agent.conversation.entries import Message, tool_result
from tui_agent.tools.base import Tool
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.shell.background import BackgroundCommands, CommandOutput, StopCommand
from tui_agent.tools.shell.run_command import RunCommand
from tui_agent.tools.tasks import Todo

TEST = "cat printed; exit $(cat code)"


class Desk(Talk):
    """A conversation whose calls are done by the real tools, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.background = BackgroundCommands()
        tools: list[Tool] = [Todo(), WriteFile(), EditFile(), RunCommand(background=self.background)]
        self._tools = ToolRegistry([*tools, CommandOutput(self.background), StopCommand(self.background)])
        self._workspace = Workspace(folder)

    async def do(self, name: str, **arguments: object) -> None:
        self.calls += 1
        call = ToolCall(f"c{self.calls}", name, json.dumps(arguments))
        self.add(Message(role="assistant", blocks=(call,)))
        tool = self._tools.get(name)
        accesses = tool.access(call.arguments, self._workspace)
        output = await tool.run(call.arguments, Call(self._workspace, accesses, self.folder / "session"))
        result = ToolResult(call.id, output.text, is_error=output.is_error)
        self.add(tool_result(result, summary=output.summary, diff=output.diff, outcome=output.outcome))

    def lines(self) -> list[str]:
        return where_things_are(self.view, self.background.running).split("\n")[1:]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    await desk.background.close()


async def test_a_failing_test_is_told_until_it_passes(desk: Desk) -> None:
    await desk.do("todo", items=[{"text": "mend it", "state": "in_progress"}])
    await desk.do("write_file", path="code", content="1")
    await desk.do("write_file", path="printed", content="FAILED test_a.py::test_a\n1 failed in 0.01s\n")
    await desk.do("run_command", command=TEST)
    before = [
        "Task list, 0 of 1 done:",
        "[>] mend it",
        "Files changed since the task began:",
        "- printed (+2 −0)",
        "- code (+1 −0)",
    ]
    assert desk.lines() == [
        *before,
        f"Failed and has not succeeded since: `{TEST}`",
        "  FAILED test_a.py::test_a",
        "  1 failed in 0.01s",
    ]
    await desk.do("edit_file", path="printed", old="FAILED test_a.py::test_a\n1 failed", new="1 passed")
    await desk.do("edit_file", path="code", old="1", new="0")
    await desk.do("run_command", command=TEST)
    changed = ["- code (+2 −1)", "- printed (+3 −2)"]
    assert desk.lines() == [*before[:3], *changed, RAN, f"- `{TEST}`"]


async def test_a_file_is_told_once_however_its_path_is_written(desk: Desk) -> None:
    await desk.do("write_file", path="src/a.py", content="1")
    await desk.do("edit_file", path=str(desk.folder / "src" / "a.py"), old="1", new="2")
    await desk.do("edit_file", path="./src/../src/a.py", old="2", new="3")
    assert desk.lines() == ["Files changed since the task began:", "- src/a.py (+3 −2)"]


async def test_background_commands_are_told_while_they_run(desk: Desk) -> None:
    await desk.do("run_command", command="sleep 2; echo broken; exit 3", background=True)
    (process,) = desk.background.running
    assert desk.lines() == ["Running in the background:", f"- process {process}: `sleep 2; echo broken; exit 3`"]
    await desk.do("command_output", process=process, wait=60)
    assert desk.background.running == {}
    assert desk.lines() == ["Failed and has not succeeded since: `sleep 2; echo broken; exit 3`", "  broken"]


async def test_a_background_command_that_ends_at_once_is_judged_at_once(desk: Desk) -> None:
    await desk.do("run_command", command="echo no; exit 1", background=True)
    assert desk.lines() == ["Failed and has not succeeded since: `echo no; exit 1`", "  no"]
    await desk.do("run_command", command="sleep 30", background=True)
    (process,) = desk.background.running
    await desk.do("stop_command", process=process)
    assert desk.lines()[0] == "Failed and has not succeeded since: `echo no; exit 1`"
    assert len(desk.lines()) == 2
