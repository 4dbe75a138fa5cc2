"""What a command did to guarded files while which the program was killed is undone at a later start."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tui_agent.tools.sandbox.guard import Guard
from tui_agent.tools.sandbox.guarded import Finder
from tui_agent.tools.sandbox.held_by_git import Held
from tui_agent.tools.sandbox.interrupted import Journal, restore_interrupted
from tui_agent.tools.sandbox.sandbox import JOURNALS, Sandbox, SandboxFolders

PROGRAM = """
import os, subprocess, sys
from pathlib import Path
from tui_agent.tools.sandbox.sandbox import Sandbox, SandboxFolders, SandboxMechanism

place = Path(sys.argv[1])
project = place / "project"
places = SandboxFolders(folders=(project,), project=project, program=place, session=place, home=place)
sandbox = Sandbox("auto", places, offered=SandboxMechanism("landlock", ""))
ended, runs, allowed = sandbox.guard(), sandbox.guard(), sandbox.guard(confines=False)
(project / "in/.vscode").mkdir()
(project / "in/allowed").mkdir()
(project / "in/allowed/.envrc").write_text("allowed")
sandbox.accept(allowed, [str(project / "in/allowed/.envrc")])
(project / "in/.envrc").write_text("evil")
subprocess.run(["git", "add", "in/.envrc"], cwd=project, check=True)
sandbox._journal.write(ended=ended)
os.kill(os.getpid(), 9)
"""


def test_what_was_noted_before_a_kill_is_put_back_and_what_git_has_is_named(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "in").mkdir(parents=True)
    (project / "in" / ".envrc").write_text("mine")
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    ended = subprocess.run([sys.executable, "-c", PROGRAM, tmp_path], check=False)
    assert ended.returncode == -signal.SIGKILL
    withheld = tmp_path / "withheld" / "killed"
    put_back, left = restore_interrupted(tmp_path / JOURNALS)
    assert f"Put back: {project}/in/.vscode, {project}/in/.envrc; see {withheld}" in put_back
    assert f"Left to git: in/.envrc is another one in the index of {project}/.git" in left
    places = SandboxFolders(folders=(project,), project=project, program=tmp_path, session=tmp_path, home=tmp_path)
    assert [change.title in left for change in Sandbox("auto", places).held] == [True]
    assert (project / "in" / ".envrc").read_text() == "mine"
    assert (withheld / ".envrc").read_text() == "evil"
    assert (project / "in" / "allowed" / ".envrc").read_text() == "allowed"
    assert restore_interrupted(tmp_path / JOURNALS) == []
    assert list((tmp_path / JOURNALS).iterdir()) == []


def test_what_runs_or_has_ended_is_left_alone(tmp_path: Path) -> None:
    running, project = tmp_path / "running", tmp_path / "project"
    project.mkdir()
    guard = Guard(Finder(Path("/no/home")), [project], frozen=False)
    journal = Journal(running, tmp_path, Held(tmp_path))
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
