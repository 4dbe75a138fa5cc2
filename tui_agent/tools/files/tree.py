"""Finding out what a command changed in a project's folder, by comparing its files before and after.

Before a command, every file's stamp is taken, and files whose stamp is new are read: their content is stashed, unless
the project's git repository already has it. Afterwards, files whose stamps differ are read. Ignored files are left out,
as in a search, except those in the project's own folder, and links are not followed.
"""

import asyncio
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from tui_agent.conversation.entries import FileChange, FileState
from tui_agent.durable import in_thread
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.git_index import GitIndex, content_name
from tui_agent.tools.files.states import ABSENT, Stamp, look_in
from tui_agent.tools.search.ripgrep import search

MAX_CHANGES: Final = 5_000
"""The most changed files that are recorded for one command."""

_RACY_NS: Final = 20_000_000
"""Nanoseconds. A file may change twice within one tick of the file system's clock, so a stamp this recent proves
nothing."""
_NAMES_LOOKED_AT: Final = 5_000
"""The most names that are read in folders without listed files."""
_LISTED = ("--files", "--null", "--hidden", "--no-require-git", "--glob=!.git", "--no-messages", "--color=never")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

TOO_MANY: Final = "The project has more than {limit:,} files: what a command changes in it is not looked for."
TOO_SLOW: Final = "Looking at the project took longer than {limit:g} s: what a command changed is not known."
NOT_LISTED: Final = "The project's files could not be listed ({why}): what a command changed is not known."
CAME_INTO_VIEW: Final = "Files came into view that were not looked at before ({count:,}): how they were is not known."
TOO_MANY_CHANGES: Final = "A command changed {count:,} files, more than {limit:,}: the others are not noted."
NO_TIME: Final = "there was no time to read it"
ODD_NAMES: Final = "Files whose names are no valid text are not looked at."


class TreeLimits(NamedTuple):
    """The most files to look at, seconds for one look, bytes of the largest file whose content is kept."""

    files: int
    seconds: float
    file_bytes: int


class Kept(Protocol):
    """Stores file contents; see `storage.kept_files.KeptFiles`."""

    def keep(self, content: bytes) -> str: ...

    def stash(self, content: bytes, digest: str) -> str: ...

    def keep_stashed(self, digest: str) -> str: ...

    def read(self, digest: str) -> bytes | None: ...

    def close(self) -> None: ...


class TreeChanges(NamedTuple):
    """The changes that were found, and sentences about what could not be."""

    files: tuple[FileChange, ...] = ()
    gaps: tuple[str, ...] = ()


class _Known(NamedTuple):
    """A file as last seen. `read_ns`: when its stamp was taken; `unread` says why its content is not known."""

    stamp: Stamp
    read_ns: int
    state: FileState
    git_name: str = ""
    unread: str = ""

    def holds_for(self, stamp: Stamp) -> bool:
        """Whether this stamp proves that the file is unchanged, so that it need not be read again."""
        certain = stamp == self.stamp and max(stamp.mtime_ns, stamp.ctime_ns) < self.read_ns - _RACY_NS
        return certain and self.unread != NO_TIME

    def is_same_as(self, other: "_Known") -> bool:
        if self.state.sha256 and other.state.sha256:
            return self.state == other.state
        return self.stamp == other.stamp


class _Look(NamedTuple):
    """The files of a tree by relative path, and all names in each folder that was read."""

    files: dict[str, _Known]
    names: dict[str, set[str]]


class _Gap(Exception):
    """The tree could not be looked at; the message is a sentence that says why."""


