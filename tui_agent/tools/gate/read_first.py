"""The files of the project that a command runs or reads before anything else: what an edit of them does, it does.

A command that leaves the sandbox, or that a rule allows in its very words, runs what is in these files: a Makefile, a
package.json, a script, an included file, a program of the project's own environment. Code that is only tested or
compiled is not among them. `Approved` keeps what they contained when the user last allowed something that runs them.
"""

import errno
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

import msgspec

from tui_agent.regex import regex
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.regular import is_folder, is_regular, read_bytes
from tui_agent.tools.base import Change, WorkspaceView
from tui_agent.tools.diffs import unified
from tui_agent.tools.gate.judging import PlainCommand, program_inside
from tui_agent.tools.gate.known_commands import known_commands
from tui_agent.tools.gate.patterns import any_of, words
from tui_agent.tools.gate.repository import hooks_of
from tui_agent.tools.gate.workspace import named_path
from tui_agent.visible import visible_line

MAX_FILES: Final = 300
MAX_BYTES: Final = 256_000
"""The most files that are looked at for one command, and the most bytes of one that are read and kept."""
_MOST_ENTRIES: Final = 5_000
_MOST_LOOKS: Final = 20
_LONG_S: Final = 0.05
_LONGEST: Final = 1_000
_CHANGED: Final = " changed at "
_EMPTY: Final = sha256(b"").hexdigest()
_TABLE: Final = Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines()
_ROWS: Final = tuple(
    (programs.split(), tuple(names.split()))
    for programs, _, names in (line.partition(": ") for line in _TABLE if line and not line.startswith("#"))
)
_READ_BY: Final = {
    program: tuple(name for programs, names in _ROWS if program in programs for name in names)
    for program in {each for programs, _ in _ROWS for each in programs}
}
"""The patterns of the files that a program reads first."""
_ANY: Final = tuple(dict.fromkeys(name for _, names in _ROWS for name in names))
_RUN_BY_NAME: Final = ("node_modules/.bin", ".venv/bin", "venv/bin", "mise-tasks", ".mise/tasks")
"""Folders whose programs others run by their mere name."""

_INTERPRETER: Final = regex(
    r"(?:.*/)?(?:python|pypy|ruby|perl|node|deno|bun|php|lua|sh|bash|dash|zsh|ksh|source|tsx|ts-node|\.|-?include|run|exec"
    r"|Rscript|julia|octave|groovy|jbang|java|elixir|escript|runghc|runhaskell|ocaml|racket|guile|tclsh|expect|pwsh|swift"
    r"|dart|fsi|zx|gnuplot|bb|m4|bc|am|crontab|\.read)[\d.]*"
)
_WITH_VALUE: Final = words(
    "-C -E -I -O -R -W -X -cp -classpath -d -l -o -r --experimental-loader --import --loader --require"
)
"""Options of interpreters: after their value, what is run comes."""
_SCRIPTS: Final = words(
    ".sh .bash .zsh .mk .mak .just .cmake .gradle .kts .rake .gemspec .nix .bzl .props .targets .yml .yaml"
)
_OF_NODE: Final = words(".js .cjs .mjs")
_TOKEN: Final = regex(r"[\w.@/+*?-]+")
_TESTS: Final = words("-x -f -e -r -s")
"""Of ``test``: what stands before the name of a script that runs only if it is there."""
_VARIABLE: Final = regex(r"\$(\w+)")
_PROJECT: Final = regex(r"\$\{?(?:CLAUDE_PROJECT_DIR|TUI_AGENT_PROJECT)\b\}?")
_RUN_BY_THEMSELVES: Final = words(
    """
    .envrc* .autoenv* .husky/* .githooks/* .hooks/* .pre-commit-config.y*ml lefthook.y*ml .lefthook.y*ml mise.toml
    .mise.toml .rprofile .Rprofile .gdbinit .vscode/tasks.json .devcontainer/devcontainer.json .devcontainer.json
    """
)
_LOADED: Final = regex(r"\bdotenv(?:_if_exists)?\b|\buse[ \t]+(?:flake|nix|devenv)\b|[\w./-]*\.env\b[\w.-]*")
"""What direnv and mise load with their own files, and load anew when it has changed though these have not."""
_MEANT: Final = {
    **{"dotenv": (".env",), "dotenv_if_exists": (".env",), "flake": ("flake.nix", "flake.lock")},
    **{"nix": ("shell.nix", "default.nix"), "devenv": ("devenv.yaml", "devenv.lock")},
}
_PYTHONS: Final = words("python pytest uv uvx tox nox poetry hatch pdm pipenv")
"""Programs that look for modules in the folder where they start."""
_NODES: Final = words("npx npm bunx bun pnpm yarn")
"""Programs that prefer a package of the project to one of the registry."""


