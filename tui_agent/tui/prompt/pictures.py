"""Pasted pictures: saved in the session's folder at once, and shown in the prompt as a chip."""

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tui_agent.regex import regex
from tui_agent.tui.wording import size

if TYPE_CHECKING:
    from tui_agent.agent.turn.pictures import Picture

CHIP: Final = regex(r"\[picture (?P<number>\d{1,6}): (?P<name>[^\[\]\n]{1,40}), (?P<size>[\d.]{1,5} [KMG]?B)\]")

_DATA_ADDRESS: Final = regex(r"data:image/[\w.+-]{1,40};base64,")
_ENCODED_STARTS: Final = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""How PNG, JPEG, GIF and WebP files start in base64."""
_ENCODED: Final = regex(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_CHECKED_CHARS: Final = 65_536
_PIECE: Final = 1 << 20
"""Characters decoded at a time; a multiple of four, as base64 requires."""
_MIN_ENCODED: Final = 64
"""Shorter base64 texts without a ``data:`` prefix are not taken for pictures."""


def is_encoded(text: str) -> bool:
    """Whether a pasted text looks like pictures in base64: ``data:`` URLs, or the bare bytes of one.

    Checks only its beginning, since it runs on the event loop.
    """
    text = text.strip()
    if _DATA_ADDRESS.match(text):
        return True
    head = text[:_CHECKED_CHARS]
    return len(text) >= _MIN_ENCODED and text.startswith(_ENCODED_STARTS) and bool(_ENCODED.fullmatch(head))


def encoded_pictures(text: str) -> list[str]:
    """Split a text for which `is_encoded` holds into its pictures."""
    starts = [found.start() for found in _DATA_ADDRESS.finditer(text)] or [0]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def decoded(text: str) -> "Picture":
    """Decode one picture. Slow: call it in a thread. Raises PictureProblem."""
    from tui_agent.agent.turn.pictures import PictureProblem, as_picture, too_large
    from tui_agent.tools.files.reading import MAX_IMAGE_BYTES

    body = "".join(_DATA_ADDRESS.sub("", text.strip(), count=1).split())
    if len(body) > 2 * MAX_IMAGE_BYTES:
        raise PictureProblem(too_large())
    try:
        # In pieces, because decoding holds the GIL.
        pieces = [
            base64.b64decode(body[start : start + _PIECE], validate=True) for start in range(0, len(body), _PIECE)
        ]
    except ValueError as error:
        raise PictureProblem("it is cut, or no base64 text") from error
    return as_picture(b"".join(pieces))


def keep(picture: "Picture", session_folder: Path) -> str:
    """Save a picture in the session's folder; returns its chip. Call it in a thread, one at a time. Raises OSError."""
    from tui_agent.agent.turn.pictures import FOLDER
    from tui_agent.system.durable import make_private_folder, write_file

    folder = session_folder / FOLDER
    make_private_folder(folder)
    number = 1 + max(_numbers(folder), default=0)
    write_file(folder / f"{number}.{picture.media.removeprefix('image/')}", picture.data)
    return f"[picture {number}: {picture.name}, {size(len(picture.data))}]"


def kept(chip: re.Match[str], session_folder: Path) -> "Picture":
    """Read the picture of a chip. Raises PictureProblem and OSError."""
    from tui_agent.agent.turn.pictures import FOLDER, PictureProblem, read_picture

    for path in (session_folder / FOLDER).glob(f"{int(chip['number'])}.*"):
        picture = read_picture(path)
        # A chip recalled from another session's history may have the number of a different picture here.
        if size(len(picture.data)) == chip["size"]:
            return picture
    raise PictureProblem("it was pasted in another session; paste it again")


def _numbers(folder: Path) -> Iterable[int]:
    return (int(path.stem) for path in folder.iterdir() if path.stem.isdecimal())