class Tree:
    """Tracks changes of the files in one folder, except in the `excluded` ones."""

    def __init__(self, root: Path, excluded: Iterable[Path], kept: Kept, limits: TreeLimits) -> None:
        self.root = root
        inside = (folder for folder in excluded if folder != root and folder.is_relative_to(root))
        self._excluded = tuple(str(folder.relative_to(root)) for folder in inside)
        self._contents = kept
        self._limits = limits
        self._git = GitIndex(root)
        self._before: _Look | None = None
        self._gap = ""
        self._also: set[str] = set()

    def heed(self, paths: Iterable[Path]) -> None:
        """Track these files even if they are ignored: they were changed before."""
        self._also.update(str(path.relative_to(self.root)) for path in paths if path.is_relative_to(self.root))

    async def look(self) -> None:
        """Record the present state. Never fails: `changes` reports what could not be done."""
        try:
            self._before, self._gap = await self._look(self._before), ""
        except _Gap as gap:
            self._before, self._gap = None, str(gap)

    async def gap(self) -> str:
        """Why what changes now could not be found, in a sentence; empty if it could. The first time, looks."""
        if self._before is None and not self._gap:
            await self.look()
        return self._gap

    async def changes(self) -> TreeChanges:
        """What has changed since `look`. The contents from before the change are kept."""
        before = self._before
        if before is None:
            return TreeChanges(gaps=(self._gap,))
        try:
            after = await self._look(before)
        except _Gap as gap:
            self._before = None
            return TreeChanges(gaps=(str(gap),))
        self._before = after
        gaps: list[str] = []
        found = await in_thread(self._compared, before, after, gaps)
        if len(found) > MAX_CHANGES:
            gaps.append(TOO_MANY_CHANGES.format(count=len(found), limit=MAX_CHANGES))
            found = found[:MAX_CHANGES]
        return TreeChanges(await self._kept(before, found), tuple(gaps))

    # Looking

    async def _look(self, known: _Look | None) -> _Look:
        """Raises `_Gap`."""
        limits = self._limits
        deadline = time.monotonic() + limits.seconds
        try:
            async with asyncio.timeout(limits.seconds):
                listed = await self._listed()
        except TimeoutError as error:
            raise _Gap(TOO_SLOW.format(limit=limits.seconds)) from error
        except (OSError, ToolFailure) as error:
            raise _Gap(
                NOT_LISTED.format(why=error.why if isinstance(error, ToolFailure) else error.strerror)
            ) from error
        try:
            return await in_thread(lambda: _Walk(self, known, listed, deadline).whole())
        except OSError as error:
            raise _Gap(NOT_LISTED.format(why=error.strerror)) from error

    async def _listed(self) -> list[str]:
        """The relative paths of files that are not ignored. Raises `_Gap`, OSError, ToolFailure."""
        files: list[str] = []
        descriptor = os.open(self.root, _FOLDER_FLAGS)
        try:
            async with search((*_LISTED, *self._exclusions()), descriptor) as found:
                async for records in found.batches(b"\0"):
                    files += map(os.fsdecode, records)
                    if len(files) > self._limits.files:
                        raise _Gap(TOO_MANY.format(limit=self._limits.files))
        finally:
            os.close(descriptor)
        return files

    def _exclusions(self) -> list[str]:
        return [f"--glob=!/{_as_glob(folder)}" for folder in self._excluded]

    def is_excluded(self, path: str) -> bool:
        """Whether this relative path is in an excluded folder."""
        return any(path == folder or path.startswith(f"{folder}/") for folder in self._excluded)

    # Comparing

    def _compared(self, before: _Look, after: _Look, gaps: list[str]) -> list[FileChange]:
        found: list[FileChange] = []
        came_into_view = odd = 0
        for path in before.files.keys() | after.files.keys():
            old, new = before.files.get(path), after.files.get(path)
            if old is not None and new is not None and new.is_same_as(old):
                continue
            if not _is_text(path):
                odd += 1
            elif old is not None and new is not None:
                found.append(FileChange(str(self.root / path), old.state, new.state, old.unread))
            elif old is not None:
                found.append(FileChange(str(self.root / path), old.state, ABSENT, old.unread))
            elif new is not None:
                made = _made(path, before.names)
                if made is None:
                    came_into_view += 1
                else:
                    found.append(FileChange(str(self.root / path), ABSENT, new.state, made=made))
        if came_into_view:
            gaps.append(CAME_INTO_VIEW.format(count=came_into_view))
        if odd:
            gaps.append(ODD_NAMES)
        # Sort only the changes, not all paths: a sort holds the GIL and would stall the event loop.
        return sorted(found, key=lambda change: change.path)

    async def _kept(self, before: _Look, changes: Sequence[FileChange]) -> tuple[FileChange, ...]:
        """The changes, after storing their earlier contents for good."""

        def known(change: FileChange) -> _Known | None:
            return before.files.get(os.path.relpath(change.path, self.root))

        names = [old.git_name for change in changes if (old := known(change)) and old.git_name]
        contents = await self._git.contents(names)
        return await in_thread(lambda: tuple(self._keep(change, known(change), contents) for change in changes))

    def _keep(self, change: FileChange, old: _Known | None, contents: dict[str, bytes]) -> FileChange:
        if old is None or old.unread or not change.before.sha256:
            return change
        if not old.git_name:
            why = self._contents.keep_stashed(change.before.sha256)
        elif (content := contents.get(old.git_name)) is None or sha256(content).hexdigest() != change.before.sha256:
            why = "git no longer holds its content"
        else:
            why = self._contents.keep(content)
        return msgspec.structs.replace(change, unkept=why) if why else change