class _Look:
    """What one look has found in folders, so that none is read twice: most words of a file name nothing in them.

    It remembers all it asked of the file system, to tell whether another look would find the same files.
    """

    def __init__(self, workspace: WorkspaceView) -> None:
        self.workspace = workspace
        self.done: set[tuple[Path, str, str]] = set()
        """The words that were looked for: the folder, the word before, and the word."""
        self._answers: dict[tuple[_Question, str], object] = {}
        self._begins: dict[Path, frozenset[str] | None] = {}

    def ask(self, question: "Callable[[str], _Found]", path: Path | str) -> "_Found":
        """The answer of the file system to a question about a path."""
        if (question, str(path)) not in self._answers:
            self._answers[question, str(path)] = question(str(path))
        return cast("_Found", self._answers[question, str(path)])

    def text(self, path: Path) -> str:
        """What a file contains, if that is text and short."""
        found = _found(path)
        self._answers[_digest, str(path)] = found.digest
        return found.text

    def is_as_before(self) -> bool:
        """Whether the file system still gives the same answers."""
        return all(question(path) == answer for (question, path), answer in self._answers.items())

    def lacks(self, folder: Path, text: str) -> bool:
        """Whether surely nothing in a folder has this relative path, also with an ending: by its first part alone."""
        first = text.partition("/")[0]
        # How other letters are written is up to the file system; of `x/../y`, `y` is looked for.
        if first in ("", ".", "..") or not first.isascii() or "*" in text or "?" in text or "/.." in text:
            return False
        if folder not in self._begins:
            names = self.ask(_names_in, folder)
            is_whole = len(names) < _MOST_ENTRIES and (names or not self.ask(_is_closed, folder))
            self._begins[folder] = frozenset(map(_beginning, names)) if is_whole else None
        begins = self._begins[folder]
        return begins is not None and _beginning(first) not in begins

    def inside(self, path: str) -> Path | None:
        """Where a path leads, if that is in the workspace."""
        real = Path(os.path.realpath(path))
        return real if self.workspace.contains(real) else None

    def program(self, name: str) -> Path | None:
        """The program of this name that is started, if it is in the workspace."""
        return program_inside(name, self.workspace)

    def hooks(self, folder: str) -> list[Path]:
        """The hooks that git runs in a folder."""
        return list(hooks_of(Path(folder), self.workspace))


_Question: TypeAlias = Callable[[str], object]
_Found = TypeVar("_Found")


def _may_run(path: str) -> bool:
    return os.access(path, os.X_OK)


def _is_closed(folder: str) -> bool:
    """Whether there is a folder of this name whose entries cannot be read."""
    return os.path.exists(folder) and not os.access(folder, os.R_OK)  # noqa: PTH110


def _digest(path: str) -> str:
    return _found(Path(path)).digest


def _beginning(name: str) -> str:
    """A name up to its first dot inside, as a file system compares it that knows no case."""
    return (name[:1] + name[1:].partition(".")[0]).casefold()


def read_first(steps: Iterable[PlainCommand], workspace: WorkspaceView, *, unknown: bool = True) -> list[Path]:
    """The files that these commands run or read first, within limits; `unknown`: of a program that stands in no table,
    all that one of the table would read. Reads files.
    """
    return _read_first(steps, _Look(workspace), unknown=unknown)


def _read_first(steps: Iterable[PlainCommand], look: _Look, *, unknown: bool = True) -> list[Path]:
    found: dict[Path, None] = {}
    for step in steps:
        found |= dict.fromkeys(_named_by(step, look, unknown=unknown))
    waiting = list(found)
    while waiting and len(found) <= MAX_FILES:
        path = waiting.pop(0)
        # In a Makefile `@` before a command keeps it from being shown.
        tokens = [token.lstrip("@+") for token in _tokens(look.text(path))]
        others = list(_shadowing(path.parent, look)) if path.suffix == ".py" else []
        # What a build file names is read by the program that reads the build file.
        rows = [names for _, names in _ROWS if any_of(names).match(path.name)]
        also = [name for names in rows for name in names]
        for folder in dict.fromkeys((path.parent, look.workspace.root)):
            others += (*_run(tokens, folder, look), *_read_by(tokens, [folder], look, also))
        waiting += (other for other in dict.fromkeys(others) if other not in found)
        found |= dict.fromkeys(others)
    return list(found)


