"""The same coding task through each provider's real SDK, and offline on the screen: read, search, edit, run, answer."""

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.program import WITH_LOCAL, Program, asked, without_cache_marks
from tests.servers.coding_task import ANSWER, FIXED_CALC, PROMPT, coding_task_script, make_coding_workspace
from tests.servers.running import in_process
from tests.tui.app.test_terminal_app import Terminal


@pytest.mark.parametrize("provider", WITH_LOCAL)
def test_the_task_is_done_and_after_a_restart_the_request_begins_with_the_same_bytes(
    provider: str, tmp_path: Path
) -> None:
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
    assert first["result"].strip() == ANSWER.strip()
    assert (program.project / "calc.py").read_text() == FIXED_CALC
    assert (first["turns"], first["is_error"], first["stop_reason"]) == (5, False, "end_turn")
    assert first["usage"]["input_tokens"] > 0
    assert (first["cost_usd"] > 0) == (provider != "ollama")
    assert set(first["context"]) == {
        *("tokens", "window", "percent", "evicted", "cleared", "digested", "compactions", "checkpoints")
    }
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


OFFLINE_PROMPT = (
    "read calc.py, find 'return a' in ., replace 'return a - b' with 'return a + b' in calc.py, run python test_calc.py"
)
SETTINGS = ("--model", "offline", "--ask", "auto", "--set", "permissions.unasked=known")


def test_the_task_is_done_on_screen(tmp_path: Path) -> None:
    project = make_coding_workspace(tmp_path / "project")
    environment = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with closing(
        Terminal(project, tmp_path / "home", *SETTINGS, environment=environment, rows=40, columns=120)
    ) as terminal:
        terminal.shows("ready")
        terminal.process.send(f"{OFFLINE_PROMPT}\r")
        terminal.shows("Allow this?")
        terminal.shows("python test_calc.py")
        # The question says how it is answered once it listens.
        terminal.shows("Esc stops the turn")
        terminal.process.send("1")
        terminal.shows("2 tests passed")
        terminal.until(lambda: "ready" in terminal.text)
        terminal.process.send("\x04")
        assert terminal.ends() == 0
    assert (project / "calc.py").read_text() == FIXED_CALC
