"""Servers of tools with the real command: one-shot mode waits for them, and nothing outlives a killed program."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.servers.gemini import GeminiServer
from tests.servers.running import in_thread
from tests.servers.script import Call, Script, Step
from tests.tools.mcp.connecting import faulty

if sys.platform != "linux":
    pytest.skip("looks at processes as Linux has them", allow_module_level=True)


def command(tmp_path: Path, *arguments: str) -> list[str]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    server = faulty()
    served = {"command": server.command, "args": list(server.args)}
    settings = {"mcp": {"servers": {"test": served}, "start_seconds": 300}, "permissions": {"mode": "allow"}}
    (home / "config.json").write_text(json.dumps(settings))
    return [sys.executable, "-m", "tui_agent", "--model", "gemini-3.8-flash", *arguments]


def through(name: str) -> Step:
    return Step(calls=(Call("call_tool", {"name": f"mcp__test__{name}", "arguments": {"text": "heard"}}),))


def test_one_shot_mode_has_the_tools_of_a_server_that_nobody_knew(tmp_path: Path) -> None:
    finding = Step(calls=(Call("find_tool", {"query": "say the same again"}),))
    with in_thread(GeminiServer(Script.of(finding, through("echo"), Step(text="done")))) as server:
        environment = {**os.environ, **server.environment, "TUI_AGENT_HOME": str(tmp_path / "home")}
        arguments = command(tmp_path, "-p", "go", "--set", "mcp.whole_share=0")
        done = subprocess.run(
            arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        newest = json.dumps(server.model_requests[-1].json)
    assert done.returncode == 0, done.stderr
    assert "mcp__test__echo" in newest
    assert "heard" in newest


def test_no_server_outlives_a_program_that_was_killed(tmp_path: Path) -> None:
    with in_thread(GeminiServer(Script.of(through("orphan"), through("wait")))) as server:
        environment = {**os.environ, **server.environment, "TUI_AGENT_HOME": str(tmp_path / "home")}
        arguments = command(tmp_path, "-p", "go", "--output-format", "stream-json")
        with subprocess.Popen(arguments, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as program:
            try:
                assert program.stdout is not None
                orphan = next(json.loads(line)["text"] for line in program.stdout if b'"tool_finished"' in line)
                assert any(b"half-hearted" in line for line in program.stdout)
                family = [psutil.Process(int(orphan)), *psutil.Process(program.pid).children(recursive=True)]
            finally:
                program.send_signal(signal.SIGKILL)
    assert len(family) >= 4, "what the server has left, the launcher, a keeper and the server"
    assert not psutil.wait_procs(family, timeout=60)[1]