def run_by_themselves(project: Path, workspace: WorkspaceView) -> list[Path]:
    """The scripts that git's hooks, a folder's environment and the like name, which run when nobody asks for it: as
    those of `_RUN_BY_THEMSELVES` do. Also what direnv and mise load, whether it exists or not. Reads files.
    """
    places = [path for name in _RUN_BY_THEMSELVES for path in project.glob(name)]
    texts = (_found(path).text for path in (*hooks_of(project, workspace), *places))
    look = _Look(workspace)
    found = dict.fromkeys(path for text in texts for path in _scripts(_tokens(text), project, look))
    scripts = [path for path in found if path.suffix not in {".yml", ".yaml"}]
    loading = (_found(path).text for path in places if path.name.startswith((".envrc", "mise", ".mise")))
    said = (match[0] for text in loading for match in _LOADED.finditer(text))
    names = dict.fromkeys(name for word in said for name in _MEANT.get(word.split()[-1], (word,)))
    return [*scripts, *(project / name for name in names)]


def with_project(line: str, project: Path) -> str:
    """A hook's command line with the project's folder in place of the variables that stand for it."""
    return _PROJECT.sub(lambda _: str(project), line)


def scripts_in(lines: Iterable[str], workspace: WorkspaceView, project: Path) -> list[Path]:
    """The scripts of the project that these command lines of hooks run, or would if they were there. Reads files."""
    found: dict[Path, None] = {}
    look = _Look(workspace)
    for line in lines:
        named = with_project(line, project)
        every = [_tokens(named.replace('"', ""))]
        with suppress(ValueError):  # a quote is open
            every.append(shlex.split(named))
        for tokens in every:
            found |= dict.fromkeys(_scripts(tokens, workspace.root, look))
            found |= dict.fromkeys(_missing(tokens, workspace.root, workspace))
    return list(found)


def _scripts(tokens: Sequence[str], folder: Path, look: _Look) -> Iterator[Path]:
    """The files that these words run, seen from a folder and those that are named with them."""
    for place in (folder, *_beside(tokens, folder, look)):
        yield from _run(tokens, place, look)


def _missing(tokens: Sequence[str], folder: Path, workspace: WorkspaceView) -> Iterator[Path]:
    """What these words would run if it were there."""
    for before, token in zip(("", *tokens), tokens, strict=False):
        runs = not before or before in _TESTS or token.startswith("./") or _INTERPRETER.fullmatch(before)
        path = Path(os.path.normpath(folder / token)) if runs and _is_name(token) else folder
        if ("/" in token or path.suffix) and not os.path.lexists(path) and workspace.contains(path):
            yield path


def _beside(tokens: Sequence[str], folder: Path, look: _Look) -> list[Path]:
    """The folders that words name, or name a file in."""
    values = (token.partition("=")[2] if token.startswith("-") else token for token in tokens)
    places = (folder / value for value in values if _is_name(value) and ("/" in value or not look.lacks(folder, value)))
    above = (look.ask(look.inside, place if look.ask(is_folder, place) else place.parent) for place in places)
    return [place for place in dict.fromkeys(above) if place is not None and place != folder]


def _is_name(token: str) -> bool:
    """Whether a word may be the name of a file."""
    return len(token) < _LONGEST and "\0" not in token


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(_VARIABLE.sub(r" \1 ", text))


def _named_by(step: PlainCommand, look: _Look, *, unknown: bool) -> Iterator[Path]:
    if (own := look.ask(look.program, step.words[0])) is not None:
        yield own
    # A word may be a line itself: `bash -c 'node server.js'`.
    tokens = [*step.words, *(part for word in step.words if " " in word for part in _tokens(word))]
    beside = _beside(tokens, step.folder, look)
    for folder in (step.folder, *beside):
        yield from _run(tokens, folder, look)
    folders = [folder for folder in (step.folder, *step.folder.parents) if look.workspace.contains(folder)]
    folders += (folder for folder in beside if folder not in folders)
    is_known = step.words[0] in {*known_commands(), "cd"} or any(_program(token) in _READ_BY for token in tokens)
    anything = unknown and not is_known
    yield from _read_by(tokens, folders, look, _ANY if anything else ())
    if anything or not _PYTHONS.isdisjoint(map(_program, tokens)):
        yield from (path for folder in folders for path in _shadowing(folder, look))


