"""Reading recordings: the neutral format, Claude Code's files, our own sessions, and lines that are none of these."""

import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.recordings import answer, call, result, user, write_lines
from tests.replay.sessions import words
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Cleared, Delivered, Message, Prefix, Queued, notice, tool_result
from tui_agent.conversation.log import Log
from tui_agent.storage.artifacts import Artifacts
from tui_agent.storage.log import LogStore
from tui_agent.storage.recordings.reading import read_file, read_recording
from tui_agent.storage.recordings.recording import LineProblem, Recording, UnreadableRecording
from tui_agent.storage.sessions import create_session


def said(recording: Recording) -> list[str]:
    """What was said, one short text a message."""
    found = []
    for message in recording.messages:
        parts = []
        for block in message.blocks:
            match block:
                case Text():
                    parts.append(block.text)
                case ToolCall():
                    parts.append(f"{block.name}({block.arguments})={block.id}")
                case ToolResult():
                    parts.append(f"{block.call_id}->{block.text}{'!' if block.is_error else ''}")
                case Reasoning():
                    parts.append(f"<{block.text}>")
                case _:
                    parts.append("image")
        found.append(f"{message.role}: {' '.join(parts)}")
    return found


def test_neutral(tmp_path: Path) -> None:
    recording = read_file(
        write_lines(
            tmp_path / "a.jsonl",
            {"role": "system", "text": "rules"},
            user("look", time=10),
            answer("I look.", call("1", path="a.py"), call("2", path="b.py"), time="1970-01-01T00:00:20Z"),
            result("2", "bb", time=21),
            result("1", "aa"),
            answer("Done."),
        )
    )
    assert said(recording) == [
        "user: look",
        'assistant: I look. read_file({"path":"a.py"})=1 read_file({"path":"b.py"})=2',
        "user: 2->bb",
        "user: 1->aa",
        "assistant: Done.",
    ]
    assert [message.time for message in recording.messages] == [10, 20, 21, 21, 21]
    assert recording.prefix == Prefix(system="rules")
    assert (recording.format, recording.timed, recording.problems) == ("neutral", True, ())


def test_malformed_lines_are_named_and_left_out(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.jsonl",
        "",
        "not json",
        user("hi"),
        b'{"role": "user", "text": "\xff"}',
        {"role": "robot", "text": "x"},
        {"role": "tool", "text": "x"},
        result("nobody", "x"),
        answer("", {"id": "1", "name": "run", "args": [1]}),
        answer("", {"id": "1", "name": "run", "args": '{"command": "ls"}'}),
        result("1", "a"),
        result("1", "again"),
        "[" * 100_000,
        user("  "),
    )
    recording = read_file(path)
    assert said(recording) == ["user: hi", 'assistant: run({"command":"ls"})=1', "user: 1->a"]
    assert [problem.line for problem in recording.problems] == [2, 4, 5, 6, 7, 8, 11, 12, 13]
    assert LineProblem(7, "a result of a call that was not made") in recording.problems
    assert not recording.timed


def test_calls_that_are_numbered_anew_in_each_answer(tmp_path: Path) -> None:
    recording = read_file(
        write_lines(
            tmp_path / "a.jsonl",
            answer("", call("call_0")),
            result("call_0", "first"),
            answer("", call("call_0")),
            result("call_0", "second"),
        )
    )
    assert recording.problems == ()
    assert said(recording)[1::2] == ["user: call_0->first", "user: call_0#2->second"]


def claude(kind: str, content: object, **more: object) -> dict[str, object]:
    """A line as Claude Code writes it."""
    message = {"role": kind, "content": content, **({"id": more.pop("id")} if "id" in more else {})}
    if kind == "assistant":
        message["model"] = "claude-opus-4-7"
    return {"type": kind, "message": message, "isSidechain": False, "timestamp": "2026-03-01T22:38:47.5Z", **more}


def use(call_id: str) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": "/x.py"}}


def used(call_id: str, content: object, **more: object) -> dict[str, object]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def attached(kind: str, **more: object) -> dict[str, object]:
    return {"type": "attachment", "isSidechain": False, "attachment": {"type": kind, **more}}


