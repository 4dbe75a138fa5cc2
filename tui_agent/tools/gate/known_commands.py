"""The commands whose options are known, each with its proofs.

The table lists what is allowed, never what is forbidden: an option that is not in it, even an abbreviation, is unknown.
It has the options that, by the manuals of git 2.51, GNU coreutils 9, findutils 4.10, grep 3.11, ripgrep 14 and bash
5.2, write no file, run no program, follow no link and read no commands from a file. Every record has example lines that
must be known and lines that must not be; a record that fails its own examples is not used.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from tui_agent.tools.gate.patterns import words as table
from tui_agent.tools.gate.shell_line import Word, read_words

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

    `may` and `may_not` are the example lines that must, and must not, be known. `flags`: short options without a value;
    `valued`, `files`: short options with a text or a path. `names`: long options, as ``name``, ``name=`` (with a text),
    ``name?`` (optionally with one) or ``name<`` (with a path). `most`: the most operands. `numbers`: ``-20`` is an
    option. `whole`: options that make every operand a path.
    """

    command: str
    may: tuple[str, ...]
    may_not: tuple[str, ...]
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
    records = proven()
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
    for command in proven():
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
        len(command.split()) for command in proven() if tuple(command.split()) == tuple(texts[: len(command.split())])
    )
    return max(sizes, default=1)


@cache
def proven() -> dict[str, Options]:
    """The records of the table that pass their own examples, by command."""
    return {options.command: options for options in _TABLE if holds(options)}


def holds(options: Options) -> bool:
    """Whether a record passes its own examples."""
    return all(_is_known(options, line) for line in options.may) and not any(
        _is_known(options, line) for line in options.may_not
    )


def _is_known(options: Options, line: str) -> bool:
    words = read_words(f"{options.command} {line}")
    if words is None:
        return False
    try:
        _arguments(options, words[len(options.command.split()) :])
    except Unknown:
        return False
    return True


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
    may: Iterable[str],
    may_not: Iterable[str],
    valued: str = "",
    files: str = "",
    operands: Operands = "paths",
    most: int = _MANY,
    numbers: bool = False,
    reads: bool = True,
    whole: str = "",
) -> Options:
    return Options(
        command,
        tuple(may),
        tuple(may_not),
        flags,
        valued,
        files,
        frozenset(names.split()),
        operands,
        most,
        numbers,
        reads,
        frozenset(whole.split()),
    )


_GREP_NAMES = (
    "recursive ignore-case no-ignore-case line-number files-with-matches files-without-match count invert-match "
    "word-regexp line-regexp extended-regexp fixed-strings basic-regexp perl-regexp only-matching no-filename "
    "with-filename quiet silent no-messages text null initial-tab byte-offset line-buffered color? colour? include= "
    "exclude= exclude-dir= max-count= after-context= before-context= context= binary-files= label= regexp= file<"
)
_GREP_MAY = ("-rn TODO src", "-A 3 -i x a.txt", "-e a -e b a.txt", "--include=a.py -r x .", "-E 'a|b' a.txt")
_GREP_NOT = ("-R x .", "--dereference-recursive x", "--deref x", "--exclude-from=f x", "-D read x", "-d recurse x a")
_SUM_MAY, _SUM_NOT = ("a.txt", "-b a.txt"), ("-c list", "--check list")

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
_DIFF_NOT = (
    "--output=f",
    "--outp f",
    "--ext-diff",
    "--textconv",
    "-O order",
    "--no-index a b",
    "-of",
    "--submodule=diff",
)

