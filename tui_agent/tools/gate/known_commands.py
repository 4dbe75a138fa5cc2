"""The commands whose options are known.

The table, `known_commands.toml`, lists what is allowed, never what is forbidden: an option that is not in it, even an
abbreviation, is unknown. `tests/tools/gate` has arguments for each command that must be known and that must not.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.tools.gate.patterns import words as table
from tui_agent.tools.gate.shell_line import Word

Operands: TypeAlias = Literal["paths", "texts", "pattern", "sed", "awk", "time", "words", "free", "none"]
"""What follows the options: files; texts that may look like files; a pattern or a script and then files; a time format;
words that are not files; anything; or nothing.
"""

NO_VALUE: Final = "has no value"
_MANY: Final = 1_000


class Known(msgspec.Struct, frozen=True):
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


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command and the options and operands that may follow it.

    `flags`: short options without a value;
    `valued`, `files`: short options with a text or a path. `names`: long options, as ``name``, ``name=`` (with a text),
    ``name?`` (optionally with one) or ``name<`` (with a path). `most`: the most operands. `numbers`: ``-20`` is an
    option. `whole`: options that make every operand a path.
    """

    command: str
    flags: str = ""
    valued: str = ""
    files: str = ""
    names: frozenset[str] = frozenset()
    operands: Operands = "paths"
    most: int = _MANY
    numbers: bool = False
    reads: bool = True
    whole: frozenset[str] = frozenset()


def known(words: Sequence[Word]) -> Known:
    """What a command is known to touch. Raises Unknown."""
    texts = [word.text for word in words]
    if texts[:1] == ["timeout"] and len(texts) > 2 and re.fullmatch(r"\d{1,6}[smh]?", texts[1], re.ASCII):
        return known(words[2:])
    if special := SPECIAL.get(texts[0]):
        return special(words)
    records = known_commands()
    if texts[0] == "git":
        return _git(words, records)
    options = records.get(texts[0])
    if options is None:
        raise Unknown
    return _arguments(options, words[1:])


def may_be_known(words: Sequence[Word]) -> bool:
    """Whether a command that begins with these words may be known."""
    texts = tuple(word.text for word in words)
    if not texts or texts[0] in SPECIAL or texts == ("cd",):
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

    def __init__(self, options: Options) -> None:
        self.options = options
        self.operands: list[Word] = []
        self.paths: list[Word] = []
        self.texts: list[Word] = []
        self.whole = False


def _arguments(options: Options, words: Sequence[Word]) -> Known:
    if options.operands == "free":
        return Known(options.reads)
    found, waiting = _Sorted(options), list(words)
    while waiting:
        word = waiting.pop(0)
        if word.text == "--":
            found.operands += waiting
            break
        if word.text.startswith("--"):
            _long(found, word, waiting)
        elif word.text.startswith("-") and len(word.text) > 1:
            _short(found, word, waiting)
        else:
            found.operands.append(word)
    _place(found)
    command = options.command
    return Known(options.reads, tuple(found.paths), tuple(found.texts), command.startswith("git "), command == "diff")


def _long(found: _Sorted, word: Word, waiting: list[Word]) -> None:
    name, equals, value = word.text[2:].partition("=")
    names = found.options.names
    found.whole |= f"--{name}" in found.options.whole
    if (name in names and not equals) or f"{name}?" in names:
        taken = [Word(value, value)] if equals else []
    elif f"{name}=" in names or f"{name}<" in names:
        taken = [Word(value, value)] if equals else [_value(word, waiting)]
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
            value = Word(rest, rest) if rest else _value(word, waiting)
            (found.paths if letter in options.files else found.texts).append(value)
            return
        if letter not in options.flags:
            raise Unknown(f"`{word.text[:200]}` is not known to be harmless")


