"""Files in places where commands write: reading regular ones only, which never blocks, and removing whole trees."""

import contextlib
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

PIECE: Final = 65_536
"""Bytes of a file that are read at once."""


def read_at_most(stream: BinaryIO, most: int) -> bytes:
    """The next `most` bytes of a file, or all if there are fewer.

    They are read in pieces: `stream.read(most)` allocates that much for the smallest file, and the C library keeps for
    each thread the most that it ever used.
    """
    data = bytearray()
    while piece := stream.read(min(PIECE, most - len(data))):
        data += piece
    return bytes(data)


def is_folder(path: Path | str) -> bool:
    """Whether a path leads to a folder. False also where that cannot be found out, for which `Path.is_dir` raises: a
    name that is too long, a folder above it that may not be entered.
    """
    return os.path.isdir(path)  # noqa: PTH112


def is_regular(path: Path | str) -> bool:
    """Whether a path leads to a regular file; False as `is_folder` is."""
    return os.path.isfile(path)  # noqa: PTH113


def read_bytes(path: Path | str, most: int | None = None) -> bytes:
    """The bytes of a regular file, following links. Raises OSError, also for anything else and for more than `most`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(22, "it is not a regular file", str(path))
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read() if most is None else read_at_most(stream, most + 1)
    if most is not None and len(data) > most:
        raise OSError(27, f"it is larger than {most:,} bytes", str(path))
    return data


def read_text(path: Path | str, most: int | None = None) -> str:
    """The same as text in UTF-8; what is not valid is replaced."""
    return read_bytes(path, most).decode(errors="replace")


def remove_tree(path: Path, folder: int | None = None) -> None:
    """Remove a folder with all that is in it, however deep and whatever its modes; errors are ignored.

    Folders in it are moved to its top, so neither a path nor a stack grows with their depth. `folder`: a descriptor of
    the one that the path is seen from.
    """
    with contextlib.suppress(OSError):
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path, dir_fd=folder)


def _empty(top: int) -> None:
    waiting, moved = os.listdir(top), 0
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=top)
            continue
        with contextlib.suppress(OSError):
            os.chmod(name, 0o700, dir_fd=top)  # nothing runs in it any more that could put a link here
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
            try:
                for entry in os.listdir(folder):  # noqa: PTH208
                    try:
                        os.unlink(entry, dir_fd=folder)
                    except OSError:
                        os.chmod(entry, 0o700, dir_fd=folder)
                        moved += 1
                        os.rename(entry, f".moved-{moved}", src_dir_fd=folder, dst_dir_fd=top)
                        waiting.append(f".moved-{moved}")
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
