"""Whether rules let a command line through, and what "always" would remember of one.

Every command of the line must be covered by a rule, and every file the shell itself opens must be inside. The ``*`` of
a rule stands for what the program is known for, in the workspace: for no argument that reaches further
(`tools/command_reach.py`), none that leads outside (`tools/command_paths.py`), and none that is only known when the
line runs. What a rule has written out it means.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tui_agent.tools.base import ToolFailure, WorkspaceView
from tui_agent.tools.gate.command_paths import Stray, Use, check_word, folders_of, has_one_name
from tui_agent.tools.gate.command_reach import reaching
from tui_agent.tools.gate.patterns import escaped, is_wild, matches, written_out
from tui_agent.tools.gate.shell_line import Redirection, ShellLine, SimpleCommand, written
from tui_agent.tools.gate.workspace import access_to, shown

_QUIET = frozenset({"echo", "printf", "true", "false", ":", "basename", "dirname", "pwd", "whoami", "uname", "which"})
"""Programs that open no file they are told of."""

_PROPOSED_LOOKING = frozenset(
    {"ls", "cat", "head", "tail", "wc", "stat", "file", "du", "df", "date", "diff", "tree", "realpath", "test", "cd"}
)
_LOOKING = _PROPOSED_LOOKING | {
    *("awk", "cmp", "column", "comm", "cut", "egrep", "fd", "fgrep", "find", "fold", "gawk", "grep", "jq"),
    *("mawk", "md5sum", "nl", "od", "popd", "pushd", "rev", "rg", "sed", "sha1sum", "sha256sum", "sort", "tac"),
    "tr",
}
"""Programs that change nothing, without the arguments that reach further."""

_TEXTS = frozenset({"grep", "egrep", "fgrep", "rg", "sed", "awk", "gawk", "mawk", "git", "find", "fd", "jq", "tr"})
"""Programs that also take arguments that only look like paths: patterns, scripts, messages."""

_GIT = frozenset({"status", "diff", "log", "show", "add", "commit", "blame", "rev-parse"})
_PROPOSED = _QUIET | _PROPOSED_LOOKING | {"pytest", "mypy", "ruff"}
_PROPOSED_WITH = {
    "git": _GIT,
    "cargo": frozenset({"build", "check", "test", "clippy", "fmt"}),
    "go": frozenset({"build", "test", "vet", "fmt"}),
    "npm": frozenset({"test", "ls", "view"}),
    "uv": frozenset({"sync", "lock", "tree"}),
}
"""With `_PROPOSED`, the programs of which "always" may mean any arguments: they look, build or test. Of these the first
argument belongs to the name. Of every other program only the very same command is remembered.
"""


class Coverage(msgspec.Struct, frozen=True):
    """`pattern` covers (the last command of) the line; None: something is not covered, and `missing` may say what."""

    pattern: str | None
    missing: str = ""


def covering(patterns: Sequence[str], line: ShellLine, workspace: WorkspaceView) -> Coverage:
    """Whether these patterns together let all of `line` through. Looks at the disk."""
    if line.opaque or not line.commands:
        return Coverage(None)
    if missing := outside(line, workspace):
        return Coverage(None, missing)
    found: str | None = None
    for command in line.commands:
        found, missing = None, ""
        for pattern in patterns:
            if not names_command(pattern, command.text):
                continue
            if not (missing := _beyond(pattern, command, line, workspace)):
                found = pattern
                break
        if found is None:
            return Coverage(None, missing)
    return Coverage(found)


def proposed_patterns(line: ShellLine, workspace: WorkspaceView) -> tuple[str, ...]:
    """What to remember so that `line` passes; nothing where no pattern could ever let it through."""
    if any(command.assigns for command in line.commands):
        return ()
    patterns = tuple(dict.fromkeys(_pattern(command, line, workspace) for command in line.commands))
    return patterns if covering(patterns, line, workspace).pattern is not None else ()


def outside(line: ShellLine, workspace: WorkspaceView) -> str:
    """What the shell itself would open that is outside, guarded or not known; empty for nothing."""
    for write in line.writes:
        if not _writable(write, workspace):
            return f"{_named(write)} is written, which is outside the workspace, guarded, or not known before it runs"
    if not line.reads:
        return ""
    try:
        folders = folders_of(line, workspace)
        for read in line.reads:
            if read.target is None:
                return "it reads a file that is not known before it runs"
            check_word(read.target, folders, workspace, Use(looks=True))
    except Stray as stray:
        return str(stray)
    return ""


def names_command(pattern: str, text: str) -> bool:
    """Whether `pattern` names a command; ``NAME *`` also means NAME alone."""
    return matches(pattern, text) or (pattern.endswith(" *") and matches(pattern, f"{text} "))


def _beyond(pattern: str, command: SimpleCommand, line: ShellLine, workspace: WorkspaceView) -> str:
    """What of `command` the pattern that names it does not stand for; empty: nothing."""
    name = command.words[0] if command.words else ""
    for index in reaching(command.words):
        if is_wild(pattern) and not _spelled(pattern, command.words[index]):
            return f"`{shown(command.words[index], 200)}` makes {name} do more than it is known for"
    is_quiet = name in _QUIET
    if command.dynamic and not is_quiet:
        return f"an argument of {shown(name, 200)} is only known when it runs"
    if not is_wild(pattern):
        return ""
    try:
        folders = folders_of(line, workspace)
        for word in command.words[1:]:
            # What the shell makes of a pattern names files, whoever it is given to.
            if not _spelled(pattern, word) and not (is_quiet and not any(sign in word for sign in "*?[")):
                _check_word(pattern, word, folders, workspace, _use_of(command.words))
    except Stray as stray:
        return str(stray)
    return ""


def _check_word(pattern: str, word: str, folders: tuple[Path, ...], workspace: WorkspaceView, use: Use) -> None:
    """Raises Stray, except where the pattern itself has such a path: ``ls /usr/include/*``."""
    try:
        check_word(word, folders, workspace, use)
    except Stray as stray:
        places = [part for part in pattern.split(" ") if part.startswith(("/", "~/"))]
        real = "" if stray.path is None else str(stray.path)
        if not any(matches(place, word) and matches(place, real) for place in places):
            raise


def _use_of(words: tuple[str, ...]) -> Use:
    name = words[0].rsplit("/", 1)[-1]
    looks = name in _QUIET | _LOOKING or (name == "git" and bool(_GIT & set(words[1:2])))
    return Use(looks, texts=looks and name in _TEXTS)


def _spelled(pattern: str, word: str) -> bool:
    """Whether the pattern has this argument written out."""
    return any(f" {written(word)} " in f" {piece} " for piece in written_out(pattern))


def _pattern(command: SimpleCommand, line: ShellLine, workspace: WorkspaceView) -> str:
    name, *rest = command.words or ("",)
    if name in _PROPOSED:
        wide = f"{name} *"
    elif rest and rest[0] in _PROPOSED_WITH.get(name, ()):
        wide = f"{name} {rest[0]} *"
    else:
        return escaped(command.text)
    return escaped(command.text) if _beyond(wide, command, line, workspace) else wide


def _named(write: Redirection) -> str:
    return "a file" if write.target is None else shown(write.target, 200)


def _writable(write: Redirection, workspace: WorkspaceView) -> bool:
    if write.target is None:
        return False
    try:
        access = access_to(workspace, write.target, "write")
    except ToolFailure:
        return False
    return access.inside and not access.guarded and has_one_name(Path(access.target))
