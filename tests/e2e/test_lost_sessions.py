"""Sessions that are damaged, lost, or of a folder with an odd name, met through the real command."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.program import Program


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