def _read_by(tokens: Sequence[str], folders: list[Path], look: _Look, also: Sequence[str] = ()) -> Iterator[Path]:
    """What the programs among these words read first, in these folders and in those that are named with them: files of
    their patterns and of those in `also`, and their own programs.
    """
    programs = dict.fromkeys(map(_program, tokens))
    patterns = dict.fromkeys((*also, *(name for program in programs for name in _READ_BY.get(program, ()))))
    named = list(filter(_is_name, islice(dict.fromkeys(tokens), _MOST_ENTRIES)))
    if patterns:
        there = (token for token in named if not look.lacks(folders[0], token))
        for place in filter(
            partial(look.ask, is_folder), (place for token in there for place in _places(folders[0], token, look))
        ):
            folder = look.ask(look.inside, place)
            folders += [folder] if folder is not None and folder not in folders else []
        for folder in folders:
            yield from _matching(folder, [name for name in patterns if "/" not in name], look)
            named_below = (each for name in patterns if "/" in name for each in _below(folder, name, look))
            yield from (path for name in named_below for path in _files_at(folder, name, look))
    if not _NODES.isdisjoint(programs):
        packages = filter(partial(look.ask, is_folder), (folder / "node_modules" for folder in folders))
        inside = ((place, token) for place in packages for token in named if not look.lacks(place, token))
        yield from (path for place, token in inside if look.ask(is_regular, path := place / token / "package.json"))
    for place in filter(partial(look.ask, is_folder), (folder / name for folder in folders for name in _RUN_BY_NAME)):
        its = (program for program in programs if not look.lacks(place, program))
        yield from (path for program in its if look.ask(is_regular, path := place / program))
    if "git" in programs:
        yield from (path for folder in folders for path in look.ask(look.hooks, folder))


def _matching(folder: Path, patterns: Sequence[str], look: _Look) -> Iterator[Path]:
    fits = any_of(tuple(patterns))
    return (folder / name for name in look.ask(_names_in, folder) if fits.match(name))


def _below(folder: Path, pattern: str, look: _Look) -> Iterator[str]:
    """A pattern of the table for files in folders, once for each folder here that its first part matches."""
    first, _, rest = pattern.partition("/")
    if "*" not in first:
        yield pattern
    else:
        yield from (f"{path.name}/{rest}" for path in _matching(folder, (first,), look))


def _places(folder: Path, text: str, look: _Look) -> Iterator[Path]:
    """The folders that a word may name. Of a pattern, the one it starts from; of `packages/*` also those in it."""
    start, star, rest = text.partition("*")
    if not star:
        yield folder / text
        return
    above, _, begin = start.rpartition("/")
    yield folder / above
    if not rest.strip("/"):
        yield from (folder / above / name for name in look.ask(_names_in, folder / above) if name.startswith(begin))


def _files_at(folder: Path, text: str, look: _Look, before: str = "") -> Iterator[Path]:
    """The regular files that a word may mean; of those that a pattern in its last part matches, only scripts."""
    above, _, last = text.rpartition("/")
    place = text if text.startswith("/") else f"{folder}/{text}"
    # Of `$(dirname "$0")/x` and `$PWD/x` is left `/x`.
    found: Iterable[str] = (place, f"{folder}/{text}")
    if "*" in last or "?" in last:
        all_there = _matching(folder / above, (last,), look)
        found = (str(path) for path in all_there if path.suffix in _SCRIPTS or look.ask(_may_run, path))
    elif before == "-m":
        module = f"{folder}/{text.replace('.', '/')}"
        found = (f"{module}/__init__.py", f"{module}/__main__.py", f"{module}.py")
    elif _INTERPRETER.fullmatch(before) or before.startswith("-"):
        found = (place, *(f"{place}{end}" for end in (*_OF_NODE, "/index.js")))
    yield from (Path(path) for path in dict.fromkeys(map(os.path.normpath, found)) if look.ask(is_regular, path))


def _shadowing(folder: Path, look: _Look) -> Iterator[Path]:
    """What in a folder that Python is started in, or whose script it runs, takes the place of its own modules."""
    for name in look.ask(_names_in, folder):
        if name.removesuffix(".py") in sys.stdlib_module_names:
            path = folder / name if name.endswith(".py") else folder / name / "__init__.py"
            yield from (path,) if look.ask(is_regular, path) else ()


def _names_in(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in islice(entries, _MOST_ENTRIES))
    except OSError:
        return []


