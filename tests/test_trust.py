"""Remembering which projects the user trusts."""

import os
import stat
from pathlib import Path

import pytest

from tui_agent.trust import TrustError, asks_for_trust, forget, is_trusted, project_root, trust


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "inner" / "deep").mkdir(parents=True)
    return root


def test_nothing_is_trusted_at_first(home: Path, repository: Path) -> None:
    assert not is_trusted(repository, home)
    assert not home.exists()


def test_trust_covers_the_whole_repository_and_lasts(home: Path, repository: Path) -> None:
    assert trust(repository / "inner", home) == repository
    assert is_trusted(repository, home)
    assert is_trusted(repository / "inner" / "deep", home)
    assert not is_trusted(repository.parent, home)


def test_a_nested_repository_is_asked_about_separately(home: Path, repository: Path) -> None:
    trust(repository, home)
    (repository / "inner" / ".git").write_text("gitdir: elsewhere\n")
    assert not is_trusted(repository / "inner" / "deep", home)


def test_without_a_repository_only_the_very_folder_is_trusted(home: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    (plain / "below").mkdir(parents=True)
    trust(plain, home)
    assert is_trusted(plain, home)
    assert not is_trusted(plain / "below", home)


def test_a_link_stands_for_what_it_points_to(home: Path, repository: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(repository)
    trust(link, home)
    assert is_trusted(repository, home)
    other = tmp_path / "other"
    other.mkdir()
    link.unlink()
    link.symlink_to(other)
    assert not is_trusted(link, home)


def test_the_list_is_private_and_whole(home: Path, repository: Path, tmp_path: Path) -> None:
    trust(repository, home)
    trust(tmp_path / "other", home)
    assert stat.S_IMODE((home / "trusted.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert [path.name for path in home.iterdir()] == ["trusted.json"]
    assert is_trusted(repository, home)


def test_forgetting(home: Path, repository: Path, tmp_path: Path) -> None:
    trust(repository, home)
    trust(tmp_path, home)
    forget(repository / "inner", home)
    assert not is_trusted(repository, home)
    assert is_trusted(tmp_path, home)


def test_a_folder_whose_name_is_not_utf8(home: Path, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff"))
    odd.mkdir()
    trust(odd, home)
    assert is_trusted(odd, home)


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b'{"folders": []}', b'{"folders": {"/": 1}}', b"\xff\xfe", b"[" * 99_999]
)
def test_a_damaged_list_trusts_nothing_and_is_never_overwritten(home: Path, repository: Path, damage: bytes) -> None:
    home.mkdir()
    (home / "trusted.json").write_bytes(damage)
    with pytest.raises(TrustError, match=r"trusted\.json: damaged"):
        is_trusted(repository, home)
    with pytest.raises(TrustError):
        trust(repository, home)
    assert (home / "trusted.json").read_bytes() == damage


def test_a_list_that_cannot_be_written_says_so(tmp_path: Path, repository: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(TrustError, match="cannot be"):
        trust(repository, blocked)


def test_what_is_asked_about(repository: Path) -> None:
    assert not asks_for_trust(repository / "inner")
    (repository / "inner" / "deep" / "AGENTS.md").write_text("Be kind.\n")
    assert not asks_for_trust(repository / "inner")
    assert asks_for_trust(repository / "inner" / "deep")
    (repository / ".agents").symlink_to("nowhere")
    assert asks_for_trust(repository / "inner")


def test_the_root_of_a_plain_folder_is_itself(tmp_path: Path) -> None:
    assert project_root(tmp_path / "absent") == tmp_path / "absent"
