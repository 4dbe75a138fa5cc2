"""The commands whose options are known.

The table, `known_commands.toml`, lists what is allowed, never what is forbidden: an option that is not in it, even an
abbreviation, is unknown. `tests/tools/gate` has arguments for each command that must be known and that must not.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.regex import regex
from tui_agent.tools.gate.shell_line import Word

Operands: TypeAlias = Literal["paths", "texts", "pattern", "sed", "awk", "time", "words", "free", "none"]
"""What follows the options: files; texts that may look like files; a pattern or a script and then files; a time format;
words that are not files; anything; or nothing.
"""

NO_VALUE: Final = "has no value"
_MANY: Final = 1_000


class CommandAccess(msgspec.Struct, frozen=True):
    """What a command touches.

    `paths` are files; `texts` are not, though they may look like it. `reads`: it changes nothing. `repository`: it
    obeys the project's git configuration. `flat`: given a folder, it would follow the links in it.
    """

    reads: bool = True
    paths: tuple[Word, ...] = ()
    texts: tuple[Word, ...] = ()
    repository: bool = False
    flat: bool = False


class Unknown(Exception):
    """A command or one of its arguments is not known; the message names the argument, and is empty for a command."""


class CommandSyntax(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command and the options and operands that may follow it.

    `flags`: short options without a value; `valued`, `files`: short options with a text or a path. `names`: long
    options, as ``name``, ``name=`` (with a text), ``name?`` (optionally with one) or ``name<`` (with a path). `dash`:
    how these begin; with ``-`` there are no short ones. `most`: the most operands. `numbers`: ``-20`` is an option.
    `whole`: options that make every operand a path.
    """

    command: str
    flags: str = ""
    valued: str = ""
    files: str = ""
    names: frozenset[str] = frozenset()
    dash: Literal["--", "-"] = "--"
    operands: Operands = "paths"
    most: int = _MANY
    numbers: bool = False
    reads: bool = True
    whole: frozenset[str] = frozenset()


def known(words: Sequence[Word]) -> CommandAccess:
    """What a command is known to touch. Raises Unknown."""
    texts = [word.text for word in words]
    if texts[:1] == ["timeout"] and len(texts) > 2 and re.fullmatch(r"\d{1,6}[smh]?", texts[1], re.ASCII):
        return known(words[2:])
    at = 1
    while texts[0] == "git" and texts[at : at + 1] in (["--no-pager"], ["--no-optional-locks"]):
        at += 1
    for more in (2, 1, 0):
        options = known_commands().get(" ".join([texts[0], *texts[at : at + more]]))
        if options is not None and len(texts) >= at + more:
            return _arguments(options, words[at + more :])
    raise Unknown


def is_known(words: Sequence[Word]) -> bool:
    """Whether a command is `known`."""
    try:
        known(words)
    except Unknown:
        return False
    return True


def may_be_known(words: Sequence[Word]) -> bool:
    """Whether a command that begins with these words may be known."""
    texts = tuple(word.text for word in words)
    if not texts or texts == ("cd",):
        return bool(texts)
    for command in known_commands():
        named = tuple(command.split())
        if len(texts) <= len(named):
            if named[: len(texts)] == texts:
                return True
        elif texts[: len(named)] == named:
            try:
                known(words)
            except Unknown as unknown:
                return str(unknown).endswith(NO_VALUE)
            return True
    return False


def command_length(texts: Sequence[str]) -> int:
    """The number of words that name the command: two for ``git diff``, three for ``git stash list``."""
    names = (command.split() for command in known_commands())
    return max((len(name) for name in names if name == list(texts[: len(name)])), default=1)


# Reading arguments, as getopt_long(3) does


class _Sorted:
    """The arguments of one command, sorted into paths and texts."""

    def __init__(self, options: CommandSyntax) -> None:
        self.options = options
        self.operands: list[Word] = []
        self.paths: list[Word] = []
        self.texts: list[Word] = []
        self.whole = False


def _arguments(options: CommandSyntax, words: Sequence[Word]) -> CommandAccess:
    if options.operands == "free":
        return CommandAccess(options.reads)
    found, waiting = _Sorted(options), list(words)
    while waiting:
        word = waiting.pop(0)
        if word.text == "--" == options.dash:
            found.operands += waiting
            break
        if word.text.startswith(options.dash) and len(word.text) > 1:
            _long(found, word, waiting)
        elif word.text.startswith("-") and len(word.text) > 1:
            _short(found, word, waiting)
        else:
            found.operands.append(word)
    _place(found)
    of_git = options.command.startswith("git ")
    if of_git and any(_RUNS_PROGRAM.search(word.text) for word in found.texts):
        raise Unknown("a format of git that is not known to be harmless")
    return CommandAccess(options.reads, tuple(found.paths), tuple(found.texts), of_git, options.command == "diff")


