"""Whether a git command that only reads would run a program or fetch something that the project's files name.

A repository that came with a project is as untrusted as the project: its configuration names programs for file systems,
filters, diffs and signatures, its hooks run when an index is written, and a submodule has all of that again. A
repository passes only if all its configuration is known to be harmless (git-config(1), githooks(5),
gitrepository-layout(5)). Only a few files of limited size are read.
"""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tui_agent.regex import regex
from tui_agent.system.regular import is_folder, is_regular, read_bytes
from tui_agent.tools.base import WorkspaceView
from tui_agent.tools.gate.patterns import words

MAX_CONFIG: Final = 64_000
MAX_INDEX: Final = 8_000_000
"""The most bytes of the configuration and of the index; a larger one is not read."""
MAX_HOOKS: Final = 100

_SECTION: Final = regex(r'\[(?P<name>[A-Za-z0-9.-]+)(?:[ \t]+"[^"\\\n]*")?\][ \t]*', re.ASCII)
_VALUE: Final = regex(r"(?P<name>[A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=(?P<value>[^\n]*[^\\\n]))?", re.ASCII)
_PLACE: Final = regex(r"[\w.@/+~-]+")
_MOST_INCLUDED: Final = 10
_HARMLESS: Final = words(
    """
    core.repositoryformatversion core.filemode core.bare core.logallrefupdates core.ignorecase core.precomposeunicode
    core.symlinks core.autocrlf core.eol core.safecrlf core.quotepath core.abbrev core.untrackedcache core.protectntfs
    remote.url remote.fetch remote.pushurl remote.push remote.tagopt remote.prune
    branch.remote branch.merge branch.rebase branch.autosetuprebase branch.description branch.vscode-merge-base
    user.name user.email pull.rebase pull.ff push.default push.autosetupremote fetch.prune merge.conflictstyle
    init.defaultbranch gui.wmstate gui.geometry color.ui rerere.enabled gc.auto diff.renames diff.algorithm
    log.date log.decorate status.short status.branch
    """
)
_GITLINK: Final = b"\x00\x00\xe0\x00"
"""The mode 160000 of an index entry: a submodule."""


def why_unsafe(folder: Path, workspace: WorkspaceView) -> str:
    """Why git, started in `folder`, may do what the repository's files say; empty if it will not."""
    found = False
    for top in (folder, *folder.parents):
        place = top / ".git"
        if os.path.lexists(place):
            if not workspace.contains(top):
                return "" if found else "the repository's top lies outside the project"
            try:
                if orders := orders_in(*git_folders(place)):
                    return orders
            except (OSError, ValueError):
                return "the repository cannot be looked through"
            # Git passes over what it takes for no repository, so those above it in the project count, too.
            found = True
    return ""


def git_folders(place: Path) -> tuple[Path, Path]:
    """The git folder of a work tree, and the one that all work trees share. Raises OSError, ValueError."""
    if place.is_dir():
        return place, place
    own = _named_in(place, "gitdir: ")
    return own, _named_in(own / "commondir", "")


def _named_in(file: Path, prefix: str) -> Path:
    text = read_bytes(file, 4_096).decode().rstrip("\n")
    if not text.startswith(prefix):
        raise ValueError(file)
    return (file.parent / text[len(prefix) :]).resolve()


def orders_in(own: Path, common: Path | None = None) -> str:
    """What in a git folder may make git run something; empty if nothing does. `common`: the one that work trees share.

    Reads files. Raises OSError, ValueError.
    """
    common = common or own
    for name in ("modules", "sharedindex", "config.worktree", "objects/info/alternates", "info/attributes"):
        if (common / name).exists() or (own / name).exists():
            return f"the repository has `{name}`"
    for name in ("config", "hooks", "info", "objects", "refs", "logs"):
        if (common / name).is_symlink() or (own / name).is_symlink():
            return f"the repository's `{name}` lies elsewhere"
    if own == common and (own / "commondir").exists():
        return "the repository's files lie elsewhere"
    if any(own.glob("sharedindex.*")):
        return "the repository's index lies in several files"
    if setting := unknown_setting(common):
        return f"the repository sets `{setting}`"
    if hook := _hook(common / "hooks"):
        return f"the repository has the hook `{hook[:100]}`"
    index = own / "index"
    if index.exists() and _GITLINK in read_bytes(index, MAX_INDEX):
        return "the repository may have submodules"
    return ""


def unknown_setting(common: Path, but: str = "\n") -> str:
    """The first key, or line, of a git folder's configuration that is not known to be harmless; empty if there is none
    but those that begin with `but`. Reads a file. Raises OSError.
    """
    text = read_bytes(common / "config", MAX_CONFIG).decode("utf-8", "replace")
    return next((key[:100] for key, _ in _settings(text) if not key.startswith(but)), "")


def _settings(text: str) -> Iterator[tuple[str, str]]:
    """The keys of a configuration that are not known to be harmless, with their values; of what is written in another
    form, the line.
    """
    section = ""
    for line in text.splitlines():
        rest = line.strip()
        if found := _SECTION.match(rest):
            section, rest = found["name"].lower(), rest[found.end() :]
        if not rest or rest.startswith(("#", ";")):
            continue
        setting = _VALUE.fullmatch(rest)
        key = f"{section}.{setting['name'].lower()}" if setting else rest
        if key not in _HARMLESS:
            yield key, (setting["value"] or "") if setting else rest


def named_by(config: Path, tops: Iterable[Path]) -> tuple[Path, ...]:
    """What a repository's configuration has git run or read besides: the folder of its hooks, the files named in the
    commands of filters and the like, further configuration. Relative paths are seen from each of `tops`. Reads files.
    """
    found: dict[Path, None] = {}
    waiting, read = [config], 0
    while waiting and read < _MOST_INCLUDED:
        file, read = waiting.pop(), read + 1
        try:
            text = read_bytes(file, MAX_CONFIG).decode("utf-8", "replace")
        except OSError:
            continue
        for key, value in _settings(text):
            if key == "core.worktree" or key.startswith("submodule."):
                continue
            includes = key.startswith("include")
            bases = (file.parent,) if includes else tuple(tops)
            for path in (Path(os.path.normpath(base / part)) for base in bases for part in _PLACE.findall(value)):
                if is_regular(path) or (key == "core.hookspath" and path not in bases):
                    found[path] = None
                    waiting += [path] if includes else []
    return tuple(found)


def configured_in(top: Path) -> tuple[Path, ...]:
    """The same for the repository whose work tree is `top`."""
    try:
        return named_by(git_folders(top / ".git")[1] / "config", (top,))
    except (OSError, ValueError):
        return ()


def hooks_of(folder: Path, workspace: WorkspaceView) -> Iterator[Path]:
    """What git runs by itself in the repository that `folder` is in: its hooks, what its configuration names, and the
    orders of a rebase that is under way. Reads files.
    """
    top = next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), folder)
    try:
        own, common = git_folders(top / ".git")
    except (OSError, ValueError):
        return
    if not workspace.contains(top):
        return
    orders = own / "rebase-merge" / "git-rebase-todo"
    for place in (common / "hooks", *([orders] if is_regular(orders) else []), *named_by(common / "config", (top,))):
        names = sorted(place.iterdir())[:MAX_HOOKS] if is_folder(place) else [place]
        yield from (path for path in names if path.suffix != ".sample")


def _hook(folder: Path) -> str:
    if not folder.exists():
        return ""
    for number, entry in enumerate(folder.iterdir()):
        if number >= MAX_HOOKS or not entry.name.endswith(".sample"):
            return entry.name
    return ""
