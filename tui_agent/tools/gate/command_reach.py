"""What the ``*`` of a rule for commands does not stand for: arguments that let a program do more than it is known for.

``git diff *`` means looking at differences. With ``--output=FILE`` git writes a file; with ``--compress-program=X``
sort runs a program. Such an argument is let through only by a rule that has it written out. The table is from the
manuals of git 2.51, GNU coreutils 9, findutils 4.10, grep 3.11, tar 1.35, ripgrep 14, bash 5.2, Go 1.25, cargo 1.90 and
pytest 9. Programs that are not in it are taken by their name: who allows ``make *`` allows what make does.
"""

import re
from collections.abc import Iterator

import msgspec


class Reach(msgspec.Struct, frozen=True):
    """Arguments of one program (and subcommand). `letters`: options of one letter, also within a cluster; `names`: long
    options, also abbreviated; `words`: whole arguments anywhere.
    """

    letters: str = ""
    names: tuple[str, ...] = ()
    words: frozenset[str] = frozenset()


def _reach(letters: str = "", names: str = "", words: str = "") -> Reach:
    return Reach(letters, tuple(names.split()), frozenset(words.split()))


_GIT_NAMES = (
    "output output-directory ext-diff exec open-files-in-pager upload-pack receive-pack upload-archive template config "
    "pathspec-from-file"
)
_TABLE = {
    "cargo": _reach("Z", "config manifest-path target-dir artifact-dir lockfile-path"),
    "date": _reach("sf", "set file"),
    "diff": _reach("r", "recursive"),
    "du": _reach("LDH", "dereference dereference-args files0-from"),
    "egrep": _reach("R", "dereference-recursive"),
    "fd": _reach("xXL", "exec exec-batch follow"),
    "fgrep": _reach("R", "dereference-recursive"),
    "file": _reach("fmCLz", "files-from magic-file compile dereference uncompress"),
    "find": _reach(
        words="-delete -exec -execdir -ok -okdir -fprint -fprint0 -fprintf -fls -L -H -follow -files0-from",
    ),
    "git": _reach("oOx", _GIT_NAMES),
    "go": _reach(
        words="-exec -toolexec -o -C -overlay -modfile -vettool -asmflags -ldflags -gcflags -gccgoflags -modcacherw "
        "-coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace -outputdir -pkgdir -work",
    ),
    "grep": _reach("R", "dereference-recursive"),
    "ls": _reach("LH", "dereference dereference-command-line dereference-command-line-symlink-to-dir"),
    "mypy": _reach(
        "",
        "python-executable install-types config-file cache-dir custom-typeshed-dir any-exprs-report junit-xml "
        "cobertura-xml-report html-report linecount-report linecoverage-report lineprecision-report txt-report "
        "xml-report xslt-html-report xslt-txt-report shadow-file",
    ),
    "npm": _reach("gC", "prefix script-shell node-options userconfig globalconfig global location call"),
    "printf": _reach("v"),
    "pytest": _reach(
        "pco",
        "rootdir basetemp confcutdir override-ini config-file junitxml junit-xml log-file debug pastebin cache-clear "
        "trace-config pyargs report-log",
    ),
    "rg": _reach("Lz", "pre follow hostname-bin search-zip file"),
    "ruff": _reach("o", "config output-file cache-dir"),
    "shuf": _reach("o", "output"),
    "sort": _reach("oT", "output compress-program files0-from temporary-directory"),
    "split": _reach("", "filter"),
    "stat": _reach("L", "dereference"),
    "tar": _reach(
        "xcruAIFPTXC",
        "extract get create append update concatenate catenate delete to-command checkpoint-action "
        "use-compress-program rsh-command info-script new-volume-script absolute-names files-from exclude-from "
        "directory index-file",
    ),
    "test": _reach(words="-v -R"),
    "tree": _reach("ol", "fromfile fromtabfile"),
    "uv": _reach("p", "directory project config-file python script"),
    "wc": _reach("", "files0-from"),
    "xxd": _reach("r", "revert"),
    "yq": _reach("is", "inplace split-exp"),
}
_SUBCOMMANDS = {
    "cargo": frozenset({"install", "run", "publish", "login", "owner", "yank"}),
    "git": frozenset({"bisect", "config", "difftool", "filter-branch", "mergetool", "submodule", "daemon", "hook"}),
    "go": frozenset({"generate", "run", "install", "env", "tool"}),
    "npm": frozenset({"exec", "x", "explore", "config", "set", "publish", "login"}),
    "uv": frozenset({"run", "tool", "publish", "self"}),
}
"""Programs whose first argument that is no option says what they do, and what of it reaches further. An option in front
of it changes what the program reads its orders from (``git -c``, ``git -C``, ``cargo --config``).
"""

