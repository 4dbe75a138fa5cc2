"""Pictures for a conversation: read, converted to what providers accept, with the originals saved in the session."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.blocks import Image, Text
from tui_agent.models.pictures import LARGEST_SIDE, UnreadablePicture, fitted
from tui_agent.regex import regex
from tui_agent.system.durable import in_thread, make_private_folder, write_file
from tui_agent.system.regular import read_at_most
from tui_agent.text import expanded, one_line
from tui_agent.tools.files.encodings import HEAD, sniff
from tui_agent.tools.files.reading import MAX_IMAGE_BYTES

FOLDER: Final = "pictures"
"""The subfolder of a session for original pictures."""
MAX_PICTURES: Final = 50
"""The most pictures of one text."""
MAX_NAME: Final = 30
SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")
"""Suffixes of files that are read as pictures when a text mentions them."""

_MENTION: Final = regex(r"(?:^|(?<=[\s(\[{,;:]))@(?:\"([^\"\n]+)\"|([^\s\"]+))")
_ENDINGS: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}


class PictureProblem(Exception):
    """A picture cannot be sent; the message says why."""


class Picture(msgspec.Struct, frozen=True):
    """A picture before conversion. name: shown in its chip. media: its media type."""

    name: str
    media: str
    data: bytes


class Pictures(msgspec.Struct, frozen=True):
    """Pictures that are ready to send, for those of a message with a note in place of each unreadable one; a sentence
    for each of these; and how many pictures were made smaller.
    """

    blocks: tuple[Text | Image, ...] = ()
    problems: tuple[str, ...] = ()
    smaller: int = 0

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(block for block in self.blocks if isinstance(block, Image))


def smaller_text(count: int) -> str:
    """The notice to the user on pictures that were made smaller."""
    which = "The original is" if count == 1 else f"The originals of {count} are"
    return f"Providers take at most {LARGEST_SIDE:,} pixels a side, and 5 MiB. {which} kept in the session's folder."


def mentions_in(text: str) -> list[tuple[int, str]]:
    """The mentioned paths of a text, each with its position."""
    return [(found.start(), found[1] or found[2].rstrip(".,;:!?)]}'")) for found in _MENTION.finditer(text)]


def mentioned_pictures(text: str, folder: Path) -> list[tuple[int, str, Callable[[], Picture]]]:
    """The pictures that a text mentions by path: position, path, and a function that reads the picture."""
    mentioned = [(at, name) for at, name in mentions_in(text) if name.lower().endswith(SUFFIXES)]
    return [(at, name, partial(read_picture, folder / expanded(name))) for at, name in mentioned]


def read_pictures(named: Mapping[str, Callable[[], Picture]], session_folder: Path | None) -> Pictures:
    """Read and scale these pictures. Slow, it reads and writes files: call it in a thread."""
    images: list[Image] = []
    problems: list[str] = []
    smaller = 0
    for name, read in list(named.items())[:MAX_PICTURES]:
        try:
            picture = read()
            image, changed = _fit(picture.data, picture.media, session_folder)
            images.append(image)
            smaller += changed
        except (OSError, RuntimeError, ValueError, PictureProblem, UnreadablePicture) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problems.append(f"{name}: {reason}")
    if len(named) > MAX_PICTURES:
        problems.append(f"only the first {MAX_PICTURES} of {len(named)} pictures are sent")
    return Pictures(tuple(images), tuple(problems), smaller)


def read_picture(path: Path) -> Picture:
    """Read a picture file. Raises PictureProblem and OSError."""
    if not path.is_file():
        raise PictureProblem("there is no such file")
    with path.open("rb") as file:
        return as_picture(read_at_most(file, MAX_IMAGE_BYTES + 1), path.name)


def as_picture(data: bytes, name: str = "") -> Picture:
    """A picture of these bytes, with the type they start like. Raises PictureProblem."""
    if len(data) > MAX_IMAGE_BYTES:
        raise PictureProblem(too_large())
    kind = sniff(data[:HEAD], whole=len(data) <= HEAD)
    if not kind.is_image:
        raise PictureProblem("it is not a picture of a kind that can be sent (PNG, JPEG, GIF, WebP)")
    called = re.sub(r"[\[\],]", "_", one_line(name, MAX_NAME)) or kind.media.removeprefix("image/").upper()
    return Picture(called, kind.media, data)


def too_large() -> str:
    """The problem of a picture that exceeds the size limit."""
    return f"it is too large to be read (at most {MAX_IMAGE_BYTES / 1024**2:.0f} MiB); scale it down"


async def attach(images: tuple[Image, ...], folder: Callable[[], Path]) -> Pictures:
    """Convert pictures to what providers accept, in a thread; originals of changed ones are saved in `folder`."""
    return await in_thread(_attached, images, folder) if images else Pictures()


def _attached(images: tuple[Image, ...], folder: Callable[[], Path]) -> Pictures:
    blocks: list[Text | Image] = []
    problems: list[str] = []
    smaller = 0
    for image in images:
        if image.original:
            blocks.append(image)
            continue
        try:
            made, changed = _fit(b64decode(image.data), image.media_type, folder())
        except (ValueError, UnreadablePicture) as error:
            reason = str(error) if isinstance(error, UnreadablePicture) else "it is damaged, or not a picture"
            problems.append(reason)
            blocks.append(Text(f"[A picture was given here that cannot be sent: {reason}.]"))
        else:
            # Keep an unchanged picture the same object, so that its data is not held twice.
            blocks.append(made if changed or made.media_type != image.media_type else image)
            smaller += changed
    return Pictures(tuple(blocks), tuple(problems), smaller)


def _fit(data: bytes, media: str, session_folder: Path | None) -> tuple[Image, bool]:
    """The picture to send, and whether it was made smaller: then the original is saved below the session's folder.

    If the disk refuses it, that is no reason not to send the picture. Raises `UnreadablePicture`.
    """
    made, original = fitted(data), ""
    if made.changed and session_folder is not None:
        folder = session_folder / FOLDER
        with suppress(OSError):
            make_private_folder(folder)
            same = (path for path in folder.iterdir() if path.stat().st_size == len(data) and path.read_bytes() == data)
            name = f"original-{sha256(data).hexdigest()[:16]}.{_ENDINGS.get(media, 'picture')}"
            if (path := next(same, None)) is None:
                path = folder / name
                write_file(path, data)
            original = f"{FOLDER}/{path.name}"
    return Image(made.media_type, b64encode(made.data).decode(), original=original), made.changed
