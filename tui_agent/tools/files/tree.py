"""Finding out what a command changed in a project's folder, by comparing its files before and after.

Before a command, every file's stamp is taken, and files whose stamp is new are read: their content is stashed, unless
the project's git repository already has it. Afterwards, files whose stamps differ are read. Ignored files are left out,
as in a search, except those in the project's own folder, and links are not followed.

Looking again costs little: what the look after a command found is what there is before the next one, if nothing was
changed in between (`watched`); a folder is read again only if its stamp is new, and ripgrep lists the files that are
not ignored again only where it is not sure whether a new name is, or a file that says what is ignored was changed.
"""

import asyncio
import math
import os
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import structs

from tui_agent.conversation.entries import FileChange, FileState, file_change
from tui_agent.system.durable import in_thread
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import folder_below
from tui_agent.tools.files.git_index import GitIndex, content_name
from tui_agent.tools.files.ignore_rules import IGNORE_FILES, IgnoreRules, read_rules
from tui_agent.tools.files.states import ABSENT, RACY_NS, Stamp, look_in
from tui_agent.tools.files.watched import Watched, is_in_memory
from tui_agent.tools.ripgrep import search

MAX_CHANGES: Final = 5_000
"""The most changed files that are recorded for one command."""

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


class TreeLimits(msgspec.Struct, frozen=True):
    """The most files to look at, seconds for one look, bytes of the largest file whose content is kept."""

    files: int
    seconds: float
    file_bytes: int


class FileStore(Protocol):
    """Stores file contents; see `storage.kept_files.KeptFiles`."""

    def keep(self, content: bytes) -> str: ...

    def stash(self, content: bytes, digest: str) -> str: ...

    def keep_stashed(self, digest: str) -> str: ...

    def read(self, digest: str) -> bytes | None: ...

    def close(self) -> None: ...


class TreeChanges(msgspec.Struct, frozen=True):
    """The changes that were found, and sentences about what could not be."""

    files: tuple[FileChange, ...] = ()
    gaps: tuple[str, ...] = ()


class _Known(msgspec.Struct, frozen=True):
    """A file as last seen. `unread` says why its content is not known.

    `is_certain`: the same stamp proves that the file is unchanged, so that it need not be read again.
    """

    stamp: Stamp
    is_certain: bool
    state: FileState
    git_name: str = ""
    unread: str = ""

    def is_same_as(self, other: "_Known") -> bool:
        if self.state.sha256 and other.state.sha256:
            return self.state == other.state
        return self.stamp == other.stamp


class _Folder(NamedTuple):
    """A folder as last read: its stamp, empty if that proves nothing, all names in it, and those of folders and links.

    Git's own folder is not among the `folders`.
    """

    stamp: tuple[int, ...]
    names: frozenset[str]
    folders: frozenset[str]
    links: frozenset[str]


class _Wanted(NamedTuple):
    """What to look at, by folder: the names of files and those of folders; and the folders that are not ignored.

    It grows from look to look, until the files are listed again.
    """

    files: dict[str, set[str]]
    below: dict[str, set[str]]
    not_ignored: set[str]


class _Task(NamedTuple):
    """What to look at in a folder as it was read, while nothing else is wanted there: files by name, with their paths,
    and the names of folders with and without such files.
    """

    folder: _Folder
    wanted: int
    files: list[tuple[str, str]]
    below: frozenset[str]
    others: frozenset[str]


class _Look(msgspec.Struct, frozen=True):
    """The files of a tree and the folders that were read, by relative path, with what was looked at there.

    `listed` are the files that are not ignored, `ignoring` the stamps of the files that say what is. `whole`: every
    folder was read.
    """

    files: dict[str, _Known]
    folders: dict[str, _Folder]
    tasks: dict[str, _Task]
    listed: list[str]
    ignoring: dict[str, tuple[int, ...]]
    wanted: _Wanted
    whole: bool


class _Gap(Exception):
    """The tree could not be looked at; the message is a sentence that says why."""


