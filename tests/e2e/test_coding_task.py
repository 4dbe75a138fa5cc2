"""The same coding task through each provider's real SDK and offline: read, search, edit, run, answer."""

import asyncio
from pathlib import Path

import pytest

from tests.e2e.program import WITH_LOCAL, Program, asked, events_of, without_cache_marks
from tests.servers.coding_task import ANSWER, FIXED_CALC, PROMPT, coding_task_script
from tests.servers.running import in_process
from tui_agent.conversation.entries import Message
from tui_agent.storage.log import LogStore

OFFLINE_PROMPT = (
    "read calc.py, find 'return a' in ., replace 'return a - b' with 'return a + b' in calc.py, run python test_calc.py"
)


@pytest.mark.parametrize("provider", WITH_LOCAL)
def test_the_task_is_done_and_no_rule_broken(provider: str, tmp_path: Path) -> None:
    with in_process(provider, tmp_path, coding_task_script()) as server:
        program = Program.in_folder(tmp_path, server.environment)
        answer = program.ask("-p", PROMPT, "--model", WITH_LOCAL[provider], "--ask", "allow")
        assert server.violations == []
        assert answer["exit"] == 0, answer
        assert answer["result"].strip() == ANSWER.strip()
        assert (program.project / "calc.py").read_text() == FIXED_CALC
        assert answer["turns"] == 5
        assert answer["is_error"] is False
        assert answer["stop_reason"] == "end_turn"
        assert answer["usage"]["input_tokens"] > 0
        assert answer["cost_usd"] == 0 if provider == "ollama" else answer["cost_usd"] > 0
        assert set(answer["context"]) == {
            *("tokens", "window", "percent", "evicted", "cleared", "digested", "compactions", "checkpoints")
        }


def test_the_task_is_done_offline(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path)
    answer = program.ask("-p", OFFLINE_PROMPT, "--model", "offline", "--ask", "allow")
    assert answer["exit"] == 0, answer
    assert (program.project / "calc.py").read_text() == FIXED_CALC
    assert "2 tests passed" in answer["result"]


@pytest.mark.parametrize("provider", ["anthropic", "ollama", pytest.param("gemini", marks=pytest.mark.soak)])
def test_after_a_restart_the_request_begins_with_the_same_bytes(provider: str, tmp_path: Path) -> None:
    with in_process(provider, tmp_path, coding_task_script()) as server:
        program = Program.in_folder(tmp_path, server.environment)
        (program.project / "AGENTS.md").write_text("Always answer in verse.\n")
        model = ("--model", WITH_LOCAL[provider], "--ask", "allow", "--trust")
        first = program.ask("-p", PROMPT, *model)
        before = len(asked(server.requests))
        (program.project / "AGENTS.md").write_text("Always answer in prose.\n")
        changed = _with_other_prompts(program, tmp_path)
        second = changed.ask("-c", "-p", "And now?", "--ask", "allow")
        requests = [without_cache_marks(request.json) for request in asked(server.requests)]
        assert server.violations == []
    assert (first["exit"], second["exit"], second["session_id"]) == (0, 0, first["session_id"])
    last, resumed = requests[before - 1], requests[before]
    said = "contents" if provider == "gemini" else "messages"
    fixed = {
        "anthropic": ("system", "tools"),
        "gemini": ("systemInstruction", "tools"),
        "ollama": ("tools", "options", "think"),
    }[provider]
    assert [resumed[name] for name in fixed] == [last[name] for name in fixed]
    assert resumed[said][: len(last[said])] == last[said]
    assert "in verse" in str(resumed)
    assert "in prose" in str(resumed[said][len(last[said]) :])


def _with_other_prompts(program: Program, folder: Path) -> Program:
    """The same program after an upgrade that changed its ground rules."""
    import shutil

    package = folder / "upgraded"
    shutil.copytree(program.package / "tui_agent", package / "tui_agent")
    (package / "tui_agent" / "prompts" / "system.md").write_text("Other ground rules.\n")
    return Program(program.home, program.project, program.environ, package)


def test_stream_json_prints_one_event_a_line(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path)
    done = program.run("-p", "read calc.py", "--model", "offline", "--output-format", "stream-json")
    events = events_of(done.stdout)
    kinds = [event["type"] for event in events]
    assert len(events) == len(done.stdout.splitlines())
    assert kinds[0] == "session"
    assert kinds[-1] == "result"
    assert {"turn_started", "assistant_message", "tool_started", "tool_finished", "turn_finished"} <= set(kinds)
    assert events[-1]["session_id"] == events[0]["session_id"]


def test_what_is_in_the_log_is_what_was_said(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path)
    answer = program.ask("-p", "read calc.py", "--model", "offline")

    async def load() -> list[Message]:
        store = await LogStore.open(program.home / "sessions" / answer["session_id"])
        try:
            return [entry for entry in await store.load() if isinstance(entry, Message)]
        finally:
            await store.close()

    messages = asyncio.run(load())
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]


def test_a_call_that_needs_an_approval_ends_with_its_own_exit_code(tmp_path: Path) -> None:
    program = Program.in_folder(tmp_path)
    answer = program.ask("-p", "run python test_calc.py", "--model", "offline", "--ask", "ask")
    assert answer["exit"] == 3
    assert answer["error"]["kind"] == "needs_approval"
    assert program.ask("-c", "-p", "read calc.py")["exit"] == 0