_TABLE: Final = (
    _reads(
        "ls",
        "1aAbBcCdfFgGhiklmnNopqQrRsStuUvxXZ",
        "all almost-all human-readable color? recursive reverse size full-time group-directories-first sort= time= "
        "time-style= inode directory no-group si format= ignore= hide= file-type author numeric-uid-gid classify?",
        valued="IwT",
        may=("", "-la src", "--color=never -R .", "-- -x"),
        may_not=("-L", "-H x", "--dereference", "--deref", "--dired --frob"),
    ),
    _reads(
        "cat",
        "AbeEnstTuv",
        "number number-nonblank show-all show-ends show-tabs squeeze-blank show-nonprinting",
        may=("a.txt", "-n a.txt -"),
        may_not=("--frob a",),
    ),
    _reads(
        "head",
        "qvz",
        "lines= bytes= quiet silent verbose",
        valued="nc",
        numbers=True,
        may=("-5 a.txt", "-n 5 a.txt", "-n -5 a", "--lines=3 a"),
        may_not=("-x a", "-n --frob"),
    ),
    _reads(
        "tail",
        "qvz",
        "lines= bytes= quiet silent verbose",
        valued="nc",
        numbers=True,
        may=("-5 a.txt", "-n +5 a.txt", "-c 100 a"),
        may_not=("-f a", "-F a", "--follow a", "--pid=3 a"),
    ),
    _reads(
        "wc",
        "clmwL",
        "lines words bytes chars max-line-length total=",
        may=("-l a.txt b.txt",),
        may_not=("--files0-from=list", "--files0-f list"),
    ),
    _reads("nl", "p", "", valued="bdfhilnsvw", may=("-ba a.txt",), may_not=("--frob",)),
    _reads("tac", "br", "before regex separator=", valued="s", may=("a.txt",), may_not=("--frob",)),
    _reads("rev", may=("a.txt",), may_not=("-f",)),
    _reads("fold", "bs", "bytes spaces width=", valued="w", may=("-w 80 a",), may_not=("--frob",)),
    _reads("paste", "sz", "serial delimiters=", valued="d", may=("-sd, a",), may_not=("--frob",)),
    _reads("comm", "123z", "total check-order nocheck-order", may=("-12 a b",), may_not=("--frob",)),
    _reads("column", "t", "table", valued="sco", may=("-t -s , a",), may_not=("--frob",)),
    _reads(
        "cut",
        "nsz",
        "fields= delimiter= characters= bytes= complement only-delimited output-delimiter=",
        valued="bcdf",
        may=("-d: -f1,3 a", "-c 1-10 a"),
        may_not=("--frob",),
    ),
    _reads("tr", "cCdst", "delete squeeze-repeats complement", operands="words", may=("a b", "-d x"), may_not=("-z",)),
    _reads(
        "sort",
        "bdfgiMhnrRVcCmsuz",
        "reverse numeric-sort general-numeric-sort human-numeric-sort version-sort month-sort unique stable check? "
        "ignore-case ignore-leading-blanks key= field-separator= zero-terminated",
        valued="kt",
        may=("-u a.txt", "-k2,2n -t, a", "--reverse a"),
        may_not=(
            *("-o x a", "-ox a", "-uo x a", "--output=x a", "--outp x", "--compress-program=sh a", "--comp sh a"),
            *("-T . a", "--files0-from=a", "-S 1 a", "--random-source=a"),
        ),
    ),
    _reads(
        "uniq",
        "cdDiuz",
        "count repeated unique ignore-case skip-fields= skip-chars= check-chars=",
        valued="fsw",
        most=1,
        may=("-c a.txt", ""),
        may_not=("a.txt b.txt", "--frob"),
    ),
    _reads(
        "grep", "rinwlLcvhHoEFGPqsxazIbT", _GREP_NAMES, valued="ABCme", files="f", numbers=True, operands="pattern",
        whole="-e -f --regexp --file", may=_GREP_MAY, may_not=_GREP_NOT,
    ),
    _reads(
        "egrep", "rinwlLcvhHoqsxazIbT", _GREP_NAMES, valued="ABCme", files="f", numbers=True, operands="pattern",
        whole="-e -f --regexp --file", may=("-rn TODO src",), may_not=_GREP_NOT,
    ),
    _reads(
        "fgrep", "rinwlLcvhHoqsxazIbT", _GREP_NAMES, valued="ABCme", files="f", numbers=True, operands="pattern",
        whole="-e -f --regexp --file", may=("-rn TODO src",), may_not=_GREP_NOT,
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
        may=("-n TODO src", "--files .", "-g '*.py' x", "-A3 x a", "-uu x"),
        may_not=("--pre=./evil x", "--pre ./evil x", "--pr x", "-z x", "--search-zip x", "-L x", "--follow x",
                 "--hostname-bin=./evil x", "--pre-glob=a x"),
    ),
    _reads(
        "fd",
        "HIadFpg0isu1q",
        "hidden no-ignore type= extension= exclude= max-depth= min-depth= exact-depth= glob absolute-path ignore-case "
        "case-sensitive fixed-strings full-path print0 max-results= size= changed-within= changed-before= color= quiet",
        valued="tedESj",
        operands="pattern",
        may=("-e py x src", "-H config"),
        may_not=("-x sh", "-X sh", "--exec sh", "--exec-batch sh", "-L x", "--follow x", "-l x"),
    ),
    _reads(
        "sed", "nErsu", "quiet silent regexp-extended separate unbuffered", operands="sed",
        may=("-n 1,5p a.txt", "-n '$p' a", "'10,20d;30q' a"),
        may_not=("-i 1d a", "-n '1w f' a", "1e a", "s/a/b/e a", "'s/a/b/w f' a", "-f s a", "-e 1p a", "'1r f' a",
                 "--in-place 1d a", "-ni 1p a"),
    ),
    _reads(
        "awk", "", valued="F", operands="awk",
        may=("'{print $1}' a", "-F: '{print $1, $NF}' a", "'NR<=5' a"),
        may_not=("-f p a", "-E p", "-v a=b 1 a", "'BEGIN{system(\"x\")}'", "'{print > \"f\"}' a", "-l x 1"),
    ),
    _reads(
        "diff",
        "uqbBwiyEstTap",
        "unified? brief ignore-all-space ignore-space-change ignore-blank-lines ignore-case side-by-side color? width= "
        "suppress-common-lines report-identical-files text context? strip-trailing-cr minimal",
        valued="UCW",
        most=2,
        may=("-u a b", "--brief a b", "-U3 a b"),
        may_not=("-r a b", "--recursive a b", "-N a b", "--to-file=x a", "--from-file=x a", "-l a b", "a b c"),
    ),
    _reads("cmp", "bls", "silent quiet print-bytes verbose", valued="n", may=("a b", "-s a b"), may_not=("--frob",)),
    *(
        _reads(name, "bt", "binary text tag", may=_SUM_MAY, may_not=_SUM_NOT)
        for name in ("md5sum", "sha1sum", "sha256sum", "sha512sum")
    ),
    _reads(
        "stat", "ft", "format= printf= terse file-system", valued="c",
        may=("-c %s a", "--format=%n a", "a"), may_not=("-L a", "--dereference a", "--cached=x --frob a"),
    ),
    _reads("file", "bikNIr", "brief mime mime-type mime-encoding", may=("-b a", "--mime-type a"),
           may_not=("-m magic a", "-f list", "-C -m x", "-z a", "-L a", "-s a", "--files-from x")),
    _reads(
        "du", "abchkmsxS0", "max-depth= human-readable summarize total all apparent-size threshold= bytes",
        valued="dtB", may=("-sh .", "-h -d 1 src", "--max-depth=1"),
        may_not=("-L .", "-D x", "-H x", "--files0-from=a", "--dereference x", "-X f"),
    ),
    _reads("df", "aiHhkPT", "human-readable print-type", may=("-h .",), may_not=("--sync --frob",)),
    _reads(
        "tree", "adfipsugDhtrCnAFJ", "dirsfirst noreport prune du gitignore", valued="LPI",
        may=("-L 2 src", "-a -I .git"), may_not=("-o f", "-R -o x", "-l", "--fromfile x", "-H x"),
    ),
    _reads("od", "abcdosx", valued="AjNtw", may=("-c a", "-A x -t x1 a"), may_not=("--frob",)),
    _reads("realpath", "emqsLP", "canonicalize-existing canonicalize-missing relative-to< relative-base<",
           may=("a", "--relative-to=. a"), may_not=("--frob",)),
    _reads("readlink", "efmnqsvz", may=("-f a",), may_not=("--frob",)),
    _reads("basename", "az", "suffix=", valued="s", operands="words", may=("a/b .x",), may_not=("--frob",)),
    _reads("dirname", "z", operands="words", may=("a/b",), may_not=("--frob",)),
    _reads("echo", operands="free", may=("-n a", "hello"), may_not=()),
    _reads("pwd", "LP", operands="none", may=("",), may_not=("x",)),
    _reads("true", operands="free", may=("",), may_not=()),
    _reads("false", operands="free", may=("",), may_not=()),
    _reads("whoami", operands="none", may=("",), may_not=("x",)),
    _reads("id", "ugGnr", operands="words", may=("-u",), may_not=("--frob",)),
    _reads("uname", "asnrvmpio", "all machine kernel-name", operands="none", may=("-a",), may_not=("x",)),
    _reads("nproc", "", "all", operands="none", may=("",), may_not=("x",)),
    _reads(
        "date", "uR", "utc universal rfc-email iso-8601? rfc-3339= date=", valued="d", operands="time",
        may=("+%F", "-u", "-d yesterday +%s", "--iso-8601=seconds"),
        may_not=("0101000020", "-s 10:00", "--set=x", "-f list", "--file=x", "-us x", "-r a"),
    ),
    _reads("which", "a", operands="words", may=("python",), may_not=("--frob",)),
    _reads("type", "aptP", operands="words", may=("-a ls",), may_not=("-x",)),
    _reads(
        "git status", "bsvz", "short branch long verbose porcelain? untracked-files? ignored? show-stash "
        "ahead-behind no-ahead-behind renames no-renames column? no-column", valued="u", operands="texts",
        may=("", "-sb", "--porcelain=v2 --branch", "-uno"), may_not=("--frob", "-c x"),
    ),
    _reads("git diff", "pubwRaqzWs", _DIFF_NAMES, valued="USGlMCBDX", operands="texts",
           may=("--stat HEAD~1", "main..work -- src/a.py", "-U5 a", "-w"), may_not=_DIFF_NOT),
    _reads("git log", "pubwRaqzWsicgmEFP", _LOG_NAMES, valued="USGlMCBDXnL", operands="texts", numbers=True,
           may=("--oneline -5", "-n 3 -- a", "--format=%h --since=yesterday", "-p -S x"), may_not=_DIFF_NOT),
    _reads("git show", "pubwRaqzWsicm", _LOG_NAMES, valued="USGlMCBDXn", operands="texts", numbers=True,
           may=("HEAD:a.py", "--stat HEAD"), may_not=_DIFF_NOT),
    _reads("git blame", "wlsefnctp", "line-porcelain porcelain date= show-email show-name root abbrev=",
           valued="LMC", operands="texts", may=("-L 1,5 a.py",), may_not=("--contents f a", "-S f a")),
    _reads("git branch", "arv", "show-current all remotes verbose list no-color color?", operands="none",
           may=("", "-a", "-vv", "--show-current"), may_not=("new", "-d x", "-m a b", "--edit-description", "-D x")),
    _reads("git tag", "l", "list", operands="none", may=("", "-l"), may_not=("v1", "-d x", "-a v1", "-s x")),
    _reads("git remote", "v", "verbose", operands="none", may=("-v", ""), may_not=("add x y", "update", "show origin")),
    _reads("git stash list", "", "", operands="none", may=("",), may_not=("x", "-p")),
    _reads("git rev-parse", "q", "show-toplevel abbrev-ref? short? verify git-dir git-common-dir is-inside-work-tree "
           "show-prefix symbolic-full-name quiet is-bare-repository absolute-git-dir", operands="texts",
           may=("HEAD", "--abbrev-ref HEAD", "--show-toplevel"), may_not=("--parseopt", "--frob", "--sq-quote x")),
    _reads("git ls-files", "cdmoszt", "cached deleted modified others stage exclude-standard full-name error-unmatch",
           operands="texts", may=("", "-m src", "--others --exclude-standard"), may_not=("-X f", "--exclude-from=f")),
    _reads("git ls-tree", "rtldz", "name-only name-status long full-name full-tree abbrev?", operands="texts",
           may=("-r HEAD",), may_not=("--frob",)),
    _reads("git describe", "", "tags all always long abbrev= dirty? match= exact-match contains", operands="texts",
           may=("--tags --always",), may_not=("--frob",)),
    _reads("git shortlog", "sne", "summary numbered email since= until=", operands="texts",
           may=("-sn HEAD",), may_not=("--output=x", "--frob")),
    _reads("git cat-file", "pets", "", operands="texts", may=("-p HEAD", "-t HEAD"),
           may_not=("--textconv HEAD:a", "--filters HEAD:a", "--batch")),
    _reads("git grep", "niwEFPIlLchovH", "line-number ignore-case word-regexp extended-regexp fixed-strings count "
           "files-with-matches name-only cached untracked heading break and or not max-depth= context= show-function",
           valued="ABCe", operands="texts", numbers=True, may=("-n TODO", "-e x -- src"),
           may_not=("-Osh x", "--open-files-in-pager=sh x", "-f list", "--no-index x", "--textconv x",
                    "--recurse-submodules x")),
    _reads("git add", "Aunv", "all update dry-run verbose intent-to-add ignore-errors", reads=False,
           may=("a.py", "-A", "-- src"), may_not=("--pathspec-from-file=f", "-p", "-i", "-e", "--chmod=+x a")),
    _reads("git commit", "aqvs", "message= all amend no-edit quiet signoff allow-empty", valued="m", reads=False,
           may=("-am 'fix: it'", "--amend --no-edit"),
           may_not=("-F f", "--file=f", "-t f", "--template=f", "-c HEAD", "-n -m x", "--author=x --frob", "-S")),
)  # fmt: skip