def _long(found: _Sorted, word: Word, waiting: list[Word]) -> None:
    options, names = found.options, found.options.names
    name, equals, value = word.text[len(options.dash) :].partition("=")
    found.whole |= f"--{name}" in options.whole
    if (name in names and not equals) or f"{name}?" in names:
        taken = [Word(value, value)] if equals else []
    elif f"{name}=" in names or f"{name}<" in names:
        taken = [Word(value, value)] if equals else [_value(options, word, waiting)]
    else:
        raise Unknown(f"`{word.text[:200]}` is not known to be harmless")
    (found.paths if f"{name}<" in names else found.texts).extend(taken)


def _short(found: _Sorted, word: Word, waiting: list[Word]) -> None:
    options = found.options
    if options.numbers and re.fullmatch(r"-\d+", word.text, re.ASCII):
        return
    for at, letter in enumerate(word.text[1:], 2):
        found.whole |= f"-{letter}" in options.whole
        if letter in options.valued or letter in options.files:
            rest = word.text[at:]
            value = Word(rest, rest) if rest else _value(options, word, waiting)
            (found.paths if letter in options.files else found.texts).append(value)
            return
        if letter not in options.flags:
            raise Unknown(f"`{word.text[:200]}` is not known to be harmless")


def _value(options: CommandSyntax, option: Word, waiting: list[Word]) -> Word:
    # What this takes for a value must not be an option to the program. It is none to find; a pattern may be several.
    follows = waiting[0] if waiting else Word("-", "-")
    is_option = follows.text.startswith("-") and not re.fullmatch(r"-\d*", follows.text, re.ASCII)
    if not waiting or (follows.glob if options.dash == "-" else is_option):
        raise Unknown(f"`{option.text[:200]}` {NO_VALUE}")
    return waiting.pop(0)


def _place(found: _Sorted) -> None:
    """Sort the operands into paths and texts."""
    options, operands = found.options, found.operands
    globs = any(word.glob for word in operands)
    if len(operands) > options.most or (operands and options.operands == "none") or (globs and options.most < _MANY):
        raise Unknown(f"`{operands[-1].text[:200]}` may be written to, or be an order")
    match options.operands:
        case "texts":
            found.texts += operands
        case "words":
            pass
        case "time":
            if not all(word.text.startswith("+") for word in operands):
                raise Unknown("a time may be set")
        case "pattern" | "sed" | "awk" if not found.whole and operands:
            script = {"sed": _SED, "awk": _AWK}.get(options.operands)
            if script and not (operands[0].glob == "" and script.fullmatch(operands[0].text)):
                raise Unknown(f"the script `{operands[0].text[:200]}` is not known to be harmless")
            found.texts.append(operands[0])
            found.paths += operands[1:]
        case _:
            found.paths += operands


_ADDRESS = r"(?:\d+|\$)"
_SED: Final = regex(rf"(?:{_ADDRESS}(?:,{_ADDRESS})?)?[pdq=](?:; *(?:{_ADDRESS}(?:,{_ADDRESS})?)?[pdq=])*;?")
_RUNS_PROGRAM: Final = regex(r"%[-+ ]?[G(]")
"""In a format of git's, to check signatures; the signs before the letter say what to do with an empty value."""
_FIELD = r"\$(?:\d+|NF)"
_AWK: Final = regex(rf"(?:NR *[<>=]=? *\d+ *)?(?:\{{ *print(?: +{_FIELD}(?: *, *{_FIELD})*)? *\}})?")


# The table


@cache
def known_commands() -> dict[str, CommandSyntax]:
    """The table, by command."""
    table = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes())
    lists: dict[str, str] = table.pop("lists")

    def expanded(text: str) -> list[str]:
        return [name for word in text.split() for name in (expanded(lists[word[1:]]) if word[0] == "@" else [word])]

    for command, row in table.items():
        lists_of_words = {key: expanded(row[key]) for key in ("names", "whole") if key in row}
        table[command] = {**row, "command": command, **lists_of_words}
    return msgspec.convert(table, dict[str, CommandSyntax])
