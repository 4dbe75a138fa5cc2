"""Reads JSON that may be missing, damaged or of another form."""

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded(data: bytes | str, kind: type[T]) -> T | None:
    """The value of this type that a JSON text holds; None if it holds none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (ValueError, RecursionError):  # also for text that is no valid UTF-8
        return None


def object_in(text: str) -> dict[str, object]:
    """The JSON object that a text holds, such as the arguments of a call; empty if it holds none."""
    return decoded(text, dict[str, object]) or {}


def strings_in(text: str, *, names: bool = False) -> list[str]:
    """The strings and numbers in a JSON text, such as the arguments of a call, in their order; with the `names` of
    members too.
    """
    found: list[str] = []
    waiting: list[object] = [decoded(text, object)]
    while waiting:
        match waiting.pop():
            case str(text):
                found.append(text)
            case dict() as members:
                waiting.extend(reversed((*(members if names else ()), *members.values())))
            case list() as members:
                waiting.extend(reversed(members))
            case bool() | None:
                pass
            case number:
                found.append(str(number))
    return found


def decoded_file(path: Path, kind: type[T]) -> T | None:
    """The same of a file; None also if it cannot be read."""
    try:
        return decoded(path.read_bytes(), kind)
    except OSError:
        return None
