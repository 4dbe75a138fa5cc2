"""The commands whose options are known.

The table lists what is allowed, never what is forbidden: an option that is not in it, even an abbreviation, is unknown.
It has the options that, by the manuals of git 2.51, GNU coreutils 9, findutils 4.10, grep 3.11, ripgrep 14 and bash
5.2, write no file, run no program, follow no link and read no commands from a file. `tests/tools/gate` has arguments
for each command that must be known and that must not.
"""

import re
from collections.abc import Callable, Sequence
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


class Options(msgspec.Struct, frozen=True):
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
    if special := _SPECIAL.get(texts[0]):
        return special(words)
    records = RECORDS
    if texts[0] == "git":
        return _git(words, records)
    options = records.get(texts[0])
    if options is None:
        raise Unknown
    return _arguments(options, words[1:])


def may_be_known(words: Sequence[Word]) -> bool:
    """Whether a command that begins with these words may be known."""
    texts = tuple(word.text for word in words)
    if not texts or texts[0] in _SPECIAL or texts == ("cd",):
        return bool(texts)
    for command in RECORDS:
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
    sizes = (
        len(command.split()) for command in RECORDS if tuple(command.split()) == tuple(texts[: len(command.split())])
    )
    return max(sizes, default=1)


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
            if any("%G" in word.text or "%(" in word.text for word in checked.texts):
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


_SPECIAL: Final[dict[str, Callable[[Sequence[Word]], Known]]] = {"find": _find, "test": _test, "command": _command}


# The table


def _reads(
    command: str,
    flags: str = "",
    names: str = "",
    *,
    valued: str = "",
    files: str = "",
    operands: Operands = "paths",
    most: int = _MANY,
    numbers: bool = False,
    reads: bool = True,
    whole: str = "",
) -> Options:
    long, wholly = frozenset(names.split()), frozenset(whole.split())
    return Options(command, flags, valued, files, long, operands, most, numbers, reads, wholly)