def _program(token: str) -> str:
    """The name of a program: without its folder and the version of an interpreter."""
    name = token.rsplit("/", 1)[-1].lower()
    return name if name in _READ_BY else name.rstrip("0123456789.")


def _run(tokens: Sequence[str], folder: Path, look: _Look) -> Iterator[Path]:
    """The files among these words that are run or included, rather than only worked on, and were not found before."""
    in_package = "node_modules" in folder.parts
    for option, word, token in dict.fromkeys(zip(("", "", *tokens), ("", *tokens), tokens, strict=False)):
        before = option if option in _WITH_VALUE else word
        name = token.partition("=")[2] if token.startswith("-") else token
        if not _is_name(token) or look.lacks(folder, name) or (folder, before, token) in look.done:
            continue
        look.done.add((folder, before, token))
        # A variable may be the name of an interpreter.
        named = _INTERPRETER.fullmatch(before) or before.isupper() or before.startswith("-")
        named = named or token.startswith(("./", "-"))
        for path in _files_at(folder, name, look, before):
            in_folder = "/" in token and (not path.suffix or look.ask(_may_run, path))
            runs = named or in_folder or path.suffix in _SCRIPTS or (in_package and path.suffix in _OF_NODE)
            runs = runs or (not before and look.ask(_may_run, path))
            if runs and look.ask(look.inside, path) is not None:
                yield path


def contents_of(
    steps: Iterable[PlainCommand], workspace: WorkspaceView, *, also: Iterable[Path] = ()
) -> dict[Path, str]:
    """The digests of the existing files that these commands run or read first, and of those that are looked at `also`.

    Reads files.
    """
    paths = dict.fromkeys((*read_first(steps, workspace, unknown=False), *also))
    return {path: digest for path in paths if (digest := _found(path).digest)}


class _Kept(msgspec.Struct, frozen=True):
    """What the file of this name contained: its digest, empty if there was no file, and its text, if it is short."""

    path: str
    digest: str
    text: str = ""


class FilesRunFirst(msgspec.Struct, frozen=True):
    """The files that commands run first as they are now, and how they have changed since the user allowed them."""

    files: tuple[_Kept, ...] = ()
    changes: tuple[Change, ...] = ()
    steps: tuple[PlainCommand, ...] = ()

    @property
    def reason(self) -> str:
        """What has changed, in a sentence."""
        named = ", ".join(change.title.partition(" ")[0] for change in self.changes[:5])
        more = f" and {len(self.changes) - 5} more" if len(self.changes) > 5 else ""
        return f"What it runs was changed since you last allowed it: {named}{more}."


