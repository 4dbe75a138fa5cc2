"""What goes wrong is said in one clear line, with the right exit code, and nothing is lost: sessions least of all."""

import json
import os
import re
import resource
import subprocess
import sys
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


def session_of(program: Program) -> Path:
    (folder,) = (program.home / "sessions").iterdir()
    return folder


@pytest.fixture
def talked(tmp_path: Path) -> Program:
    """A home with one session of one turn."""
    program = Program.in_folder(tmp_path, {"TUI_AGENT_OFFLINE_DELAY_S": "0"})
    assert program.ask("-p", "hello", "--model", "offline")["exit"] == 0
    return program


def test_a_session_without_its_log_is_named_with_what_to_do(talked: Program) -> None:
    folder = session_of(talked)
    log = folder / "checkpoints.sqlite"
    log.write_bytes(b"")
    for asked in (["-c"], ["-r", folder.name]):
        done = talked.run("-p", "go on", *asked)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"Session {folder.name} cannot be read: its log (checkpoints.sqlite) is missing." in done.stderr
        assert f"kept in {folder}: " in done.stderr
        assert f"tui-agent trace {folder.name}" in done.stderr
        assert "hello" in talked.run("trace", folder.name).stdout
        log.unlink(missing_ok=True)


def test_a_session_cut_short_goes_on_and_says_what_was_saved(talked: Program) -> None:
    for prompt in ("list .", "hello again", "list ."):
        talked.ask("-p", prompt, "-c")
    log = session_of(talked) / "checkpoints.sqlite"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])
    done = talked.run("-p", "go on", "-c", "--model", "offline")
    assert done.returncode == 0, done.stderr
    assert "The log of this session was damaged" in done.stderr
    assert "checkpoints.sqlite.damaged-" in done.stderr
    again = talked.run("-p", "go on", "-c", "--model", "offline")
    assert (again.returncode, again.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems keep file names as text")
def test_a_folder_whose_name_is_no_utf_8_has_sessions_as_any_other(tmp_path: Path) -> None:
    project = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    project.mkdir()
    (project / "AGENTS.md").write_text("Be brief.")
    program = Program(project / "home", project, {"TUI_AGENT_OFFLINE_DELAY_S": "0"})
    program.home.mkdir()
    first = program.ask("-p", "hello", "--model", "offline", "--trust")
    second = program.ask("-p", "run pwd", "-c", "--ask", "allow")
    assert (first["exit"], second["exit"], second["session_id"]) == (0, 0, first["session_id"])
    (listed,) = program.run("sessions", "--json").stdout.splitlines()
    assert json.loads(listed)["cwd"].endswith("caf\\xe9")
    checked = program.run("trace", first["session_id"], "--verify")
    assert checked.returncode == 0, checked.stdout
