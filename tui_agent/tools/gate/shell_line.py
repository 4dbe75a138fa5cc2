"""Which commands a shell line runs, told well enough to hold them against rules.

The answer errs on one side only: a line that is not fully understood is `opaque`, and an opaque line is never taken for
one that was allowed. It follows the grammar of bash (its manual, "Shell Syntax" and "Shell Expansions").
"""

import re
from itertools import takewhile

import msgspec

from tui_agent.tools.gate.shell_words import Opaque, Pipeline, Word, parse
from tui_agent.tools.gate.shell_wrappers import Unwrapped, unwrap

_DEPTH = 8
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./~*?{}$\[\]^-]+", re.ASCII)
NOWHERE = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty"})
"""Paths that are no file."""

MOVES = frozenset({"cd", "pushd", "popd"})
"""Commands after which a relative path means another place."""


class Redirection(msgspec.Struct, frozen=True):
    """A file the shell itself opens. `target` is None where it is only known when the line runs."""

    target: str | None


class SimpleCommand(msgspec.Struct, frozen=True):
    """One program with its arguments, quotes removed. `text` is how a rule sees it: assignments in front, an argument
    quoted only where it must be. `dynamic`: an argument is only known when the line runs.
    """

    words: tuple[str, ...]
    text: str
    assigns: bool = False
    dynamic: bool = False


class ShellLine(msgspec.Struct, frozen=True):
    """`commands`: all that run, those inside substitutions and wrappers (``sudo``, ``xargs``, ``bash -c``) included.
    `mentions`: further readings of them, for rules that forbid. `writes`, `reads`: what redirections open. `opaque`
    says why the line is not fully understood.
    """

    commands: tuple[SimpleCommand, ...] = ()
    mentions: tuple[str, ...] = ()
    writes: tuple[Redirection, ...] = ()
    reads: tuple[Redirection, ...] = ()
    opaque: str = ""


def read_line(line: str) -> ShellLine:
    """What `line` runs. Never raises."""
    reader = _Reader()
    try:
        reader.read(line, 0)
    except Opaque as reason:
        reader.opaque = reader.opaque or str(reason)
    except RecursionError:
        reader.opaque = "it is nested too deeply"
    moved = any(command.words[:1] and command.words[0] in MOVES for command in reader.commands)
    writes = tuple(_moved(write) if moved else write for write in reader.writes)
    return ShellLine(tuple(reader.commands), tuple(reader.mentions), writes, tuple(reader.reads), reader.opaque)


def written(word: str) -> str:
    """An argument as `SimpleCommand.text` has it: quoted only where it must be."""
    if word and _PLAIN.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


class _Reader:
    """Collects while it descends; what was found before something opaque stays."""

    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self.mentions: list[str] = []
        self.writes: list[Redirection] = []
        self.reads: list[Redirection] = []
        self.opaque = ""

    def read(self, line: str, depth: int) -> None:
        if depth > _DEPTH:
            raise Opaque("it is nested too deeply")
        parsed: Pipeline = parse(line)
        for words in parsed.commands:
            self._command((), words, depth)
        for inner in parsed.inner:
            self.read(inner, depth + 1)
        self.writes += filter(None, map(_opened, parsed.writes))
        self.reads += filter(None, map(_opened, parsed.reads))
        if parsed.opaque:
            self.opaque = self.opaque or parsed.opaque

    def _command(self, assignments: tuple[Word, ...], words: tuple[Word, ...], depth: int) -> None:
        if depth > _DEPTH:
            raise Opaque("it is nested too deeply")
        assigned = len(tuple(takewhile(lambda word: _ASSIGNMENT.match(word.raw), words)))
        assignments, words = (*assignments, *words[:assigned]), words[assigned:]
        command = SimpleCommand(
            words=tuple(word.text for word in words),
            text=" ".join(written(word.text) for word in (*assignments, *words)),
            assigns=bool(assignments),
            dynamic=any(word.dynamic for word in words),
        )
        if not words:
            if assignments:
                self.commands.append(command)
            return
        if words[0].dynamic or words[0].globs:
            self.opaque = self.opaque or "the name of a program is only known when it runs"
        self._mention(words)
        unwrapped: Unwrapped = unwrap(words)
        if not unwrapped.transparent:
            self.commands.append(command)
        if unwrapped.opaque:
            self.opaque = self.opaque or unwrapped.opaque
        for inner in unwrapped.commands:
            self._command(assignments, inner, depth + 1)
        for line in unwrapped.lines:
            self.read(line, depth + 1)

    def _mention(self, words: tuple[Word, ...]) -> None:
        name, *rest = (written(word.text) for word in words)
        self.mentions.append(" ".join([name, *rest]))
        if "/" in name:
            self.mentions.append(" ".join([name.rsplit("/", 1)[1], *rest]))


def _opened(word: Word) -> Redirection | None:
    if word.dynamic or word.globs or (word.raw.startswith("~") and not word.raw.startswith("~/")):
        return Redirection(None)
    if word.text in NOWHERE:
        return None
    # A quoted tilde is a file of that name, and "./" says so.
    quoted = word.text.startswith("~") and not word.raw.startswith("~")
    return Redirection(f"./{word.text}" if quoted else word.text)


def _moved(write: Redirection) -> Redirection:
    """A relative target after a `cd` could be anywhere."""
    known = write.target is not None and write.target.startswith(("/", "~/"))
    return write if known else Redirection(None)