class _Walk:
    """One pass over every folder that has listed files. Runs in a thread."""

    def __init__(self, tree: Tree, known: _Look | None, listed: Iterable[str], deadline: float) -> None:
        self._tree = tree
        self._known = known.files if known is not None else {}
        self._is_first = known is None
        self._deadline = deadline
        self._files: dict[str, set[str]] = {"": set()}
        self._below: dict[str, set[str]] = {}
        for path in (*listed, *self._known, *tree._also):
            folder, _, name = path.rpartition("/")
            self._add(folder)
            self._files[folder].add(name)
        self._git_names = tree._git.names()
        self._others: list[str] = []
        self._look = _Look({}, {})

    def whole(self) -> _Look:
        """Raises `_Gap`, and OSError if the root cannot be opened."""
        descriptor = os.open(self._tree.root, _FOLDER_FLAGS)
        try:
            self._folder(descriptor, "")
            self._names_of_others(descriptor)
        finally:
            os.close(descriptor)
        return self._look

    def _add(self, folder: str) -> None:
        while folder not in self._files:
            self._files[folder] = set()
            above, _, name = folder.rpartition("/")
            self._below.setdefault(above, set()).add(name)
            folder = above

    def _folder(self, descriptor: int, path: str) -> None:
        if time.monotonic() > self._deadline + self._tree._limits.seconds:
            raise _Gap(TOO_SLOW.format(limit=2 * self._tree._limits.seconds))
        wanted, folders = self._files[path], self._below.get(path, set())
        names: set[str] = set()
        others: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                names.add(entry.name)
                if entry.name == ".git":
                    continue
                # What lies in the project's own folder is kept although it is ignored: an `.env` is written once.
                kept = entry.name in wanted or not path
                if entry.is_symlink() or (kept and not entry.is_dir(follow_symlinks=False)):
                    self._file(descriptor, path, entry)
                elif entry.name not in folders and entry.is_dir(follow_symlinks=False):
                    others.append(entry.name)
        self._look.names[path] = names
        self._others += (f"{path}/{name}" if path else name for name in others)
        for name in folders & names:
            with suppress(OSError):
                below = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
                try:
                    self._folder(below, f"{path}/{name}" if path else name)
                finally:
                    os.close(below)

    def _names_of_others(self, root: int) -> None:
        """Record the names in folders without listed files, so that files made there can be recognised as new."""
        left = _NAMES_LOOKED_AT
        for path in self._others:
            if left <= 0:
                return
            with suppress(OSError), _opened_below(root, path) as below, os.scandir(below) as entries:
                found = [entry for _, entry in zip(range(left + 1), entries, strict=False)]
                left -= len(found)
                if left >= 0:
                    self._look.names[path] = {entry.name for entry in found}
                    # Breadth first: files near the root are more likely to be changed.
                    self._others += (f"{path}/{e.name}" for e in found if e.is_dir(follow_symlinks=False))

    def _file(self, descriptor: int, folder: str, entry: "os.DirEntry[str]") -> None:
        path = f"{folder}/{entry.name}" if folder else entry.name
        tree, now = self._tree, time.time_ns()
        try:
            found = os.stat(entry.name, dir_fd=descriptor, follow_symlinks=False)
        except OSError:
            return
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode)) or tree.is_excluded(path):
            return
        stamp = Stamp.of(found)
        old = self._known.get(path)
        if old is not None and old.holds_for(stamp):
            self._look.files[path] = old
        else:
            self._look.files[path] = self._read(descriptor, path, entry.name, stamp, now, old)

    def _read(self, descriptor: int, path: str, name: str, stamp: Stamp, now: int, old: _Known | None) -> _Known:
        limits = self._tree._limits
        unknown = FileState("file", stat.S_IMODE(stamp.mode), stamp.size)
        too_large = f"it is larger than {limits.file_bytes:,} bytes"
        if time.monotonic() > self._deadline:
            return _Known(stamp, now, unknown, unread=NO_TIME)
        if self._is_first and stamp.size > limits.file_bytes:
            return _Known(stamp, now, unknown, unread=too_large)
        seen = look_in(descriptor, name, limits.file_bytes)
        if seen.stamp is not None:
            stamp = seen.stamp
        if seen.content is None:
            why = too_large if seen.state.kind == "file" else "it cannot be read"
            return _Known(stamp, now, seen.state, unread=why)
        if old is not None and old.state == seen.state and not old.unread:
            return old._replace(stamp=stamp, read_ns=now)
        git_name = self._git_names.get(path, "")
        if git_name and content_name(seen.content) == git_name and seen.state.kind == "file":
            return _Known(stamp, now, seen.state, git_name=git_name)
        unread = self._tree._contents.stash(seen.content, seen.state.sha256)
        return _Known(stamp, now, seen.state, unread=unread)


@contextmanager
def _opened_below(root: int, path: str) -> Iterator[int]:
    """A descriptor of a folder, opened without following links. Raises OSError."""
    descriptor = os.dup(root)
    try:
        for name in path.split("/"):
            below = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


def _made(path: str, names: dict[str, set[str]]) -> int | None:
    """How many folders were made for the new file `path`; None if it may have existed before, unseen."""
    made = 0
    while True:
        folder, _, name = path.rpartition("/")
        if folder in names:
            return made if name not in names[folder] else None
        if not folder:
            return None
        # The folder was not read before; go on with its parent to find out whether it existed.
        path = folder
        made += 1


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_glob(path: str) -> str:
    return "".join(f"\\{character}" if character in "*?[]{}\\!" else character for character in path)