def test_claude_code(tmp_path: Path) -> None:
    named = {"type": "text", "file": {"filePath": "/plan.md", "content": "the plan"}}
    recording = read_file(
        write_lines(
            tmp_path / "c.jsonl",
            {"type": "summary", "summary": "Earlier", "leafUuid": "x"},
            {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
            claude("user", "please look", uuid="u1"),
            claude("user", "please look", uuid="u1"),
            attached("file", filename="/plan.md", content=named),
            attached("skill_listing", content="- a skill"),
            claude("assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}], id="msg_1"),
            claude("assistant", [{"type": "text", "text": "I look."}], id="msg_1"),
            claude("assistant", [use("t1")], id="msg_1"),
            claude("user", [used("t1", "one")]),
            claude("assistant", [use("t2")], id="msg_1"),
            claude("user", [used("t2", [{"type": "text", "text": "two"}], is_error=True)]),
            attached("queued_command", prompt="no, the other", commandMode="prompt"),
            attached("queued_command", prompt="a task has ended", commandMode="task-notification"),
            claude("assistant", [use("s1")], id="msg_s", isSidechain=True),
            claude("user", "compacted", isCompactSummary=True),
            claude("assistant", [{"type": "text", "text": "Done."}], id="msg_2"),
            {"type": "user", "message": {"content": 7}},
        )
    )
    assert said(recording) == [
        "user: please look",
        "user: /plan.md:\nthe plan",
        'assistant: <hm> I look. Read({"file_path":"/x.py"})=t1 Read({"file_path":"/x.py"})=t2',
        "user: t1->one",
        "user: t2->two!",
        "user: no, the other",
        "user: a task has ended",
        "assistant: Done.",
    ]
    assert (recording.format, recording.timed, recording.model) == ("claude-code", True, "claude-opus-4-7")
    assert [problem.line for problem in recording.problems] == [18]
    own_words = [message for message in recording.messages if message.role == "user" and not message.kind]
    assert len(own_words) == 2


@pytest.mark.parametrize(("written", "read"), [("glm-5", "glm-5"), ("<synthetic>", "")])
def test_the_model_that_answered_in_claude_code(tmp_path: Path, written: str, read: str) -> None:
    answer = {"type": "assistant", "message": {"role": "assistant", "content": "Done.", "model": written}}
    assert read_file(write_lines(tmp_path / "c.jsonl", claude("user", "go"), answer)).model == read


ENDED = {"stdout": "ok", "stderr": "", "interrupted": False, "isImage": False}


@pytest.mark.parametrize(
    ("result", "told", "exit_code"),
    [
        (used("t1", "ok", is_error=False), ENDED, 0),
        (used("t1", "Exit code 127\nno such command", is_error=True), "Error: Exit code 127\nno such command", 127),
        (used("t1", ""), {**ENDED, "returnCodeInterpretation": "No matches found"}, None),
        (used("t1", "in the background"), {**ENDED, "backgroundTaskId": "b1"}, None),
        (used("t1", "stopped"), {**ENDED, "interrupted": True}, None),
        (used("t1", "Exit code 3 is what it says"), {"type": "text", "file": {"numLines": 1}}, None),
        (used("t1", "ok"), None, None),
    ],
)
def test_the_exit_code_of_a_command_in_claude_code(
    tmp_path: Path, result: dict[str, object], told: object, exit_code: int | None
) -> None:
    lines = claude("assistant", [use("t1")], id="m1"), claude("user", [result], toolUseResult=told)
    (message,) = read_file(write_lines(tmp_path / "c.jsonl", claude("user", "go"), *lines)).messages[2:]
    assert (message.outcome.exit_code, message.blocks[0]) == (
        exit_code,
        ToolResult("t1", str(result["content"]), is_error=bool(result.get("is_error"))),
    )


HEAD = "Chunk ID: 1f\nWall time: 1.5 seconds\nProcess exited with code -1\nTotal output lines: 312\nOutput:\n"


@pytest.mark.parametrize(
    ("output", "told"),
    [
        (json.dumps({"output": "ok", "metadata": {"exit_code": 1, "duration_seconds": 0.25}}), (1, 0, 250)),
        (f"{HEAD}Exit code: 7\n", (-1, 312, 1500)),
        ("Exit code: 0\nWall time: 2 seconds\nOutput:\nok", (0, 0, 2000)),
        ("Process running with session ID 73\nOutput:\nExit code: 0\n", (None, 0, 0)),
        ('{"output": 5}', (None, 0, 0)),
        ("[1, 2]", (None, 0, 0)),
    ],
)
def test_what_codex_says_of_a_command(tmp_path: Path, output: str, told: tuple[int | None, int, int]) -> None:
    lines = [
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": output},
    ]
    recording = read_file(
        write_lines(tmp_path / "r.jsonl", *({"type": "response_item", "payload": each} for each in lines))
    )
    (message,) = recording.messages[1:]
    assert (message.outcome.exit_code, message.outcome.line_count, message.duration_ms) == told
    assert message.blocks == (ToolResult("c1", output),)


async def _write_session(home: Path) -> Path:
    folder = create_session(home)
    store = await LogStore.open(folder)
    artifact = await Artifacts(folder).save("c1", "the whole text", evicted=True)
    pasted = await Artifacts(folder).save("prompt-2", "hello, all of it", evicted=True)
    read = ToolCall("c1", "read_file", '{"path":"a"}')
    log = Log()
    for entry in (
        Prefix(system="rules"),
        Message(role="user", blocks=(Text("hello, [preview]"),), artifact=pasted),
        Message(role="assistant", blocks=(read,), model="anthropic:claude-opus-5-5"),
        tool_result(ToolResult("c1", "[preview]"), artifact=artifact),
        Queued(blocks=(Text("and this"),)),
        Delivered(queued=5),
        Cleared(results=(4,), texts=("[cleared]",)),
        notice("a notice"),
        Message(role="assistant", blocks=(Text("Done."),), model="anthropic:claude-opus-5-5"),
    ):
        log.append(log.stamp(entry, 100.0 + len(log)))
    await store.load()
    await store.append(list(log))
    await store.close()
    return folder


def test_our_own_session_by_id_by_folder_and_by_file(tmp_path: Path) -> None:
    folder = asyncio.run(_write_session(tmp_path))
    for named in (folder.name, str(folder), str(folder / "checkpoints.sqlite")):
        recording = read_recording(named, tmp_path)
        assert said(recording) == [
            "user: hello, all of it",
            'assistant: read_file({"path":"a"})=c1',
            "user: c1->the whole text",
            "user: and this",
            "user: a notice",
            "assistant: Done.",
        ]
        assert recording.model == "anthropic:claude-opus-5-5"
        assert recording.timed


@pytest.mark.parametrize("named", ["nothing-here", "."])
def test_what_is_no_recording_is_refused(tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableRecording, match="Expected a session file"):
        read_recording(named, tmp_path)


def test_a_session_without_an_answer_is_named_and_no_other_kind_of_file_is_asked_for(tmp_path: Path) -> None:
    async def begun() -> Path:
        folder = create_session(tmp_path)
        store = await LogStore.open(folder)
        await store.load()
        await store.append([Log().stamp(Message(role="user", blocks=(Text("hi"),)), 100.0)])
        await store.close()
        return folder

    folder = asyncio.run(begun())
    with pytest.raises(UnreadableRecording, match=rf"^Nothing was answered in session {folder.name}\.$"):
        read_recording(folder.name, tmp_path)


def test_a_file_without_an_answer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableRecording, match="2 of its lines"):
        read_file(write_lines(tmp_path / "a.jsonl", "x", user("hi"), "y"))


def test_progress_is_told(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *(user("x" * 500_000) for _ in range(6)), answer("ok"))
    told: list[tuple[int, int]] = []
    read_file(path, lambda done, total: told.append((done, total)))
    size = path.stat().st_size
    assert len(told) >= 3
    assert told == sorted(told)
    assert told[-1] == (size, size)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                words(
                    "role type text message content id tool_calls tool_call_id time usage input_tokens keeps uuid "
                    "subtype compactMetadata preservedSegment isCompactSummary cache_creation"
                )
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30), max_size=12))
def test_any_lines_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    path.write_bytes(b"\n".join(lines))
    try:
        recording = read_file(path)
    except UnreadableRecording:
        return
    assert any(message.role == "assistant" for message in recording.messages)


def test_a_file_of_a_subagent_of_claude_code(tmp_path: Path) -> None:
    def line(kind: str, content: str) -> dict[str, object]:
        return {"type": kind, "isSidechain": True, "message": {"role": kind, "content": content, "model": "claude-x"}}

    recording = read_file(write_lines(tmp_path / "agent-1.jsonl", line("user", "find it"), line("assistant", "a.py")))
    assert said(recording) == ["user: find it", "assistant: a.py"]