_GREP_NAMES = (
    "recursive ignore-case no-ignore-case line-number files-with-matches files-without-match count invert-match "
    "word-regexp line-regexp extended-regexp fixed-strings basic-regexp perl-regexp only-matching no-filename "
    "with-filename quiet silent no-messages text null initial-tab byte-offset line-buffered color? colour? include= "
    "exclude= exclude-dir= max-count= after-context= before-context= context= binary-files= label= regexp= file<"
)
_DIFF_NAMES = (
    "stat? numstat shortstat dirstat? summary patch no-patch patch-with-stat raw name-only name-status cached staged "
    "merge-base color? no-color color-words? word-diff? word-diff-regex= color-moved? check quiet exit-code text "
    "minimal patience histogram diff-algorithm= indent-heuristic no-renames find-renames? find-copies? "
    "find-copies-harder diff-filter= unified= inter-hunk-context= function-context ignore-all-space "
    "ignore-space-change ignore-space-at-eol ignore-blank-lines ignore-cr-at-eol ignore-matching-lines= abbrev? "
    "full-index binary no-ext-diff no-textconv src-prefix= dst-prefix= no-prefix relative? stat-width= stat-count= "
    "compact-summary pickaxe-regex pickaxe-all ignore-submodules?"
)
_LOG_NAMES = (
    "oneline graph no-graph decorate? no-decorate decorate-refs= all branches? tags? remotes? first-parent merges "
    "no-merges reverse follow abbrev-commit no-abbrev-commit full-history simplify-merges date= format= pretty? "
    "author= committer= grep= all-match invert-grep regexp-ignore-case extended-regexp fixed-strings perl-regexp "
    "since= after= until= before= max-count= skip= topo-order date-order author-date-order left-right cherry-pick "
    "cherry-mark cherry reflog walk-reflogs boundary parents children count no-notes no-walk? source clear-decorations "
    "ancestry-path? relative-date "
) + _DIFF_NAMES
_TABLE: Final = (
    _reads(
        "ls",
        "1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ",
        "all almost-all human-readable color? recursive reverse size full-time group-directories-first sort= time= "
        "time-style= inode directory no-group si format= ignore= hide= file-type author numeric-uid-gid classify?",
        valued="IwT",
    ),
    _reads("cat", "AbeEnstTuv", "number number-nonblank show-all show-ends show-tabs squeeze-blank show-nonprinting"),
    _reads("head", "qvz", "lines= bytes= quiet silent verbose", valued="nc", numbers=True),
    _reads("tail", "qvz", "lines= bytes= quiet silent verbose", valued="nc", numbers=True),
    _reads("wc", "clmwL", "lines words bytes chars max-line-length total="),
    _reads("nl", "p", "", valued="bdfhilnsvw"),
    _reads("tac", "br", "before regex separator=", valued="s"),
    _reads("rev"),
    _reads("fold", "bs", "bytes spaces width=", valued="w"),
    _reads("paste", "sz", "serial delimiters=", valued="d"),
    _reads("comm", "123z", "total check-order nocheck-order"),
    _reads("column", "t", "table", valued="sco"),
    _reads(
        "cut", "nsz", "fields= delimiter= characters= bytes= complement only-delimited output-delimiter=", valued="bcdf"
    ),
    _reads("tr", "cCdst", "delete squeeze-repeats complement", operands="words"),
    _reads(
        "sort",
        "bdfgiMhnrRVcCmsuz",
        "reverse numeric-sort general-numeric-sort human-numeric-sort version-sort month-sort unique stable check? "
        "ignore-case ignore-leading-blanks key= field-separator= zero-terminated",
        valued="kt",
    ),
    _reads(
        "uniq",
        "cdDiuz",
        "count repeated unique ignore-case skip-fields= skip-chars= check-chars=",
        valued="fsw",
        most=1,
    ),
    _reads(
        "grep",
        "rinwlLcvhHoEFGPqsxazIbT",
        _GREP_NAMES,
        valued="ABCme",
        files="f",
        numbers=True,
        operands="pattern",
        whole="-e -f --regexp --file",
    ),
    _reads(
        "egrep",
        "rinwlLcvhHoqsxazIbT",
        _GREP_NAMES,
        valued="ABCme",
        files="f",
        numbers=True,
        operands="pattern",
        whole="-e -f --regexp --file",
    ),
    _reads(
        "fgrep",
        "rinwlLcvhHoqsxazIbT",
        _GREP_NAMES,
        valued="ABCme",
        files="f",
        numbers=True,
        operands="pattern",
        whole="-e -f --regexp --file",
    ),
    _reads(
        "rg",
        "nilcwvFSNHhoPaUuxs0pIq.",
        "files hidden no-hidden no-ignore no-ignore-vcs no-ignore-parent line-number no-line-number heading no-heading "
        "count count-matches files-with-matches files-without-match ignore-case smart-case case-sensitive "
        "fixed-strings word-regexp line-regexp invert-match multiline multiline-dotall only-matching no-filename "
        "with-filename json stats pcre2 vimgrep column no-column trim passthru null text no-messages no-config quiet "
        "unrestricted type-list sort= sortr= glob= iglob= type= type-not= context= after-context= before-context= "
        "max-count= max-depth= max-columns= max-filesize= color= replace= regexp= threads= engine= encoding= file<",
        valued="ABCmegtTjrMdE",
        files="f",
        operands="pattern",
        whole="-e -f --regexp --file --files --type-list",
    ),
    _reads(
        "fd",
        "HIadFpg0isu1q",
        "hidden no-ignore type= extension= exclude= max-depth= min-depth= exact-depth= glob absolute-path ignore-case "
        "case-sensitive fixed-strings full-path print0 max-results= size= changed-within= changed-before= color= quiet",
        valued="tedESj",
        operands="pattern",
    ),
    _reads("sed", "nErsu", "quiet silent regexp-extended separate unbuffered", operands="sed"),
    _reads("awk", "", valued="F", operands="awk"),
    _reads(
        "diff",
        "uqbBwiyEstTap",
        "unified? brief ignore-all-space ignore-space-change ignore-blank-lines ignore-case side-by-side color? width= "
        "suppress-common-lines report-identical-files text context? strip-trailing-cr minimal",
        valued="UCW",
        most=2,
    ),
    _reads("cmp", "bls", "silent quiet print-bytes verbose", valued="n"),
    *(_reads(name, "bt", "binary text tag") for name in ("md5sum", "sha1sum", "sha256sum", "sha512sum")),
    _reads("stat", "ft", "format= printf= terse file-system", valued="c"),
    _reads("file", "bikNIr", "brief mime mime-type mime-encoding"),
    _reads(
        "du", "abchkmsxS0", "max-depth= human-readable summarize total all apparent-size threshold= bytes", valued="dtB"
    ),
    _reads("df", "aiHhkPT", "human-readable print-type"),
    _reads("tree", "adfipsugDhtrCnAFJ", "dirsfirst noreport prune du gitignore", valued="LPI"),
    _reads("od", "abcdosx", valued="AjNtw"),
    _reads("realpath", "emqsLP", "canonicalize-existing canonicalize-missing relative-to< relative-base<"),
    _reads("readlink", "efmnqsvz"),
    _reads("basename", "az", "suffix=", valued="s", operands="words"),
    _reads("dirname", "z", operands="words"),
    _reads("echo", operands="free"),
    _reads("pwd", "LP", operands="none"),
    _reads("true", operands="free"),
    _reads("false", operands="free"),
    _reads("whoami", operands="none"),
    _reads("id", "ugGnr", operands="words"),
    _reads("uname", "asnrvmpio", "all machine kernel-name", operands="none"),
    _reads("nproc", "", "all", operands="none"),
    _reads("date", "uR", "utc universal rfc-email iso-8601? rfc-3339= date=", valued="d", operands="time"),
    _reads("which", "a", operands="words"),
    _reads("type", "aptP", operands="words"),
    _reads(
        "git status",
        "bsvz",
        "short branch long verbose porcelain? untracked-files? ignored? show-stash "
        "ahead-behind no-ahead-behind renames no-renames column? no-column",
        valued="u",
        operands="texts",
    ),
    _reads("git diff", "pubwRaqzWs", _DIFF_NAMES, valued="USGlMCBDX", operands="texts"),
    _reads("git log", "pubwRaqzWsicgmEFP", _LOG_NAMES, valued="USGlMCBDXnL", operands="texts", numbers=True),
    _reads("git show", "pubwRaqzWsicm", _LOG_NAMES, valued="USGlMCBDXn", operands="texts", numbers=True),
    _reads(
        "git blame",
        "wlsefnctp",
        "line-porcelain porcelain date= show-email show-name root abbrev=",
        valued="LMC",
        operands="texts",
    ),
    _reads("git branch", "arv", "show-current all remotes verbose list no-color color?", operands="none"),
    _reads("git tag", "l", "list", operands="none"),
    _reads("git remote", "v", "verbose", operands="none"),
    _reads("git stash list", "", "", operands="none"),
    _reads(
        "git rev-parse",
        "q",
        "show-toplevel abbrev-ref? short? verify git-dir git-common-dir is-inside-work-tree "
        "show-prefix symbolic-full-name quiet is-bare-repository absolute-git-dir",
        operands="texts",
    ),
    _reads(
        "git ls-files",
        "cdmoszt",
        "cached deleted modified others stage exclude-standard full-name error-unmatch",
        operands="texts",
    ),
    _reads("git ls-tree", "rtldz", "name-only name-status long full-name full-tree abbrev?", operands="texts"),
    _reads("git describe", "", "tags all always long abbrev= dirty? match= exact-match contains", operands="texts"),
    _reads("git shortlog", "sne", "summary numbered email since= until=", operands="texts"),
    _reads("git cat-file", "pets", "", operands="texts"),
    _reads(
        "git grep",
        "niwEFPIlLchovH",
        "line-number ignore-case word-regexp extended-regexp fixed-strings count "
        "files-with-matches name-only cached untracked heading break and or not max-depth= context= show-function",
        valued="ABCe",
        operands="texts",
        numbers=True,
    ),
    _reads("git add", "Aunv", "all update dry-run verbose intent-to-add ignore-errors", reads=False),
    _reads("git commit", "aqvs", "message= all amend no-edit quiet signoff allow-empty", valued="m", reads=False),
)

RECORDS: Final = {options.command: options for options in _TABLE}
"""The table, by command."""
