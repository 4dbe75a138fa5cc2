import base64
import os
from pathlib import Path

import pytest

from tests.tools.support import call
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.reading import MAX_IMAGE_BYTES, ListDir, ReadFile

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def test_lines_come_with_their_numbers_and_the_next_call(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\ntwo\nthree\nfour\n")
    output = await call(ReadFile(), tmp_path, path="f", offset=2, limit=2)
    assert output.text == "2\ttwo\n3\tthree\n[Lines 2-3 of 4. Continue with offset=4.]"
    assert output.summary == "lines 2-3 of 4"
    assert (await call(ReadFile(), tmp_path, path="f", offset=0, limit=1)).text.startswith("1\tone\n")
    output = await call(ReadFile(), tmp_path, path="f", offset=4)
    assert output.text == "4\tfour\n[Line 4 of 4. This is the end of the file.]"


async def test_a_negative_offset_counts_from_the_end(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("one\r\ntwo\r\nthree")
    output = await call(ReadFile(), tmp_path, path="f", offset=-2)
    assert output.text == "2\ttwo\n3\tthree\n[Lines 2-3 of 3. No newline at the end of the file. Line endings: CRLF.]"
    assert (await call(ReadFile(), tmp_path, path="f", offset=-99)).text.startswith("1\tone\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"offset": 4}, "the file has 3 lines"),
        ({"offset": 2, "chars": 4}, "line 2 has only 3 characters"),
        ({"offset": 4, "chars": 2}, "^offset=4 is past the end: the file has 3 lines"),
    ],
)
async def test_a_start_past_the_end_is_said(tmp_path: Path, arguments: dict[str, int], words: str) -> None:
    (tmp_path / "f").write_text("one\ntwo\nthree\n")
    with pytest.raises(ToolFailure, match=words):
        await call(ReadFile(), tmp_path, path="f", **arguments)


async def test_encodings_are_read_and_named(tmp_path: Path) -> None:
    (tmp_path / "wide").write_bytes("grün\n".encode("utf-16"))
    (tmp_path / "old").write_bytes("grün\n".encode("latin-1"))
    (tmp_path / "broken").write_bytes(b"x\n" * 70_000 + b"gr\xfcn")
    wide = await call(ReadFile(), tmp_path, path="wide")
    old = await call(ReadFile(), tmp_path, path="old")
    broken = await call(ReadFile(), tmp_path, path="broken", offset=-1)
    assert "1\tgrün\n" in wide.text
    assert "utf-16-le" in wide.text
    assert "1\tgrün\n" in old.text
    assert "latin-1" in old.text
    assert "\tgr\ufffdn\n" in broken.text
    assert "not UTF-8" in broken.text


async def test_pictures_are_shown_and_other_binaries_described(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(PNG)
    (tmp_path / "big.png").write_bytes(PNG + b"\0" * MAX_IMAGE_BYTES)
    (tmp_path / "b").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "empty").touch()
    picture = await call(ReadFile(), tmp_path, path="p.txt")
    assert base64.b64decode(picture.images[0].data) == PNG
    assert picture.images[0].media_type == "image/png"
    with pytest.raises(ToolFailure, match="too large"):
        await call(ReadFile(), tmp_path, path="big.png")
    with pytest.raises(ToolFailure, match="ELF program"):
        await call(ReadFile(), tmp_path, path="b")
    assert "empty" in (await call(ReadFile(), tmp_path, path="empty")).text


async def test_a_file_of_two_gigabytes_is_read_in_place(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as stream:
        stream.write(b"first\nsecond\n" * 6_000)
        stream.seek(2_000_000_000)
        stream.write(b"\nlast\n")
    output = await call(ReadFile(), tmp_path, path="huge", limit=2)
    assert output.text == "1\tfirst\n2\tsecond\n[Lines 1-2. Continue with offset=3.]"


async def test_control_characters_in_names_stay_on_their_line(tmp_path: Path) -> None:
    (tmp_path / "a\n\x1b]0;x\x07").touch()
    (tmp_path / os.fsdecode(b"\xff")).write_text("12345")
    (tmp_path / "z").mkdir()
    (tmp_path / "link").symlink_to("/etc")
    output = await call(ListDir(), tmp_path)
    assert output.text.split("\n") == ["z/", r"a\n\x1b]0;x\x07  0 B", "link -> /etc", "\ufffd  5 B"]
    assert (await call(ReadFile(), tmp_path, path="\ufffd")).text.startswith("1\t12345")


async def test_a_long_listing_is_cut_and_counted(tmp_path: Path) -> None:
    for number in range(1_002):
        (tmp_path / f"f{number:04}").touch()
    output = await call(ListDir(), tmp_path, path=str(tmp_path))
    assert output.text.endswith("f0999  0 B\n[2 more entries. Use glob to find names by a pattern.]")
    (tmp_path / "empty").mkdir()
    assert (await call(ListDir(), tmp_path, path="empty")).text == "[empty is empty.]"
    with pytest.raises(ToolFailure, match="not a folder"):
        await call(ListDir(), tmp_path, path="f0001")
