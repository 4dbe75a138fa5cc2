"""Git worktrees for work on the side: a folder and a branch, made at a start and removed if nothing has changed.

The folder stands beside the repository, in ``NAME-worktrees``: inside it, programs would find two projects. Hooks of
the repository are not run for it.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from tui_agent.programs import find_program
from tui_agent.text import one_line

INCLUDE: Final = ".worktreeinclude"
"""A file of patterns as in .gitignore: untracked files of these names are copied into a new worktree."""
PREFIX: Final = "tui-agent/"
"""How the branches begin."""
MAKING_S: Final = 300
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")


class WorktreeError(Exception):
    """Something about a worktree cannot be done; the message says what and why. Nothing was removed."""


class Worktree(NamedTuple):
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
    if not _NAME.fullmatch(name) or name.endswith((".", ".lock")) or ".." in name:
        raise WorktreeError(f"{name!r} is no name for a worktree: letters, digits, dots, dashes and underscores are.")
    try:
        common = Path(_git(start, "rev-parse", "--path-format=absolute", "--git-common-dir").strip())
    except WorktreeError as error:
        raise WorktreeError(f"{start} is in no git repository, of which there could be a worktree.") from error
    repository = common.parent
    folder, branch = repository.with_name(f"{repository.name}-worktrees") / name, f"{PREFIX}{name}"
    if (folder / ".git").exists():
        base = _git(folder, "merge-base", "HEAD", _git(repository, "rev-parse", "HEAD").strip()).strip()
        return Worktree(folder, branch, repository, base, new=False)
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
    return worktree


@contextmanager
def session_worktree(start: Path, name: str, setup: str, say: Callable[[str], None]) -> Iterator[Path]:
    """A context in which the working folder is that of `start` in the worktree of this name (empty: a new one).

    `setup`: a shell command that is run in a new one. At the end it is removed if nothing changed; else `say` tells
    where it is. Raises `WorktreeError`.
    """
    worktree = open_worktree(start, name or f"{datetime.now():%m%d-%H%M%S}")
    top = Path(_git(start, "rev-parse", "--path-format=absolute", "--show-toplevel").strip())
    place = worktree.folder / start.resolve().relative_to(top.resolve())
    place = place if place.is_dir() else worktree.folder
    os.chdir(place)
    try:
        if worktree.new and setup:
            say(f"setting up {worktree.folder}: {setup}")
            # Standard output is for an answer alone.
            done = subprocess.run(["/bin/sh", "-c", setup], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
            if done.returncode:
                told = f"worktree.setup ended with {done.returncode}; {worktree.folder} is kept"
                raise WorktreeError(f"{told}, and opens as it is with --worktree {worktree.folder.name}")
        yield place
        if is_unchanged(worktree):
            remove_worktree(worktree)
        else:
            say(f"your changes are in {worktree.folder}, on the branch {worktree.branch}")
            merge = f"git merge {worktree.branch}` takes over what is committed there"
            say(f"`{merge}, `tui-agent --worktree {worktree.folder.name} -c` goes on")
    finally:
        os.chdir(start)


def patch_of(worktree: Worktree) -> str:
    """All that differs from the commit it began at, committed or not, new files included, as ``git apply`` takes it."""
    with TemporaryDirectory() as place:
        # An index of its own, so that the worktree's stays as it is.
        environment = {"GIT_INDEX_FILE": str(Path(place, "index"))}
        _git(worktree.folder, "read-tree", "HEAD", more=environment)
        _git(worktree.folder, "add", "--all", "--", ".", more=environment)
        return _git(worktree.folder, "diff", "--cached", "--binary", worktree.base, more=environment)


def is_unchanged(worktree: Worktree) -> bool:
    """Whether nothing was committed in it and no file differs, ignored ones aside."""
    if _git(worktree.folder, "rev-parse", "HEAD").strip() != worktree.base:
        return False
    return not _git(worktree.folder, "status", "--porcelain", "--untracked-files=all").strip()


def remove_worktree(worktree: Worktree) -> None:
    """Remove the folder and the branch, whatever is in them. Raises `WorktreeError`."""
    _git(worktree.repository, "worktree", "remove", "--force", "--", str(worktree.folder))
    with suppress(WorktreeError):  # it was left for another branch
        _git(worktree.repository, "branch", "-D", "--", worktree.branch)
    with suppress(OSError):
        worktree.folder.parent.rmdir()  # only if it is empty


def _copy_included(worktree: Worktree) -> None:
    patterns = worktree.repository / INCLUDE
    if not patterns.is_file():
        return
    names = _git(worktree.repository, "ls-files", "-z", "--others", "--ignored", f"--exclude-from={patterns}")
    for name in filter(None, names.split("\0")):
        source, target = worktree.repository / name, worktree.folder / name
        if source.is_file() and not source.is_symlink() and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def _git(folder: Path, *words: str, more: Mapping[str, str] = {}) -> str:
    """What git prints. Raises `WorktreeError` with what it says instead."""
    program = find_program("git")
    if program is None:
        raise WorktreeError("git is not installed, and worktrees are made with it.")
    safe = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", **more}
    for name in ("GIT_DIR", "GIT_WORK_TREE", *(() if more else ("GIT_INDEX_FILE",))):
        environment.pop(name, None)
    command: Sequence[str] = (program, *safe, "-C", str(folder), *words)
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=MAKING_S
        )
    except subprocess.CalledProcessError as error:
        said = one_line(error.stderr.decode(errors="replace"), 300)
        raise WorktreeError(f"git {words[0]} failed: {said}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WorktreeError(f"git {words[0]} failed: {one_line(str(error), 300)}") from error
    return done.stdout.decode(errors="surrogateescape")
