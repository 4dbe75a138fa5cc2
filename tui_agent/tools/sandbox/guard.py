"""Restoring guarded files that a command created or changed, once it has ended.

Mounts can make only existing files read-only; without mounts, nothing in a writable folder can be protected. So guarded
paths are recorded before a command runs, and restored afterwards. What the command wrote is moved to another folder.

Processes that a command left running may create links meanwhile. So every folder is opened relative to its parent,
without following links, and all work in it goes through its descriptor.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from tui_agent.system.durable import make_private_folder
from tui_agent.system.regular import read_at_most, remove_tree
from tui_agent.tools.base import Change
from tui_agent.tools.files.confined import folder_of
from tui_agent.tools.sandbox.guarded import (
    IN_GIT,
    INSTALLED,
    MAX_LIMITED,
    Finder,
    GuardedPaths,
    at_the_top,
    runs_nothing,
    with_mode,
)
from tui_agent.tools.sandbox.held_by_git import GitState, held_since
from tui_agent.visible import visible_line

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PATH_FLAGS: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_FILES: Final = 300
_MAX_BYTES: Final = 4_000_000
_MOST_CLOSED: Final = 100
"""The most folders in each other that are opened up."""


class GuardedEntry(msgspec.Struct, frozen=True):
    """A file (its bytes), a link (its target as text) or a folder (None), with its mode and modification time in ns.

    `names`: how many a file has; through another one, a program outside might change it.
    """

    content: bytes | str | None
    mode: int
    time_ns: int
    names: int = 1


Snapshot: TypeAlias = dict[str, GuardedEntry]
"""The entries at a guarded path and below it, by relative path."""
Changed: TypeAlias = dict[str, GuardedEntry | None]
"""Those of them that have changed, with the folders they are in; None for what is gone."""


class Guard:
    """A record of what was at the guarded paths below the writable `folders` when this was made.

    `frozen`: existing paths at the top of the folders cannot change meanwhile, so they are not recorded. `earlier`: the
    guard of the command that has run longest. Reads files: create it off the event loop.
    """

    def __init__(
        self, finder: Finder, folders: Sequence[Path], *, frozen: bool, earlier: "Guard | None" = None
    ) -> None:
        self._finder, self.folders = finder, folders
        self._found = finder.look(folders)
        self.whole = self._found.whole
        """Whether everything guarded could be looked for, and protected, so far."""
        self._paths = self._existing(self._found)
        self.fixed = [path for path in sorted(self._paths) if at_the_top(path, folders)]
        """The existing paths that mounts protect: guarded ones at the top of the folders, and by the user's rules."""
        frozen_paths = {path for path in self.fixed if frozen and not os.path.islink(path)}  # noqa: PTH114
        self._noted = {path: contents(Path(path)) for path in self._paths - frozen_paths}
        self._frozen = {path: _number(None, path) for path in frozen_paths}
        # What is too much to be restored must not change.
        too_much = sorted(path for path, found in self._noted.items() if found is None)
        self.fixed += too_much if frozen else ()
        self.limited = dict(sorted(self._found.limited.items())[:MAX_LIMITED])
        """What commands may not read or not change, because of the user's rules."""
        self.fixed += [path for path, limit in self.limited.items() if frozen and limit == "write"]
        self.whole = self.whole and (frozen or not too_much) and len(self._found.limited) <= MAX_LIMITED
        tops = {os.path.dirname(path) for path in self.fixed if path in self._noted}  # noqa: PTH120
        self._above = {place: number for place in sorted(tops) if (number := _number(None, place)) is not None}
        """The folders of those that may change, such as `.git`: they are brought back if they are renamed."""
        self._straight = [path for path in self._found.named if not _links_to(path)]
        self.repositories, self.named = self._found.repositories, self._found.named
        self.git: dict[str, GitState] = {}
        """What git held in each of the `repositories`; nothing, of those that are new and stay where somebody works."""
        self._earlier, self._ended = earlier, False

    def changed(self, only: Sequence[str] | None = None) -> dict[str, Changed]:
        """What is at guarded paths now and was not when this was made: all of it, or no more than these files. Reads
        files.
        """
        found: dict[str, Changed] = {}
        for path in self._existing(self._finder.look(self.folders)) | self._noted.keys():
            if (now := contents(Path(path))) is None:
                continue
            before = self._noted.get(path) or {}
            places = {place: os.path.normpath(f"{path}/{place}") for place in now | before}
            differ = [place for place in places if now.get(place) != before.get(place)]
            meant = [places[place] for place in differ] if only is None else only
            leading = [each for each in places if any(f"{one}/".startswith(f"{places[each]}/") for one in meant)]
            if not set(leading).isdisjoint(differ):
                found[path] = {place: now.get(place) for place in leading}
        return found

    @property
    def replaced(self) -> list[str]:
        """What could change after all, since a program outside has replaced it, and with it the mount on it."""
        now = {path: _number(None, path) for path in self._frozen.keys() - self._noted.keys()}
        return sorted(path for path, number in now.items() if number not in (None, self._frozen[path]))

    def left_to_git(self) -> list[Change]:
        """The guarded files that the command left to git, or could change where they stand. Call it when the rest is
        taken back. Reads files, and may start git.
        """
        could_change = "was replaced by another program: from then on the command could change it"
        found = [Change(f"{visible_line(path)} {could_change}", "") for path in self.replaced]
        return [*found, *(each for place, state in self.git.items() for each in held_since(place, state, self.named))]

    def accept(self, changed: Mapping[str, Changed]) -> None:
        """From now on these entries are what is restored."""
        self._paths |= frozenset(changed)
        for path, entries in changed.items():
            merged = {**(self._noted.get(path) or {}), **entries}
            self._noted[path] = {place: entry for place, entry in merged.items() if entry is not None}
        if self._earlier is not None:
            self._earlier.accept(changed)

    def _existing(self, found: GuardedPaths) -> frozenset[str]:
        """The guarded paths that exist. What a command itself had settings name is none of them."""
        return found.paths | frozenset(filter(os.path.lexists, self._found.named))

    def take_back(self, withheld: Path) -> list[Path]:
        """Restore what has changed; what was there instead moves to the folder `withheld`.

        A repository that is new and makes git run nothing stays, and so does what was moved or copied with its folder.
        Returns the paths that were restored. Raises OSError.
        """
        if self._earlier is not None and self._earlier._ended:
            # What that command had done by then was there when this was made, and is to come back no more.
            before = self._earlier
            self._found, self._paths, self._noted = before._found, before._paths, before._noted
            self._above, self._straight = before._above, before._straight
        self._earlier, self._ended = None, True
        changed = [Path(place) for place, number in self._above.items() if _bring_back(Path(place), number, withheld)]
        # Settings name these by their paths, so a link on the way would have them say what the command wrote.
        changed += [link for path in self._straight for link in _links_to(path) if _take_out(link, withheld)]
        after, opened = self._opened()
        try:
            changed += self._put_back(after, withheld)
        finally:
            for place, mode in opened.items():
                with_mode(place, mode, kept=0)
        return changed

    def _opened(self) -> tuple[GuardedPaths, dict[str, int]]:
        """What is there now, and the modes of folders that a command closed to their owner: they are made readable."""
        opened: dict[str, int] = {}
        after = self._found
        for _ in range(_MOST_CLOSED):
            after = self._finder.look(self.folders)
            closed = after.unreadable - self._found.unreadable - opened.keys()
            modes = {place: with_mode(place, 0o700) for place in closed}
            found = {place: mode for place, mode in modes.items() if mode is not None}
            if not found:
                break
            opened.update(found)
        return after, opened

    def _put_back(self, after: GuardedPaths, withheld: Path) -> list[Path]:
        changed: list[Path] = []
        harmless: set[str] = set()
        self.whole, knows_new = self.whole and after.whole, self._found.whole
        for repository in map(Path, sorted(after.repositories - self._found.repositories) if knows_new else ()):
            if runs_nothing(repository):
                if INSTALLED.isdisjoint(repository.parts):
                    self.git[str(repository)] = GitState()
                harmless.update(f"{repository}/{name}" for name in IN_GIT)
                continue
            # Of a bare one only what makes it one: its folder may be the project, with all that is in it.
            bare = () if repository.name.lower() == ".git" else ("HEAD", "config", "commondir")
            taken = [_take_out(repository / name, withheld) for name in bare or ("",)]
            if any(taken):
                changed.append(repository)
        copies = [(os.path.basename(path), found) for path, found in self._noted.items() if found]  # noqa: PTH119
        for path in sorted(self._existing(after) - self._paths - harmless) if knows_new else ():
            place = Path(path)
            found = contents(place)
            copied = not at_the_top(path, self.folders) and (place.name, found) in copies
            if copied or (not found and found is not None):
                continue
            if (place.name not in {".git", "commondir"} or not runs_nothing(place)) and _take_out(place, withheld):
                changed.append(place)
        for path, before in self._noted.items():
            gone_with_its_folder = not os.path.lexists(os.path.dirname(path))  # noqa: PTH120
            if before and not gone_with_its_folder and _put_right(Path(path), before, withheld):
                changed.append(Path(path))
        return changed


