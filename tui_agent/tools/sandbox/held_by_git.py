"""Guarded files that a command staged, committed or stashed: git puts them in place later, outside the sandbox.

Every commit is looked through that nothing led to before the command, not only those that branches name now. What is
the same as the file in the folder has been allowed, since guarded files are restored before this is done. Nothing led
to what a new repository holds.
"""

import os
import pickle
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from typing_extensions import override

from tui_agent.regex import regex
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.programs import find_program, search_path
from tui_agent.system.regular import read_bytes, read_text
from tui_agent.tools.base import Change
from tui_agent.tools.files.git_index import ISOLATED, content_name
from tui_agent.tools.files.states import RACY_NS
from tui_agent.tools.files.watched import is_in_memory
from tui_agent.tools.gate.guarded import GUARDED_PARENTS, folded, is_guarded_name
from tui_agent.tools.gate.patterns import words
from tui_agent.visible import visible_line

MAX_COMMITS: Final = 1_000
_GIT_S: Final = 10.0
_MAX_BYTES: Final = 32_000_000
_STORES: Final = words("objects lfs modules hooks annex svn logs")
"""Folders of a git folder that are not looked into: no references lie there, or too many files do."""
_LOGS: Final = ("logs/HEAD", "logs/refs/stash")
"""What led somewhere, which git finds again as ``HEAD@{1}``, ``-`` or ``stash@{1}``."""
_REPLACED: Final = b"refs/replace/"
_INDEX: Final = b"DIRC"
"""How an index begins: it names objects in another form."""
_ORDERS: Final = "rebase-merge/git-rebase-todo"
_LATER: Final = (
    (regex(r"/rebase-apply/\d+\Z"), "/rebase-apply has patches that git would apply"),
    (regex(r"/refs/.*[$`]"), " has a reference whose name the prompt of a shell might run"),
)
_NAME: Final = regex(rb"(?:%s)?\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b" % _REPLACED)
_IN_CONFLICT: Final = b" U\0"
_RAW: Final = ("--raw", "-z", "-c", "--no-renames", "--no-abbrev", "--no-ext-diff")
_LOG: Final = ("log", "--stdin", *_RAW, "--format=@commit %h")


class GitState(msgspec.Struct, frozen=True, dict=True):
    """The stamps of a git folder's files, the objects that they name, and those that only logs name.

    With none of them, the state before a repository was made.
    """

    stamps: frozenset[tuple[str, int, int, int]] = frozenset()
    names: frozenset[bytes] = frozenset()
    logged: frozenset[bytes] = frozenset()

    @cached_property
    def _pickled(self) -> bytes:
        # For each command, the journal has the state, which few commands change.
        return pickle.dumps((self.stamps, self.names, self.logged))

    @override
    def __reduce__(self) -> tuple[Callable[[bytes], "GitState"], tuple[bytes]]:
        return _unpickled, (self._pickled,)


def _unpickled(data: bytes) -> GitState:
    return GitState(*pickle.loads(data))  # noqa: S301 - written above


class Held(msgspec.Struct, frozen=True):
    """What commands left to git in a project, in a private file, until the user accepts it."""

    file: Path

    @property
    def all(self) -> tuple[Change, ...]:
        """Nothing, if it cannot be read."""
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=tuple[Change, ...])
        except (OSError, msgspec.DecodeError):
            return ()

    def add(self, found: list[Change]) -> list[Change]:
        """Keep these, too; returns them."""
        if found:
            self._write((*self.all, *found))
        return found

    def accept(self, accepted: Sequence[Change]) -> None:
        """Forget these."""
        held = self.all
        left = [each for each in held if each not in accepted]
        if left != list(held):
            self._write(left)

    def _write(self, held: Iterable[Change]) -> None:
        with suppress(OSError):  # a full disk keeps no command from ending
            make_private_folder(self.file.parent)
            write_file(self.file, msgspec.json.encode(tuple(dict.fromkeys(held))))


