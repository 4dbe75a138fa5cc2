"""Opening, reading and replacing exactly the file that the permission gate checked.

A resolved path contains no link. It is walked from the top, one name at a time, and each folder is opened relative to
the one before it without following links: this opens what the gate looked at, or fails.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from tui_agent.system.programs import is_running
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.gate.workspace import missing, shown
from tui_agent.tools.threads import Cancellation

_FOLDER_FLAGS = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_KERNEL_FOLDERS = (Path("/proc"), Path("/sys"))
_SYNC_CHUNK = 1 << 20


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open the regular file at the resolved `path` for reading. Never blocks on a device or a pipe.

    Raises ToolFailure for anything else: a missing file (with similar names), a folder, a device, a link.
    """
    with explained(path), folder_of(path) as folder:
        descriptor = _open_regular(path, folder)
        with os.fdopen(descriptor, "rb") as stream:
            yield stream


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Open the folder at the resolved `path`: a descriptor that `os.scandir` takes. Raises ToolFailure."""
    with explained(path), folder_of(path) as folder:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path.name or path.anchor, flags, dir_fd=folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def identity(stream: BinaryIO) -> tuple[int, int, int, int]:
    """A value that changes when a file is replaced or written to: device, inode, size, modification time in ns."""
    found = os.fstat(stream.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def write_atomically(
    path: Path, content: bytes, stop: Cancellation, expected: tuple[int, int, int, int] | None = None
) -> None:
    """Replace the file at the resolved `path` with `content`, or on any failure change nothing.

    Missing folders are made. An existing file keeps its mode and, if permitted, its owner. With `expected`, an
    `identity`, a file that has changed since is left alone. Raises ToolFailure and Stopped.
    """
    with explained(path):
        make_folders(path.parent)
        with folder_of(path) as folder:
            before = _existing(path, folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with replacing(path, folder) as name:
                descriptor = os.open(name, flags, 0o666 if before is None else 0o600, dir_fd=folder)
                with os.fdopen(descriptor, "wb") as stream:
                    _fill(stream, content, before, stop)
                if expected is not None:
                    found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
                    if (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns) != expected:
                        raise ToolFailure(
                            f"{shown(str(path))} was changed by someone else just now.",
                            "Nothing was done; read it again.",
                        )
                stop.check()
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path, folder: int) -> Iterator[str]:
    """The name of a temporary file to be made in the open `folder`, which takes the place of `path` unless something is
    raised: then it is removed.
    """
    name = temporary_name(path)
    try:
        yield name
        os.replace(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise


def temporary_name(path: Path) -> str:
    """The name of a temporary file in the same folder, which this process will rename to `path`."""
    return f"{_begin_of_temporary(path)}{os.getpid()}-{secrets.token_hex(4)}"


def clear_leftovers(path: Path) -> None:
    """Remove temporary files beside `path` of processes that were killed while they replaced it."""
    begins = _begin_of_temporary(path)
    with suppress(OSError, ToolFailure), open_folder(path.parent) as folder:
        with os.scandir(folder) as entries:
            left = [entry.name for entry in entries if entry.name.startswith(begins)]
        for name in left:
            process = name.removeprefix(begins).partition("-")[0]
            if process.isdecimal() and not is_running(int(process)):
                os.unlink(name, dir_fd=folder)


def _begin_of_temporary(path: Path) -> str:
    return f".tui-agent-{sha256(os.fsencode(path.name)).hexdigest()[:12]}-"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an OSError about `path` into a ToolFailure."""
    try:
        yield
    except FileNotFoundError as error:
        raise missing(str(path), path) from error
    except OSError as error:
        reason, instead = _REASONS.get(error.errno or 0, (f"{error.strerror or error}.", _OTHERWISE))
        raise ToolFailure(f"{shown(str(path))}: {reason}", instead) from error