def _value(option: Word, waiting: list[Word]) -> Word:
    # What this takes for a value must not be an option to the program.
    if not waiting or (waiting[0].text.startswith("-") and not re.fullmatch(r"-\d*", waiting[0].text, re.ASCII)):
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
_SED: Final = re.compile(rf"(?:{_ADDRESS}(?:,{_ADDRESS})?)?[pdq=](?:; *(?:{_ADDRESS}(?:,{_ADDRESS})?)?[pdq=])*;?")
_FIELD = r"\$(?:\d+|NF)"
_AWK: Final = re.compile(rf"(?:NR *[<>=]=? *\d+ *)?(?:\{{ *print(?: +{_FIELD}(?: *, *{_FIELD})*)? *\}})?")


# Commands with a grammar of their own

_RUNS_PROGRAM: Final = re.compile(r"%[-+ ]?[G(]")
"""In a format of git's; the signs before the letter say what to do with an empty value."""


def _git(words: Sequence[Word], records: dict[str, Options]) -> Known:
    at = 1
    while at < len(words) and words[at].text in {"--no-pager", "--no-optional-locks"}:
        at += 1
    following = [word.text for word in words[at : at + 2]]
    for length in (2, 1):
        options = records.get(" ".join(["git", *following[:length]]))
        if options is not None and len(following) >= length:
            checked = _arguments(options, words[at + length :])
            # It would run a program to check signatures.
            if any(_RUNS_PROGRAM.search(word.text) for word in checked.texts):
                raise Unknown("a format of git that is not known to be harmless")
            return checked
    raise Unknown


_FIND_FLAGS: Final = table(
    "! -not -o -or -a -and , ( ) -print -print0 -prune -empty -depth -mount -xdev -quit -true -false -ls -readable "
    "-writable -executable -nogroup -nouser"
)
_FIND_TEXTS: Final = table(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -size -mtime -mmin -atime -amin "
    "-ctime -cmin -maxdepth -mindepth -perm -user -group -printf -links -inum"
)
_FIND_PATHS: Final = frozenset({"-newer", "-anewer", "-cnewer", "-samefile"})


def _find(words: Sequence[Word]) -> Known:
    paths: list[Word] = []
    texts: list[Word] = []
    waiting = list(words[1:])
    while waiting and not waiting[0].text.startswith(("-", "(", "!", ",", ")")):
        paths.append(waiting.pop(0))
    while waiting:
        word = waiting.pop(0)
        if word.text in _FIND_FLAGS:
            continue
        if word.text not in _FIND_TEXTS | _FIND_PATHS or not waiting:
            raise Unknown(f"`{word.text[:200]}` is not known to be harmless")
        (paths if word.text in _FIND_PATHS else texts).append(waiting.pop(0))
    # A number or a pattern for find names no file; but a glob could expand to several words.
    if any(text.glob for text in texts):
        raise Unknown("a pattern of files stands where find takes one word")
    return Known(paths=tuple(paths), texts=tuple(texts))


def _test(words: Sequence[Word]) -> Known:
    if len(words) == 3 and re.fullmatch(r"-[efdrswxLh]", words[1].text) and not words[2].glob:
        return Known(paths=(words[2],))
    raise Unknown("a test that is not known to be harmless")


def _command(words: Sequence[Word]) -> Known:
    if len(words) >= 3 and words[1].text in {"-v", "-V"}:
        return Known()
    raise Unknown("`command` runs another program")


SPECIAL: Final[dict[str, Callable[[Sequence[Word]], Known]]] = {"find": _find, "test": _test, "command": _command}
"""Commands that are not in the table."""


# The table


@cache
def known_commands() -> dict[str, Options]:
    """The table, by command."""
    table = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes())
    lists: dict[str, str] = table.pop("lists")

    def expanded(text: str) -> list[str]:
        return [name for word in text.split() for name in (expanded(lists[word[1:]]) if word[0] == "@" else [word])]

    for command, row in table.items():
        lists_of_words = {key: expanded(row[key]) for key in ("names", "whole") if key in row}
        table[command] = {**row, "command": command, **lists_of_words}
    return msgspec.convert(table, dict[str, Options])
