import os
import subprocess
from hashlib import sha1
from pathlib import Path

import pytest

from tests.tools.support import call
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import (
    clear_leftovers,
    open_file,
    open_folder,
    temporary_name,
    write_atomically,
)
from tui_agent.tools.files.git_index import GitIndex
from tui_agent.tools.files.reading import ListDir
from tui_agent.tools.threads import Cancellation


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


def _index(entries: list[bytes], version: int, more: bytes = b"") -> bytes:
    body = b"DIRC" + version.to_bytes(4, "big") + len(entries).to_bytes(4, "big") + b"".join(entries) + more
    return body + sha1(body, usedforsecurity=False).digest()


def _indexed(name: bytes, *, mode: int = 0o100644, flags: int = 0, version: int = 2, dropped: bytes = b"\0") -> bytes:
    entry = bytes(24) + mode.to_bytes(4, "big") + bytes(12) + b"\xab" * 20 + flags.to_bytes(2, "big")
    entry += b"\0\0" if flags & 0x4000 else b""
    if version == 4:
        return entry + dropped + name + b"\0"
    return (entry + name).ljust((len(entry) + len(name) + 8) & ~7, b"\0")


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (_index([_indexed(b"a"), _indexed(b"sub/bc")], 2), ["a", "sub/bc"]),
        (_index([_indexed(b"a", flags=0x4000), _indexed(b"1234567"), _indexed(b"z")], 3), ["a", "1234567", "z"]),
        (_index([_indexed(b"sub/a", version=4), _indexed(b"b", version=4, dropped=b"\x01")], 4), ["sub/a", "sub/b"]),
        (
            _index([_indexed(b"x" * 300, version=4), _indexed(b"b", version=4, dropped=b"\x81\x2c")], 4),
            ["x" * 300, "b"],
        ),
        (_index([_indexed(b"a", mode=0o120000), _indexed(b"b", flags=0x2000), _indexed(b"c", flags=0x1000)], 2), []),
        (_index([_indexed(b"a")], 5), []),
        (_index([_indexed(b"a")], 1), []),
        (_index([_indexed(b"a")], 2)[:-1] + b"x", []),
        (_index([_indexed(b"a")], 2)[:-20] + bytes(20), ["a"]),  # written without a checksum
        (_index([_indexed(b"a")], 2).replace(b"DIRC", b"DIRK")[:-20] + bytes(20), []),
        (b"", []),
    ],
)
def test_gits_index_is_read_in_its_three_versions(content: bytes, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "sub/.git").mkdir(parents=True)
    (tmp_path / "sub/.git/index").write_bytes(content)
    assert GitIndex(tmp_path / "sub").names() == dict.fromkeys(names, "ab" * 20)
    (tmp_path / "linked/deep").mkdir(parents=True)
    (tmp_path / "linked/.git").write_text("gitdir: ../sub/.git\n")
    assert list(GitIndex(tmp_path / "linked").names()) == names
    (tmp_path / "linked/sub").mkdir()
    below = [name.removeprefix("sub/") for name in names if name.startswith("sub/")]
    assert list(GitIndex(tmp_path / "linked/sub").names()) == below
    (tmp_path / "linked/.git").write_text("elsewhere: ../sub/.git\n")
    assert GitIndex(tmp_path / "linked").names() == {}


def test_a_temporary_file_is_cleared_once_its_process_has_ended(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    path, other = tmp_path / "a", tmp_path / "b"
    mine = temporary_name(path)
    left = mine.replace(f"-{os.getpid()}-", f"-{gone.pid}-")
    kept = [mine, temporary_name(other).replace(f"-{os.getpid()}-", f"-{gone.pid}-"), f"{left.rpartition('-')[0]}x-y"]
    for name in (left, *kept):
        (tmp_path / name).touch()
    clear_leftovers(path)
    assert {each.name for each in tmp_path.iterdir()} == set(kept)
    clear_leftovers(tmp_path / "nowhere/a")


async def test_a_listing_has_sizes_in_their_unit(tmp_path: Path) -> None:
    sizes = {0: "0 B", 999: "999 B", 1_000: "1.0 kB", 99_400: "99.4 kB", 99_500: "100 kB", 999_499: "999 kB"}
    sizes |= {999_500: "1.0 MB", 10**9: "1.0 GB", 10**12: "1.0 TB"}
    for size in sizes:
        (tmp_path / f"n{size}").touch()
        os.truncate(tmp_path / f"n{size}", size)
    shown = dict(line.split(maxsplit=1) for line in (await call(ListDir(), tmp_path)).text.splitlines() if "n" in line)
    assert {f"n{size}": text for size, text in sizes.items()} == {
        name: text.strip("() ") for name, text in shown.items() if name.startswith("n")
    }
