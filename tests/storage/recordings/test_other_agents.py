"""Session files of Gemini CLI, pi and opencode, and ATIF, in the forms that these programs write."""

import json
from pathlib import Path

from tests.replay.recordings import write_lines
from tests.storage.recordings.test_reading import said
from tui_agent.conversation.entries import Cleared, Summarized, Usage
from tui_agent.storage.recordings.reading import read_file
from tui_agent.storage.recordings.recording import CLEARED


def pi_line(kind: str, name: str, parent: str | None, **more: object) -> dict[str, object]:
    return {"type": kind, "id": name, "parentId": parent, "timestamp": "2026-03-01T10:00:00.000Z", **more}


def pi_said(name: str, parent: str | None, role: str, content: object, **more: object) -> dict[str, object]:
    return pi_line("message", name, parent, message={"role": role, "content": content, **more})


def test_pi_follows_the_branch_of_the_newest_line(tmp_path: Path) -> None:
    usage = {"input": 10, "output": 5, "cacheRead": 700, "cacheWrite": 90, "cost": {"total": 0.1}}
    call = {"type": "toolCall", "id": "t1", "name": "bash", "arguments": {"command": "make"}}
    failed = [{"type": "text", "text": "no rule\n\nCommand exited with code 2"}]
    recording = read_file(
        write_lines(
            tmp_path / "a.jsonl",
            {"type": "session", "version": 3, "id": "s", "timestamp": "2026-03-01T10:00:00.000Z", "cwd": "/x"},
            pi_said("a", None, "user", "build it"),
            pi_said("b", "a", "assistant", [{"type": "text", "text": "left"}], model="m", usage=usage),
            pi_said("c", "a", "assistant", [{"type": "thinking", "thinking": "hm"}, call], model="m", usage=usage),
            pi_said("d", "c", "toolResult", failed, toolCallId="t1", toolName="bash", isError=True),
            pi_line("compaction", "e", "d", summary="So far.", firstKeptEntryId="c", tokensBefore=900),
            pi_said("f", "e", "bashExecution", "", command="ls", output="Makefile", exitCode=0),
            pi_line("custom_message", "g", "f", customType="x", content="by an extension"),
            pi_said("h", "g", "assistant", [], model="other", stopReason="aborted"),
            pi_said("i", "h", "assistant", [{"type": "text", "text": "Done."}], model="m", usage=usage),
        )
    )
    assert said(recording) == [
        "user: build it",
        'assistant: <hm> bash({"command":"make"})=t1',
        "user: t1->no rule\n\nCommand exited with code 2!",
        'user: your shell({"command":"ls"})=shell-1 shell-1->Makefile',
        "user: by an extension",
        "assistant: Done.",
    ]
    assert (recording.format, recording.model, recording.abandoned, recording.problems) == ("pi", "m", 1, ())
    assert [message.usage for message in recording.metered] == [Usage(800, 700, 90, 5)] * 2
    assert [message.outcome.exit_code for message in recording.messages[2:4]] == [2, 0]
    assert [(each.first, each.last) for each in recording.log if isinstance(each, Summarized)] == [(1, 1)]


def test_a_broken_line_of_pi_cuts_nothing_off(tmp_path: Path) -> None:
    """Nor does a lost header: what stands before it is the beginning of the same branch."""
    path = write_lines(
        tmp_path / "a.jsonl",
        pi_said("a", None, "user", "build it"),
        pi_said("b", "a", "assistant", [{"type": "text", "text": "left"}], model="m"),
        pi_said("c", "a", "assistant", [{"type": "text", "text": "Built."}], model="m"),
        pi_said("d", "c", "user", "broken"),
        pi_said("e", "d", "assistant", [{"type": "text", "text": "Done."}], model="m"),
    )
    path.write_text(path.read_text().replace("broken", "\\[redacted"))
    recording = read_file(path)
    assert said(recording) == ["user: build it", "assistant: Built.", "assistant: Done."]
    assert (recording.format, recording.abandoned) == ("pi", 1)
    assert [each.line for each in recording.problems] == [4]


