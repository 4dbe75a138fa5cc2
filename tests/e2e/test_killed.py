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

STARTS = {"command": "setsid sleep 600 & sleep 601 & wait", "background": True}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("provider", list(MODELS))
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
