"""Sessions of Claude Code and of codex that go on here: valid for every provider, and nothing lost."""

import json
from pathlib import Path

import pytest

from tests.agent.talking import say, talking
from tests.servers.anthropic import AnthropicServer
from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Script, Step
from tests.servers.server import ProtocolServer
from tui_agent.agent import events
from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Cleared, Message, Summarized, Usage
from tui_agent.session import SessionError
from tui_agent.storage.recordings.reading import read_file

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TIME = "2026-03-01T22:38:47.5Z"


def claude(kind: str, content: object, name: str = "", **more: object) -> dict[str, object]:
    message = {"role": kind, "content": content, "id": name, "model": "claude-opus-4-7", "usage": {"input_tokens": 9}}
    return {"type": kind, "message": message, "timestamp": TIME, "uuid": "", **more}


def codex(kind: str, **payload: object) -> dict[str, object]:
    return {"timestamp": TIME, "type": kind, "payload": payload}


def item(kind: str, **payload: object) -> dict[str, object]:
    return codex("response_item", type=kind, **payload)


def words(role: str, text: str) -> dict[str, object]:
    return item(
        "message", role=role, content=[{"type": "input_text" if role == "user" else "output_text", "text": text}]
    )


CLAUDE = (
    {"type": "summary", "summary": "Mending add", "leafUuid": "x"},
    claude("user", "Why does the test fail?"),
    claude("assistant", [{"type": "thinking", "thinking": "Look.", "signature": "signed"}], "m1"),
    claude("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "/c.py"}}], "m1"),
    claude("assistant", [{"type": "tool_use", "id": "toolu_2", "name": "mcp__x__y.z", "input": {}}], "m1"),
    claude("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a - b"}]),
    claude(
        "user",
        [
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "image"}], "is_error": True},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        ],
    ),
    claude("assistant", [{"type": "thinking", "thinking": "Only this.", "signature": "signed"}], "m2"),
    claude("user", "[Request interrupted by user]"),
    claude("assistant", [{"type": "text", "text": "A minus."}], "m3"),
    claude("assistant", [{"type": "tool_use", "id": "toolu_3", "name": "Bash", "input": {"command": "ls"}}], "m4"),
    "{ broken",
)
CODEX = (
    codex("session_meta", id="0", cwd="/p", cli_version="0.65.0", base_instructions={"text": "You are codex."}),
    words("user", "<environment_context>\n<cwd>/p</cwd>\n</environment_context>"),
    codex("turn_context", cwd="/p", model="gpt-5-codex"),
    words("user", "Why does the test fail?"),
    codex("event_msg", type="user_message", message="Why does the test fail?"),
    item("reasoning", summary=[{"type": "summary_text", "text": "Look."}], encrypted_content="gAAA"),
    item("function_call", name="shell", arguments='{"command":["ls"]}', call_id="call_1"),
    item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="call_2", status="completed"),
    codex(
        "event_msg",
        type="token_count",
        info={"last_token_usage": {"input_tokens": 90, "cached_input_tokens": 50, "output_tokens": 7}},
    ),
    item("function_call_output", call_id="call_1", output='{"output":"calc.py","metadata":{"exit_code":0}}'),
    item("custom_tool_call_output", call_id="call_2", output=[{"type": "input_text", "text": "Done"}]),
    item("web_search_call", status="completed", action={"type": "search", "query": "minus"}),
    words("assistant", "A minus."),
    words("user", "Never mind"),
    words("assistant", "As you like."),
    codex("event_msg", type="thread_rolled_back", num_turns=1),
    codex("compacted", message="The minus was found."),
    words("user", "And now?"),
    item("function_call", name="shell", arguments="{broken", call_id="call_3"),
)


def written(path: Path, lines: tuple[object, ...]) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return path


def counted(total: int, **used: int) -> dict[str, object]:
    return codex(
        "event_msg", type="token_count", info={"last_token_usage": used, "total_token_usage": {"input_tokens": total}}
    )


