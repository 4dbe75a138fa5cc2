"""Restoring guarded files that a command created or changed, once it has ended.

Mounts can make only existing files read-only; without mounts, nothing in a writable folder can be protected. So guarded
paths are recorded before a command runs, and restored afterwards. What the command wrote is moved to another folder.

Processes that a command left running may create links meanwhile. So every folder is opened relative to its parent,
without following links, and all work in it goes through its descriptor.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from tui_agent.durable import make_private_folder
from tui_agent.tools.files.confined import folder_of, make_folders

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_FILES: Final = 300
_MAX_BYTES: Final = 4_000_000
_MAX_LOOKED_AT: Final = 2_000


class Entry(NamedTuple):
    """A file (its bytes), a link (its target as text) or a folder (None), with its mode and modification time in ns."""

    content: bytes | str | None
    mode: int
    time_ns: int


Snapshot: TypeAlias = dict[str, Entry]
"""The entries at a guarded path and below it, by relative path."""


class Guard:
    """A record of what was at guarded paths when this was made. `frozen`: existing files cannot change, so only missing
    ones are recorded.

    `folders` are the writable folders, which contain the paths. Reads files: create it off the event loop.
    """

    def __init__(self, paths: Iterable[Path], folders: Sequence[Path], *, frozen: bool) -> None:
        paths = list(dict.fromkeys(paths))
        self._noted: dict[Path, Snapshot] = {}
        self._above: dict[Path, tuple[int, int]] = {}
        """The folders on the way to what was there."""
        for path in paths:
            if not os.path.lexists(path):
                self._noted[path] = {}
            elif path.is_symlink() or not frozen:
                found = contents(path)
                if found is not None:
                    self._noted[path] = found
        inside = tuple(f"{folder}/" for folder in folders)
        above = {parent for path, found in self._noted.items() if found for parent in _parents_in(str(path), inside)}
        for place in sorted(above):
            self._note_folder(Path(place))
        on_the_way = {parent for path in paths for parent in _parents_in(str(path), inside)}
        self._no_links = sorted(Path(place) for place in on_the_way if not os.path.islink(place))  # noqa: PTH114
        """What is on the way to anything guarded, there or not, and is no link."""

    def take_back(self, aside: Path, known: Mapping[Path, Snapshot]) -> list[Path]:
        """Restore what has changed, except to a `known` state; what was there instead is moved to the folder `aside`.

        Returns the paths that were restored. Raises OSError.
        """
        changed = [place for place, number in self._above.items() if _bring_back(place, number, aside)]
        for place in self._no_links:
            # Through a link, a guarded file would be created elsewhere, unnoticed.
            if place.is_symlink():
                changed.append(place)
                with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder_of(place) as folder:
                    _put_aside(folder, place.name, aside)
        for path, before in self._noted.items():
            if not before and not os.path.lexists(path):
                continue
            if before:
                with contextlib.suppress(OSError):
                    make_folders(path.parent)
            try:
                with folder_of(path) as folder:
                    found = _read(folder, path.name)
                    if found is not None and found in (before, known.get(path)):
                        continue
                    changed.append(path)
                    _put_aside(folder, path.name, aside)
                    if before:
                        _restore(folder, path.name, before)
            except (FileNotFoundError, NotADirectoryError):
                continue  # a link on the way, to where nothing may be written
        return changed

    def _note_folder(self, place: Path) -> None:
        with contextlib.suppress(OSError):
            status = place.lstat()
            if stat.S_ISDIR(status.st_mode):
                self._above.setdefault(place, (status.st_dev, status.st_ino))


def _parents_in(path: str, folders: tuple[str, ...]) -> Iterator[str]:
    """The parent folders of a path that are below one of `folders` (each with its final slash)."""
    place = os.path.dirname(path)  # noqa: PTH120 - this is done for every guarded path before every command
    while place.startswith(folders):
        yield place
        place = os.path.dirname(place)  # noqa: PTH120


def _bring_back(place: Path, number: tuple[int, int], aside: Path) -> bool:
    """Restore a folder on the way to a guarded path if it has been replaced; returns whether it had been."""
    try:
        with folder_of(place) as folder:
            if _number(folder, place.name) == number:
                return False
            _put_aside(folder, place.name, aside)
            with _listed(folder) as entries:
                for entry in islice(entries, _MAX_LOOKED_AT):
                    if _number(folder, entry.name) == number:
                        os.rename(entry.name, place.name, src_dir_fd=folder, dst_dir_fd=folder)
                        break
    except (FileNotFoundError, NotADirectoryError):
        pass  # so is the folder above it
    return True


@contextlib.contextmanager
def _listed(folder: int) -> "Iterator[Iterator[os.DirEntry[str]]]":
    descriptor = os.open(".", _FOLDER_FLAGS, dir_fd=folder)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _number(folder: int, name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _put_aside(folder: int, name: str, aside: Path) -> None:
    """Move an entry of a folder to `aside`, or delete it if copying it would take long."""
    if _number(folder, name) is None:
        return
    make_private_folder(aside)
    target = _free(aside / name)
    try:
        os.rename(name, target, src_dir_fd=folder)
    except OSError:
        # On another file system: copy it.
        if found := _read(folder, name):
            with folder_of(target) as beside:
                _restore(beside, target.name, found)
        try:
            os.unlink(name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(name, dir_fd=folder)


def contents(path: Path) -> Snapshot | None:
    """All that is at a path, following no link; None if that is too much to record."""
    try:
        with folder_of(path) as folder:
            return _read(folder, path.name)
    except OSError:
        return {}


class _TooMuch(Exception):
    """There is more than may be recorded."""


def _read(folder: int, name: str) -> Snapshot | None:
    """All of an entry of a folder; None if that is too much to record."""
    found: Snapshot = {}
    try:
        _read_into(found, folder, name, ".")
    except _TooMuch:
        return None
    return found


def _read_into(found: Snapshot, folder: int, name: str, place: str) -> None:
    below = -1
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            content: bytes | str | None = os.readlink(name, dir_fd=folder)
        elif stat.S_ISDIR(status.st_mode):
            content, below = None, os.open(name, _FOLDER_FLAGS, dir_fd=folder)
        elif stat.S_ISREG(status.st_mode):
            content = _read_file(found, folder, name)
        else:
            return
        found[place] = Entry(content, stat.S_IMODE(status.st_mode), status.st_mtime_ns)
        if len(found) > _MAX_FILES:
            raise _TooMuch
        for entry in os.listdir(below) if below >= 0 else ():  # noqa: PTH208 - it is a descriptor
            _read_into(found, below, entry, os.path.normpath(f"{place}/{entry}"))
    except OSError:
        return
    finally:
        if below >= 0:
            os.close(below)


def _read_file(found: Snapshot, folder: int, name: str) -> bytes:
    left = _MAX_BYTES - sum(len(entry.content) for entry in found.values() if isinstance(entry.content, bytes))
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(left + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    if len(content) > left:
        raise _TooMuch
    return content


def _restore(folder: int, name: str, before: Snapshot) -> None:
    # A folder comes before its entries, and gets its mode and time after them.
    made = {"": folder}
    try:
        for place, entry in before.items():
            above, _, leaf = ("", "", name) if place == "." else f"./{place}".rpartition("/")
            inside = made["" if place == "." else os.path.normpath(above)]
            if entry.content is None:
                os.mkdir(leaf, 0o700, dir_fd=inside)
                made[place] = os.open(leaf, _FOLDER_FLAGS, dir_fd=inside)
            elif isinstance(entry.content, str):
                os.symlink(entry.content, leaf, dir_fd=inside)
                os.utime(leaf, ns=(entry.time_ns, entry.time_ns), dir_fd=inside, follow_symlinks=False)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                with os.fdopen(os.open(leaf, flags, 0o600, dir_fd=inside), "wb") as stream:
                    stream.write(entry.content)
                    stream.flush()
                    os.fchmod(stream.fileno(), entry.mode)
                    os.utime(stream.fileno(), ns=(entry.time_ns, entry.time_ns))
        for place, descriptor in reversed(made.items()):
            if place:
                os.fchmod(descriptor, before[place].mode)
                os.utime(descriptor, ns=(before[place].time_ns, before[place].time_ns))
    finally:
        for place, descriptor in made.items():
            if place:
                os.close(descriptor)


def _free(path: Path) -> Path:
    number = 1
    place = path
    while os.path.lexists(place):
        number += 1
        place = path.with_name(f"{path.name}.{number}")
    return place