class Approved:
    """What the files that commands run first contained when the user last allowed it, in the private folder `folder`.

    `earlier` tells what a file contained when the session began, if its tools have changed it. What was never allowed
    counts as changed if that happened since the project was first opened.
    """

    def __init__(self, folder: Path | None, project: Path) -> None:
        """Writes a file: when this was first done for the `project`."""
        self._folder = folder
        self._kept: dict[str, _Kept] = {}
        self._looks: dict[tuple[PlainCommand, ...], tuple[_Look, list[Path]]] = {}
        self._began_ns = time.time_ns()
        if folder is not None:
            began = self._place(str(project)).with_suffix(".began")
            with suppress(OSError, ValueError):
                if not began.exists():
                    make_private_folder(folder)
                    began.write_text(str(self._began_ns))
                self._began_ns = int(began.read_text())
        self.earlier: Callable[[Path], bytes | None] = lambda _: None

    def look(self, steps: Iterable[PlainCommand], workspace: WorkspaceView) -> FilesRunFirst:
        """Look at what these commands run first. Reads files."""
        paths = self._read_first(steps := tuple(steps), workspace)
        files = [(path, _found(path)) for path in paths]
        changes = [change for path, now in files if (change := self._change(path, now, workspace)) is not None]
        for folder in _on_the_search_path(workspace):
            now = _as_kept(folder, _listing(folder))
            files.append((folder, now))
            before = self._known(now.path) or _as_kept(folder, _listing(folder, until=self._began_ns))
            differ = {line.rpartition(_CHANGED)[0] for line in set(now.text.split("\n")) ^ set(before.text.split("\n"))}
            if differ - {visible_line(path.name) for path in paths if path.parent == folder}:
                changes.append(_change_of(folder, now, before, "was changed", workspace))
        if len(paths) > MAX_FILES:
            note = f"it runs or reads more than {MAX_FILES} files: what the others are is not known"
            changes.append(Change(note, ""))
        return FilesRunFirst(tuple(now for _, now in files), tuple(changes), steps)

    def _read_first(self, steps: tuple[PlainCommand, ...], workspace: WorkspaceView) -> list[Path]:
        """What `read_first` finds. Where that takes long, as a line may lead to hundreds of files, it is remembered as
        long as nothing is different of what was looked at.
        """
        look, paths = self._looks.pop(steps, (None, []))
        if look is None or look.workspace is not workspace or not look.is_as_before():
            began = time.monotonic()
            look = _Look(workspace)
            paths = _read_first(steps, look)
            if time.monotonic() - began < _LONG_S:
                return paths
        self._looks[steps] = (look, paths)
        if len(self._looks) > _MOST_LOOKS:
            del self._looks[next(iter(self._looks))]
        return paths

    def accept(self, seen: FilesRunFirst) -> None:
        """Keep these contents: the user has allowed what runs them."""
        for kept in seen.files:
            if self._known(kept.path) != kept:
                self._kept[kept.path] = kept
                # Where it cannot be written, it counts until the session ends.
                with suppress(OSError):
                    if self._folder is not None:
                        make_private_folder(self._folder)
                        write_file(self._place(kept.path), msgspec.json.encode(kept))

    def _change(self, path: Path, now: _Kept, workspace: WorkspaceView) -> Change | None:
        known = self._known(now.path)
        if known is None:
            if not now.digest or not _changed_since(self._began_ns, path):
                return None
            before = self.earlier(path)
            known = _as_kept(path, before)
            how = "was changed in this session" if before is not None else "is new or was changed"
        else:
            how = "has changed since" if now.digest else "is gone"
        return _change_of(path, now, known, how, workspace) if known.digest != now.digest else None

    def _known(self, path: str) -> _Kept | None:
        if path not in self._kept and self._folder is not None:
            try:
                kept = msgspec.json.decode(self._place(path).read_bytes(), type=_Kept)
            except (OSError, msgspec.DecodeError):
                return None
            self._kept[path] = kept
        return self._kept.get(path)

    def _place(self, path: str) -> Path:
        return (self._folder or Path()) / f"{sha256(os.fsencode(path)).hexdigest()}.json"


def _change_of(path: Path, now: _Kept, before: _Kept, how: str, workspace: WorkspaceView) -> Change:
    name = named_path(workspace, path)
    # What is there and not text must not look as if it were emptied.
    diff = unified(before.text, now.text, name, complete=True) if now.text or now.digest in {"", _EMPTY} else ""
    return Change(f"{name} {how}" if diff else f"{name} {how}: it is not text, or too large to show", diff)


def _on_the_search_path(workspace: WorkspaceView) -> list[Path]:
    """The folders of PATH in which commands may write: what is in there may stand for any program."""
    folders = (Path(os.path.realpath(each)) for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each)
    return [folder for folder in dict.fromkeys(folders) if workspace.contains(folder) and is_folder(folder)]


def _listing(folder: Path, *, until: float = math.inf) -> bytes:
    """What is in a folder, as text: a line for each file, which changes when the file does."""
    lines = []
    for path in (folder / name for name in _names_in(str(folder))):
        with suppress(OSError):
            changed = path.stat().st_ctime_ns
            if changed <= until:
                lines.append(f"{visible_line(path.name)}{_CHANGED}{changed}\n")
    return "".join(lines).encode()


def _changed_since(time_ns: int, path: Path) -> bool:
    try:
        return path.stat().st_ctime_ns > time_ns
    except OSError:
        return False


def _found(path: Path) -> _Kept:
    """What a file contains now; nothing if it is no regular file that can be read."""
    try:
        return _as_kept(path, read_bytes(path, MAX_BYTES))
    except (OSError, ValueError) as error:
        if getattr(error, "errno", 0) != errno.EFBIG:
            return _as_kept(path, None)
    # A large program: its size and its times stand for it.
    found = path.stat()
    return _Kept(visible_line(str(path)), f"{found.st_size}-{found.st_mtime_ns}-{found.st_ctime_ns}")


def _as_kept(path: Path, content: bytes | None) -> _Kept:
    if content is None:
        return _Kept(visible_line(str(path)), "")
    text = "" if b"\0" in content or len(content) > MAX_BYTES else content.decode(errors="ignore")
    is_text = text.encode() == content
    return _Kept(visible_line(str(path)), sha256(content).hexdigest(), text if is_text else "")