class Tree:
    """Tracks changes of the files in one folder, except in the `excluded` ones."""

    def __init__(self, root: Path, excluded: Iterable[Path], kept: FileStore, limits: TreeLimits) -> None:
        self.root = root
        inside = (folder for folder in excluded if folder != root and folder.is_relative_to(root))
        self._excluded = tuple(str(folder.relative_to(root)) for folder in inside)
        self._contents = kept
        self._limits = limits
        self._git = GitIndex(root)
        self._before: _Look | None = None
        self._gap = ""
        self._also: set[str] = set()
        self._rules: tuple[dict[str, tuple[int, ...]], IgnoreRules | None] = ({}, None)
        self._watched = Watched()

    def close(self) -> None:
        """Let go of what watches the folder."""
        self._watched.close()

    def track(self, paths: Iterable[Path]) -> None:
        """Track these files even if they are ignored: they were changed before."""
        new = {str(path.relative_to(self.root)) for path in paths if path.is_relative_to(self.root)} - self._also
        self._also |= new
        if self._before is not None and new - self._before.files.keys():
            self._before = structs.replace(self._before, whole=False)

    async def look(self) -> None:
        """Record the present state. Never fails: `changes` reports what could not be done."""
        if self._before is not None and self._before.whole and self._watched.is_quiet():
            return
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
        if after.files == before.files:
            return TreeChanges()
        gaps: list[str] = []
        found = await in_thread(self._compared, before, after, gaps)
        if len(found) > MAX_CHANGES:
            gaps.append(TOO_MANY_CHANGES.format(count=len(found), limit=MAX_CHANGES))
            found = found[:MAX_CHANGES]
        return TreeChanges(await self._kept(before, found), tuple(gaps))

    # Looking

    async def _look(self, known: _Look | None) -> _Look:
        """Raises `_Gap`."""
        deadline = time.monotonic() + self._limits.seconds
        try:
            if known is not None and known.whole:
                walk = _Walk(self, known, known.listed, deadline, fresh=False)
                look = await in_thread(walk.whole)
                if not walk.found_news:
                    return look
                walk.list_anew(await self._listed())
                return await in_thread(walk.whole)
            listed = await self._listed()
            return await in_thread(lambda: _Walk(self, known, listed, deadline, fresh=True).whole())
        except (OSError, ToolFailure) as error:
            why = error.why if isinstance(error, ToolFailure) else error.strerror
            raise _Gap(NOT_LISTED.format(why=why)) from error

    async def _listed(self) -> list[str]:
        """The relative paths of files that are not ignored. Raises `_Gap`, OSError, ToolFailure."""
        files: list[str] = []
        excluded = [f"--glob=!/{_as_glob(folder)}" for folder in self._excluded]
        descriptor = os.open(self.root, _FOLDER_FLAGS)
        try:
            async with asyncio.timeout(self._limits.seconds), search((*_LISTED, *excluded), descriptor) as found:
                async for records in found.batches(b"\0"):
                    files += map(os.fsdecode, records)
                    if len(files) > self._limits.files:
                        raise _Gap(TOO_MANY.format(limit=self._limits.files))
        except TimeoutError as error:
            raise _Gap(TOO_SLOW.format(limit=self._limits.seconds)) from error
        finally:
            os.close(descriptor)
        return files

    def is_excluded(self, path: str) -> bool:
        """Whether this relative path is in an excluded folder."""
        return any(path == folder or path.startswith(f"{folder}/") for folder in self._excluded)

    def rules(self, ignoring: dict[str, tuple[int, ...]]) -> IgnoreRules | None:
        """The rules in these files, by their stamps. Reads them if they are new."""
        if self._rules[0] != ignoring:
            self._rules = ignoring, read_rules(self.root, ignoring)
        return self._rules[1]

    # Comparing

    def _compared(self, before: _Look, after: _Look, gaps: list[str]) -> list[FileChange]:
        found: list[FileChange] = []
        came_into_view = 0
        for path in before.files.keys() | after.files.keys():
            old, new = before.files.get(path), after.files.get(path)
            if old is new or (old is not None and new is not None and new.is_same_as(old)):
                continue
            if old is not None and new is not None:
                found.append(file_change(str(self.root / path), old.state, new.state, old.unread))
            elif old is not None:
                found.append(file_change(str(self.root / path), old.state, ABSENT, old.unread))
            elif new is not None:
                made = _made(path, before.folders)
                if made is None:
                    came_into_view += 1
                else:
                    found.append(file_change(str(self.root / path), ABSENT, new.state, made=made))
        if came_into_view:
            gaps.append(CAME_INTO_VIEW.format(count=came_into_view))
        # Sort only the changes, not all paths: a sort holds the GIL and would stall the event loop.
        return sorted(found, key=lambda change: change.path)

    async def _kept(self, before: _Look, changes: Sequence[FileChange]) -> tuple[FileChange, ...]:
        """The changes, after storing their earlier contents for good."""

        def known(change: FileChange) -> _Known | None:
            return before.files.get(os.path.relpath(change.place, self.root))

        if not any(change.before.sha256 for change in changes):
            return tuple(changes)
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
    """One pass over every folder that has listed files. Runs in a thread.

    `fresh`: the files in `listed` were listed just now. If not, `found_news` says that they must be: other files are
    ignored than in `known`, or a new name may be.
    """

    def __init__(self, tree: Tree, known: _Look | None, listed: list[str], deadline: float, *, fresh: bool) -> None:
        self._tree = tree
        self._is_first = known is None
        self._written: frozenset[str] = frozenset()
        self._most_names = math.inf
        self._known = known if known is not None else _Look({}, {}, {}, [], {}, _Wanted({}, {}, set()), whole=False)
        self._deadline = deadline
        self._git_names = tree._git.names()
        self._wanted, self._below, self._not_ignored = self._known.wanted
        self._look = _Look({}, {}, {}, list(listed), {}, self._known.wanted, whole=True)
        self.found_news = fresh
        if fresh:
            self.list_anew(listed)

    def list_anew(self, listed: list[str]) -> None:
        """Look for these files, in the next pass, which goes on where this one has ended."""
        self._look = structs.replace(self._look, listed=listed)
        for each in (*self._known.wanted, self._known.tasks):
            each.clear()
        self._wanted[""] = set()
        self._add(listed)
        self._not_ignored.update(self._wanted)
        self._add((*self._known.files, *self._tree._also))

    def whole(self) -> _Look:
        """Raises `_Gap`, and OSError if the root cannot be opened."""
        self._others: list[str] = []
        descriptor = os.open(self._tree.root, _FOLDER_FLAGS)
        try:
            written = self._tree._watched.take_written()  # what has happened so far is seen by this look
            self._written |= written or frozenset()
            # Where times need not change with the content, one name of several tells nothing of the others.
            self._most_names = (1 if written is not None else 0) if is_in_memory(descriptor) else math.inf
            self._folder(descriptor, "")
            self._names_of_others(descriptor)
        finally:
            os.close(descriptor)
        for folder in self._tree.root.parents:
            for name in (".git/info/exclude", *IGNORE_FILES):
                self._ignoring(f"{folder}/{name}", f"{folder}/{name}")
        self.found_news |= self._look.ignoring != self._known.ignoring or () in self._look.ignoring.values()
        return self._look

    def _add(self, paths: Iterable[str]) -> None:
        for path in paths:
            folder, _, name = path.rpartition("/")
            wanted = folder
            while wanted not in self._wanted:
                self._wanted[wanted] = set()
                above, _, below = wanted.rpartition("/")
                self._below.setdefault(above, set()).add(below)
                wanted = above
            self._wanted[folder].add(name)

    def _folder(self, descriptor: int, path: str) -> None:
        if time.monotonic() > self._deadline + self._tree._limits.seconds:
            raise _Gap(TOO_SLOW.format(limit=2 * self._tree._limits.seconds))
        task = self._look.tasks[path] = self._task(self._names(descriptor, path), path)
        self._files(descriptor, task.files)
        start = f"{path}/" if path else ""
        self._others += (start + name for name in task.others)
        for name in task.below:
            try:
                inside = os.open(name, _FOLDER_FLAGS, dir_fd=descriptor)
            except OSError:
                self._look = structs.replace(self._look, whole=False)
                continue
            try:
                self._folder(inside, start + name)
            finally:
                os.close(inside)

    def _task(self, folder: _Folder, path: str) -> _Task:
        wanted, below = self._wanted[path], self._below.get(path, set())
        task = self._known.tasks.get(path)
        # What is wanted grows, or is all new.
        if task is not None and task.folder is folder and task.wanted == len(wanted) + len(below):
            return task
        names, folders, links = folder[1:]
        # What lies in the project's own folder is kept although it is ignored: an `.env` is written once.
        files = links | ((wanted & names if path else names - {".git"}) - folders)
        places = [(name, f"{path}/{name}" if path else name) for name in files]
        return _Task(folder, len(wanted) + len(below), places, folders & below, folders - below)

    def _files(self, descriptor: int, files: Iterable[tuple[str, str]]) -> None:
        """Look at files in an open folder: their names in it, with their paths."""
        known, found, excluded = self._known.files, self._look.files, self._tree._excluded
        written, most_names = self._written, self._most_names
        trusts_all = not written and most_names == math.inf
        for name, place in files:
            if place in found:
                continue
            try:
                now = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                continue
            stamp = (now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_ino, now.st_mode)
            old = known.get(place)
            if (
                old is not None
                and old.stamp == stamp
                and old.is_certain
                and (trusts_all or (place not in written and now.st_nlink <= most_names))
            ):
                found[place] = old
            elif stat.S_IFMT(now.st_mode) in {stat.S_IFREG, stat.S_IFLNK} and not (
                excluded and self._tree.is_excluded(place)
            ):
                found[place] = self._read(descriptor, place, name, Stamp(*stamp), time.time_ns(), old)

    def _names(self, descriptor: int, path: str) -> _Folder:
        """What is in an open folder; it is read if that is not known. Raises OSError."""
        if (done := self._look.folders.get(path)) is not None:
            return done
        found = os.fstat(descriptor)
        stamp: tuple[int, ...] = (found.st_ctime_ns, found.st_mtime_ns, found.st_ino)
        known = self._known.folders.get(path)
        if known is None or known.stamp != stamp:
            self._tree._watched.add(descriptor, path)
            if time.time_ns() - found.st_ctime_ns < RACY_NS:
                stamp = (0, 0, found.st_ino)
            with os.scandir(descriptor) as entries:
                every = list(entries)
            folders = frozenset(each.name for each in every if each.is_dir(follow_symlinks=False)) - {".git"}
            links = frozenset(each.name for each in every if each.is_symlink())
            now = _Folder(stamp, frozenset(each.name for each in every), folders, links)
            new = now.names - known.names | folders - known.folders if known is not None else now.names
            self.found_news = self.found_news or not self._sort(path, new, folders)
        else:
            now = known
        self._look.folders[path] = now
        for name in now.names & IGNORE_FILES:
            self._ignoring(f"{path}/{name}" if path else name, name, descriptor)
        if ".git" in now.names:
            self._ignoring(f"{path}/.git" if path else ".git", ".git/info/exclude", descriptor)
        return now

    def _sort(self, path: str, names: Iterable[str], folders: frozenset[str]) -> bool:
        """Look for those new names in a folder that are not ignored; whether it is sure which ones are."""
        rules = self._tree.rules(self._known.ignoring) if names else None
        if rules is None or ".git" in names:
            return not names
        parts = path.split("/") if path else []
        inside = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        # The rules of the project hold in no repository below it.
        nested = any((folder := self._look.folders.get(each)) and ".git" in folder.names for each in inside)
        if path not in self._not_ignored:
            return not nested and any(rules.ignore(part, folder=True) for part in parts)
        for name in names:
            place, ignored = f"{path}/{name}" if path else name, rules.ignore(name, folder=name in folders)
            if ignored is None or (ignored and nested):
                return False
            if ignored or self._tree.is_excluded(place):
                continue
            if name in folders:
                self._below.setdefault(path, set()).add(name)
                self._wanted.setdefault(place, set())
                self._not_ignored.add(place)
            else:
                self._wanted[path].add(name)
                self._look.listed.append(place)
        return len(self._look.listed) <= self._tree._limits.files

    def _names_of_others(self, root: int) -> None:
        """Record the names in folders without listed files, so that files made there can be recognised as new; and the
        links in those that hold nothing else, since a folder with other files is one that is ignored.
        """
        left, ignored = _NAMES_LOOKED_AT, set[str]()
        for path in self._others:
            if self._tree._excluded and self._tree.is_excluded(path):
                continue
            if left <= 0:
                self._look = structs.replace(self._look, whole=False)
                return
            try:
                inside = self._other(root, path, left)
            except OSError:
                self._look = structs.replace(self._look, whole=False)
                continue
            if inside is None:
                self._look = structs.replace(self._look, whole=False)
                return
            left -= len(inside.names)
            # Breadth first: files near the root are more likely to be changed.
            self._others += (f"{path}/{name}" for name in inside.folders)
            if path.rpartition("/")[0] in ignored or inside.names - inside.folders - inside.links - {".git"}:
                ignored.add(path)
            elif inside.links:
                with suppress(OSError), _opened_below(root, path) as below:
                    self._files(below, ((name, f"{path}/{name}") for name in inside.links))

    def _other(self, root: int, path: str, most: int) -> _Folder | None:
        """What is in a folder without listed files; None if that is more than `most` names. Raises OSError."""
        known = self._look.folders.get(path) or self._known.folders.get(path)
        if known is not None and known.stamp[0]:
            found = os.stat(path, dir_fd=root, follow_symlinks=False)
            if known.stamp == (found.st_ctime_ns, found.st_mtime_ns, found.st_ino):
                self._look.folders[path] = known
                for name in known.names & IGNORE_FILES:
                    self._ignoring(f"{path}/{name}", f"{path}/{name}", root)
                if ".git" in known.names:
                    self._ignoring(f"{path}/.git", f"{path}/.git/info/exclude", root)
                return known if len(known.names) <= most else None
        with _opened_below(root, path) as below:
            with os.scandir(below) as entries:
                if sum(1 for _ in zip(range(most + 1), entries, strict=False)) > most:
                    return None
            return self._names(below, path)

    def _ignoring(self, path: str, name: str, folder: int | None = None) -> None:
        with suppress(OSError):
            found = os.stat(name, dir_fd=folder)
            stamp = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)
            self._look.ignoring[path] = stamp if time.time_ns() - found.st_ctime_ns > RACY_NS else ()

    def _read(self, descriptor: int, path: str, name: str, stamp: Stamp, now: int, old: _Known | None) -> _Known:
        limits = self._tree._limits
        is_certain = max(stamp.mtime_ns, stamp.ctime_ns) < now - RACY_NS
        unknown = FileState("file", stat.S_IMODE(stamp.mode), stamp.size)
        too_large = f"it is larger than {limits.file_bytes:,} bytes"
        if time.monotonic() > self._deadline:
            self._look = structs.replace(self._look, whole=False)
            return _Known(stamp, False, unknown, unread=NO_TIME)
        if self._is_first and stamp.size > limits.file_bytes:
            return _Known(stamp, is_certain, unknown, unread=too_large)
        seen = look_in(descriptor, name, limits.file_bytes)
        if seen.stamp is not None:
            stamp = seen.stamp
            is_certain = max(stamp.mtime_ns, stamp.ctime_ns) < now - RACY_NS
        if seen.content is None:
            why = too_large if seen.state.kind == "file" else "it cannot be read"
            return _Known(stamp, is_certain, seen.state, unread=why)
        if old is not None and old.state == seen.state and not old.unread:
            return structs.replace(old, stamp=stamp, is_certain=is_certain)
        git_name = self._git_names.get(path, "")
        if git_name and content_name(seen.content) == git_name and seen.state.kind == "file":
            return _Known(stamp, is_certain, seen.state, git_name=git_name)
        unread = self._tree._contents.stash(seen.content, seen.state.sha256)
        return _Known(stamp, is_certain, seen.state, unread=unread)


def _opened_below(root: int, path: str) -> AbstractContextManager[int]:
    """A descriptor of a folder, opened without following links. Raises OSError."""
    return folder_below(os.dup(root), path.split("/"), _FOLDER_FLAGS)


def _made(path: str, folders: dict[str, _Folder]) -> int | None:
    """How many folders were made for the new file `path`; None if it may have existed before, unseen."""
    made = 0
    while True:
        folder, _, name = path.rpartition("/")
        if folder in folders:
            above = folders[folder]
            # A file that stands where a folder stood is new; so is what lies in a folder that was a file or a link.
            unseen = name in above.folders if made else name in above.names - above.folders
            return None if unseen else made
        if not folder:
            return None
        # The folder was not read before; go on with its parent to find out whether it existed.
        path = folder
        made += 1


def _as_glob(path: str) -> str:
    return "".join(f"\\{character}" if character in "*?[]{}\\!" else character for character in path)
