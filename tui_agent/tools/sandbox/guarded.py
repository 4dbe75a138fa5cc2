"""Finding the files that no command may change: a shell, an editor, git or an agent later does what they say, outside.

They are looked for at every depth of the writable folders. A folder that has not changed since is not read again.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec
from typing_extensions import override

from tui_agent.system.regular import read_text
from tui_agent.tools.files.states import RACY_NS
from tui_agent.tools.gate.guarded import GUARDED_PARENTS, folded, guards, guards_in
from tui_agent.tools.gate.patterns import words
from tui_agent.tools.gate.repository import git_folders, named_by, orders_in

IN_HOME: Final = words(
    ".xsessionrc .pam_environment bin .pip .config .local .cargo .nix-profile .rhosts .shosts .k5login .forward"
)
"""Also guarded in the user's home, if a command may write there."""
IN_GIT: Final = words("config config.worktree hooks commondir info/attributes remotes branches lazygit.yml")
"""Guarded in a git folder: they name programs, servers, or another place to read such names from. The rest, such as the
objects and the index, is written by every commit."""

MAX_FOLDERS: Final = 200_000
"""The most folders that are looked into."""
MAX_LIMITED: Final = 500
"""The most paths that are hidden or read-only because of the user's rules."""
INSTALLED: Final = words(
    "node_modules site-packages bower_components vendor pods target .venv venv .tox .nox __pycache__ .terraform "
    ".cargo-home deps _build"
)
"""Folders of other people's packages, in which nobody works: only their repositories are looked for."""
_READ_EVERYWHERE: Final = frozenset({".gitignore", ".gitattributes", ".ignore", ".rgignore", ".fdignore"})
"""Files that tools read in every folder: a pipe of such a name would stop them."""
_REPOSITORY: Final = {"HEAD", "objects", "refs"}
_OF_GIT: Final = frozenset({"objects", "refs", "logs", "lfs", "info", "worktrees", "hooks"})
"""Folders of a git folder in which no repository lies."""


_Within: TypeAlias = Literal["project", "installed", "git", "git's own"]
"""What a folder is in: the project, other people's packages, a git folder such as `.git`, or a part of one in which no
repository lies.
"""


Limit: TypeAlias = Literal["read", "write"]
"""What commands may not do with a file: read it, or change it."""


class GuardedPaths(msgspec.Struct, frozen=True):
    """Existing guarded paths, git folders, and folders that could not be read. `whole`: everything was looked at.

    `named`: what the files of the git folders name or lead to, whether it exists or not. `limited`: what commands may
    not read or not change, by path, without what is in it.
    """

    paths: frozenset[str]
    named: frozenset[str]
    repositories: frozenset[str]
    unreadable: frozenset[str]
    limited: Mapping[str, Limit]
    whole: bool


class _Folder(NamedTuple):
    """A folder as last read: its stamp, the guarded names in it, those of folders to look at, of what is neither a file
    nor a folder, and of what commands may not read or not change.
    """

    stamp: tuple[int, int]
    guarded: tuple[str, ...]
    folders: tuple[str, ...]
    others: tuple[str, ...]
    limited: Mapping[str, Limit]
    is_repository: bool


