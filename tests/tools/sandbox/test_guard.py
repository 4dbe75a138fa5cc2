"""What is put back is put back where it was: not where a program, still running, leads meanwhile."""

import ctypes
import os
import threading
import time
from pathlib import Path

import pytest

from tests.tools.world import tree
from tui_agent.tools.sandbox.guard import Guard, contents

LIBC = ctypes.CDLL(None, use_errno=True)
EXCHANGE, AT_FDCWD = 2, -100


def test_a_tree_comes_back_byte_for_byte(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".vscode" / "deep").mkdir(parents=True)
    (project / ".vscode" / "deep" / "a.json").write_text("{}")
    (project / ".vscode" / "deep" / "a.json").chmod(0o750)
    (project / ".vscode" / "link").symlink_to("/etc/passwd")
    (project / ".envrc").write_text("x\n")
    os.utime(project / ".vscode" / "deep", (5, 5))
    before = tree(project / ".vscode")
    guard = Guard([project / ".vscode", project / ".envrc", project / ".mcp.json"], [project], frozen=False)
    (project / ".vscode").rename(project / "gone")
    (project / "gone" / "deep" / "a.json").write_text("evil")
    (project / ".envrc").unlink()
    (project / ".mcp.json").mkdir()
    aside = tmp_path / "aside"
    assert sorted(path.name for path in guard.take_back(aside, {})) == [".envrc", ".mcp.json", ".vscode"]
    assert tree(project / ".vscode") == before
    assert (project / ".envrc").read_text() == "x\n"
    assert (aside / ".mcp.json").is_dir()
    assert guard.take_back(aside, {}) == []


def test_what_is_noted_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("x")
    (tmp_path / "link").symlink_to("real")
    assert contents(tmp_path / "link" / "file") == {}
    found = contents(tmp_path / "link")
    assert found is not None
    assert found["."].content == "real"


def test_a_new_link_on_the_way_is_taken_out_and_an_old_one_stays(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / ".config").symlink_to("old")
    guarded = [tmp_path / ".github" / "workflows", tmp_path / ".config" / "git"]
    guard = Guard(guarded, [tmp_path], frozen=False)
    (tmp_path / "evil").mkdir()
    (tmp_path / ".github").symlink_to("evil")
    assert guard.take_back(tmp_path / "aside", {}) == [tmp_path / ".github"]
    assert not os.path.lexists(tmp_path / ".github")
    assert (tmp_path / ".config").is_symlink()


@pytest.mark.skipif(not hasattr(LIBC, "renameat2"), reason="it cannot be exchanged at once here")
def test_a_link_in_the_way_leads_nowhere(tmp_path: Path) -> None:
    """A program left running makes the folder above what is guarded now a folder, now a link to the outside."""
    outside, project = tmp_path / "outside", tmp_path / "project"
    (outside / "workflows").mkdir(parents=True)
    (outside / "workflows" / "precious.yml").write_text("mine\n")
    project.mkdir()
    guard = Guard([project / ".github" / "workflows"], [project], frozen=False)
    (project / ".github").mkdir()
    (project / "link").symlink_to(outside)
    before, over = tree(outside), False

    def swap() -> None:
        while not over:
            LIBC.renameat2(AT_FDCWD, bytes(project / ".github"), AT_FDCWD, bytes(project / "link"), EXCHANGE)

    other = threading.Thread(target=swap)
    other.start()
    try:
        end = time.monotonic() + 0.3
        while time.monotonic() < end and tree(outside) == before:
            for number in range(20):
                guard.take_back(tmp_path / "aside" / str(number), {})
    finally:
        over = True
        other.join()
    assert tree(outside) == before
