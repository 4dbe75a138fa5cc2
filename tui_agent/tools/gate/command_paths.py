"""Whether the arguments of a command may lead out of the workspace, judged before it runs and by what is on disk then.

Any argument may name a path, and so may what follows ``=``, ``:``, ``,`` or ``@`` in one, or an option's letter. The
shell expands ``*``, ``?`` and ``[…]`` when the line runs; here they are expanded to at least as much.
"""

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tui_agent.tools.base import ToolFailure, WorkspaceView
from tui_agent.tools.gate.shell_line import MOVES, NOWHERE, ShellLine
from tui_agent.tools.gate.workspace import access_to, shown

_MOST_FOLDERS = 32
_MOST_MATCHES = 2_000
_ADDRESS = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")
_JOINTS = re.compile(r"[=:,@]")
_CLUSTER = re.compile(r"-[A-Za-z0-9]{1,32}")
_MOVE_OPTIONS = frozenset({"-P", "-L", "-e", "--", "-n"})
_STACK = re.compile(r"[+-]\d+")


class Stray(Exception):
    """A path that may not be touched; the text says why. `path`: where it leads, as far as that is known."""

    def __init__(self, word: str, path: Path | None = None, why: str = "leads outside the workspace") -> None:
        super().__init__(f"`{shown(word, 200)}` {why if path else 'leads where is not known before it runs'}")
        self.path = path


def folders_of(line: ShellLine, workspace: WorkspaceView) -> tuple[Path, ...]:
    """Every folder that a command of `line` may run in. Raises Stray where one is outside, or is not known."""
    found = {workspace.root: None}
    targets = [target for command in line.commands if (target := _target(command.words, command.dynamic))]
    growing = True
    while growing:
        growing = False
        for folder in list(found):
            for target in targets:
                reached = _real(folder, target)
                if not workspace.contains(reached):
                    raise Stray(target, reached)
                if reached.is_dir() and reached not in found:
                    found[reached] = None
                    growing = True
        if len(found) > _MOST_FOLDERS:
            raise Stray(targets[0])
    return tuple(found)


class Use(NamedTuple):
    """What a program does with its arguments. `looks`: it changes nothing, so it may name guarded places and what the
    session owns; `texts`: some may be no paths (a regular expression), so one that names nothing is not taken for one.
    """

    looks: bool = False
    texts: bool = False


def check_word(word: str, folders: Iterable[Path], workspace: WorkspaceView, use: Use) -> None:
    """Raises Stray when `word` may name a path outside, or one that is not for this use."""
    for folder in folders:
        for piece in _pieces(word):
            for path in _expanded(piece, folder):
                _check(piece, path, workspace, use)


def has_one_name(path: Path) -> bool:
    """Whether what is written into a file changes no other: a hard link may have its second name outside."""
    try:
        found = path.lstat()
    except OSError:
        return True
    return found.st_nlink == 1 or stat.S_ISDIR(found.st_mode)


def _check(piece: str, path: Path, workspace: WorkspaceView, use: Use) -> None:
    if workspace.contains(path):
        try:
            guarded = not use.looks and access_to(workspace, str(path), "write").guarded
        except ToolFailure:
            return  # nothing that could be opened
        if guarded:
            raise Stray(piece, path, "shapes how agents and git work here")
        if not (use.looks or has_one_name(path)):
            raise Stray(piece, path, "has a second name, which may be outside the workspace")
    elif not (use.looks and workspace.owns(path)) and (not use.texts or os.path.lexists(path)):
        raise Stray(piece, path)


def _pieces(word: str) -> Iterator[str]:
    if _ADDRESS.match(word):
        return
    yield word
    if cluster := _CLUSTER.match(word):
        yield from (word[start:] for start in range(2, cluster.end() + 1))
    yield from _JOINTS.split(word)[1:]


def _expanded(piece: str, folder: Path) -> Iterator[Path]:
    if not piece or piece in NOWHERE or piece == "-":
        return
    if piece.startswith("~") and piece != "~" and not piece.startswith("~/"):
        raise Stray(piece)
    if not any(sign in piece for sign in "*?["):
        yield _real(folder, piece)
        return
    # Brackets may be quoted, which is not known here: a star stands for either reading.
    pattern = re.sub(r"\[[^/]*\]|\[", "*", os.path.expanduser(piece))  # noqa: PTH111 - a pattern is no path
    if any(part.startswith(".") and part not in {".", ".."} and fnmatchcase("..", part) for part in pattern.split("/")):
        raise Stray(piece)
    names = glob.iglob(pattern, root_dir=folder, include_hidden=True)  # noqa: PTH207 - a pattern may be absolute
    found = list(islice(names, _MOST_MATCHES + 1))
    # A file of such a name would become an option of the program.
    if len(found) > _MOST_MATCHES or any(name.startswith("-") for name in found):
        raise Stray(piece)
    for name in found or [piece]:
        yield _real(folder, name)


def _target(words: tuple[str, ...], dynamic: bool) -> str:
    """Where a command moves to; empty for none. Raises Stray where that is not known."""
    if words[:1] and words[0] in MOVES:
        rest = [word for word in words[1:] if word not in _MOVE_OPTIONS]
        if dynamic or len(rest) > 1 or any(word == "-" or any(sign in word for sign in "*?[") for word in rest):
            raise Stray(" ".join(words))
        if rest and not _STACK.fullmatch(rest[0]):
            return rest[0]
        if words[0] == "cd":
            raise Stray("cd")
    return ""


def _real(folder: Path, name: str) -> Path:
    expanded = os.path.expanduser(name)  # noqa: PTH111 - Path.expanduser raises for an unknown user
    try:
        return Path(os.path.realpath(folder / expanded))
    except ValueError:
        return folder  # no path can be written so
