"""Every refusal says why, for the user, and what may be done instead, for the model."""

import json
import os
from pathlib import Path

import pytest
from typing_extensions import override

from tests.tools.support import Call
from tests.tools.world import Person
from tui_agent.conversation.blocks import ToolCall
from tui_agent.conversation.view import View
from tui_agent.tools.asking import AskUser, SubmitPlan
from tui_agent.tools.base import PermissionAnswer, PermissionQuestion, Tool, ToolFailure
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.gate.permissions import Mode, PermissionGate
from tui_agent.tools.gate.workspace import Workspace
from tui_agent.tools.notes.memory import Memory, Notes
from tui_agent.tools.registry import ToolRegistry
from tui_agent.tools.search.finding import Glob, Grep
from tui_agent.tools.shell.background import BackgroundCommands, CommandOutput, StopCommand
from tui_agent.tools.shell.run_command import RunCommand
from tui_agent.tools.tasks import EpisodeTool, MarkTaskDone, Todo
from tui_agent.tools.web.fetch_url import FetchUrl

BACKGROUND = BackgroundCommands()
REFUSED: list[tuple[str, dict[str, object], str, str]] = [
    ("read_file", {}, "`path` is missing", "Expected: read_file(path"),
    ("read_file", {"path": ""}, "empty", "working folder"),
    ("read_file", {"path": "a\0b"}, "no path can hold", "list_dir"),
    ("read_file", {"path": "x" * 5_000}, "cannot be a path", "list_dir"),
    ("read_file", {"path": "circle"}, "circle", "list_dir"),
    ("read_file", {"path": "quux"}, "does not exist", "list_dir"),
    ("read_file", {"path": "a.tx"}, "does not exist", "Nearest in"),
    ("read_file", {"path": "a.txt/x"}, "not a folder", ""),
    ("read_file", {"path": "src/x/y"}, "deepest folder", ""),
    ("read_file", {"path": "/dev/null"}, "a device", ""),
    ("read_file", {"path": "src"}, "a folder", "Use list_dir"),
    ("read_file", {"path": "pipe"}, "a pipe", "Use a command"),
    ("read_file", {"path": "binary"}, "not text", "Use a command"),
    ("read_file", {"path": "a.txt", "offset": 99}, "past the end", "Start earlier"),
    ("read_file", {"path": "/proc/self/environ"}, "kernel", "Use a command"),
    ("list_dir", {"path": "a.txt"}, "not a folder", "list_dir"),
    ("write_file", {"path": "src", "content": "x"}, "a folder", "list_dir"),
    ("write_file", {"path": "pipe", "content": "x"}, "a pipe", ""),
    ("write_file", {"path": "locked.txt", "content": "x"}, "read-only", "Change its mode"),
    ("write_file", {"path": "a.txt/b", "content": "x"}, "not a folder", "list_dir"),
    ("edit_file", {"path": "a.txt", "old": "zebra", "new": "x"}, "not in the file", "Read it again"),
    ("edit_file", {"path": "a.txt", "old": "line", "new": "x"}, "2 times", "replace_all"),
    ("edit_file", {"path": "a.txt", "old": "", "new": "x"}, "empty", "write_file"),
    ("edit_file", {"path": "a.txt", "old": "x", "new": "x"}, "the same", "Give what"),
    ("edit_file", {"path": "binary", "old": "x", "new": "y"}, "not text", "write_file"),
    ("grep", {"pattern": "("}, "not a valid regular expression", "backslash"),
    ("grep", {"pattern": "x", "path": "nowhere"}, "does not exist", "list_dir"),
    ("glob", {"pattern": "["}, "glob is not valid", "backslash"),
    ("glob", {"pattern": ""}, "glob is empty", "*.py"),
    ("run_command", {"command": " "}, "empty", "what the shell is to run"),
    ("run_command", {"command": "a\0"}, "NUL", "plain text"),
    ("run_command", {"command": "true", "timeout": 0}, "timeout", "Expected: run_command(command"),
    ("command_output", {"process": 1}, "No background command", "run_command with `background`"),
    ("stop_command", {"process": 1}, "No background command", "run_command with `background`"),
    ("memory", {"action": "write", "name": "A B"}, "no name for a note", "lower-case"),
    ("memory", {"action": "write", "name": "a"}, "needs a description", "give both"),
    ("memory", {"action": "remove", "name": "a"}, "no note called", "no notes yet"),
    ("mark_task_done", {"detail": " "}, "is empty", "what was done"),
    ("episode", {"title": "a", "conclusion": "done"}, "'a' is open", "Go on"),
    ("episode", {"title": " "}, "cannot be opened", "Close one"),
    ("episode", {"title": "x" * 9_000, "conclusion": "done"}, f"'{'x' * 100}…' is open", "Go on"),
    ("todo", {}, "`items` is missing", "Expected: todo(items"),
    ("todo", {"items": [{"text": "a", "state": "completed"}]}, "does not fit", "done|in_progress|pending"),
    ("todo", {"items": [{"text": " ", "state": "done"}]}, "item 1 has no text", "`text`"),
    ("todo", {"items": [{"text": "a", "state": "done"}] * 51}, "51 items", "Join small steps"),
    ("ask_user", {"question": " ", "choices": []}, "is empty", "need to know"),
    ("ask_user", {"question": "?", "choices": ["a"] * 9}, "at most 8", "Offer fewer"),
    ("submit_plan", {"plan": "a", "steps": [" "]}, "1 to 50 steps", "what is to be done"),
    ("fetch_url", {"url": "example.org"}, "no web address", "Did you mean https://example.org?"),
    ("fetch_url", {"url": "ftp://example.org"}, "must begin with", "https://example.org/page"),
    ("fetch_url", {"url": "https://"}, "names no host", "https://example.org/page"),
    ("fetch_url", {"url": "https://a b/"}, "spaces", "%20"),
    ("fetch_url", {"url": "https://a.b/" + "a" * 7_989}, "characters", "Shorten"),
    ("fetch_url", {"url": "https://example.org\\@evil.example/"}, "backslashes", "%"),
    ("fetch_url", {"url": "http://[fe80::1%25eth0]/"}, "zone", ""),
    ("fetch_url", {"url": "http://example.org:99999/"}, "Port out of range", ""),
    ("fetch_url", {"url": "http://127.0.0.1/"}, "not on the public network", "permissions.allow"),
    ("reed_file", {"path": "a.txt"}, "no tool reed_file", "Did you mean read_file?"),
]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / "a.txt").write_text("a line\nanother line\n")
    (root / "binary").write_bytes(b"\x7fELF\0\1\2" * 50)
    (root / "circle").symlink_to("circle")
    (root / "locked.txt").touch(0o444)
    os.mkfifo(root / "pipe")
    return Workspace(root)