def state_of(repository: str, known: GitState | None) -> GitState:
    """The state of a git folder; the `known` one, if no file has another stamp. Reads files."""
    stamps = frozenset(_stamps(repository))
    if known is not None and known.stamps == stamps:
        return known
    names = set(_NAME.findall(os.fsencode("\n".join(stamp[0] for stamp in stamps))))
    logged: set[bytes] = set()
    for path, *_ in stamps:
        with suppress(OSError):
            # Git takes names in upper case, too.
            text = read_bytes(path, _MAX_BYTES)
            found = logged if path.startswith(f"{repository}/logs/") else names
            found.update(() if text.startswith(_INDEX) else _NAME.findall(text.lower()))
    return GitState(stamps, frozenset(names), frozenset(logged - names))


def _stamps(repository: str) -> Iterator[tuple[str, int, int, int]]:
    files = [f"{repository}/{name}" for name in _LOGS]
    waiting = [repository, f"{repository}/logs/refs/heads"]
    while waiting:
        place = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    files.append(entry.path)
                elif entry.is_dir(follow_symlinks=False) and (place != repository or entry.name not in _STORES):
                    waiting.append(entry.path)
    in_memory = is_in_memory(repository)
    for path in files:
        with suppress(OSError):
            found = os.lstat(path)
            now = time.time_ns()
            # It may change again within the same tick of the clock.
            changed = now if now - found.st_ctime_ns < RACY_NS else found.st_ctime_ns
            if in_memory and changed != now:
                changed = int(sha256(read_bytes(path, _MAX_BYTES)).hexdigest(), 16)
            yield path, changed, found.st_ino, found.st_size


def held_since(repository: str, before: GitState, named: Iterable[str]) -> list[Change]:
    """The guarded files, and those `named` by settings, that git holds since `before` and no work tree does.

    Reads files, and starts git if any of its own has changed. What git cannot follow is such a change, too.
    """
    now = state_of(repository, before)
    if now is before or not now.stamps:
        return []
    try:
        links = {str(link.parent): read_bytes(link, 4096) for link in Path(repository, "worktrees").glob("*/gitdir")}
        found = _new_in(repository, before, now)
        for git in (repository, *links):
            staged = _git(git, "diff", "--cached", *_RAW)
            found |= _entries(staged)
            if _IN_CONFLICT in staged:
                found |= _in_conflict(_git(git, "--work-tree=.", "ls-files", "-z", "--unmerged"))
        orders = [read_text(place, _MAX_BYTES) for git in (repository, *links) for place in Path(git).glob(_ORDERS)]
    except (OSError, ValueError, IndexError, subprocess.SubprocessError):
        return [Change(f"{visible_line(repository)} was changed, and cannot be followed", "")]
    trees = [Path(repository).parent, *(Path(os.fsdecode(link.strip())).parent for link in links.values())]
    also = frozenset(named)
    kept = {
        (path, name): where
        for (path, name), where in found.items()
        if is_guarded_name(Path(path).parts)
        # A link in place of a folder would bring what it leads to.
        or folded(path.rpartition("/")[2]) in GUARDED_PARENTS
        or any(f"{tree}/{path}" in also for tree in trees)
        if not any(_is_there(tree / path, name) for tree in trees)
    }
    earlier = _held_before(repository, before, {path for path, _ in kept}) if kept else frozenset[tuple[str, str]]()
    runs = [line for text in orders for line in text.splitlines() if line.split()[:1] in (["exec"], ["x"])]
    told = [f"{visible_line(line)} runs when the rebase in {repository} goes on" for line in runs]
    new = [path for path, *_ in now.stamps - before.stamps]
    told += [f"{visible_line(repository)}{what}" for sign, what in _LATER if any(map(sign.search, new))]
    newest = {path: where for (path, name), where in reversed(kept.items()) if (path, name) not in earlier}
    told += (
        f"{visible_line(path)} is another one in {where} of {visible_line(repository)}"
        for path, where in newest.items()
    )
    return [Change(title, "") for title in told]