class Finder:
    """Finds the guarded paths below some folders. `home` is the user's; `named` are guarded whatever their names.

    `limit`: what commands may not do with the file or folder at a path, if there is such a thing.
    """

    def __init__(
        self, home: Path, named: Iterable[Path] = (), limit: Callable[[str], Limit | None] | None = None
    ) -> None:
        self._home = str(home)
        self._limit = limit
        self._also = frozenset(map(str, named))
        self._known: dict[str, _Folder] = {}
        self._last: tuple[tuple[Path, ...], GuardedPaths] | None = None
        self._configured: dict[str, tuple[tuple[int, ...], tuple[Path, ...]]] = {}

    @override
    def __reduce__(self) -> tuple[type["Finder"], tuple[Path, frozenset[Path]]]:
        return Finder, (Path(self._home), frozenset(map(Path, self._also)))

    def look(self, folders: Iterable[Path]) -> GuardedPaths:
        """Everything guarded below these folders. Reads folders that are not as they were."""
        tops = tuple(folders)
        if self._last is not None and self._last[0] == tops and self._is_unchanged(self._last[1]):
            return self._last[1]
        paths: set[str] = set()
        named = set(self._also)
        repositories: set[str] = set()
        unreadable: set[str] = set()
        limited: dict[str, Limit] = {}
        below_limited: dict[str, Limit] = {}
        seen: dict[str, _Folder] = {}
        waiting: list[tuple[str, _Within]] = [(str(folder), "project") for folder in tops]
        while waiting and len(seen) < MAX_FOLDERS:
            place, within = waiting.pop()
            try:
                found = seen[place] = self._read(place)
            except PermissionError:
                unreadable.add(place)
                continue
            except OSError:
                continue  # it went meanwhile, or its name is too long for anybody
            names = found.guarded if within == "project" else (name for name in found.guarded if _plain(name) == ".git")
            paths.update(f"{place}/{name}" for name in names)
            in_place = place[-5:].lower() == "/.git"
            in_git = in_place or "git" in within
            above = below_limited.get(place)
            for name, limit in found.limited.items() if above != "read" and not in_git else ():
                if limit != above:
                    limited[f"{place}/{name}"] = below_limited[f"{place}/{name}"] = limit
            if above is not None:
                for name in found.folders:
                    below_limited.setdefault(f"{place}/{name}", above)
            if found.is_repository and (in_place or within != "git's own"):
                repositories.add(place)
                trees = self._folders(f"{place}/worktrees") if "worktrees" in found.folders else ()
                inner = (f"{git}/{name}" for git in (place, *trees) for name in IN_GIT)
                existing = [path for path in inner if os.path.lexists(path)]
                paths.update(existing)
                named.update(self._named(place, tops, existing))
                # Others may lie in it, such as the submodules' in `modules`.
                within = "git" if in_place else within
            if found.is_repository or within in {"git", "git's own"}:
                # Git writes through a link, wherever it leads, and waits at a pipe.
                paths.update(f"{place}/{name}" for name in found.others)
            waiting += [(f"{place}/{name}", inside) for name, inside in _inside(place, found, within)]
        self._known = seen
        everything = GuardedPaths(
            frozenset(paths), frozenset(named), frozenset(repositories), frozenset(unreadable), limited, not waiting
        )
        self._last = tops, everything
        return everything

    def _is_unchanged(self, found: GuardedPaths) -> bool:
        """Whether everything that was looked at is as it was. Most commands change little, and this is fast."""
        if not found.whole or found.unreadable:
            return False
        try:
            for place, folder in self._known.items():
                status = os.lstat(place)
                if (status.st_ctime_ns, status.st_ino) != folder.stamp:
                    return False
        except OSError:
            return False
        return all(
            self._configured.get(place, ((), ()))[0] == _stamp_of(f"{place}/config") for place in found.repositories
        )

    def _named(self, repository: str, tops: tuple[Path, ...], existing: Iterable[str]) -> list[str]:
        """What the configuration of a repository names in these folders, and what its own files are links to."""
        config = Path(repository, "config")
        named = [path for path in existing if os.path.islink(path)]  # noqa: PTH114
        stamp = _stamp_of(str(config))
        if self._configured.get(repository, (None, ()))[0] != stamp:
            self._configured[repository] = (stamp, named_by(config, (config.parents[1], *tops)))
        named += map(str, self._configured[repository][1])
        found = dict.fromkeys(path for name in named for path in (name, os.path.realpath(name)))
        return [path for path in found if any(path.startswith(f"{top}/") for top in tops)]

    def _folders(self, place: str) -> list[str]:
        try:
            return [f"{place}/{name}" for name in self._read(place).folders]
        except OSError:
            return []

    def _read(self, place: str) -> _Folder:
        status = os.lstat(place)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(place)
        stamp = (status.st_ctime_ns, status.st_ino)
        old = self._known.get(place)
        if old is not None and old.stamp == stamp:
            return old
        if time.time_ns() - status.st_ctime_ns < RACY_NS:
            stamp = (0, 0)  # it may change again within the same tick of the clock
        guarded: list[str] = []
        folders: list[str] = []
        others: list[str] = []
        limited: dict[str, Limit] = {}
        names: set[str] = set()
        above = _plain(os.path.basename(place))  # noqa: PTH119 - done for every folder
        with os.scandir(place) as entries:
            for entry in entries:
                name = entry.name
                names.add(name)
                plain = _plain(name)
                # A link is what it leads to, as for every rule about a path; and a rule about all files means no git.
                if self._limit is not None and not entry.is_symlink() and plain != ".git":
                    limited |= {name: limit} if (limit := self._limit(f"{place}/{name}")) else {}
                is_folder = entry.is_dir(follow_symlinks=False)
                is_other = not (is_folder or entry.is_file(follow_symlinks=False))
                if is_other:
                    others.append(name)
                if plain == ".git" and is_folder:
                    folders.append(name)
                elif (
                    guards(plain)
                    or (place == self._home and plain in IN_HOME)
                    or (plain in GUARDED_PARENTS and entry.is_symlink())
                    or (above in GUARDED_PARENTS and guards_in(above, plain))
                    or (is_other and plain in _READ_EVERYWHERE)
                ):
                    guarded.append(name)
                elif is_folder:
                    folders.append(name)
        # With a `commondir`, the objects and references lie elsewhere.
        is_repository = above == ".git" or names >= _REPOSITORY or names >= {"HEAD", "commondir"}
        return _Folder(stamp, tuple(guarded), tuple(folders), tuple(others), limited, is_repository)


