"""The state of a file: its kind, mode, size and the SHA-256 of its content. No link is ever followed."""

import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tui_agent.conversation.entries import FileState
from tui_agent.tools.files.confined import folder_of

MAX_HASHED: Final = 256_000_000
"""Bytes of the largest file that is hashed."""

RACY_NS: Final = 20_000_000
"""Nanoseconds. A file may change twice within one tick of the file system's clock, so a stamp this recent proves
nothing."""

UNREADABLE: Final = FileState(kind="other")
ABSENT: Final = FileState()

_CHUNK = 1 << 16
_ATTEMPTS = 3
_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class FoundFile(msgspec.Struct, frozen=True):
    """A file as it was found. `content` is None if it is larger than the caller asked for."""

    state: FileState
    content: bytes | None = None
    found: os.stat_result | None = None

    @property
    def stamp(self) -> "Stamp | None":
        """A value that changes with the file; None if there is no file."""
        return Stamp.of(self.found) if self.found is not None else None


class Stamp(NamedTuple):
    """A value that changes when a file is written to or replaced: times in ns, size in bytes, inode and mode."""

    mtime_ns: int
    ctime_ns: int
    size: int
    inode: int
    mode: int

    @classmethod
    def of(cls, found: os.stat_result) -> "Stamp":
        return cls(found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)


def look_at(path: Path, keep: int) -> FoundFile:
    """The file at the resolved `path`, with its content if that has at most `keep` bytes.

    A file that cannot be read has the kind ``other``. Through a link in place of a folder there is none.
    """
    try:
        with folder_of(path) as folder:
            return look_in(folder, path.name, keep)
    except _NOT_THERE:
        return FoundFile(ABSENT)
    except OSError:
        return FoundFile(UNREADABLE)


def look_in(folder: int, name: str, keep: int) -> FoundFile:
    """As `look_at`, for a name in the folder that the descriptor `folder` refers to."""
    before: os.stat_result | None = None
    for _ in range(_ATTEMPTS):
        try:
            before = os.stat(name, dir_fd=folder, follow_symlinks=False)
            seen = _look(folder, name, before, keep)
            after = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except _NOT_THERE:
            return FoundFile(ABSENT)
        except OSError:
            return FoundFile(UNREADABLE, found=before)
        if Stamp.of(before) == Stamp.of(after):
            return seen
    # It is being written to all the time.
    return FoundFile(UNREADABLE, found=before)


def missing_folders(path: Path) -> int:
    """How many of the parent folders of `path` do not exist."""
    count = 0
    for folder in path.parents:
        if os.path.lexists(folder):
            break
        count += 1
    return count


def _look(folder: int, name: str, found: os.stat_result, keep: int) -> FoundFile:
    if stat.S_ISLNK(found.st_mode):
        target = os.fsencode(os.readlink(name, dir_fd=folder))
        return FoundFile(FileState("link", 0, len(target), sha256(target).hexdigest()), target, found)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_HASHED:
        return FoundFile(UNREADABLE, found=found)
    digest, whole = sha256(), bytearray()
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    size = 0
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            if size <= keep:
                whole += chunk
    state = FileState("file", stat.S_IMODE(found.st_mode), size, digest.hexdigest())
    return FoundFile(state, bytes(whole) if size <= keep else None, found)
