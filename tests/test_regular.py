"""Reading regular files within limits."""

import io
import os
import tracemalloc
from pathlib import Path

import pytest

from tui_agent.system.regular import PIECE, read_at_most, read_bytes


def test_a_limit_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "small"
    file.write_bytes(b"a few bytes")
    tracemalloc.start()
    try:
        with file.open("rb") as stream:
            assert read_at_most(stream, 50_000_000) == b"a few bytes"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * PIECE


@pytest.mark.parametrize("most", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 7, 4 * PIECE])
def test_no_more_than_the_limit_is_read(most: int) -> None:
    content = bytes(range(256)) * (3 * PIECE // 256) + b"the end"
    stream = io.BytesIO(content)
    assert read_at_most(stream, most) == content[:most]
    assert stream.read() == content[most:]


def test_a_file_of_just_the_limit_is_read_and_a_longer_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * (PIECE + 1))
    assert len(read_bytes(file, PIECE + 1)) == PIECE + 1
    with pytest.raises(OSError, match="larger"):
        read_bytes(file, PIECE)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux has it")
def test_what_is_no_file_is_refused_and_does_not_stay_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(OSError, match="not a regular file"):
            read_bytes(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
