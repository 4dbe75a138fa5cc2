"""Contents of files, kept for putting back: within their room, and whatever happens to the folder."""

from hashlib import sha256
from pathlib import Path

import pytest

from tui_agent.storage.kept_files import GONE, KEPT_FOLDER, NO_ROOM, KeptFiles, kept_path


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


def test_what_is_kept_is_read_back_unless_it_is_gone_or_changed(tmp_path: Path) -> None:
    kept = KeptFiles(tmp_path, 100)
    assert kept.keep(b"one") == ""
    assert kept.read(digest(b"one")) == b"one"
    (tmp_path / kept_path(digest(b"one"))).write_bytes(b"other")
    assert kept.read(digest(b"one")) is None
    assert kept.read(digest(b"two")) is None


@pytest.mark.parametrize(("content", "room", "why"), [(b"1234", 4, ""), (b"12345", 4, NO_ROOM)])
def test_no_more_is_kept_than_there_is_room_for(tmp_path: Path, content: bytes, room: int, why: str) -> None:
    assert KeptFiles(tmp_path / "a", room).keep(content) == why
    stashing = KeptFiles(tmp_path / "b", room)
    assert stashing.stash(content, digest(content)) == why
    assert stashing.keep_stashed(digest(content)) == (GONE if why else "")
    again = KeptFiles(tmp_path / "a", room)
    assert again.keep(b"more") == (NO_ROOM if not why else "")
    assert again.keep(content) == why
    stashing.close()
    assert stashing.keep_stashed(digest(b"never")) == GONE


def test_where_nothing_can_be_written_the_reason_is_told(tmp_path: Path) -> None:
    (tmp_path / "session").write_text("a file where a folder should be")
    kept = KeptFiles(tmp_path / "session", 100)
    assert kept.keep(b"one").startswith("it could not be kept (")
    assert kept.stash(b"one", digest(b"one")).startswith("it could not be kept (")


def test_what_nothing_refers_to_is_removed(tmp_path: Path) -> None:
    kept = KeptFiles(tmp_path, 6)
    kept.remove_unreferenced([])
    for content in (b"one", b"two"):
        assert kept.keep(content) == ""
    kept.remove_unreferenced([digest(b"one")])
    assert (kept.read(digest(b"one")), kept.read(digest(b"two"))) == (b"one", None)
    assert kept.keep(b"six") == "", "what was removed makes room"
    kept.remove_unreferenced([])
    assert not (tmp_path / KEPT_FOLDER).exists()
