"""Calls that a server goes on with as tasks, against a server of the SDK's own."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from typing_extensions import override

from tests.tools.mcp.connecting import Talk, talking
from tests.tools.support import Call
from tui_agent.settings import ToolServer
from tui_agent.tools.base import CallStopped, PermissionAnswer, PermissionQuestion, SubtaskProgress
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.mcp.configuration import ServerUnavailable

SERVER = Path(__file__).parents[2] / "servers" / "mcp_tasks.py"


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """The folder in which the server keeps its tasks."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    return folder


def builder(tasks: Path) -> ToolServer:
    return ToolServer(command=sys.executable, args=(str(SERVER), str(tasks)))


class Waiting(Call):
    """A call that tells when the server has said how far it is, and whose user likes one colour."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Workspace(folder), (), folder)
        self.told = asyncio.Event()

    @override
    def progress(self, text: str, above: int = 0, subtask: SubtaskProgress | None = None) -> None:
        if text == "half of it …":
            self.told.set()

    @override
    async def ask(self, question: PermissionQuestion) -> PermissionAnswer:
        assert "Which colour?" in question.preview.text
        return PermissionAnswer(True, choice="red")


def kept(tasks: Path) -> list[str]:
    return sorted(path.name for path in tasks.iterdir())


async def begun(talk: Talk, folder: Path) -> "asyncio.Task[object]":
    """A call that has become a task, which the server works on."""
    waiting = Waiting(folder)
    call: asyncio.Task[object] = asyncio.create_task(talk.call("build", waiting, what="a house"))
    await waiting.told.wait()
    return call


async def test_a_task_is_followed_to_its_end_over_a_server_that_dies_and_in_a_later_run_until_it_is_stopped(
    tmp_path: Path, tasks: Path
) -> None:
    async with talking(builder(tasks), tmp_path) as talk:
        (tasks / "ask").touch()
        assert (await talk.call("build", Waiting(tmp_path), what="a house")).text == "built a house in red"
        (tasks / "answer").unlink()
        call = await begun(talk, tmp_path)
        with suppress(ServerUnavailable):
            await talk.call("die")
        (tasks / "failed").touch()
        with pytest.raises(ValueError, match="the task failed: no more disk"):
            await call
        assert kept(tasks) == ["failed", "t0.json", "t1.json"]
        for left in kept(tasks):
            (tasks / left).unlink()
        # One that the session leaves goes on, and a later run takes it up.
        call = await begun(talk, tmp_path)
        (task,) = kept(tasks)
        talk.connection.leaving = True
        call.cancel()
        with pytest.raises(CallStopped) as stopped:
            await call
        assert "goes on" in stopped.value.output.text
    async with talking(builder(tasks), tmp_path) as talk:
        call = await begun(talk, tmp_path)
        assert kept(tasks) == [task], "it was not begun anew"
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert kept(tasks) == [task.replace("json", "cancelled")]
        (tasks / "done").touch()
        assert (await talk.call("build", what="a house")).text == "built a house"


@pytest.mark.parametrize(
    ("wanted", "pause"), [(None, 1.0), (0, 0.1), (-5, 0.1), (2_500, 2.5), (60_001, 60.0), (10**400, 60.0)]
)
def test_a_task_is_asked_after_within_bounds(wanted: int | None, pause: float) -> None:
    from tui_agent.tools.mcp.tasks import TaskState

    assert TaskState(task_id="t", status="working", poll_interval_ms=wanted).pause == pause


@pytest.mark.parametrize(
    ("status", "result", "error", "said"),
    [
        ("completed", {"content": 5}, None, "the task has ended, but its result cannot be read"),
        ("completed", None, None, "the task has ended, but its result cannot be read"),
        ("failed", None, {"message": "no room"}, "the task failed: no room"),
        ("cancelled", None, None, "the task was cancelled there: no reason is given"),
    ],
)
def test_a_task_that_has_no_result_says_why(status: str, result: object, error: object, said: str) -> None:
    from tui_agent.tools.mcp.tasks import TaskState

    state = TaskState.model_validate({"taskId": "t", "status": status, "result": result, "error": error})
    assert state.ended
    with pytest.raises(ValueError, match=said):
        state.answer()


async def test_a_server_of_the_newest_protocol_tells_what_else_it_offers(tasks: Path, tmp_path: Path) -> None:
    async with talking(builder(tasks), tmp_path) as talk:
        async with asyncio.timeout(60):
            while "grown" not in {tool.name for known in talk.lists for tool in known.tools}:
                await talk.call("grow")  # again: the first one may come before anybody listens
                await asyncio.sleep(0.1)
