"""Git worktrees for work on the side: a folder and a branch, made at a start, handed back, removed when clean.

The folder stands beside the repository, in ``NAME-worktrees``: inside it, programs would find two projects. Hooks of
the repository are not run for it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Protocol

import msgspec

from tui_agent.regex import regex
from tui_agent.system.programs import find_program, with_search_path
from tui_agent.text import first_of, one_line

INCLUDE: Final = ".worktreeinclude"
"""A file of patterns as in .gitignore: untracked files of these names are copied into a new worktree."""
PREFIX: Final = "tui-agent/"
"""How the branches begin."""
MAKING_S: Final = 300
_NAME: Final = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")


class WorktreeError(Exception):
    """Something about a worktree cannot be done; the message says what and why. Nothing was removed."""


class Worktree(msgspec.Struct, frozen=True):
    """A worktree. repository: the folder of the main one; base: the commit it began at; new: it was made just now."""

    folder: Path
    branch: str
    repository: Path
    base: str
    new: bool


def open_worktree(start: Path, name: str, ref: str = "HEAD") -> Worktree:
    """The worktree of this name for the repository that `start` is in, made at `ref` if there is none. Reads and writes
    files. Raises `WorktreeError`.
    """
    check_name(name)
    repository = _repository_of(start)
    folder, branch = _worktrees_folder(repository) / name, f"{PREFIX}{name}"
    if (folder / ".git").exists():
        return Worktree(folder, branch, repository, _shared(folder, repository), new=False)
    if folder.exists():
        raise WorktreeError(f"{folder} is there already and is no worktree: choose another name.")
    try:
        base = _git(repository, "rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}").strip()
    except WorktreeError as error:
        raise WorktreeError(f"{repository} has no commit {ref}; a worktree begins at one.") from error
    if _git(repository, "branch", "--list", branch).strip():
        _git(repository, "worktree", "add", "--", str(folder), branch)
    else:
        _git(repository, "worktree", "add", "-b", branch, "--", str(folder), base)
    worktree = Worktree(folder, branch, repository, base, new=True)
    _copy_included(worktree)
    _fill_submodules(worktree)
    return worktree


def check_name(name: str) -> None:
    """Raises `WorktreeError` if no worktree can have this name."""
    if not _NAME.fullmatch(name) or name.endswith((".", ".lock")) or ".." in name:
        raise WorktreeError(f"{name!r} is no name for a worktree: letters, digits, dots, dashes and underscores are.")


def opened_before(start: Path) -> tuple[str, ...]:
    """The names of the worktrees that `open_worktree` has made for the repository that `start` is in, the newest first.
    Raises `WorktreeError` if it is in none.
    """
    links = _worktrees_folder(_repository_of(start)).glob("*/.git")
    return tuple(link.parent.name for link in sorted(links, key=lambda link: link.stat().st_mtime, reverse=True))


def _worktrees_folder(repository: Path) -> Path:
    return repository.with_name(f"{repository.name}-worktrees")


class WorktreeMakers(Protocol):
    """The user's own way to make worktrees, in place of git's."""

    def made(self, name: str) -> Path | None:
        """The folder that it made; None if there is no such way. Raises `WorktreeError`."""

    def unwanted(self, folder: Path) -> bool:
        """Whether the user wants the folder removed, of which git cannot say whether anything changed."""

    def may_set_up(self, line: str) -> bool:
        """Whether to run this command line in a new one."""

    def removing(self, folder: Path) -> bool:
        """A worktree is about to be removed; whether that was done by what this told."""


@contextmanager
def session_worktree(
    start: Path, name: str, setup: str, say: Callable[[str], None], makers: WorktreeMakers | None = None
) -> Iterator[Path]:
    """A context in which the working folder is that of `start` in the worktree of this name (empty: a new one).

    `setup`: a shell command that is run in a new one. `makers`: the user's own way to make worktrees, if there is one.
    At the end it is removed if nothing changed; else `say` tells where it is. Raises `WorktreeError`.
    """
    name = name or f"{datetime.now():%m%d-%H%M%S}"
    if makers is not None and (made := makers.made(name)) is not None:
        with _working_in(made, start):
            yield made
        try:
            unchanged = is_unchanged(worktree_at(made))
        except WorktreeError:  # git does not know it
            unchanged = makers.unwanted(made)
        if not (unchanged and makers.removing(made)):
            say(f"the worktree {made} is kept")
        return
    worktree = open_worktree(start, name)
    top = Path(_git(start, "rev-parse", "--path-format=absolute", "--show-toplevel").strip())
    place = worktree.folder / start.resolve().relative_to(top.resolve())
    place = place if place.is_dir() and _is_in(place, worktree.folder) else worktree.folder
    with _working_in(place, start):
        if worktree.new and setup and makers is not None and not makers.may_set_up(setup):
            say(f"worktree.setup was not run: {setup}")
        elif worktree.new and setup:
            say(f"setting up {worktree.folder}: {setup}")
            # Standard output is for an answer alone.
            done = subprocess.run(["/bin/sh", "-c", setup], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
            if done.returncode:
                problem = f"worktree.setup ended with {done.returncode}; {worktree.folder} is kept"
                raise WorktreeError(f"{problem}, and opens as it is with --worktree {worktree.folder.name}")
        yield place
        if is_unchanged(worktree):
            if makers is not None:
                makers.removing(worktree.folder)
            remove_worktree(worktree)
        else:
            say(f"your changes are in {worktree.folder}, on the branch {worktree.branch}")
            say(f"`tui-agent --worktree {worktree.folder.name} -c` goes on, and /worktree there hands it back")


@contextmanager
def _working_in(folder: Path, before: Path) -> Iterator[None]:
    try:
        os.chdir(folder)
    except OSError as error:
        raise WorktreeError(f"{folder} cannot be entered: {error.strerror}") from None
    try:
        yield
    finally:
        os.chdir(before)


def patch_of(worktree: Worktree) -> str:
    """All that differs from the commit it began at, committed or not, new files included, as ``git apply`` takes it."""
    with _everything_in(worktree) as environment:
        words = ("diff", "--cached", "--binary", "--no-ext-diff", "--no-textconv")
        return _git(worktree.folder, *words, worktree.base, more=environment)


def is_unchanged(worktree: Worktree) -> bool:
    """Whether the repository's branch has every commit of it and no file differs, ignored ones aside."""
    head = _git(worktree.folder, "rev-parse", "HEAD").strip()
    if head not in (worktree.base, _shared(worktree.folder, worktree.repository)):
        return False
    if _git(worktree.folder, "status", "--porcelain", "--untracked-files=all").strip():
        return False
    known = _git(worktree.folder, "submodule", "status") if (worktree.folder / ".gitmodules").exists() else ""
    opened = re.findall(r"^[ +U]\w+ (.+?)(?: \(.*\))?$", known, re.MULTILINE)
    return not any(_has_own(worktree.folder / path, "--branches", "HEAD") for path in opened)


