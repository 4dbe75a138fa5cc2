"""Fields of files whose formats other programs decide, and the blocks of a message that are read from them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeVar

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, valid_text

D = TypeVar("D")
T = TypeVar("T")

PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Kinds of pictures that a message can hold."""
MOST: Final = 10**12
"""A larger number counts nothing."""


class Json:
    """A JSON value: what is missing or null reads as empty.

    What is of another kind than asked for raises `ValueError`, which names its place; in a `loose` value it reads as
    empty too.
    """

    __slots__ = ("_loose", "_place", "value")

    def __init__(self, value: object, place: str = "", *, loose: bool = False) -> None:
        self.value = value
        self._place = place
        self._loose = loose

    @classmethod
    def decode(cls, data: bytes | str | msgspec.Raw) -> "Json":
        """Parse a text. Raises what is in `UNUSABLE`."""
        return cls(msgspec.json.decode(data))

    def __getitem__(self, name: str) -> "Json":
        place = f"{self._place}.{name}" if self._place else name
        return Json(self._as(dict, {}, "an object").get(name), place, loose=self._loose)

    def __iter__(self) -> Iterator["Json"]:
        items = enumerate(self._as(list, [], "a list"))
        return (Json(each, f"{self._place}[{place}]", loose=self._loose) for place, each in items)

    def __bool__(self) -> bool:
        return self.value is not None

    @property
    def loose(self) -> "Json":
        """The same value, for what a format leaves to each program."""
        return Json(self.value, self._place, loose=True)

    @property
    def text(self) -> str:
        return valid_text(self._as(str, "", "a text"))

    @property
    def flag(self) -> bool:
        return self._as(bool, False, "true or false")

    @property
    def count(self) -> int:
        """A number of things, or of milliseconds."""
        number = self._number("a count")
        return int(number) if 0 <= number <= MOST and not number % 1 else self._wrong("a count", 0)

    @property
    def exit_code(self) -> int | None:
        return self._as(int, None, "a whole number")

    @property
    def seconds(self) -> float:
        """Seconds since the epoch, of a number or an ISO 8601 text; 0 for another text, as where it was removed."""
        if isinstance(self.value, str) and self.value:
            with suppress(ValueError):
                return datetime.fromisoformat(self.value.replace("Z", "+00:00")).timestamp()
            return 0.0
        return float(self._number("a time")) if self.value else 0.0

    @property
    def arguments(self) -> str:
        """The arguments of a call as the text of a JSON object; a text that holds one is taken as it."""
        record = self.value
        if isinstance(record, str):
            record = msgspec.json.decode(record) if record.strip() else {}
        if isinstance(record, dict) or record is None:
            return valid_text(msgspec.json.encode(record or {}).decode())
        raise ValueError("the arguments of a call are no object")

    def _number(self, wanted: str) -> float:
        return self._as(float, 0.0, wanted) if isinstance(self.value, float) else self._as(int, 0, wanted)

    def _as(self, kind: type[T], missing: D, wanted: str) -> T | D:
        if isinstance(self.value, kind) and (kind is bool or not isinstance(self.value, bool)):
            return self.value
        return missing if self.value is None else self._wrong(wanted, missing)

    def _wrong(self, wanted: str, missing: D) -> D:
        if self._loose:
            return missing
        raise ValueError(f"{self._place or 'it'} is not {wanted}")


def blocks_of(content: Json, read: Callable[[Json], Block | None]) -> list[Block]:
    """The blocks of a content: a text, or a list of texts and of parts, each as `read` reads it."""
    found = content if isinstance(content.value, list) else [content] if content else []
    blocks = (Text(part.text) if isinstance(part.value, str) else read(part) for part in found)
    return [block for block in blocks if block is not None and not (isinstance(block, Text) and not block.text.strip())]


def words(blocks: Iterable[Block], between: str = "\n") -> str:
    return between.join(block.text for block in blocks if isinstance(block, Text))


def block_of(part: Json) -> Block | None:
    """The block that a part of a message is, as Claude Code and pi write it; None for any other part."""
    match part["type"].text:
        case "text":
            return Text(part["text"].text)
        case "thinking":
            return Reasoning(part["thinking"].text)
        case "tool_use":
            return ToolCall(part["id"].text, part["name"].text, part["input"].arguments)
        case "toolCall":
            return ToolCall(part["id"].text, part["name"].text, part["arguments"].arguments)
        case "image" if source := part["source"]:
            return picture(source["media_type"].text, source["data"].text)
        case "image":
            return picture(part["mimeType"].text, part["data"].text)
        case _:
            return None


def picture(media_type: str, data: str) -> Image:
    """A picture as it was recorded; one without data where its kind is none that a message can hold."""
    return Image(media_type, data) if media_type in PICTURES else Image("image/png", "")


def picture_at(address: str) -> Image:
    """The picture in a ``data:`` address; one without data for any other."""
    kind, comma, data = address.removeprefix("data:").partition(";base64,")
    return picture(kind, data) if comma else picture("", "")