def _stamp_of(file: str) -> tuple[int, ...]:
    try:
        status = os.stat(file)  # noqa: PTH116 - done for every command
    except OSError:
        return ()
    return status.st_ctime_ns, status.st_ino, status.st_size


def _inside(place: str, found: _Folder, within: _Within) -> Iterator[tuple[str, _Within]]:
    """The folders to look at in a folder, and what they are within."""
    if within == "git's own":
        # A repository has hundreds of folders of objects, by number.
        numbered = place.endswith("/objects")
        for name in found.folders:
            if not (numbered and len(name) == 2):
                yield name, "git's own"
        return
    for name in found.folders:
        if found.is_repository and name in _OF_GIT:
            if name != "hooks":
                yield name, "git's own"
        else:
            yield name, "installed" if within == "project" and name in INSTALLED else within


def with_mode(place: str, added: int, kept: int = 0o7777) -> int | None:
    """Change the mode of a folder, following no link; returns the one before, None if that is not possible."""
    with suppress(OSError):
        descriptor = os.open(place, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            os.chmod(f"/proc/self/fd/{descriptor}", mode & kept | added)  # noqa: PTH101 - it follows no other link
            return mode
        finally:
            os.close(descriptor)
    return None


def _plain(name: str) -> str:
    return name.lower().rstrip(". ") if name.isascii() else folded(name)


def at_the_top(path: str, folders: Iterable[Path]) -> bool:
    """Whether a guarded path is at the top of one of these folders, or in its repository."""
    for folder in folders:
        if path.startswith(f"{folder}/"):
            parts = path[len(f"{folder}/") :].split("/")
            in_place = len(parts) == 2 and parts[0].lower() in GUARDED_PARENTS
            if len(parts) == 1 or in_place or parts[0] == ".git" or is_git_folder(folder):
                return True
    return False


def is_git_folder(folder: Path) -> bool:
    """Whether this folder is itself a git folder, like `.git`."""
    return (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()


def runs_nothing(repository: Path) -> bool:
    """Whether a new repository, or the `.git` file or `commondir` that names it, makes git run nothing. Reads files."""
    try:
        if repository.is_symlink():
            return False
        if repository.name == "commondir":
            return repository.parent.parent.name == "worktrees" and read_text(repository, 4096).strip() == "../.."
        if repository.is_dir():
            return not orders_in(repository) and not os.path.lexists(repository / "lazygit.yml")
        # A worktree of the repository above: its settings are that one's, which are guarded.
        own, common = git_folders(repository)
        return own.parent == common / "worktrees" and common.name == ".git" and repository.is_relative_to(common.parent)
    except (OSError, ValueError):
        return False


def common_git_folder(project: Path) -> Path | None:
    """The git folder that a worktree shares with others, if that in turn names this worktree; else None.

    The project's own claim is not enough: it could name any folder.
    """
    link = project / ".git"
    try:
        if link.is_symlink() or not link.is_file():
            return None
        own, common = git_folders(link)
        named = read_text(own / "gitdir", 4096).strip()
    except (OSError, ValueError):
        return None
    is_worktree = own.parent == common / "worktrees" and is_git_folder(common)
    return common if is_worktree and os.path.realpath(named) == os.path.realpath(link) else None
