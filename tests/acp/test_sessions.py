"""Whole sessions of an editor: the official client library, the real command, a provider's rules."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from acp.exceptions import RequestError
from acp.helpers import embedded_text_resource, image_block, resource_block, resource_link_block, text_block
from acp.schema import (
    AcpMcpServer,
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    CurrentModeUpdate,
    McpServerStdio,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UsageUpdate,
    UserMessageChunk,
)

from tests.acp.client import Editor, editing
from tests.e2e.program import MODELS, Program
from tests.e2e.program import asked as asked_for
from tests.servers.anthropic import AnthropicServer
from tests.servers.coding_task import FIXED_CALC
from tests.servers.running import in_thread
from tests.servers.script import Call, Script, Step, Turn
from tui_agent.conversation.blocks import Text, ToolResult
from tui_agent.conversation.entries import Message
from tui_agent.conversation.states import INTERRUPTED
from tui_agent.storage.log import LogStore
from tui_agent.storage.sessions import session_folder

SERVER = Path(__file__).parents[1] / "servers" / "mcp_stdio.py"
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
EDIT = Call("edit_file", {"path": "calc.py", "old": "return a - b", "new": "return a + b"})
LIST = Call("todo", {"items": [{"text": "mend add", "state": "done"}, {"text": "run it", "state": "pending"}]})
ASK = Call("ask_user", {"question": "Which one?", "choices": ["add", "double"]})
PLAN = Call("submit_plan", {"plan": "Mend *add*.", "steps": ["mend", "run"]})
MENDING = (Step(reasoning="A minus.", text="I mend it.", calls=(EDIT,)), Step(calls=(LIST,)), Step(text="Mended."))
PLANNING = (Step(calls=(ASK,)), Step(calls=(PLAN,)), Step(text="I begin."))
SCRIPT = Script(
    (
        Turn(MENDING, "Please mend"),
        Turn((Step(text="word " * 4000, delay=0.05),), "for ever"),
        Turn(PLANNING, "Please plan"),
        Turn((Step(text="Seen."),)),
    )
)


async def test_an_editor_drives_a_whole_session(tmp_path: Path) -> None:
    with in_thread(AnthropicServer(SCRIPT)) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": MODELS["anthropic"]})
        editor, folder = Editor(["once"]), str(program.project)
        (program.home / "commands").mkdir()
        (program.home / "commands" / "greet.md").write_text("Say hello to $ARGUMENTS.")
        async with editing(program, editor, "--ask", "ask") as (connection, process):
            through = AcpMcpServer(type="acp", name="old", server_id="old-1")
            session = await connection.new_session(cwd=folder, mcp_servers=[through])
            one = session.session_id
            assert session.modes is not None
            assert [each.id for each in session.modes.available_modes] == ["plan", "ask", "auto", "allow"]
            models = {each.id: each for each in session.config_options or ()}["model"]
            assert models.current_value == f"anthropic/{MODELS['anthropic']}"

            # A turn with a question, a diff, a task list.
            done = await connection.prompt(
                session_id=one,
                prompt=[
                    text_block("Please mend "),
                    resource_link_block("calc.py", f"file://{folder}/calc.py"),
                    resource_block(embedded_text_resource("file:///notes.txt", "add adds")),
                    image_block(PICTURE, "image/png"),
                ],
            )
            assert done.stop_reason == "end_turn"
            assert done.usage is not None
            assert done.usage.output_tokens > 0
            assert (program.project / "calc.py").read_text() == FIXED_CALC
            assert editor.text(one) == "I mend it.Mended."
            ((asked, options),) = editor.asked
            assert [each.kind for each in options] == ["allow_once", "allow_always", "allow_always", "reject_once"]
            places = [type(update) for _, update in editor.told]
            assert places.index(ToolCallStart) < places.index(ToolCallUpdate) < places.index(ToolCallProgress)
            started = editor.of(ToolCallStart)[0]
            assert (started.kind, asked.tool_call_id) == ("edit", started.tool_call_id)
            assert [each.path for each in started.locations or ()] == [f"{folder}/calc.py"]
            ended = editor.of(ToolCallProgress)[0]
            for diff in ((asked.content or [])[0], (ended.content or [])[0]):
                assert diff.type == "diff"
                assert diff.path == f"{folder}/calc.py"
                assert "a - b" in (diff.old_text or "")
                assert "a + b" in diff.new_text
            assert [each.status for each in editor.of(AgentPlanUpdate)[-1].entries] == ["completed", "pending"]
            used = editor.of(UsageUpdate)[-1]
            assert 0 < used.used < used.size
            assert used.cost is not None
            thoughts = "".join(each.content.text for each in editor.of(AgentThoughtChunk))
            assert "A minus." in thoughts
            assert "its transport (acp) is not supported" in thoughts
            (named,) = editor.of(AvailableCommandsUpdate)
            assert {"context", "compact", "review"} <= {each.name for each in named.available_commands}
            sent = json.loads(asked_for(server.requests)[0].body)["messages"][0]["content"]
            assert [block["type"] for block in sent] == ["text", "image"]
            assert f"Please mend @{folder}/calc.py" in sent[0]["text"]
            assert "add adds" in sent[0]["text"]

            # A command, a mode, another session beside this one.
            editor.told.clear()
            await connection.prompt(session_id=one, prompt=[text_block("/context")])
            assert "System prompt" in editor.text(one)
            await connection.set_session_mode(session_id=one, mode_id="plan")
            assert [each.current_mode_id for each in editor.of(CurrentModeUpdate)][-1] == "plan"
            with pytest.raises(RequestError, match="no mode"):
                await connection.set_session_mode(session_id=one, mode_id="wild")

            # A question of the model's own, and a plan: approved, it is the task list, and the mode goes on.
            editor.answers += ["choice-1", "choice-0"]
            await connection.prompt(session_id=one, prompt=[text_block("Please plan it")])
            assert [[each.name for each in options] for _, options in editor.asked[-2:]] == [
                ["add", "double", "Answer in the chat"],
                ["Approve; mode ask", "Approve; mode auto", "Send it back"],
            ]
            assert "The user answered: double" in str(editor.of(ToolCallProgress)[0].content)
            assert [each.content for each in editor.of(AgentPlanUpdate)[-1].entries] == ["mend", "run"]
            assert editor.of(CurrentModeUpdate)[-1].current_mode_id == "ask"

            # The user's own command; the client's own server of tools.
            await connection.prompt(session_id=one, prompt=[text_block("/greet you")])
            assert "Say hello to you." in asked_for(server.requests)[-1].body.decode()
            stdio = McpServerStdio(name="notes here", command=sys.executable, args=[str(SERVER)], env=[])
            two = (await connection.new_session(cwd=folder, mcp_servers=[stdio])).session_id
            await editor.until(AvailableCommandsUpdate, 2)
            listed_now = editor.of(AvailableCommandsUpdate, two)[-1].available_commands
            assert "notes-here:review" in {each.name for each in listed_now}, "a prompt of the server"
            editor.told.clear()
            await connection.prompt(session_id=two, prompt=[text_block("/mcp")])
            assert "notes-here" in editor.text(two)
            chosen = await connection.set_config_option(session_id=two, config_id="model", value="offline")
            assert chosen is not None
            assert chosen.config_options[1].current_value == "offline"

            # Stopped in mid-stream.
            editor.told.clear()
            slow = asyncio.create_task(connection.prompt(session_id=one, prompt=[text_block("Talk for ever")]))
            await editor.until(AgentMessageChunk)
            with pytest.raises(RequestError, match="turn runs") as refused:
                await connection._conn.send_request("session/delete", {"sessionId": one})
            assert refused.value.code == -32600
            await connection.cancel(session_id=one)
            assert (await slow).stop_reason == "cancelled"

            # A question that the client cancels allows nothing, and stops the turn.
            assert not editor.answers
            unasked = await connection.prompt(session_id=one, prompt=[text_block("Please plan it")])
            assert unasked.stop_reason == "cancelled"

            # A copy goes on by itself; the list has both; loading tells it all again.
            copied = (await connection.fork_session(session_id=one, cwd=folder)).session_id
            assert copied not in (one, two)
            await connection.prompt(session_id=copied, prompt=[text_block("And now?")])
            listed = await connection.list_sessions(cwd=folder)
            assert {each.session_id for each in listed.sessions} == {one, copied}
            assert all("Please mend" in (each.title or "") for each in listed.sessions)
            await connection._conn.send_request("session/delete", {"sessionId": copied})
            assert {each.session_id for each in (await connection.list_sessions(cwd=folder)).sessions} == {one}
            assert not list(program.home.glob(f"sessions/**/{copied}"))
            # Already gone, never there, or the start of one's name: silent, and nothing else goes.
            for name in (copied, one[:-1], "..", ""):
                assert await connection._conn.send_request("session/delete", {"sessionId": name}) == {}
            assert {each.session_id for each in (await connection.list_sessions(cwd=folder)).sessions} == {one}
            await connection.close_session(session_id=one)
            for name in (one[:-1], f"{folder}/calc.py"):
                with pytest.raises(RequestError, match="no session") as refused:
                    await connection.load_session(session_id=name, cwd=folder)
                assert refused.value.code == -32002
            with pytest.raises(RequestError, match="load or resume"):
                await connection.prompt(session_id=one, prompt=[text_block("Hello?")])
            editor.told.clear()
            await connection.load_session(session_id=one, cwd=folder)
            said = [each.content.text for each in editor.of(UserMessageChunk, one) if each.content.type == "text"]
            assert [text.split(" @")[0] for text in said] == [
                "Please mend",
                "Please plan it",
                "/greet you",
                "Talk for ever",
                "Please plan it",
            ]
            assert editor.text(one).startswith("I mend it.")
            replayed = editor.of(ToolCallProgress, one)[0]
            assert (replayed.content or [])[0].type == "diff"
        assert await process.wait() == 0
        assert server.violations == []


async def test_what_an_editor_has_not_saved_is_read_and_changed_there(tmp_path: Path) -> None:
    reading = Call("read_file", {"path": "calc.py"})
    editing_ = Call("edit_file", {"path": "calc.py", "old": "return a * b", "new": "return a + b"})
    asking = Call("ask_user", {"question": "Which one?", "choices": ["add", "double"]})
    script = Script.of(Step(calls=(reading,)), Step(calls=(editing_,)), Step(calls=(asking,)), Step(text="Done."))
    with in_thread(AnthropicServer(script)) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": MODELS["anthropic"]})
        calc = str(program.project / "calc.py")
        editor = Editor(
            ["once"], buffers={calc: "def add(a, b):\n    return a * b\n"}, filled_in=[{"words": "neither"}]
        )
        async with editing(program, editor, "--ask", "ask") as (connection, _):
            one = (await connection.new_session(cwd=str(program.project), mcp_servers=[])).session_id
            await connection.prompt(session_id=one, prompt=[text_block("Mend it.")])
        results = [str(request.json) for request in server.model_requests]
        assert "return a * b" in results[1]
        assert (editor.buffers or {})[calc] == "def add(a, b):\n    return a + b\n"
        assert (program.project / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
        ((message, mode),) = editor.forms
        assert message == "Which one?"
        assert list(mode.requested_schema.properties) == ["choice", "words"]
        assert "The user answered: neither" in results[3]
        assert server.violations == []


async def test_a_command_runs_in_the_sandbox_and_is_shown_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    command = "printf '\\033[32mone\\033[0m\\n'; until test -e go; do sleep .05; done; echo two; exit 3"
    script = Script.of(Step(calls=(Call("run_command", {"command": command}),)), Step(text="Done."))
    with in_thread(AnthropicServer(script)) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": MODELS["anthropic"]})
        editor = Editor(terminals=[])
        async with editing(program, editor, "--yolo") as (connection, _):
            one = (await connection.new_session(cwd=str(program.project), mcp_servers=[])).session_id
            asked = asyncio.ensure_future(connection.prompt(session_id=one, prompt=[text_block("Run it.")]))
            # Only then: what ends before its terminal shows anything tries the time limits of terminals instead.
            await editor.until_shown("one")
            (program.project / "go").touch()
            await asked
        running, ended = editor.of(ToolCallProgress)
        assert (running.status, ended.status) == ("in_progress", "failed")
        for each in (running, ended):
            assert [(part.type, part.terminal_id) for part in each.content or ()] == [("terminal", "0")]
        assert editor.shown == ["\033[32mone\033[0m\ntwo\n"]
        assert [each.returncode for each in editor.terminals or ()] == [3]
        assert "exit code 3" in str(server.model_requests[1].json)
        assert not list((program.home / "sessions").rglob("*.ended"))
        assert server.violations == []


@pytest.mark.parametrize("how", ["closed", "terminated"])
async def test_its_end_ends_all_in_order(tmp_path: Path, how: str) -> None:
    script = Script.of(Step(calls=(Call("run_command", {"command": "sleep 417"}),)))
    with in_thread(AnthropicServer(script)) as server:
        program = Program.in_folder(tmp_path, {**server.environment, "TUI_AGENT__MODEL__ID": MODELS["anthropic"]})
        editor = Editor()
        async with editing(program, editor, "--ask", "allow") as (connection, process):
            session = await connection.new_session(cwd=str(program.project))
            asking = asyncio.create_task(
                connection.prompt(session_id=session.session_id, prompt=[text_block("Sleep.")])
            )
            await editor.until(ToolCallStart)
            children = psutil.Process(process.pid).children(recursive=True)
            if how == "closed":
                process.stdin.close()
            else:
                process.send_signal(signal.SIGTERM)
            assert await process.wait() == (0 if how == "closed" else 130)
            asking.cancel()
        _gone, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
        store = await LogStore.open(session_folder(program.home, session.session_id), read_only=True)
        said = [block for entry in await store.load() if isinstance(entry, Message) for block in entry.blocks]
        await store.close()
        assert said[0] == Text("Sleep.")
        assert [block.text for block in said if isinstance(block, ToolResult)] == [INTERRUPTED]


async def test_a_session_that_another_process_has_open_is_not_deleted(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path, {"TUI_AGENT__MODEL__ID": "offline"})
    folder = str(program.project)
    async with editing(program, Editor()) as (connection, _):
        one = (await connection.new_session(cwd=folder)).session_id
        await connection.prompt(session_id=one, prompt=[text_block("hello")])
        async with editing(program, Editor()) as (other, _):
            with pytest.raises(RequestError, match="is open in process") as refused:
                await other._conn.send_request("session/delete", {"sessionId": one})
            assert refused.value.code == -32600
            # Deleted by the one that has it open, it is gone for both.
            assert await connection._conn.send_request("session/delete", {"sessionId": one}) == {}
            assert not (await other.list_sessions(cwd=folder)).sessions
            with pytest.raises(RequestError, match="load or resume"):
                await connection.prompt(session_id=one, prompt=[text_block("hello?")])
    assert not [*(program.home / "sessions").iterdir()]


async def test_a_stricter_mode_stays_with_the_session(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path, {"TUI_AGENT__MODEL__ID": "offline"})
    folder, modes = str(program.project), []
    async with editing(program, Editor()) as (connection, _):
        one = (await connection.new_session(cwd=folder)).session_id
        await connection.prompt(session_id=one, prompt=[text_block("list .")])
        await connection.set_session_mode(session_id=one, mode_id="plan")
    for mode in ("allow", "ask", "auto"):
        async with editing(program, Editor()) as (connection, _):
            loaded = await connection.load_session(session_id=one, cwd=folder)
            assert loaded.modes is not None
            modes.append(loaded.modes.current_mode_id)
            await connection.prompt(session_id=one, prompt=[text_block('write "x" to made.txt')])
            await connection.set_session_mode(session_id=one, mode_id=mode)
    assert modes == ["plan", "auto", "ask"]
    assert (program.project / "made.txt").exists()


async def test_whatever_version_a_client_asks_for_the_one_that_is_spoken_is_answered(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path, {"TUI_AGENT__MODEL__ID": "offline"})
    versions = [0, 1, 2, 65_535, "2", "2024-11-05", "draft", None, 1.5, -1, 65_536]
    second = {"protocolVersion": 2, "info": {"name": "editor", "version": "1"}, "capabilities": {"elicitation": {}}}
    asked: list[object] = [*({"protocolVersion": version} for version in versions), second, {}]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": "initialize", "params": params})
        for number, params in enumerate(asked)
    ]
    answers = sorted(await answers_to(program, lines), key=lambda answer: int(answer["id"]))
    told = [
        answer["result"]["protocolVersion"] if "result" in answer else answer["error"]["code"] for answer in answers
    ]
    # What is no version of the schema's is an error; the draft of version 2 is answered with what is spoken here.
    assert told == [1] * 9 + [-32602] * 2 + [1] + [-32602]
    assert answers[-2]["result"]["agentCapabilities"]["sessionCapabilities"]["delete"] == {}


async def answers_to(program: Program, lines: Sequence[str]) -> list[dict[str, Any]]:
    """What is answered to lines of a client, each of which is answered, with nothing said on standard error."""
    process = await asyncio.create_subprocess_exec(
        *program.command, "acp", env=program.environment, cwd=program.project, stdin=-1, stdout=-1, stderr=-1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write("\n".join(lines).encode() + b"\n")
    answers = [json.loads(await process.stdout.readline()) for _ in lines]
    process.stdin.close()
    assert await process.stderr.read() == b""
    return answers


async def test_lines_that_are_no_object_are_errors_and_the_connection_goes_on(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path, {"TUI_AGENT__MODEL__ID": "offline"})
    load = {"sessionId": "", "cwd": str(program.project), "mcpServers": []}
    asked = (
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}},
        {"jsonrpc": "2.0", "id": 2, "method": "session/load", "params": load},
        {"jsonrpc": "2.0", "id": 3, "method": "session/load", "params": load | {"sessionId": "half \ud83d"}},
    )
    wrong = ["[]", "5", '"x"', "null", json.dumps([asked[0]]), '{"id": {}, "method": "x"}', "{no json"]
    answers = await answers_to(program, [*wrong, *map(json.dumps, asked)])
    assert [answer["error"]["code"] for answer in answers[:7]] == [-32600] * 6 + [-32700]
    assert answers[7]["result"]["protocolVersion"] == 1
    assert [answer["id"] for answer in answers[8:]] == [2, 3]
    assert all("There is no session" in answer["error"]["message"] for answer in answers[8:])
