from pathlib import Path

import pytest

from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import identity, open_file, open_folder, write_atomically
from tui_agent.tools.threads import Cancellation, ThreadCancelled


@pytest.fixture
def swapped(tmp_path: Path) -> Path:
    """A path that was resolved before one of its folders was replaced by a link to another place."""
    for name in ("inside", "outside"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "f").write_text(name)
    (tmp_path / "inside").rename(tmp_path / "away")
    (tmp_path / "inside").symlink_to("outside")
    return tmp_path / "inside" / "sub" / "f"


def test_no_link_is_followed_to_what_is_opened(swapped: Path) -> None:
    with pytest.raises(ToolFailure), open_file(swapped):
        pytest.fail("it was opened")
    with pytest.raises(ToolFailure), open_folder(swapped.parent):
        pytest.fail("it was opened")
    with pytest.raises(ToolFailure), open_folder(swapped.parent.parent):
        pytest.fail("it was opened")
    for path in (swapped, swapped.parent / "new", swapped.parent / "new" / "deeper"):
        with pytest.raises(ToolFailure):
            write_atomically(path, b"x", Cancellation())
    outside = swapped.parent.parent.parent / "outside"
    assert [path.name for path in outside.rglob("*")] == ["sub", "f"]
    assert (outside / "sub" / "f").read_text() == "outside"


def test_a_file_swapped_for_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "f").symlink_to("secret")
    with pytest.raises(ToolFailure, match="link"), open_file(tmp_path / "f"):
        pytest.fail("it was opened")
    with pytest.raises(ToolFailure, match="link"):
        write_atomically(tmp_path / "f", b"x", Cancellation())
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_file_changed_by_someone_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("one")
    with open_file(path) as stream:
        before = identity(stream)
    path.write_text("by someone else")
    with pytest.raises(ToolFailure, match="changed by someone else"):
        write_atomically(path, b"mine", Cancellation(), expected=before)
    assert path.read_text() == "by someone else"


def test_a_stopped_write_changes_nothing(tmp_path: Path) -> None:
    stop = Cancellation()
    stop.set()
    with pytest.raises(ThreadCancelled):
        write_atomically(tmp_path / "f", b"x", stop)
    assert list(tmp_path.iterdir()) == []


def test_the_top_folder_can_be_opened() -> None:
    with open_folder(Path("/")) as descriptor:
        assert descriptor > 0
