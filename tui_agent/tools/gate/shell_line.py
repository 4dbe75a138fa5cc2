"""Parsing a command line: it is *plain* if every word of it is known before it runs, otherwise *opaque*.

A plain line consists of simple commands with literal words, joined by ``&&``, ``||``, ``;`` and ``|``. Anything that
the shell would expand, substitute, assign, define, group or open makes the line opaque. In a plain line every byte is
part of a literal word, a blank or an operator (bash's manual, "Shell Syntax"). The tokenizer need not know all of bash:
what it does not know is opaque.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, Literal, TypeAlias, cast

import msgspec

from tui_agent.regex import regex
from tui_agent.tools.gate.patterns import escaped, words

MAX_LINE: Final = 4_000
"""The most characters of a plain line."""
MAX_COMMANDS: Final = 40
MAX_WORDS: Final = 200
"""The most commands and words of a plain line."""

Operator: TypeAlias = Literal["&&", "||", ";", "|", ""]

_SINGLE = r"'[^'\n]*'"
_DOUBLE = r'"(?:[^"\\$`\n]|\\[^$`\n])*"'
_ESCAPED = r"\\[!-_a-~ ]"
_BARE = r"[A-Za-z0-9_@%+=:,./~^!*?\[\]-]+"
_PIECE = regex(rf"(?P<single>{_SINGLE})|(?P<double>{_DOUBLE})|(?P<escaped>{_ESCAPED})|(?P<bare>{_BARE})")
_TOKEN = regex(
    r"(?P<blank>[ \t]+)"
    # To an open stream or /dev/null: no file is touched. Digits right before it would belong to it.
    r"|(?P<redirect>(?<!\d)(?:[12]?>&[12]|[12&]?>>?[ \t]*/dev/null|<[ \t]*/dev/null)(?=[ \t;|&]|\Z))"
    r"|(?P<operator>&&|\|\|(?!\|)|;(?![;&])|\|(?![|&]))"
    rf"|(?P<word>(?:{_SINGLE}|{_DOUBLE}|{_ESCAPED}|{_BARE})+)"
)
_CONTROL = regex(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_NAME = regex(r"[A-Za-z0-9_./+-]+", re.ASCII)
_HOME = regex(r"(?:\A|[=:])~")
_ARGUMENT_FILE = regex(r"(?:\A|=)@|\A-[A-Za-z]@", re.ASCII)
_QUOTED_BRACKET: Final = "\0"
_RESERVED: Final = words(
    "if then elif else fi case esac for select while until do done in function time coproc declare typeset export "
    "readonly local unset"
)
"""What groups other commands, or changes what those after it mean."""
_WHY: Final = (
    (regex(r"[\r\n]"), "it has several lines"),
    (regex(r"\$\(\(|\(\("), "it calculates"),
    (regex(r"\$\(|`|[<>]\("), "it runs commands inside others"),
    (regex(r"\$"), "it holds a variable"),
    (regex(r"<<"), "it holds a text for a command's input"),
    (regex(r"[{}]"), "it holds braces"),
    (regex(r"[<>]"), "it reads or writes a file by redirection"),
    (regex(r"[()]"), "it groups commands"),
    (regex(r"(?<!&)&(?!&)"), "it leaves a command in the background"),
    (regex(r"#"), "it holds a comment"),
)


class Word(msgspec.Struct, frozen=True):
    """A word: `text` without its quotes, and `raw` as written.

    `glob`: if the word has an unquoted ``*``, ``?`` or ``[``, a pattern that matches at least what the shell expands it
    to; else empty.
    """

    text: str
    raw: str
    glob: str = ""


class SimpleCommand(msgspec.Struct, frozen=True):
    """A program with its arguments. `then` is the operator before the next command."""

    words: tuple[Word, ...]
    then: Operator = ""

    @property
    def texts(self) -> tuple[str, ...]:
        """The words without their quotes."""
        return tuple(word.text for word in self.words)

    @property
    def written(self) -> str:
        """The command as written, with one blank between the words."""
        return " ".join(word.raw for word in self.words)


class ShellLine(msgspec.Struct, frozen=True):
    """A parsed line.

    `commands` are those of a plain line. `opaque` says why it is not plain.
    """

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    opaque: str = ""


class _Opaque(Exception):
    """The line is not plain; the message says why."""


@lru_cache(maxsize=256)
def read_line(text: str) -> ShellLine:
    """Parse a command line. Never raises."""
    line = text.strip(" \t\n")
    if len(line) > MAX_LINE:
        return ShellLine(text, opaque=f"it is longer than {MAX_LINE:,} characters")
    if not line:
        return ShellLine(text, opaque="it is empty")
    if _CONTROL.search(line):
        return ShellLine(text, opaque="it holds control characters")
    try:
        return ShellLine(text, _commands(line))
    except _Opaque as reason:
        return ShellLine(text, opaque=str(reason))


def read_words(text: str) -> tuple[Word, ...] | None:
    """The words of one simple, plain command; None for anything else."""
    try:
        found = _commands(text.strip(" \t\n"), in_rule=True)
    except _Opaque:
        return None
    return found[0].words if len(found) == 1 and not found[0].then else None


def _commands(line: str, *, in_rule: bool = False) -> tuple[SimpleCommand, ...]:
    commands: list[SimpleCommand] = []
    words: list[Word] = []
    for kind, text in _tokens(line):
        if kind == "word":
            words.append(_word(text, first=not words, in_rule=in_rule))
        elif kind == "operator":
            commands.append(_command(words, text))
            words = []
    if words:
        commands.append(_command(words, ""))
    elif not commands or commands[-1].then != ";":
        raise _Opaque("it ends in the middle")
    if len(commands) > MAX_COMMANDS or sum(len(command.words) for command in commands) > MAX_WORDS:
        raise _Opaque("it has too many commands or words")
    return tuple(commands)


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None or token.lastgroup is None:
            raise _Opaque(_why(line, at))
        at = token.end()
        yield token.lastgroup, token[0]


def _why(line: str, at: int) -> str:
    # An open quote, or one with an expansion in it, stops the tokenizer at its start.
    quoted = line[at] in "\"'"
    for sign, reason in _WHY:
        if sign.search(line, at) if quoted else sign.match(line, at):
            return reason
    return "a quote is open" if quoted else "it holds a character that a plain command has only in quotes"


def _command(words: list[Word], then: str) -> SimpleCommand:
    if not words:
        raise _Opaque("a command is missing")
    return SimpleCommand(tuple(words), cast("Operator", then))


def _word(raw: str, *, first: bool, in_rule: bool) -> Word:
    text, glob, bare, globs, at = "", "", "", False, 0
    while at < len(raw):
        piece = _PIECE.match(raw, at)
        if piece is None:
            raise _Opaque("it is no plain command")
        at = piece.end()
        taken = _unquoted(piece)
        text += taken
        if piece.lastgroup == "bare":
            bare += taken
            globs = globs or any(sign in taken for sign in "*?[")
            glob += taken
        else:
            bare += "'" * len(taken)
            glob += escaped(taken).replace("[", _QUOTED_BRACKET)
    if first:
        _check_name(raw)
    if _HOME.search(bare):
        raise _Opaque("it names a home folder by a tilde")
    if _ARGUMENT_FILE.search(text) and not in_rule:
        raise _Opaque("a command takes its arguments from a file")
    if not globs or (in_rule and raw == "*"):
        return Word(text, raw)
    if bare[0] in "*?[-":
        raise _Opaque("a pattern may become an option")
    for part in text.split("/"):
        if part == ".." or (part.startswith(".") and any(sign in part for sign in "*?[")):
            raise _Opaque("a pattern may lead upwards")
    return Word(text, raw, "/".join(map(_widened, glob.split("/"))).replace(_QUOTED_BRACKET, "["))


def _widened(part: str) -> str:
    """A part of a pattern with brackets replaced by a pattern that matches at least as much."""
    before, bracket, _ = part.partition("[")
    return f"{before}*" if bracket else part


def _unquoted(piece: re.Match[str]) -> str:
    inner = piece[0]
    match piece.lastgroup:
        case "single":
            inner = inner[1:-1]
        case "escaped":
            return inner[1:]
        case "double":
            if "\\" in inner and not inner.isascii():
                # In some character sets a backslash may be the second byte of a character.
                raise _Opaque("a backslash stands beside other characters than ASCII")
            return re.sub(r'\\(["\\])', r"\1", inner[1:-1])
    return inner


def _check_name(raw: str) -> None:
    if not _NAME.fullmatch(raw):
        assigns = re.match(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=", raw, re.ASCII)
        raise _Opaque("it sets a variable" if assigns else "the name of a program is not written plainly")
    if raw in _RESERVED:
        raise _Opaque(f"it uses `{raw}`")