def registry(folder: Path) -> ToolRegistry:
    gate = PermissionGate("auto", Workspace(folder))
    tools: list[Tool] = [ReadFile(), ListDir(), WriteFile(), EditFile(), Grep(), Glob(), RunCommand()]
    tools += [MarkTaskDone(), EpisodeTool(View()), Todo(), AskUser(), SubmitPlan(gate)]
    notes = Notes(folder / "memory")
    return ToolRegistry([*tools, CommandOutput(BACKGROUND), StopCommand(BACKGROUND), Memory(notes), FetchUrl(gate)])


@pytest.mark.parametrize(("name", "arguments", "why", "instead"), REFUSED)
async def test_a_refusal_says_why_and_what_instead(
    workspace: Workspace, tmp_path: Path, name: str, arguments: dict[str, object], why: str, instead: str
) -> None:
    async def attempt() -> None:
        tool = registry(tmp_path).get(name)
        text = json.dumps(arguments)
        await tool.run(text, Call(workspace, tool.access(text, workspace), tmp_path / "session"))

    with pytest.raises(ToolFailure) as refused:
        await attempt()
    failure = refused.value
    assert why in failure.why
    assert instead in failure.instead
    assert str(failure) == f"{failure.why} {failure.instead}"
    assert str(failure).endswith((".", "?", ")")) or "\n" in failure.instead


def test_each_tool_is_refused_something(tmp_path: Path) -> None:
    assert {tool.definition.name for tool in registry(tmp_path)} <= {name for name, *_ in REFUSED}


class Swapping(Person):
    """While they think, the path turns into a link."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place

    @override
    async def __call__(self, question: PermissionQuestion) -> PermissionAnswer:
        self._place.unlink()
        self._place.symlink_to("/etc/hostname")
        return PermissionAnswer(allowed=True)


DENIED: list[tuple[Mode, list[str], str, dict[str, object], str, str]] = [
    ("plan", [], "write_file", {"path": "b.txt", "content": ""}, "Plan mode", "submit_plan"),
    ("plan", [], "run_command", {"command": "ls"}, "Plan mode", "you may read and search"),
    ("plan", [], "fetch_url", {"url": "https://example.org/"}, "Plan mode", "you may read and search"),
    ("auto", ["run_command(rm *)"], "run_command", {"command": "ls && rm x"}, "run_command(rm *)", "go on without it"),
    ("allow", ["edit_file(*.txt)"], "edit_file", {"path": "a.txt", "old": "a", "new": "b"}, "*.txt", "go on without"),
    (
        "allow",
        ["run_command(rm *)"],
        "run_command",
        {"command": "case x in x) ls y;; esac"},
        "`case`",
        "plain commands",
    ),
    ("auto", [], "run_command", {"command": "make"}, "You declined", "try something else, or ask"),
]


@pytest.mark.parametrize(("mode", "deny", "name", "arguments", "why", "instead"), DENIED)
async def test_the_gate_says_why_and_what_instead(
    workspace: Workspace,
    tmp_path: Path,
    mode: Mode,
    deny: list[str],
    name: str,
    arguments: dict[str, object],
    why: str,
    instead: str,
) -> None:
    gate = PermissionGate(mode, workspace, deny=deny)
    tool = registry(tmp_path).get(name)
    verdict = await gate.check(tool, ToolCall("c", name, json.dumps(arguments)), Person())
    assert not verdict.allowed
    assert why in verdict.reason
    assert instead in verdict.advice


async def test_what_changed_while_the_user_was_asked(workspace: Workspace, tmp_path: Path) -> None:
    gate, tool = PermissionGate("ask", workspace), WriteFile()
    call = ToolCall("c", "write_file", json.dumps({"path": "a.txt", "content": "x"}))
    verdict = await gate.check(tool, call, Swapping(workspace.root / "a.txt"))
    assert (verdict.allowed, verdict.source) == (False, "changed")
    assert "while the question was open" in verdict.reason
    assert "call again" in verdict.advice
    checked = tool.access(call.arguments, workspace)
    (workspace.root / "a.txt").unlink()
    with pytest.raises(ToolFailure) as refused:
        await tool.run(call.arguments, Call(workspace, checked, tmp_path))
    assert "leads to another place" in refused.value.why
    assert "call again" in refused.value.instead
