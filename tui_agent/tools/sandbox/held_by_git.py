"""Guarded files that a command staged, committed or stashed: git puts them in place later, outside the sandbox.

Every commit is looked through that nothing led to before the command, not only those that branches name now. What is
the same as the file in the folder has been allowed, since guarded files are restored before this is done.
"""

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.programs import find_program, search_path
from tui_agent.regex import regex
from tui_agent.regular import read_bytes, read_text
from tui_agent.tools.base import Change
from tui_agent.tools.files.git_index import ISOLATED, content_name
from tui_agent.tools.gate.guarded import GUARDED_PLACES, folded, is_guarded_name
from tui_agent.visible import visible_line

MAX_COMMITS: Final = 1_000
_GIT_S: Final = 10.0
_RACY_NS: Final = 20_000_000
_MAX_BYTES: Final = 32_000_000
_PLACES: Final = ("refs", "worktrees", "rebase-merge", "rebase-apply", "sequencer", "reftable")
"""Where in a git folder files name commits, beside those at its top."""
_REPLACED: Final = b"refs/replace/"
_INDEX: Final = b"DIRC"
"""How an index begins: it names objects in another form."""
_ORDERS: Final = "rebase-merge/git-rebase-todo"
_NAME: Final = regex(rb"(?:%s)?\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b" % _REPLACED)
_RAW: Final = ("--raw", "-z", "-c", "--no-renames", "--no-abbrev", "--no-ext-diff")
_LOG: Final = ("log", "--stdin", *_RAW, "--format=@commit %h")
_PARENTS: Final = frozenset(parent for parent, _ in GUARDED_PLACES)


class GitState(msgspec.Struct, frozen=True):
    """The stamps of a git folder's files, and the objects that they name."""

    stamps: frozenset[tuple[str, int, int, int]]
    names: frozenset[bytes]


def state_of(repository: str, known: GitState | None) -> GitState:
    """The state of a git folder; the `known` one, if no file has another stamp. Reads files."""
    stamps = frozenset(_stamps(repository))
    if known is not None and known.stamps == stamps:
        return known
    names = set(_NAME.findall(os.fsencode("\n".join(stamp[0] for stamp in stamps))))
    for path in (*(stamp[0] for stamp in stamps), f"{repository}/logs/refs/stash"):
        with suppress(OSError):
            text = read_bytes(path, _MAX_BYTES)
            names.update(() if text.startswith(_INDEX) else _NAME.findall(text))
    return GitState(stamps, frozenset(names))


def _stamps(repository: str) -> Iterator[tuple[str, int, int, int]]:
    waiting = [repository]
    while waiting:
        place = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    found = entry.stat(follow_symlinks=False)
                    now = time.time_ns()
                    # It may change again within the same tick of the clock.
                    changed = now if now - found.st_ctime_ns < _RACY_NS else found.st_ctime_ns
                    yield entry.path, changed, found.st_ino, found.st_size
                elif (entry.name in _PLACES or place != repository) and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


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
            found |= _entries(_git(git, "diff", "--cached", *_RAW))
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
        or folded(path.rpartition("/")[2]) in _PARENTS
        or any(f"{tree}/{path}" in also for tree in trees)
        if not any(_is_there(tree / path, name) for tree in trees)
    }
    earlier = _held_before(repository, before, {path for path, _ in kept}) if kept else frozenset[tuple[str, str]]()
    runs = [line for text in orders for line in text.splitlines() if line.startswith(("exec ", "x "))]
    return [Change(f"{visible_line(line)} runs when the rebase in {repository} goes on", "") for line in runs] + [
        Change(f"{visible_line(path)} is another one in {where} of {visible_line(repository)}", "")
        for (path, name), where in kept.items()
        if (path, name) not in earlier
    ]


def _new_in(repository: str, before: GitState, now: GitState) -> dict[tuple[str, str], str]:
    """What new commits hold, see `_entries`. Raises OSError, ValueError, IndexError, SubprocessError."""
    if any(name.startswith(_REPLACED) for name in now.names - before.names):
        raise ValueError(repository)
    if now.names <= before.names:
        return {}
    commits = _commits(repository, before.names | now.names)
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
        return frozenset(
            entry for entry, _ in _entries(_git(repository, *words, given=_commits(repository, before.names)))
        )
    return frozenset()


def _commits(repository: str, names: Iterable[bytes]) -> set[bytes]:
    """The commits and tags among the names of objects."""
    listed = _git(repository, "cat-file", "--batch-check", given=names).splitlines()
    return {line.split()[0] for line in listed if line.split()[1] in {b"commit", b"tag"}}


def _git(folder: str, *words: str, given: Iterable[bytes] = ()) -> bytes:
    safe = ("-c", "core.fsmonitor=false", "-c", "core.commitGraph=false", "-c", "log.showSignature=false")
    command = (find_program("git") or "git", *safe, *words)
    environment = {**ISOLATED, "GIT_DIR": folder, "PATH": search_path(os.environ.get("PATH", os.defpath))}
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


def _is_there(path: Path, name: str) -> bool:
    """Whether the file or link in the folder is this blob."""
    with suppress(OSError):
        content = os.fsencode(path.readlink()) if path.is_symlink() else read_bytes(path, _MAX_BYTES)
        return name in {content_name(content), content_name(content.replace(b"\r\n", b"\n"))}
    return False