_OTHERWISE = "Look at it with list_dir, or tell the user."
_DISK = ("no space is left on the disk. Nothing was changed.", "Tell the user: they have to make room.")
_FORBIDDEN = ("permission denied by the file system.", "Go on without it, or ask the user to change its permissions.")
_REASONS = {
    errno.ELOOP: ("a link took its place while it was being opened.", "Nothing was done; try again."),
    errno.ENOTDIR: ("it, or a part of its path, is not a folder.", "Look at the folder above it with list_dir."),
    errno.EISDIR: ("it is a folder.", "Name a file in it; list_dir shows what there is."),
    errno.ENOSPC: _DISK,
    errno.EDQUOT: _DISK,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EROFS: ("the file system is read-only.", "Write to another folder, or ask the user."),
    errno.EIO: ("the disk reports an input/output error.", "Tell the user: the disk may be failing."),
    errno.ENAMETOOLONG: ("the name is too long.", "Use a shorter one."),
}
"""What is wrong, and what to do instead, by error number."""


def folder_of(path: Path) -> AbstractContextManager[int]:
    """A descriptor of the folder that contains `path` (of ``/`` for ``/`` itself)."""
    return folder_below(os.open(path.anchor, _FOLDER_FLAGS), path.parts[1:-1], _FOLDER_FLAGS)


@contextmanager
def folder_below(descriptor: int, names: Iterable[str], flags: int) -> Iterator[int]:
    """A descriptor of the folder at the end of these names, opened one by one. Raises OSError.

    `descriptor`, of the folder where they begin, is closed.
    """
    try:
        for name in names:
            below = os.open(name, flags, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _open_regular(path: Path, folder: int) -> int:
    if any(path.is_relative_to(kernel) for kernel in _KERNEL_FOLDERS):
        raise ToolFailure(
            f"{shown(str(path))} is an interface of the kernel, not a file.", "Use a command to look at it."
        )
    _require_regular(path, os.stat(path.name or path.anchor, dir_fd=folder, follow_symlinks=False))
    descriptor = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        _require_regular(path, os.fstat(descriptor))
    except ToolFailure:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(path: Path, found: os.stat_result) -> None:
    by_command = "Use a command if it is really meant."
    kinds = {
        stat.S_IFDIR: ("a folder", "Use list_dir to see what is in it."),
        stat.S_IFLNK: ("a link that took a file's place while it was being opened", "Nothing was done; try again."),
        stat.S_IFIFO: ("a pipe, not a file", by_command),
        stat.S_IFSOCK: ("a socket, not a file", by_command),
        stat.S_IFCHR: ("a device, not a file", by_command),
        stat.S_IFBLK: ("a device, not a file", by_command),
    }
    mode = stat.S_IFMT(found.st_mode)
    if mode != stat.S_IFREG:
        kind, instead = kinds.get(mode, ("no regular file", by_command))
        raise ToolFailure(f"{shown(str(path))} is {kind}.", instead)


def _existing(path: Path, folder: int) -> os.stat_result | None:
    """The file that will be replaced, or None. Raises ToolFailure if it is not a writable regular file."""
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if any(path.is_relative_to(kernel) for kernel in _KERNEL_FOLDERS):
        raise ToolFailure(
            f"{shown(str(path))} is an interface of the kernel, not a file.", "Use a command to change it."
        )
    _require_regular(path, found)
    if not found.st_mode & 0o222:
        raise ToolFailure(
            f"{shown(str(path))} is marked read-only.", "Change its mode first if it is meant to be edited."
        )
    return found


def _fill(stream: BinaryIO, content: bytes, before: os.stat_result | None, stop: Cancellation) -> None:
    view = memoryview(content)
    for start in range(0, len(view), _SYNC_CHUNK):
        stop.check()
        stream.write(view[start : start + _SYNC_CHUNK])
    stream.flush()
    if before is not None:
        with suppress(PermissionError):
            os.fchown(stream.fileno(), before.st_uid, before.st_gid)
        os.fchmod(stream.fileno(), stat.S_IMODE(before.st_mode))
    os.fsync(stream.fileno())


def make_folders(path: Path) -> None:
    """Make the folder `path` and its parents, following no link."""
    descriptor = os.open(path.anchor, _FOLDER_FLAGS)
    try:
        for part in path.parts[1:]:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=descriptor)
            below = os.open(part, _FOLDER_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Sync a rename to disk. Errors are ignored: some file systems cannot sync a folder, and the content is synced."""
    with suppress(OSError, ToolFailure), open_folder(path) as descriptor:
        os.fsync(descriptor)
