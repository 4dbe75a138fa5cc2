"""Guarded files that a command made or changed all the same are taken back when it has ended.

Mounts can make only that read-only which is there; where there are no mounts at all, nothing in a folder that may be
written. So what is guarded is noted before a command runs, and put back as it was afterwards. What the command wrote is
kept aside.
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

_MOST_FILES: Final = 300
_MOST_BYTES: Final = 4_000_000
_MOST_LOOKED_AT: Final = 2_000


class Entry(NamedTuple):
    """A file (its bytes), a link (its target as text) or a folder (None), with its mode and time of change."""

    content: bytes | str | None
    mode: int
    time_ns: int


Noted: TypeAlias = dict[str, Entry]
"""What is at a guarded path and below it, by path from there."""


class Guard:
    """What stood at guarded paths when this was made. `frozen`: what is there cannot change, so only the rest is noted.

    `folders` are those that may be written; the paths lie in them. Reads files: to be made off the event loop.
    """

    def __init__(self, paths: Iterable[Path], folders: Sequence[Path], *, frozen: bool) -> None:
        self._noted: dict[Path, Noted] = {}
        self._above: dict[Path, tuple[int, int]] = {}
        for path in dict.fromkeys(paths):
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

    def take_back(self, aside: Path, known: Mapping[Path, Noted]) -> list[Path]:
        """Put back what has changed, but not what is `known`; what was there instead goes to the folder `aside`.

        Returns the paths that were put back. Raises OSError.
        """
        changed = [place for place, number in self._above.items() if _bring_back(place, number, aside)]
        for path, before in self._noted.items():
            if not before and not os.path.lexists(path):
                continue
            found = contents(path)
            if found is not None and found in (before, known.get(path)):
                continue
            if os.path.realpath(path.parent) != str(path.parent):
                continue  # a link on the way that was there before: it leads where nothing may be written
            changed.append(path)
            _put_aside(path, aside)
            if before:
                path.parent.mkdir(parents=True, exist_ok=True)
                _restore(path, before)
        return changed

    def _note_folder(self, place: Path) -> None:
        with contextlib.suppress(OSError):
            status = place.lstat()
            if stat.S_ISDIR(status.st_mode):
                self._above.setdefault(place, (status.st_dev, status.st_ino))


def _parents_in(path: str, folders: tuple[str, ...]) -> Iterator[str]:
    """The folders on the way to a path that lie in one of `folders` (each with its final slash)."""
    place = os.path.dirname(path)  # noqa: PTH120 - this is done for every guarded path before every command
    while place.startswith(folders):
        yield place
        place = os.path.dirname(place)  # noqa: PTH120


def _bring_back(place: Path, number: tuple[int, int], aside: Path) -> bool:
    """Whether a folder on the way to something guarded was another one now; it is as before then."""
    with contextlib.suppress(OSError):
        if _number(place) == number:
            return False
    _put_aside(place, aside)
    with contextlib.suppress(OSError), os.scandir(place.parent) as entries:
        for entry in islice(entries, _MOST_LOOKED_AT):
            if _number(Path(entry.path)) == number:
                Path(entry.path).rename(place)
                break
    return True


def _number(place: Path) -> tuple[int, int]:
    status = place.lstat()
    return status.st_dev, status.st_ino


def _put_aside(path: Path, aside: Path) -> None:
    """Take away what is at `path`; keep it where that does not take long."""
    if not os.path.lexists(path):
        return
    make_private_folder(aside)
    try:
        path.rename(_free(aside / path.name))
    except OSError:
        # Another file system: it has to be copied.
        found = contents(path)
        if found:
            _restore(_free(aside / path.name), found)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def contents(path: Path) -> Noted | None:
    """What is at a path, whole; None where that is too much to note."""
    found: Noted = {}
    size = 0
    waiting = [path]
    while waiting:
        place = waiting.pop()
        name = os.path.relpath(place, path)
        try:
            status = place.lstat()
            if stat.S_ISLNK(status.st_mode):
                content: bytes | str | None = str(place.readlink())
            elif stat.S_ISDIR(status.st_mode):
                content = None
                waiting += place.iterdir()
            elif stat.S_ISREG(status.st_mode):
                size += status.st_size
                if size > _MOST_BYTES:
                    return None
                content = place.read_bytes()
            else:
                continue
            found[name] = Entry(content, stat.S_IMODE(status.st_mode), status.st_mtime_ns)
        except OSError:
            continue
        if len(found) > _MOST_FILES:
            return None
    return found


def _restore(path: Path, before: Noted) -> None:
    # A folder stands before what is in it, and gets its time back after that.
    for name, entry in before.items():
        place = path / name
        if entry.content is None:
            place.mkdir()
        elif isinstance(entry.content, str):
            place.symlink_to(entry.content)
        else:
            place.write_bytes(entry.content)
            place.chmod(entry.mode)
    for name, entry in reversed(before.items()):
        if not isinstance(entry.content, str):
            (path / name).chmod(entry.mode)
            os.utime(path / name, ns=(entry.time_ns, entry.time_ns))


def _free(path: Path) -> Path:
    number = 1
    place = path
    while os.path.lexists(place):
        number += 1
        place = path.with_name(f"{path.name}.{number}")
    return place
