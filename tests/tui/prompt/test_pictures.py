"""Pictures that are pasted: recognised, bounded, kept, and found again by their chip."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tui_agent.agent.turn.pictures import PictureProblem, as_picture
from tui_agent.tools.files.reading import MAX_IMAGE_BYTES
from tui_agent.tui.prompt.mentions import as_mention, read_pictures
from tui_agent.tui.prompt.pictures import CHIP, decoded, encoded_pictures, is_encoded, keep

PNG: Final = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ENCODED: Final = base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{ENCODED}",
        ENCODED,
        f"  {ENCODED[:40]}\n{ENCODED[40:]}\n",
        f"data:image/svg+xml;base64,{ENCODED}",
    ],
)
def test_a_picture_in_base64(text: str) -> None:
    assert is_encoded(text)
    assert encoded_pictures(text) == [text]
    assert decoded(text).data == PNG


@pytest.mark.parametrize(
    "text", ["words", "iVBORw0KGgo is how a PNG begins, in base64, as everybody knows " * 2, "", "/9j/"]
)
def test_what_only_begins_like_one(text: str) -> None:
    assert not is_encoded(text)


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (lambda: ENCODED[:-3], "cut"),
        (lambda: base64.b64encode(b"no picture at all").decode(), "not a picture"),
        (lambda: base64.b64encode(PNG + bytes(MAX_IMAGE_BYTES)).decode(), "too large"),
        (lambda: "A" * (3 * MAX_IMAGE_BYTES), "too large"),
    ],
)
def test_what_cannot_be_sent_is_told(encoded: Callable[[], str], reason: str) -> None:
    text = f"data:image/png;base64,{encoded()}"
    with pytest.raises(PictureProblem, match=reason):
        decoded(text)


def test_a_chip_stands_for_its_picture_in_its_own_session(tmp_path: Path) -> None:
    first = keep(as_picture(PNG, "a [shot], \x1b[31m\u202eof it.png"), tmp_path / "one")
    (tmp_path / "one/pictures/note.txt").touch()
    second = keep(as_picture(PNG + b"more"), tmp_path / "one")
    assert CHIP.fullmatch(first)
    assert second == "[picture 2: PNG, 74 B]"
    found = read_pictures(f"see {second} and {first}, {first}", tmp_path, tmp_path / "one")
    assert [base64.b64decode(image.data) for image in found.images] == [PNG + b"more", PNG]
    keep(as_picture(PNG + b"another"), tmp_path / "two")
    found = read_pictures(first, tmp_path, tmp_path / "two")
    assert found.images == ()
    assert "another session" in found.problems[0]
    assert (tmp_path / "one" / "pictures" / "1.png").stat().st_mode & 0o777 == 0o600


def test_chips_and_mentions_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(PNG + b"b")
    chip = keep(as_picture(PNG), tmp_path)
    found = read_pictures(f"{as_mention('b.png')} then {chip}", tmp_path, tmp_path)
    assert [base64.b64decode(image.data) for image in found.images] == [PNG + b"b", PNG]
