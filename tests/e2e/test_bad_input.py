"""What goes wrong is said in one clear line, with the right exit code, and nothing is lost."""

import json
import re
import resource
import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import Program
from tests.servers.running import in_process
from tests.servers.script import Call, Script, Step

HOSTILE = "\x9b31m\x7f\x1b]0;owned\x07 [bold]not bold[/bold] \x1b[2J \u202egnp.exe \x1b[31mred"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program.in_folder(tmp_path)


def test_a_full_disk_keeps_what_was_saved(program: Program) -> None:
    first = program.ask("-p", "read calc.py", "--model", "offline")
    full = subprocess.run(
        [*program.command, "-c", "-p", "--output-format", "json"],
        cwd=program.project,
        env=program.environment,
        input="x " * 1_000_000,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000)),
        check=False,
    )
    answer = json.loads(full.stdout)
    assert full.returncode == 1
    assert answer["error"]["kind"] == "disk_full"
    assert "Traceback" not in full.stderr
    again = program.ask("-c", "-p", "read test_calc.py")
    assert (again["exit"], again["session_id"]) == (0, first["session_id"])


def test_a_second_process_is_told_of_the_first(tmp_path: Path) -> None:
    script = Script.of(Step(text="slowly " * 200, delay=1.0))
    with in_process("anthropic", tmp_path, script) as server:
        program = Program.in_folder(tmp_path, server.environment)
        first = program.start("-p", "go", "--model", "claude-opus-5-5", "--output-format", "stream-json")
        try:
            assert first.stdout is not None
            session = json.loads(first.stdout.readline())["session_id"]
            second = program.run("-r", session, "-p", "hello")
        finally:
            first.kill()
            first.communicate()
        assert second.returncode == 2
        assert str(first.pid) in second.stderr


def test_a_binary_file_and_invalid_text_are_handled(program: Program) -> None:
    (program.project / "data.bin").write_bytes(bytes(range(256)) * 20)
    assert "binary" in program.ask("-p", "read data.bin", "--model", "offline")["result"]
    done = subprocess.run(
        [*program.command, "-p", "-", "--model", "offline"],
        cwd=program.project,
        env=program.environment,
        input=b"read calc.py \xff\xed\xa0\x80",
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert b"not valid UTF-8" in done.stderr


def test_hostile_text_from_a_model_and_a_tool_breaks_nothing(tmp_path: Path) -> None:
    script = Script.of(
        Step(
            text=HOSTILE, reasoning=HOSTILE, calls=(Call("read_file", {"path": "evil.txt"}), Call("no_such", {"a": 1}))
        ),
        Step(text=HOSTILE),
    )
    with in_process("gemini", tmp_path, script) as server:
        program = Program.in_folder(tmp_path, server.environment)
        (program.project / "evil.txt").write_bytes(HOSTILE.encode() + b"\xff\xfe\xed\xa0\x80")
        answer = program.ask("-p", "go", "--model", "gemini-3.1-pro-preview")
        again = program.ask("-c", "-p", "and again")
        assert (answer["exit"], again["exit"]) == (0, 0)
        assert again["result"] == HOSTILE
        for form in ("text", "json", "stream-json"):
            # Whatever the output goes to, a terminal may show it at last.
            printed = program.run("-c", "-p", "once more", "--output-format", form).stdout
            assert "not bold" in printed
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", printed)
        assert server.violations == []