def _links_to(path: str) -> list[Path]:
    """The first link among the folders that a path leads through."""
    return [place for place in reversed(Path(path).parents) if place.is_symlink()][:1]


@contextlib.contextmanager
def _writable(folder: int) -> Iterator[None]:
    """A folder that a command closed to its owner can be written meanwhile."""
    mode = with_mode(f"/proc/self/fd/{folder}/.", 0o700)
    try:
        yield
    finally:
        if mode is not None:
            with_mode(f"/proc/self/fd/{folder}/.", mode, kept=0)


def _take_out(path: Path, withheld: Path) -> bool:
    """Move what is new at a guarded path to `withheld`; returns whether it was there."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), folder_of(path) as folder, _writable(folder):
        there = _number(folder, path.name) is not None
        _move_out(folder, path.name, withheld)
        return there
    return False


def _put_right(path: Path, before: Snapshot, withheld: Path) -> bool:
    """Restore what was at a guarded path, unless it is there; returns whether it was not."""
    try:
        with folder_of(path) as folder:
            if _read(folder, path.name) == before:
                return False
            with _writable(folder):
                _move_out(folder, path.name, withheld)
                _restore(folder, path.name, before)
    except (FileNotFoundError, NotADirectoryError):
        return False  # a link on the way, to where nothing may be written
    return True


def _bring_back(place: Path, number: tuple[int, int], withheld: Path) -> bool:
    """Restore a folder of guarded paths if it has been replaced or removed, then empty; returns whether it had been."""
    try:
        with folder_of(place) as folder:
            if _number(folder, place.name) == number:
                return False
            with _writable(folder):
                _move_out(folder, place.name, withheld)
                for name in _names_in(folder):
                    if _number(folder, name) == number:
                        os.rename(name, place.name, src_dir_fd=folder, dst_dir_fd=folder)
                        return True
                os.mkdir(place.name, 0o755, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        pass  # so is the folder above it
    return True


def _names_in(folder: int) -> list[str]:
    """The names in a folder; none if its owner may not read it."""
    try:
        descriptor = os.open(".", _FOLDER_FLAGS, dir_fd=folder)
    except PermissionError:
        return []
    try:
        return os.listdir(descriptor)  # noqa: PTH208
    finally:
        os.close(descriptor)


def _number(folder: int | None, name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _move_out(folder: int, name: str, withheld: Path) -> None:
    """Move an entry of a folder to `withheld`, or delete it if copying it would take long."""
    if _number(folder, name) is None:
        return
    make_private_folder(withheld)
    target = _free(withheld / name)
    # A folder that its owner may not enter could be neither moved nor removed.
    with_mode(f"/proc/self/fd/{folder}/{name}", 0o700)
    try:
        os.rename(name, target, src_dir_fd=folder)
    except OSError:
        # On another file system: copy it.
        if found := _read(folder, name):
            with folder_of(target) as target_folder:
                _restore(target_folder, target.name, found)
        try:
            os.unlink(name, dir_fd=folder)
        except (IsADirectoryError, PermissionError):
            remove_tree(Path(name), folder)


def contents(path: Path) -> Snapshot | None:
    """All that is at a path, following no link; None if that is too much to record."""
    try:
        with folder_of(path) as folder:
            return _read(folder, path.name)
    except OSError:
        return {}


class _TooMuch(Exception):
    """There is more than may be recorded, or what cannot be read."""


def _read(folder: int, name: str) -> Snapshot | None:
    """All of an entry of a folder; None if that is too much to record."""
    found: Snapshot = {}
    try:
        _read_into(found, folder, name, ".")
    except _TooMuch:
        return None
    return found


def _read_into(found: Snapshot, folder: int, name: str, place: str) -> None:
    with contextlib.suppress(OSError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        content: bytes | str | None = f"no file, link or folder: {stat.S_IFMT(status.st_mode):o}"
        if stat.S_ISLNK(status.st_mode):
            content = os.readlink(name, dir_fd=folder)
        elif stat.S_ISREG(status.st_mode):
            content = _read_file(found, folder, name)
        elif stat.S_ISDIR(status.st_mode):
            content = None
        names = status.st_nlink if stat.S_ISREG(status.st_mode) else 1
        found[place] = GuardedEntry(content, stat.S_IMODE(status.st_mode), status.st_mtime_ns, names)
        if len(found) > _MAX_FILES:
            raise _TooMuch
        if content is None:
            below = os.open(name, _PATH_FLAGS, dir_fd=folder)
            try:
                for entry in _names_in(below):
                    _read_into(found, below, entry, os.path.normpath(f"{place}/{entry}"))
            finally:
                os.close(below)


def _read_file(found: Snapshot, folder: int, name: str) -> bytes:
    left = _MAX_BYTES - sum(len(entry.content) for entry in found.values() if isinstance(entry.content, bytes))
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except PermissionError as error:
        raise _TooMuch from error
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        content = read_at_most(stream, left + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
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
