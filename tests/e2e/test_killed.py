"""The program is killed outright (`kill -9`) while commands run: none of them goes on."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.program import MODELS, Program
from tests.e2e.test_hangup import PATIENCE_S, are_gone, sleepers, until
from tests.servers.coding_task import PROMPT
from tests.servers.running import in_process
from tests.servers.script import Call, Script, Step
from tui_agent.tools.sandbox.sandbox import mechanism

STARTS = {"command": "setsid sleep 600 & sleep 601 & wait", "background": True}


@pytest.mark.parametrize(
    ("provider", "number"),
    [
        ("anthropic", signal.SIGKILL),
        ("gemini", signal.SIGTERM),
        pytest.param("anthropic", signal.SIGTERM, marks=pytest.mark.soak),
        pytest.param("gemini", signal.SIGKILL, marks=pytest.mark.soak),
    ],
)
def test_background_commands_end_with_the_program(tmp_path: Path, provider: str, number: signal.Signals) -> None:
    script = Script.of(
        Step(calls=(Call("run_command", STARTS),)), Step(calls=(Call("run_command", {"command": "sleep 602"}),))
    )
    with in_process(provider, tmp_path, script) as server:
        program = Program.in_folder(tmp_path, server.environment)
        running = program.start("-p", PROMPT, "--model", MODELS[provider], "--yolo")
        until(lambda: len(sleepers(running.pid)) == 3)
        left = sleepers(running.pid)
        os.kill(running.pid, number)
        running.communicate(timeout=PATIENCE_S)
    until(lambda: are_gone(left))


@pytest.mark.skipif(mechanism().kind == "none", reason=mechanism().detail)
def test_temporary_folders_of_a_killed_program_go_at_a_later_start(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    program = Program.in_folder(tmp_path, {"TMPDIR": str(there)})
    running = program.start("-p", "run sleep 603", "--model", "offline")
    until(lambda: bool(sleepers(running.pid)))
    left = sleepers(running.pid)
    (own,) = there.glob("tui-agent-*")
    kept = there / "tui-agent-of-something-else"
    kept.mkdir()
    os.kill(running.pid, signal.SIGKILL)
    running.communicate(timeout=PATIENCE_S)
    until(lambda: are_gone(left))
    assert own.exists()
    again = program.start("-p", "run sleep 604", "--model", "offline")
    until(lambda: not own.exists())
    until(lambda: bool(sleepers(again.pid)))
    # That of a program that runs stays, whatever else starts.
    (own,) = set(there.glob("tui-agent-*")) - {kept}
    assert program.run("-p", "run true", "--model", "offline").returncode == 0
    assert own.exists()
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=PATIENCE_S)
    until(lambda: list(there.glob("tui-agent-*")) == [kept])
