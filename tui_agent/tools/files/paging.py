"""Reading a text file of any size in pages of whole lines; only a line too long for one page is split."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, TextIO

import msgspec

from tui_agent.tools.files.encodings import FileKind, codec
from tui_agent.tools.threads import Cancellation

_CHUNK = 1 << 16
COUNTED = 64 << 20
"""The size in bytes up to which a whole file is read to count its lines."""


class PageLimits(msgspec.Struct, frozen=True):
    """The limits of one page. Characters and UTF-8 bytes include the line numbers."""

    lines: int = 2000
    bytes: int = 50 * 1024
    characters: int = 200 * 1024


class LinePart(msgspec.Struct, frozen=True):
    """A line, or a part of it from the character `start` on. `ending` is empty if the line continues."""

    line: int
    start: int
    text: str
    ending: str

    @property
    def shown(self) -> str:
        return f"{self.line}\t{self.text}" if not self.start else f"{self.line}+{self.start}\t{self.text}"


class Page(msgspec.Struct, frozen=True):
    """A page, and where the next one starts: line (from 1) and character in it (from 0); None at the end."""

    parts: tuple[LinePart, ...]
    following: tuple[int, int] | None

    @property
    def text(self) -> str:
        """The page as shown to the model: on each line its number, a tab and the text."""
        return "\n".join(part.shown for part in self.parts)


class PastTheEnd(ValueError):
    """There is no such line, or no such character `in_line`; `last` is the number of the last one, or 0."""

    def __init__(self, last: int, *, in_line: bool = False) -> None:
        self.last = last
        self.in_line = in_line


def read_page(
    stream: BinaryIO, kind: FileKind, line: int, character: int, limits: PageLimits, stop: Cancellation
) -> Page:
    """Read the page that starts at `line` (from 1), at its `character` (from 0). It has at least one character.

    A line that does not fit on the rest of the page starts the next one; a line longer than a page is split. Raises
    PastTheEnd and Stopped.
    """
    with _text_from(stream, kind, line, stop) as text:
        _skip_characters(text, character, stop)
        parts: list[LinePart] = []
        bytes_left, characters_left = limits.bytes, limits.characters
        while len(parts) < limits.lines:
            stop.check()
            overhead = len(LinePart(line, character, "", "").shown) + 1
            left = _Remaining(bytes_left - overhead, characters_left - overhead)
            asked = max(min(left.bytes, left.characters), 1) + 2
            raw = text.readline(asked)
            if not raw and not parts:
                raise PastTheEnd(character or line - 1, in_line=bool(character))
            if not raw:
                return Page(tuple(parts), None)
            body, ending = _split_ending(raw)
            whole = bool(ending) or len(raw) < asked
            if not whole or not (left.holds(body) or (not parts and len(body) <= 1)):
                if parts:
                    return Page(tuple(parts), (line, character))
                stretch = left.cut(body)
                return Page((LinePart(line, character, stretch, ""),), (line, character + len(stretch)))
            parts.append(LinePart(line, character, body, ending))
            bytes_left -= overhead + len(body.encode())
            characters_left -= overhead + len(body)
            line, character = (line + 1, 0) if ending else (line, character + len(body))
        return Page(tuple(parts), (line, character) if text.read(1) else None)


def count_lines(stream: BinaryIO, kind: FileKind, stop: Cancellation, most: int | None = COUNTED) -> int | None:
    """The number of lines, counting a last one without a newline; None for a file of more than `most` bytes."""
    if most is not None and os.fstat(stream.fileno()).st_size > most:
        return None
    count, last = 0, "\n"
    if _is_wide(kind):
        with _text_from(stream, kind, 1, stop) as text:
            while part := text.read(_CHUNK):
                stop.check()
                count += part.count("\n")
                last = part[-1]
        return count + (last != "\n")
    stream.seek(len(kind.mark))
    while chunk := stream.read(_CHUNK):
        stop.check()
        count += chunk.count(b"\n")
        last = "\n" if chunk.endswith(b"\n") else ""
    return count + (last != "\n")


class _Remaining(msgspec.Struct, frozen=True):
    """How much more text fits on a page."""

    bytes: int
    characters: int

    def holds(self, text: str) -> bool:
        return len(text) <= self.characters and len(text.encode()) <= self.bytes

    def cut(self, text: str) -> str:
        """The longest beginning of `text` that fits; at least one character, so that every page makes progress."""
        start = text[: max(self.characters, 0)].encode()[: max(self.bytes, 0)].decode(errors="ignore")
        return start or text[:1]


def _split_ending(raw: str) -> tuple[str, str]:
    for ending in ("\r\n", "\n"):
        if raw.endswith(ending):
            return raw[: -len(ending)], ending
    return raw, ""


def _is_wide(kind: FileKind) -> bool:
    return kind.encoding in {"utf-16-le", "utf-16-be"}


@contextmanager
def _text_from(stream: BinaryIO, kind: FileKind, line: int, stop: Cancellation) -> Iterator[TextIO]:
    """`stream` as text from `line` on; broken bytes become U+FFFD. Only the newline character ends a line."""
    stream.seek(len(kind.mark))
    found = _is_wide(kind) or _skip_lines(stream, line - 1, stop)
    text = io.TextIOWrapper(stream, encoding=codec(kind), errors="replace", newline="\n")
    try:
        if _is_wide(kind):
            found = _skip_wide_lines(text, line - 1, stop)
        if not found:
            raise PastTheEnd(count_lines(text.detach(), kind, stop, most=None) or 0)
        yield text
    finally:
        with suppress(ValueError):
            text.detach()


def _skip_lines(stream: BinaryIO, count: int, stop: Cancellation) -> bool:
    """Move `stream` past `count` newlines; False if there are fewer, or nothing follows them."""
    if count == 0:
        return True
    while chunk := stream.read(_CHUNK):
        stop.check()
        newlines = chunk.count(b"\n")
        if newlines < count:
            count -= newlines
            continue
        position = -1
        for _ in range(count):
            position = chunk.index(b"\n", position + 1)
        stream.seek(position + 1 - len(chunk), io.SEEK_CUR)
        return bool(chunk[position + 1 :]) or stream.seek(0, io.SEEK_CUR) < os.fstat(stream.fileno()).st_size
    return False


def _skip_wide_lines(text: TextIO, count: int, stop: Cancellation) -> bool:
    for _ in range(count):
        stop.check()
        while (part := text.readline(_CHUNK)) and not part.endswith("\n"):
            stop.check()
        if not part:
            return False
    return True


def _skip_characters(text: TextIO, count: int, stop: Cancellation) -> None:
    """Move `text` past `count` characters of its line. Raises PastTheEnd if the line is shorter."""
    skipped = 0
    while skipped < count:
        stop.check()
        part = text.readline(min(count - skipped, _CHUNK))
        if not part or part.endswith("\n"):
            raise PastTheEnd(skipped + len(_split_ending(part)[0]), in_line=True)
        skipped += len(part)