def remove_worktree(worktree: Worktree) -> None:
    """Remove the folder and the branch, whatever is in them. Raises `WorktreeError`."""
    _git(worktree.repository, "worktree", "remove", "--force", "--", str(worktree.folder))
    with suppress(WorktreeError):  # it was left for another branch
        _git(worktree.repository, "branch", "-D", "--", worktree.branch)
    with suppress(OSError):
        worktree.folder.parent.rmdir()  # only if it is empty


def worktree_at(folder: Path) -> Worktree:
    """The worktree that a folder is in, whoever made it. Raises `WorktreeError` if it is in none."""
    repository = _repository_of(folder)
    top = Path(_git(folder, "rev-parse", "--path-format=absolute", "--show-toplevel").strip())
    if top.resolve() == repository.resolve():
        raise WorktreeError(
            "This session is in no worktree: `tui-agent --worktree` opens one; /worktree open in the app does, too."
        )
    branch = _git(top, "rev-parse", "--abbrev-ref", "HEAD").strip()
    return Worktree(top, branch, repository, _shared(top, repository), new=False)


class Handover(msgspec.Struct, frozen=True):
    """What a worktree would hand back.

    target: the repository's branch; commit: has all that is in the worktree, its own last one or one that no branch has
    yet; stat: the changed files; uncommitted: it has what no branch has; obstacles: sentences on why it cannot be
    merged; left: submodules with changes in them that are not handed over.
    """

    target: str
    commit: str
    stat: str
    uncommitted: bool
    obstacles: tuple[str, ...]
    left: tuple[str, ...]


NOBODY: Final = ("-c", "user.name=nobody", "-c", "user.email=nobody")
"""For a commit that no branch gets: git makes none of a user that it does not know."""


