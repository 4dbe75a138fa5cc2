"""What was not sent is on disk, and comes back where it was written."""

import os
import time
from pathlib import Path

import pytest

from tui_agent.tui.prompt.drafts import KEPT_S, Drafts, ReturnedDrafts

HERE, ELSEWHERE = Path("/project"), Path("/another")
SESSION = "20261121-214501-ab12"
NOTHING = ReturnedDrafts("", ())
ODD = b'{"folder": "/project", "session": "", "text": 1}'


def left(home: Path, text: str, folder: Path = HERE, session: str = "") -> Drafts:
    """Of a program that is gone: the lock of its draft went with it."""
    drafts = Drafts(home, folder)
    drafts.session = session
    drafts.hold(text)
    drafts.write()
    drafts.close()
    return drafts


def test_a_draft_comes_back_once_and_in_its_folder(tmp_path: Path) -> None:
    left(tmp_path, "half a thought")
    assert Drafts(tmp_path, ELSEWHERE).bring_back() == NOTHING
    assert Drafts(tmp_path, HERE).bring_back() == ("", ("half a thought",))
    assert Drafts(tmp_path, HERE).bring_back() == NOTHING


def test_a_draft_comes_back_in_its_session_wherever_that_goes_on(tmp_path: Path) -> None:
    left(tmp_path, "half a thought", session=SESSION)
    there = Drafts(tmp_path, ELSEWHERE)
    there.session = SESSION
    assert there.bring_back() == ("half a thought", ())
    # It is this program's now, which still runs.
    again = Drafts(tmp_path, HERE)
    again.session = SESSION
    assert again.bring_back() == NOTHING
    there.close()
    assert again.bring_back() == ("half a thought", ())


def test_several_come_back_the_oldest_first_before_what_is_written_now(tmp_path: Path) -> None:
    words = ["first", "second", "third", "fourth", "fifth"]
    for age, text in enumerate(reversed(words)):
        left(tmp_path, text, session=SESSION)
        (path,) = (path for path in tmp_path.rglob("draft.json") if text in path.read_text())
        os.utime(path, (time.time() - age,) * 2)
    mine = Drafts(tmp_path, HERE)
    mine.session = SESSION
    mine.hold("now")
    assert mine.bring_back() == ("\n".join(words), ())
    assert mine.bring_back() == NOTHING
    mine.close()
    assert Drafts(tmp_path, HERE).bring_back() == ("", ("\n".join((*words, "now")),))


def test_it_is_written_where_it_has_changed_or_its_session_has(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path, HERE)
    files = list[int]()
    for drafts.session in ("", "", SESSION):
        drafts.hold("half a thought")
        drafts.write()
        (path,) = tmp_path.rglob("draft.json")
        files.append(path.stat().st_mtime_ns)
        assert SESSION in path.read_text() or not drafts.session
        os.utime(path, (1, 1))
    assert [time_ns == 1_000_000_000 for time_ns in files] == [False, True, False]
    drafts.close()


def test_nothing_stays_of_a_text_that_was_sent(tmp_path: Path) -> None:
    drafts = Drafts(tmp_path, HERE)
    for text in ("half a thought", " \n"):
        drafts.hold(text)
        drafts.write()
    assert not list(tmp_path.rglob("draft.json"))
    drafts.close()
    assert not list((tmp_path / "drafts").iterdir())


def test_it_is_private(tmp_path: Path) -> None:
    left(tmp_path, "half a thought")
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "drafts").rglob("*")} == {0}


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"folder": 1}', b"[" * 200_000, b"\xff", b'{"folder": "/project"}', ODD]
)
def test_a_damaged_one_is_none(tmp_path: Path, data: bytes) -> None:
    left(tmp_path, "half a thought")
    (path,) = tmp_path.rglob("draft.json")
    path.write_bytes(data)
    assert Drafts(tmp_path, HERE).bring_back() == NOTHING
    assert not list((tmp_path / "drafts").iterdir())


def test_one_that_nobody_came_back_for_is_given_up(tmp_path: Path) -> None:
    left(tmp_path, "half a thought")
    (path,) = tmp_path.rglob("draft.json")
    os.utime(path, (time.time() - KEPT_S - 60,) * 2)
    assert Drafts(tmp_path, HERE).bring_back() == NOTHING
    assert not list((tmp_path / "drafts").iterdir())
    left(tmp_path, "half a thought")
    (path,) = tmp_path.rglob("draft.json")
    os.utime(path, (time.time() - KEPT_S + 60,) * 2)
    assert Drafts(tmp_path, HERE).bring_back().others


def test_a_disk_that_cannot_be_written_to_keeps_nobody_from_typing(tmp_path: Path) -> None:
    (tmp_path / "drafts").write_text("in the way")
    drafts = left(tmp_path, "half a thought")
    assert drafts.bring_back() == NOTHING