def test_codex_counts_an_answer_before_or_after_its_items_and_may_repeat_it(tmp_path: Path) -> None:
    lines = (
        codex("turn_context", cwd="/p", model="gpt-5.3-codex"),
        words("user", "Look."),
        counted(90, input_tokens=90, output_tokens=7),
        item("function_call", name="shell", arguments="{}", call_id="call_1"),
        item("function_call_output", call_id="call_1", output="calc.py"),
        counted(90, input_tokens=90, output_tokens=7),
        item("function_call", name="shell", arguments="{}", call_id="call_2"),
        counted(210, input_tokens=120, cached_input_tokens=64, output_tokens=9),
        item("function_call_output", call_id="call_2", output="calc.py"),
        words("assistant", "There."),
    )
    recording = read_file(written(tmp_path / "rollout.jsonl", lines))
    answers = [message for message in recording.messages if message.role == "assistant"]
    assert [each.usage for each in answers] == [Usage(90, output_tokens=7), Usage(120, 64, output_tokens=9), None]


def test_claude_code_may_write_a_result_before_its_call(tmp_path: Path) -> None:
    """An answer is written line by line, while its first commands run. A result waits for one answer only."""

    def called(name: str, message: str) -> object:
        block = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": "ls"}}
        return claude("assistant", [block], message)

    def told(name: str, text: str) -> object:
        return claude("user", [{"type": "tool_result", "tool_use_id": name, "content": text}])

    lines = (
        claude("user", "Look."),
        called("t1", "m1"),
        told("t1", "one"),
        told("t2", "two"),
        told("t3", "never called"),
        claude("assistant", [{"type": "text", "text": "On."}], "m2"),
        called("t2", "m2"),
        called("t4", "m3"),
        told("t4", "four"),
        called("t3", "m4"),
    )
    recording = read_file(written(tmp_path / "s.jsonl", lines))
    told_now = [block for message in recording.messages for block in message.blocks if isinstance(block, ToolResult)]
    assert [(each.call_id, each.text) for each in told_now] == [("t1", "one"), ("t2", "two"), ("t4", "four")]
    assert [each.line for each in recording.problems] == [5]


def test_codex_counts_an_answer_after_the_results_of_its_commands(tmp_path: Path) -> None:
    """Commands run while the answer streams; what was taken back or compacted in between is no answer any more."""
    lines = (
        codex("turn_context", cwd="/p", model="gpt-5.6-sol"),
        words("user", "Look."),
        words("assistant", "So:"),
        *(item("function_call", name="shell", arguments="{}", call_id=name) for name in ("call_1", "call_2")),
        *(item("function_call_output", call_id=name, output="calc.py") for name in ("call_1", "call_2")),
        counted(90, input_tokens=90, output_tokens=7),
        item("function_call", name="shell", arguments="{}", call_id="call_3"),
        counted(210, input_tokens=120, cached_input_tokens=64, output_tokens=9),
        item("function_call_output", call_id="call_3", output="calc.py"),
        item("function_call", name="shell", arguments="{}", call_id="call_4"),
        item("function_call_output", call_id="call_4", output="calc.py"),
        counted(340, input_tokens=130, cached_input_tokens=96, output_tokens=5),
        words("assistant", "There."),
        words("user", "And now?"),
        counted(350, input_tokens=140, output_tokens=3),
        words("assistant", "Still there."),
    )
    recording = read_file(written(tmp_path / "rollout.jsonl", lines))
    answers = [message for message in recording.messages if message.role == "assistant"]
    assert [each.usage for each in answers] == [
        Usage(90, output_tokens=7),
        Usage(120, 64, output_tokens=9),
        Usage(130, 96, output_tokens=5),
        None,
        Usage(140, output_tokens=3),
    ]


def test_codex_is_read_item_by_item(tmp_path: Path) -> None:
    recording = read_file(written(tmp_path / "rollout.jsonl", CODEX))
    assert (recording.format, recording.model, recording.problems) == ("codex", "gpt-5-codex", ())
    assert recording.prefix is not None
    assert recording.prefix.system == "You are codex."
    first, answer, one, two, told, _, last = recording.messages
    assert first.blocks == (Text("Why does the test fail?"),)
    assert answer.blocks == (
        Reasoning("Look."),
        ToolCall("call_1", "shell", '{"command":["ls"]}'),
        ToolCall("call_2", "apply_patch", '{"input":"*** Begin Patch"}'),
    )
    assert answer.usage == Usage(90, 50, output_tokens=7)
    assert (one.kind, two.kind) == ("tool_result", "tool_result")
    assert told.blocks == (Text("A minus."),)
    assert last.blocks == (ToolCall("call_3", "shell", '{"input":"{broken"}'),)
    (summary,) = (entry for entry in recording.log if isinstance(entry, Summarized))
    assert (summary.first, summary.last, summary.text) == (1, 5, "The minus was found.")