def _new_in(repository: str, before: GitState, now: GitState) -> dict[tuple[str, str], str]:
    """What new commits hold, see `_entries`. Raises OSError, ValueError, IndexError, SubprocessError."""
    if any(name.startswith(_REPLACED) for name in now.names - before.names):
        raise ValueError(repository)
    added = (now.names | now.logged) - before.names - before.logged
    if not added:
        return {}
    commits = _commits(repository, before.names | added)
    new = commits - before.names
    given = (*new, *(b"^" + name for name in commits & before.names))
    output = _git(repository, *_LOG, f"-{MAX_COMMITS}", given=given) if new else b""
    if output.count(b"@commit ") >= MAX_COMMITS:
        raise ValueError(repository)
    return dict(_entries(output))


def _held_before(repository: str, before: GitState, paths: Iterable[str]) -> frozenset[tuple[str, str]]:
    """What commits held at these paths `before`, at any time; nothing if git cannot tell, or not in time."""
    with suppress(OSError, ValueError, IndexError, subprocess.SubprocessError):
        words = ("--literal-pathspecs", *_LOG, "--full-history", "--", *paths)
        # Without any commit, git would begin at HEAD.
        if commits := _commits(repository, before.names):
            return frozenset(entry for entry, _ in _entries(_git(repository, *words, given=commits)))
    return frozenset()


def _commits(repository: str, names: Iterable[bytes]) -> set[bytes]:
    """The commits and tags among the names of objects."""
    listed = _git(repository, "cat-file", "--batch-check", given=names).splitlines()
    return {line.split()[0] for line in listed if line.split()[1] in {b"commit", b"tag"}}


def _git(folder: str, *words: str, given: Iterable[bytes] = ()) -> bytes:
    settings = ("core.fsmonitor=false", "core.commitGraph=false", "log.showSignature=false", "log.showRoot=true")
    command = (find_program("git") or "git", *(word for each in settings for word in ("-c", each)), *words)
    environment = {**ISOLATED, "GIT_DIR": folder, "GIT_GRAFT_FILE": os.devnull}
    environment["PATH"] = search_path(os.environ.get("PATH", os.defpath))
    lines = b"".join(b"%s\n" % line for line in given)
    done = subprocess.run(
        command, cwd=folder, env=environment, input=lines, capture_output=True, check=True, timeout=_GIT_S
    )
    return done.stdout


def _entries(raw: bytes) -> Iterator[tuple[tuple[str, str], str]]:
    """The files and links in the raw output of a diff, with the names of their blobs, and where git has them."""
    fields, where = iter(raw.split(b"\0")), "the index"
    for field in fields:
        # Of a merge, the modes and names in each parent stand before those in the commit.
        words, parents = field.strip().lstrip(b":").split(), field.count(b":")
        if field.startswith(b"@"):
            where = field[1:20].decode()
        elif words:
            path = os.fsdecode(next(fields))
            if words[parents].startswith((b"10", b"12")):
                yield (path, words[2 * parents + 1].decode()), where


def _in_conflict(listed: bytes) -> Iterator[tuple[tuple[str, str], str]]:
    """The same for the entries of an index that wait for a merge to be resolved."""
    for line in listed.split(b"\0")[:-1]:
        head, _, path = line.partition(b"\t")
        yield (os.fsdecode(path), head.split()[1].decode()), "the index"


def _is_there(path: Path, name: str) -> bool:
    """Whether the file or link in the folder is this blob."""
    with suppress(OSError):
        content = os.fsencode(path.readlink()) if path.is_symlink() else read_bytes(path, _MAX_BYTES)
        return name in {content_name(content), content_name(content.replace(b"\r\n", b"\n"))}
    return False
