"""Restoring single files, and the plans for it, without a session around them."""

from hashlib import sha256
from pathlib import Path

import pytest

from tui_agent.conversation.entries import FileState
from tui_agent.conversation.file_changes import FilePast, FilesPast
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.put_back import GUARDED, MAX_DIFFED, OUTSIDE, FileStep, plan, put_back
from tui_agent.tools.files.states import ABSENT, look_at


def then(content: bytes) -> FileState:
    return FileState("file", 0o644, len(content), sha256(content).hexdigest())


@pytest.mark.parametrize("content", [b"earlier\n", None])
def test_a_file_that_changes_at_the_last_moment_stays(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "a.txt"
    file.write_text("as it was planned\n")
    target = ABSENT if content is None else then(content)
    step = FileStep(str(file), "a.txt", "restore", look_at(file, 0).state, target)
    file.write_text("mine\n")
    with pytest.raises(ToolFailure, match="changed by somebody else just now"):
        put_back(step, content or b"")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "mine\n")]


def test_of_the_folders_that_were_made_those_go_that_hold_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "one/two/three/a.txt"
    file.parent.mkdir(parents=True)
    file.touch()
    (tmp_path / "one/b.txt").touch()
    put_back(FileStep(str(file), "a.txt", "remove", look_at(file, 0).state, ABSENT, made=3), b"")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["one", "one/b.txt"]


def test_a_log_that_names_a_file_out_of_the_folders_in_any_way_restores_none(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    named = (root / "../a.txt", tmp_path / "a.txt", root / "a\0", root / ".git/config")
    past = FilesPast(tuple(FilePast(str(place), then(b"x"), (ABSENT,)) for place in named))
    found = plan(1, past, [root], lambda _: b"x")
    assert (found.steps, [why for _, why in found.impossible]) == ((), [OUTSIDE, OUTSIDE, OUTSIDE, GUARDED])


@pytest.mark.parametrize("content", [b"\xe9t\xe9\n", b"a\0b", b"x" * (MAX_DIFFED + 1)])
def test_what_is_no_text_or_too_large_has_no_diff(tmp_path: Path, content: bytes) -> None:
    file, link = tmp_path / "a", tmp_path / "link"
    file.write_text("text\n")
    file.chmod(0o644)
    link.symlink_to("elsewhere")
    past = FilesPast(tuple(FilePast(str(place), then(content), (look_at(place, 0).state,)) for place in (file, link)))
    of_file, of_link = plan(1, past, [tmp_path], lambda _: content).ours
    size = f"{len(content):,} then"
    assert of_file.diff == f"--- a\n+++ a\nIts content is not text, or large: 5 bytes now, {size}."
    assert of_link.diff == f"--- link\n+++ link\nIts content is not text, or large: 9 bytes now, {size}."