REWOUND = (
    claude("user", "Mend it", uuid="u1", parentUuid=None),
    claude(
        "assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}], "m1", uuid="a1", parentUuid="u1"
    ),
    claude(
        "assistant", [{"type": "tool_use", "id": "t2", "name": "Read", "input": {}}], "m1", uuid="a2", parentUuid="a1"
    ),
    {"type": "progress", "uuid": "p1", "parentUuid": "a2"},
    # Only one of two results is on the chain of parents.
    claude("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "one"}], uuid="r1", parentUuid="a1"),
    claude("user", [{"type": "tool_result", "tool_use_id": "t2", "content": "two"}], uuid="r2", parentUuid="p1"),
    claude("assistant", [{"type": "text", "text": "It is the sign."}], "m2", uuid="a3", parentUuid="r2"),
    claude("user", "The wrong way", uuid="u2", parentUuid="a3"),
    claude(
        "assistant", [{"type": "tool_use", "id": "t3", "name": "Bash", "input": {}}], "m3", uuid="a4", parentUuid="u2"
    ),
    claude("user", [{"type": "tool_result", "tool_use_id": "t3", "content": "lost"}], uuid="r3", parentUuid="a4"),
    claude("user", "The right way", uuid="u3", parentUuid="a3"),
    claude("user", "aside", uuid="s1", parentUuid=None, isSidechain=True),
    claude("assistant", [{"type": "text", "text": "Mended."}], "m4", uuid="a5", parentUuid="u3"),
    {"type": "system", "uuid": "y1", "parentUuid": "a5"},
)


def told(path: Path) -> list[str]:
    """What a file says, a line a block."""
    said = []
    for message in read_file(path).messages:
        said += [getattr(block, "text", "") or getattr(block, "call_id", "") or "a call" for block in message.blocks]
    return said


def test_of_a_session_that_was_rewound_the_last_branch_goes_on(tmp_path: Path) -> None:
    path = written(tmp_path / "other.jsonl", REWOUND)
    kept = ["Mend it", "a call", "a call", "one", "two", "It is the sign.", "The right way", "Mended."]
    assert told(path) == kept
    assert read_file(path).abandoned == 3
    anew = claude("user", "Something else", uuid="u4", parentUuid=None)
    answer = claude("assistant", [{"type": "text", "text": "Of course."}], "m5", uuid="a6", parentUuid="u4")
    assert told(written(tmp_path / "anew.jsonl", (*REWOUND, anew, answer))) == ["Something else", "Of course."]
    # What is attached goes with what it hangs from.
    queued = {"type": "queued_command", "prompt": "Then this."}
    more = {"type": "attachment", "uuid": "f1", "parentUuid": "u4", "attachment": queued}
    again = {**more, "uuid": "f2", "parentUuid": "f1"}
    assert told(written(tmp_path / "on.jsonl", (*REWOUND, anew, more, answer)))[1:] == ["Then this.", "Of course."]
    other = claude("user", "Or this", uuid="u5", parentUuid=None)
    answered = claude("assistant", [{"type": "text", "text": "Yes."}], "m6", uuid="a7", parentUuid="u5")
    left = read_file(written(tmp_path / "left.jsonl", (*REWOUND, anew, more, again, other, answered)))
    assert [message.blocks[0] for message in left.messages] == [Text("Or this"), Text("Yes.")]
    # A summary has no parent, and a parent may be in another file: what stands before it counts.
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": None}
    summary = claude("user", "In short.", uuid="b2", parentUuid="b1", isCompactSummary=True)
    going = claude("user", "Go on", uuid="u5", parentUuid="elsewhere")
    answer = claude("assistant", [{"type": "text", "text": "Yes."}], "m6", uuid="a7", parentUuid="u5")
    whole = written(tmp_path / "whole.jsonl", (*REWOUND, boundary, summary, going, answer))
    assert told(whole) == [*kept, "Go on", "Yes."]
    assert [entry.text for entry in read_file(whole).log if isinstance(entry, Summarized)] == ["In short."]


async def test_results_that_were_cleared_stay_cleared(tmp_path: Path) -> None:
    named = {"compactedToolIds": ["t1", "unknown"]}
    system = {"type": "system", "timestamp": TIME}
    cleared = {**system, "subtype": "microcompact_boundary", "microcompactMetadata": named}
    boundary = {"type": "system", "subtype": "compact_boundary"}
    short = claude("user", "In short.", isCompactSummary=True)
    path = written(tmp_path / "other.jsonl", (*REWOUND, cleared, claude("user", "More"), boundary, short))
    async with talking(tmp_path, resume=str(path)) as session:
        log = session.agent.engine.view.log
        results, summary = (entry for entry in log if isinstance(entry, Cleared | Summarized))
    assert isinstance(results, Cleared)
    (one,) = (message for seq in results.results if (message := log.message(seq)) is not None)
    assert [block.text for block in one.blocks if isinstance(block, ToolResult)] == ["one"]
    assert isinstance(summary, Summarized)
    assert summary.last == results.seq + 1


async def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "other.jsonl"
    with path.open("wb") as file:
        file.truncate(512 * 1024 * 1024 + 1)
    with pytest.raises(SessionError, match=r"has 536,870,913 bytes, and at most 536,870,912 can be taken over"):
        async with talking(tmp_path, resume=str(path)):
            pass
    assert not list((tmp_path / "home").glob("sessions/*"))


def test_files_of_its_first_year_have_no_envelope(tmp_path: Path) -> None:
    lines: list[object] = [{"id": "0", "timestamp": TIME, "instructions": None}, {"record_type": "state"}]
    lines += [line["payload"] for line in CODEX if line["type"] == "response_item"]
    recording = read_file(written(tmp_path / "rollout.jsonl", tuple(lines)))
    assert recording.format == "codex"
    assert [message.role for message in recording.messages][:2] == ["user", "assistant"]


@pytest.mark.parametrize(
    ("lines", "server_class", "model"),
    [(CODEX, AnthropicServer, "claude-opus-5-5"), (CLAUDE, GeminiServer, "gemini-3.1-pro-preview")],
    ids=["codex-anthropic", "claude-gemini"],
)
async def test_it_goes_on_with_any_provider(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: tuple[object, ...],
    server_class: type[ProtocolServer],
    model: str,
) -> None:
    path = written(tmp_path / "other.jsonl", lines)
    before = path.read_bytes()
    with in_thread(server_class(Script(after=Step(text="It was the minus.")))) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        async with talking(tmp_path, {"model.id": model}, resume=str(path)) as session:
            (told,) = (notice for notice in session.notices if notice.title == "Taken over")
            assert "other.jsonl" in told.text
            assert ("line 12" in told.text) == (lines is CLAUDE)
            past = list(session.agent.branches.history())
            assert any(isinstance(event, events.ToolStarted) and event.name in ("Read", "shell") for event in past)
            assert session.agent.tracker.session.usage == Usage()
            done = await say(session, "And now?")
            assert not [event for event in done if isinstance(event, events.TurnFailed)]
            assert isinstance(done[-1], events.TurnFinished)
            assert done[-1].text == "It was the minus."
            name = session.id
        assert server.violations == []
        async with talking(tmp_path, {"model.id": model}, resume=name) as session:
            said = [entry for entry in session.agent.engine.view.log if isinstance(entry, Message)]
            assert any("recorded by" in block.text for each in said for block in each.blocks if isinstance(block, Text))
            assert not [event for event in await say(session, "Again") if isinstance(event, events.TurnFailed)]
        assert server.violations == []
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "It is empty"),
        ("not JSON\n[1]\n", "2 of its lines could not be used, line 1 first: no JSON object with a role or a type"),
        ('{"type": "user"}\n', "line 1 first: a user's message without text"),
        ("\x00" * 4096, "line 1 first: no JSON object"),
    ],
)
async def test_what_is_no_session_is_said_and_leaves_nothing(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "other.jsonl"
    path.write_text(content)
    with pytest.raises(SessionError, match=f"holds no answer of a model.*{why}"):
        async with talking(tmp_path, resume=str(path)):
            pass
    assert not list((tmp_path / "home").glob("sessions/*"))
    assert path.read_text() == content


def test_lines_without_links_or_times_are_read_as_they_come(tmp_path: Path) -> None:
    lines = (
        claude("user", "One", uuid="u1", parentUuid=None),
        claude("assistant", [{"type": "text", "text": "Two"}], "m1", uuid="a1", parentUuid=None),
        {**claude("user", "Three", uuid="u2", parentUuid=None), "timestamp": "[removed]"},
    )
    path = written(tmp_path / "other.jsonl", lines)
    assert told(path) == ["One", "Two", "Three"]
    assert read_file(path).problems == ()