def handover_of(worktree: Worktree, who: Sequence[str] = NOBODY) -> Handover:
    """What it would hand back, and what is in the way. Changes nothing in either folder. Raises `WorktreeError`.

    `who`: git's options for whose name a commit of what is not committed has.
    """
    folder, repository, base = worktree.folder, worktree.repository, worktree.base
    target = _git(repository, "rev-parse", "--abbrev-ref", "HEAD").strip()
    commit = head = _git(folder, "rev-parse", "HEAD").strip()
    with _everything_in(worktree) as environment:
        tree = _git(folder, "write-tree", more=environment).strip()
    uncommitted = tree != _git(folder, "rev-parse", "HEAD^{tree}").strip()
    if uncommitted:
        commit = _git(folder, *who, "commit-tree", tree, "-p", head, "-m", f"Work in {folder.name}").strip()
    changed = _git(folder, "diff", "--raw", "--no-renames", "--no-abbrev", "-z", base, commit).split("\0")
    rows = [(row.split(), name) for row, name in zip(changed[::2], changed[1::2], strict=False)]
    stat = _git(folder, "diff", "--stat=76", "--no-ext-diff", base, commit).rstrip()
    obstacles = list(_in_the_way(worktree, commit, {name for _, name in rows}))
    own = [name for row, name in rows if row[1] == "160000" and _has_own(folder / name, row[3])]
    if own:
        obstacles.append(f"Only this worktree has the commits of {_names(own)}: push them first.")
    if target == "HEAD":
        obstacles.append(f"{repository} is on no branch.")
    status = _git(folder, "status", "--porcelain=v2", "-z").split("\0")
    left = (line.split(" ", 8) for line in status if re.match(r"1 \S+ S\S*[MU]", line))
    return Handover(target, commit, stat, uncommitted, tuple(obstacles), tuple(words[8] for words in left))


def merge(worktree: Worktree) -> Handover:
    """Commit what is not committed in it, and merge it into the repository's branch; returns what was handed over.

    Raises `WorktreeError` if that cannot be done as a whole; the repository is then as before.
    """
    found = handover_of(worktree, who=())
    if found.obstacles:
        raise WorktreeError(" ".join(found.obstacles))
    if found.uncommitted:
        _git(worktree.folder, "reset", "-q", "--mixed", found.commit)  # the files are what the commit has
    named = found.commit if worktree.branch == "HEAD" else worktree.branch
    try:
        _git(worktree.repository, "merge", "--no-edit", "--no-verify", "--no-stat", "-q", named)
    except WorktreeError:
        if _is_merging(worktree.repository):
            _git(worktree.repository, "merge", "--abort")
        raise
    return found


def apply(worktree: Worktree) -> None:
    """Make its changes in the repository's folder, without a commit. Raises `WorktreeError`, having changed nothing."""
    patch = patch_of(worktree).encode(errors="surrogateescape")
    _git(worktree.repository, "apply", "--whitespace=nowarn", "-", given=patch)


def _in_the_way(worktree: Worktree, commit: str, changed: Set[str]) -> Iterator[str]:
    repository = worktree.repository
    if _is_merging(repository):
        yield f"A merge is under way in {repository}."
        return
    lines = _git(repository, "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z").split("\0")
    local = {line[3:] for line in lines if line and (line[3:] in changed or line[0] not in " ?")}
    if local:
        yield f"Not committed in {repository}: {_names(local)}."
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
    merged = _git(repository, *words, "HEAD", commit, fine=(0, 1)).split("\0")
    if conflicts := set(filter(None, merged[1:])):
        yield f"Both sides changed {_names(conflicts)}: rebase or merge here first."


def _names(paths: Iterable[str]) -> str:
    return first_of(sorted(one_line(path, 80) for path in paths), 8)


def _is_merging(repository: Path) -> bool:
    return bool(_git(repository, "rev-parse", "-q", "--verify", "MERGE_HEAD", fine=(0, 1)))


def _has_own(submodule: Path, *commits: str) -> bool:
    """Whether a repository inside has commits that it has not from another one."""
    if not (submodule / ".git").exists():
        return False
    return bool(_git(submodule, "rev-list", "-n1", *commits, "--not", "--remotes"))