_HARMLESS_IN_FRONT = frozenset({"--no-pager", "-P", "--version", "--help", "--no-optional-locks"})
_OLD_STYLE = frozenset({"tar"})
_LANGUAGES = frozenset({"sed", "gsed", "awk", "gawk", "mawk", "nawk", "original-awk"})
_PLAIN_SCRIPT = re.compile(
    r"(?:(?:\d+|\$|/[^/\\]*/)(?:,(?:\d+|\$|/[^/\\]*/))?)?!?"
    r"(?:[pdq=]|s(?P<mark>[/|#,])(?:(?!(?P=mark))[^\\\n])*(?P=mark)(?:(?!(?P=mark))[^\\\n])*(?P=mark)[gpiI0-9]*)"
)
_PLAIN_PROGRAM = re.compile(r"(?:/[^/]*/)?\s*(?:\{\s*print(?:\s+\$(?:\d+|NF)(?:\s*,\s*\$(?:\d+|NF))*)?\s*\})?")
_PLAIN_LANGUAGE_OPTIONS = re.compile(r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|separate|null-data)|-F.{0,3}")


def reaching(words: tuple[str, ...]) -> tuple[int, ...]:
    """Which arguments of a command (its name at 0) reach further than the program is known for."""
    if not words:
        return ()
    name = words[0].rsplit("/", 1)[-1]
    if name in _LANGUAGES:
        return tuple(_of_language(name, words))
    return tuple(dict.fromkeys((*_of_table(name, words), *_of_subcommand(name, words))))


def _of_table(name: str, words: tuple[str, ...]) -> Iterator[int]:
    reach = _TABLE.get(name)
    if reach is None:
        return
    for index, word in enumerate(words[1:], 1):
        if word.partition("=")[0] in reach.words or word[1:].partition("=")[0] in reach.words:
            yield index
        elif word.startswith("--"):
            # Programs take an option's name abbreviated as long as that is not ambiguous.
            option = word[2:].partition("=")[0]
            if option and any(known.startswith(option) for known in reach.names):
                yield index
        elif word.startswith("-") or (name in _OLD_STYLE and index == 1):
            cluster = re.match(r"-?([A-Za-z0-9]*)", word)
            if cluster and set(cluster[1]) & set(reach.letters):
                yield index


def _of_subcommand(name: str, words: tuple[str, ...]) -> Iterator[int]:
    if name not in _SUBCOMMANDS:
        return
    for index, word in enumerate(words[1:], 1):
        if word.startswith(("-", "+")):
            if word not in _HARMLESS_IN_FRONT:
                yield index
            continue
        if word in _SUBCOMMANDS[name]:
            yield index
        return


def _of_language(name: str, words: tuple[str, ...]) -> Iterator[int]:
    """Arguments of sed and awk that are not known to be harmless: their scripts can write files and run programs."""
    plain = _PLAIN_SCRIPT if name.endswith("sed") else _PLAIN_PROGRAM
    script_seen = False
    for index, word in enumerate(words[1:], 1):
        if word == "-e" and name.endswith("sed"):
            script_seen = True
            following = words[index + 1] if index + 1 < len(words) else ""
            if not all(plain.fullmatch(part.strip()) for part in following.split(";")):
                yield index + 1
        elif words[index - 1] == "-e":
            continue
        elif word.startswith("-") and word != "-":
            if not _PLAIN_LANGUAGE_OPTIONS.fullmatch(word) or (word.startswith("-F") and len(word) == 2):
                yield index
        elif not script_seen:
            script_seen = True
            if not all(plain.fullmatch(part.strip()) for part in word.split(";")):
                yield index