def test_pi_before_it_had_branches(tmp_path: Path) -> None:
    recording = read_file(
        write_lines(
            tmp_path / "a.jsonl",
            {"type": "session", "id": "s", "timestamp": "2025-11-20T23:33:50.805Z", "provider": "anthropic"},
            {"type": "message", "message": {"role": "user", "content": "one"}},
            {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "1"}]}},
            {"type": "message", "message": {"role": "user", "content": "two"}},
            {"type": "compaction", "summary": "So far.", "firstKeptEntryIndex": 3},
            {"type": "message", "message": {"role": "assistant", "content": [{"type": "text", "text": "2"}]}},
        )
    )
    assert said(recording) == ["user: one", "assistant: 1", "user: two", "assistant: 2"]
    assert [(each.first, each.last) for each in recording.log if isinstance(each, Summarized)] == [(1, 2)]


def gemini(name: str, kind: str, content: object, **more: object) -> dict[str, object]:
    return {"id": name, "type": kind, "timestamp": "2026-01-11T00:26:06.714Z", "content": content, **more}


SHELL = {
    "id": "run-1",
    "name": "run_shell_command",
    "args": {"command": "make"},
    "result": [{"functionResponse": {"id": "run-1", "name": "x", "response": {"output": "Output: no\nExit Code: 2"}}}],
    "status": "success",
    "timestamp": "2026-01-11T00:26:09.528Z",
}
TOKENS = {"input": 900, "output": 49, "cached": 700, "thoughts": 86, "tool": 0, "total": 1035}
THOUGHT = {"subject": "Plan", "description": "Build.", "timestamp": "x"}