def _repository_of(start: Path) -> Path:
    """The folder of the main worktree of the repository that `start` is in."""
    try:
        common = Path(_git(start, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
    except WorktreeError as error:
        raise WorktreeError(f"{start} is in no git repository, of which there could be a worktree.") from error
    # A submodule's git folder stands in that of its parent.
    place = _git(start, "config", "--file", str(common / "config"), "core.worktree", fine=(0, 1)).strip()
    return (common / place).resolve() if place else common.parent


def _shared(folder: Path, repository: Path) -> str:
    """The newest commit that a worktree and the repository's branch both have; empty if they share none."""
    head = _git(repository, "rev-parse", "HEAD").strip()
    return _git(folder, "merge-base", "HEAD", head, fine=(0, 1)).strip()


@contextmanager
def _everything_in(worktree: Worktree) -> Iterator[Mapping[str, str]]:
    """An index of its own with everything that is in it, as variables for git; the worktree's stays as it is."""
    with TemporaryDirectory() as place:
        environment = {"GIT_INDEX_FILE": str(Path(place, "index"))}
        _git(worktree.folder, "read-tree", "HEAD", more=environment)
        _git(worktree.folder, "add", "--all", "--", ".", more=environment)
        yield environment


def _copy_included(worktree: Worktree) -> None:
    patterns = worktree.repository / INCLUDE
    if not patterns.is_file():
        return
    names = _git(worktree.repository, "ls-files", "-z", "--others", "--ignored", f"--exclude-from={patterns}")
    for name in filter(None, names.split("\0")):
        source, target = worktree.repository / name, worktree.folder / name
        there = target.exists() or not _is_in(target, worktree.folder)
        if source.is_file() and not source.is_symlink() and not there:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)


def _is_in(path: Path, worktree: Path) -> bool:
    """Whether a path in a worktree leads to nowhere else: what was committed there may be a link."""
    return path.resolve().is_relative_to(worktree.resolve())


def _fill_submodules(worktree: Worktree) -> None:
    """Check out the submodules that the repository has checked out, from there: nothing is fetched from elsewhere."""
    if not (worktree.folder / ".gitmodules").is_file():
        return
    listed = _git(
        worktree.folder, "config", "--file", ".gitmodules", "-z", "--get-regexp", r"^submodule\..*\.path$", fine=(0, 1)
    )
    for key, _, path in (each.partition("\n") for each in listed.split("\0") if each):
        source, own = worktree.repository / path, worktree.folder / path
        if not (source / ".git").exists():
            continue
        from_there = ("-c", "protocol.file.allow=always", "-c", f"{key.removesuffix('.path')}.url={source}")
        with suppress(WorktreeError):  # it stays as git leaves it, empty
            _git(worktree.folder, *from_there, "submodule", "--quiet", "update", "--init", "--checkout", "--", path)
            _git(own, "fetch", "--quiet", "origin", "+refs/remotes/*:refs/remotes/*")
            if address := _git(source, "config", "remote.origin.url", fine=(0, 1)).strip():
                _git(own, "remote", "set-url", "origin", address)


def _git(
    folder: Path, *words: str, more: Mapping[str, str] = {}, given: bytes = b"", fine: Container[int] = (0,)
) -> str:
    """What git prints. `fine`: how it may end. Raises `WorktreeError` with what it says instead."""
    program = find_program("git")
    if program is None:
        raise WorktreeError("git is not installed, and worktrees are made with it.")
    safe = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false")
    environment = with_search_path(os.environ) | {"GIT_TERMINAL_PROMPT": "0", **more}
    for name in ("GIT_DIR", "GIT_WORK_TREE", *(() if more else ("GIT_INDEX_FILE",))):
        environment.pop(name, None)
    command: Sequence[str] = (program, *safe, "-C", str(folder), *words)
    try:
        done = subprocess.run(command, env=environment, input=given, capture_output=True, check=False, timeout=MAKING_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorktreeError(f"git {words[0]} failed: {one_line(str(error), 300)}") from error
    if done.returncode not in fine:
        said = one_line((done.stderr.strip() or done.stdout).decode(errors="replace"), 300)
        if words[0] == "commit-tree" and "user.email" in said:
            said = "it asks who you are: git config --global user.name NAME, and user.email ADDRESS"
        raise WorktreeError(f"git {words[0]} failed: {said}")
    return done.stdout.decode(errors="surrogateescape")
