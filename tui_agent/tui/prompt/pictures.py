"""Pasted pictures: kept in the session's folder at once, and shown in the prompt as a chip until they are sent."""

import base64
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tui_agent.text import one_line
from tui_agent.tui.wording import size

if TYPE_CHECKING:
    from tui_agent.conversation.blocks import Image

FOLDER: Final = "pictures"
"""Where they lie in a session's folder, by number."""

CHIP: Final = re.compile(r"\[picture (?P<number>\d{1,6}): (?P<name>[^\[\]\n]{1,40}), (?P<size>[\d.]{1,5} [KMG]?B)\]")

MAX_NAME: Final = 30

_DATA_ADDRESS: Final = re.compile(r"data:image/[\w.+-]{1,40};base64,")
_ENCODED_STARTS: Final = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
"""How PNG, JPEG, GIF and WebP begin in base64."""
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_LEAST_ENCODED: Final = 64
"""Characters of a bare base64 text from which on it is taken for a picture."""


class PictureProblem(Exception):
    """A picture cannot be sent; the message says why."""


class Picture(NamedTuple):
    """A picture that can be sent. name: how it is called in its chip."""

    name: str
    media: str
    data: bytes

    def image(self) -> "Image":
        """The picture as a message holds it."""
        from tui_agent.conversation.blocks import Image

        return Image(self.media, base64.b64encode(self.data).decode())


def most_bytes() -> int:
    """The largest picture that can be sent."""
    from tui_agent.tools.files.reading import MAX_IMAGE_BYTES

    return MAX_IMAGE_BYTES


def is_encoded(text: str) -> bool:
    """Whether a pasted text is a picture written in base64: a ``data:`` address, or the bare bytes."""
    text = text.strip()
    if _DATA_ADDRESS.match(text):
        return True
    return len(text) >= _LEAST_ENCODED and text.startswith(_ENCODED_STARTS) and bool(_ENCODED.fullmatch(text))


def decoded(text: str) -> Picture:
    """The picture of such a text. Raises PictureProblem."""
    body = _DATA_ADDRESS.sub("", text.strip(), count=1)
    if len(body) > 2 * most_bytes():
        raise PictureProblem(_too_large())
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
    except ValueError as error:
        raise PictureProblem("it is cut, or no base64 text") from error
    return as_picture(data)


def read_picture(path: Path) -> Picture:
    """The picture in a file. Raises PictureProblem and OSError."""
    if not path.is_file():
        raise PictureProblem("there is no such file")
    with path.open("rb") as file:
        return as_picture(file.read(most_bytes() + 1), path.name)


def as_picture(data: bytes, name: str = "") -> Picture:
    """The picture that these bytes are. Raises PictureProblem."""
    from tui_agent.tools.files.encodings import HEAD, sniff

    if len(data) > most_bytes():
        raise PictureProblem(_too_large())
    kind = sniff(data[:HEAD], whole=len(data) <= HEAD)
    if not kind.is_image:
        raise PictureProblem("it is no picture of a kind that can be sent (PNG, JPEG, GIF, WebP)")
    called = re.sub(r"[\[\],]", "_", one_line(name, MAX_NAME)) or kind.media.removeprefix("image/").upper()
    return Picture(called, kind.media, data)


def keep(picture: Picture, session_folder: Path) -> str:
    """Write a picture to the session's folder; its chip. Call it in a thread, one at a time. Raises OSError."""
    from tui_agent.durable import make_private_folder, write_file

    folder = session_folder / FOLDER
    make_private_folder(folder)
    number = 1 + max(_numbers(folder), default=0)
    write_file(folder / f"{number}.{picture.media.removeprefix('image/')}", picture.data)
    return f"[picture {number}: {picture.name}, {size(len(picture.data))}]"


def kept(chip: re.Match[str], session_folder: Path) -> Picture:
    """The picture a chip stands for. Raises PictureProblem and OSError."""
    for path in (session_folder / FOLDER).glob(f"{int(chip['number'])}.*"):
        picture = read_picture(path)
        # A chip from the history of another session may have the number of a picture of this one.
        if size(len(picture.data)) == chip["size"]:
            return picture
    raise PictureProblem("it was pasted in another session; paste it again")


def _numbers(folder: Path) -> Iterable[int]:
    return (int(path.stem) for path in folder.iterdir() if path.stem.isdecimal())


def _too_large() -> str:
    return f"it is too large to be sent (at most {most_bytes() / 1024**2:.2f} MiB); scale it down"
