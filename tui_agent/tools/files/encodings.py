"""Telling what a file contains by its bytes: text in an encoding, a picture, or something else."""

import codecs
from typing import Literal, TypeAlias

import msgspec

HEAD = 64 * 1024
"""Bytes from the start of a file that are enough to tell what it is."""

Encoding: TypeAlias = Literal["utf-8", "utf-8-sig", "utf-16-le", "utf-16-be", "latin-1"]

_MARKS: tuple[tuple[bytes, Encoding], ...] = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_TEXT_CONTROLS = frozenset(b"\t\n\r\f\b\x1b")
_CONTROLS = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS)
_MAX_CONTROLS = 0.1
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"\x7fELF", "an ELF program or library"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"SQLite format 3\x00", "an SQLite database"),
)


class FileKind(msgspec.Struct, frozen=True):
    """What a file contains: text in an `encoding`, after the byte order mark `mark`, or what `media` names."""

    encoding: Encoding | None = None
    mark: bytes = b""
    media: str = ""

    @property
    def is_image(self) -> bool:
        return self.media.startswith("image/")


def sniff(head: bytes, whole: bool) -> FileKind:
    """Tell what a file contains by its first bytes. `whole`: `head` is the entire file.

    A byte order mark decides. Without one, NUL bytes mean binary, and text that is not UTF-8 is read as Latin-1, which
    loses nothing, since every byte is a character.
    """
    media = _media(head)
    if media:
        return FileKind(media=media)
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return FileKind(media="UTF-32 text")
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return FileKind(encoding, mark)
    if b"\0" in head or len(head) - len(head.translate(None, _CONTROLS)) > _MAX_CONTROLS * len(head):
        return FileKind(media="binary")
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=whole)
    except UnicodeDecodeError:
        return FileKind("latin-1")
    return FileKind("utf-8")


def decode(content: bytes) -> tuple[str, FileKind]:
    """The text of a file, without its byte order mark, and the kind with which `encode` writes it back.

    Raises ValueError for what is not text.
    """
    kind = sniff(content, whole=True)
    if kind.encoding is None:
        raise ValueError(kind.media)
    return content[len(kind.mark) :].decode(codec(kind)), kind


def encode(text: str, kind: FileKind) -> bytes:
    """`text` as the bytes of a file of this kind. Raises UnicodeEncodeError if the encoding lacks a character."""
    return kind.mark + text.encode(codec(kind))


def codec(kind: FileKind) -> str:
    """The codec for the bytes after the byte order mark."""
    return "utf-8" if kind.encoding in {None, "utf-8-sig"} else str(kind.encoding)


def _media(head: bytes) -> str:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media for magic, media in _MAGIC if head.startswith(magic)), "")
