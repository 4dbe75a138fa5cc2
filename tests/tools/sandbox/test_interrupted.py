"""What a command did to guarded files while which the program was killed is undone at a later start."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tui_agent.tools.sandbox.guard import Guard
from tui_agent.tools.sandbox.guarded import Finder
from tui_agent.tools.sandbox.interrupted import Journal, restore_interrupted

PROGRAM = """
import os, sys
from pathlib import Path
from tui_agent.tools.sandbox.guard import Guard, contents
from tui_agent.tools.sandbox.guarded import Finder
from tui_agent.tools.sandbox.interrupted import Journal

place = Path(sys.argv[1])
project = place / "project"
journal = Journal(place / "running", place / "withheld")
guards = [Guard(Finder(Path("/no/home")), [project], frozen=True) for _ in range(2)]
for guard in guards:
    journal.write(begun=guard)
(project / "in/.envrc").write_text("evil")
(project / "in/.vscode").mkdir()
(project / "in/allowed").mkdir()
(project / "in/allowed/.envrc").write_text("allowed")
for guard in journal.running:
    guard.accept({str(project / "in/allowed/.envrc"): contents(project / "in/allowed/.envrc")})
journal.write(ended=guards[0])
os.kill(os.getpid(), 9)
"""


def test_what_was_noted_before_a_kill_is_put_back(tmp_path: Path) -> None:
    (tmp_path / "project" / "in").mkdir(parents=True)
    (tmp_path / "project" / "in" / ".envrc").write_text("mine")
    ended = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], check=False)
    assert ended.returncode == -signal.SIGKILL
    (told,) = restore_interrupted(tmp_path / "running")
    assert f"Put back: {tmp_path}/project/in/.vscode, {tmp_path}/project/in/.envrc; see {tmp_path}/withheld" in told
    assert (tmp_path / "project" / "in" / ".envrc").read_text() == "mine"
    assert (tmp_path / "withheld" / ".envrc").read_text() == "evil"
    assert (tmp_path / "project" / "in" / "allowed" / ".envrc").read_text() == "allowed"
    assert restore_interrupted(tmp_path / "running") == []
    assert list((tmp_path / "running").iterdir()) == []


def test_what_runs_or_has_ended_is_left_alone(tmp_path: Path) -> None:
    running, project = tmp_path / "running", tmp_path / "project"
    project.mkdir()
    guard, journal = Guard(Finder(Path("/no/home")), [project], frozen=False), Journal(running, tmp_path / "w")
    journal.write()
    assert restore_interrupted(running) == []
    journal.write(begun=guard)
    (project / ".envrc").write_text("x")
    assert restore_interrupted(running) == []
    journal.write(ended=guard)
    journal.close()
    assert restore_interrupted(running) == []
    assert (project / ".envrc").exists()
    assert list(running.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x04K\x01."])
def test_a_damaged_journal_stops_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "1-0").write_bytes(data)
    assert len(restore_interrupted(tmp_path)) == bool(data)
    assert list(tmp_path.iterdir()) == []
