"""Reads JSON that may be missing, damaged or of another form."""

from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def decoded(data: bytes | str, kind: type[T]) -> T | None:
    """The value of this type that a JSON text holds; None if it holds none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return None


def decoded_file(path: Path, kind: type[T]) -> T | None:
    """The same of a file; None also if it cannot be read."""
    try:
        return decoded(path.read_bytes(), kind)
    except OSError:
        return None