def test_gemini_cli_as_one_document(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    messages = [
        gemini("1", "user", "build it"),
        gemini("2", "gemini", "I build.", toolCalls=[SHELL], tokens=TOKENS, thoughts=[THOUGHT], model="gemini-3-pro"),
        gemini("3", "info", "an update is there"),
        gemini("4", "gemini", "Done.", tokens=None, model="gemini-3-pro"),
    ]
    document = {"sessionId": "s", "projectHash": "p", "startTime": "x", "messages": messages}
    path.write_text(json.dumps(document, indent=2))
    recording = read_file(path)
    assert said(recording) == [
        "user: build it",
        'assistant: <**Plan**\nBuild.> I build. run_shell_command({"command":"make"})=run-1',
        "user: run-1->Output: no\nExit Code: 2",
        "assistant: Done.",
    ]
    assert (recording.format, recording.model, recording.problems) == ("gemini-cli", "gemini-3-pro", ())
    assert recording.messages[1].usage == Usage(900, 700, 0, 135, 86)
    assert recording.messages[2].outcome.exit_code == 2


def test_gemini_cli_as_lines(tmp_path: Path) -> None:
    """A message is written again when it grows; what is taken back goes."""
    growing = gemini("2", "gemini", "I build.", tokens=TOKENS, model="gemini-3-pro")
    recording = read_file(
        write_lines(
            tmp_path / "session.jsonl",
            {"sessionId": "s", "projectHash": "p", "startTime": "x", "lastUpdated": "x"},
            gemini("1", "user", [{"text": "build it"}]),
            growing,
            {"$set": {"lastUpdated": "y"}},
            {**growing, "toolCalls": [{**SHELL, "result": None}]},
            {**growing, "toolCalls": [SHELL]},
            gemini("3", "user", "taken back"),
            {"$rewindTo": "3"},
            gemini("4", "user", [{"text": "and "}, {"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]),
            gemini("5", "gemini", "Done.", model="gemini-3-pro"),
        )
    )
    assert said(recording) == [
        "user: build it",
        'assistant: I build. run_shell_command({"command":"make"})=run-1',
        "user: run-1->Output: no\nExit Code: 2",
        "user: and  image",
        "assistant: Done.",
    ]
    assert (recording.format, recording.abandoned, recording.problems) == ("gemini-cli", 1, ())


def opencode(name: str, role: str, *parts: object, **more: object) -> dict[str, object]:
    return {"info": {"id": name, "role": role, "time": {"created": 1_795_000_000_000}, **more}, "parts": list(parts)}


def finish(total: int) -> dict[str, object]:
    tokens = {"total": total, "input": 127, "output": 96, "reasoning": 103, "cache": {"read": 7680, "write": 0}}
    return {"type": "step-finish", "reason": "tool-calls", "cost": 0.1, "tokens": tokens}


def test_opencode(tmp_path: Path) -> None:
    """An answer of several steps is several answers; a message that was reverted is not there any more, and a result
    that was cleared is cleared from the next message on.
    """
    time = {"start": 1_795_000_000_000, "end": 1_795_000_001_250, "compacted": 1_795_000_060_000}
    state = {"status": "completed", "input": {"command": "make"}, "output": "no", "metadata": {"exit": 2}, "time": time}
    messages = [
        opencode("m1", "user", {"type": "text", "text": "build it"}, summary={"title": "Build", "diffs": []}),
        opencode(
            "m2",
            "assistant",
            {"type": "step-start"},
            {"type": "reasoning", "text": "hm"},
            {"type": "tool", "tool": "bash", "callID": "c1", "state": state},
            {"type": "tool", "tool": "bash", "callID": "c1", "state": state | {"output": "nor this"}},
            finish(8006),
            {"type": "step-start"},
            {"type": "text", "text": "Done."},
            finish(8006),
            modelID="m",
        ),
        opencode("m3", "user", {"type": "compaction", "auto": True}, time={"created": 1_795_000_090_000}),
        opencode("m4", "assistant", {"type": "text", "text": "So far."}, modelID="m", summary=True),
        opencode("m5", "user", {"type": "text", "text": "on"}),
        opencode("m6", "assistant", {"type": "text", "text": "Yes."}, modelID="m"),
        opencode("m7", "user", {"type": "text", "text": "taken back"}),
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps({"info": {"id": "ses", "revert": {"messageID": "m7"}}, "messages": messages}, indent=2))
    recording = read_file(path)
    assert said(recording) == [
        "user: build it",
        'assistant: <hm> bash({"command":"make"})=c1 bash({"command":"make"})=c1+3',
        "user: c1->no",
        "user: c1+3->nor this",
        "assistant: Done.",
        "user: on",
        "assistant: Yes.",
    ]
    assert (recording.format, recording.model, recording.abandoned, recording.problems) == ("opencode", "m", 1, ())
    assert [message.usage for message in recording.metered] == [Usage(7807, 7680, 0, 199, 103)] * 2
    assert (recording.messages[2].outcome.exit_code, recording.messages[2].duration_ms) == (2, 1250)
    assert [(each.first, each.last) for each in recording.log if isinstance(each, Summarized)] == [(1, 5)]
    assert [(each.seq, each.results, each.texts) for each in recording.log if isinstance(each, Cleared)] == [
        (6, (3, 4), (CLEARED,) * 2)
    ]


def test_atif_with_an_answer_in_several_steps(tmp_path: Path) -> None:
    """As programs write it that make a step of each call, and count as prompt what was not written to the cache."""

    def metrics(prompt: int, cached: int, written: int) -> dict[str, object]:
        more = {"cache_creation_input_tokens": written}
        return {"prompt_tokens": prompt, "completion_tokens": 5, "cached_tokens": cached, "extra": more}

    metered = [metrics(60, 50, 40), metrics(130, 100, 30)]

    def step(number: int, text: str, call: str = "") -> dict[str, object]:
        made = [{"tool_call_id": call, "function_name": "Read", "arguments": {"path": call}}]
        told = {"results": [{"source_call_id": call, "content": f"of {call}"}]}
        used = {"source": "agent", "message": text, "metrics": metered[number]}
        return {**used, **({"tool_calls": made, "observation": told} if call else {})}

    user: dict[str, object] = {"source": "user", "message": "Look."}
    steps = [user, step(0, "I look."), step(0, "", "a"), step(0, "", "b"), step(1, "Seen."), user, step(1, "Again.")]
    numbered = [each | {"step_id": number} for number, each in enumerate(steps, 1)]
    document = {"schema_version": "ATIF-v1.2", "agent": {"model_name": "claude-haiku-4-5"}, "steps": numbered}
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(document))
    recording = read_file(path)
    assert said(recording) == [
        "user: Look.",
        'assistant: I look. Read({"path":"a"})=a Read({"path":"b"})=b',
        "user: a->of a",
        "user: b->of b",
        "assistant: Seen.",
        "user: Look.",
        "assistant: Again.",
    ]
    used = [message.usage for message in recording.messages if message.usage is not None]
    assert [(each.input_tokens, each.cache_read_tokens, each.cache_write_tokens) for each in used] == [
        (100, 50, 40), (130, 100, 30), (130, 100, 30),
    ]  # fmt: skip
