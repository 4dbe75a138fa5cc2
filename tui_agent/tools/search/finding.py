"""Finding files and text with ripgrep: `glob` and `grep`. Ignored files are left out, links are not followed."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta
from typing_extensions import override

from tui_agent.conversation.entries import Hit, Outcome
from tui_agent.regex import regex
from tui_agent.text import counted
from tui_agent.tools.base import Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.built_in import BuiltIn, OfPath
from tui_agent.tools.files.confined import open_file, open_folder
from tui_agent.tools.gate.rules import READ, SEARCH, Rule, about, catching_path
from tui_agent.tools.gate.workspace import display_path, granted_path, missing, shown
from tui_agent.tools.ripgrep import RunningSearch, search
from tui_agent.visible import whole

MAX_FILES = 1_000
"""The most file names that are listed."""
MAX_MATCHES = 250
"""The most matching lines that are shown."""
MAX_BYTES = 40 * 1024
"""The most bytes of names or lines that are shown: less than the limit beyond which a result is shortened."""
MAX_COLUMNS = 500
"""The most bytes of a line that are shown."""
HITS_KEPT, HIT_CHARS = 4, 200
"""How many of the lines that were found are told to people, and how many characters of each."""

_MAX_LISTED_FILES = 200_000
_MAX_COUNTED_MATCHES = 100_000
_WALK = ("--hidden", "--no-require-git", "--color=never", "--glob=!.git", "--glob=!.hg", "--glob=!.svn", "--glob=!.jj")
_LINES = (
    "--no-heading",
    "--with-filename",
    "--line-number",
    "--null",
    "--no-context-separator",
    f"--max-columns={MAX_COLUMNS}",
    "--max-columns-preview",
)
_ABOUT_BINARY = regex(rb"(?:: |^)(?:WARNING: stopped searching binary file|binary file matches).*offset \d+\)$")
_IGNORED = "Files ignored by .gitignore are left out; to look at them give their folder as path."
_HIDDEN = "So are files that a rule of the user keeps from being read."


class _Finding(OfPath, BuiltIn):
    effect: Effect = "read"
    _verb: ClassVar[str]

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        given = self._signature.parse(arguments)
        return Preview(f"{self._verb} {given['pattern']}", text=whole(f"in {workspace.resolve(str(given['path']))}"))


class Glob(_Finding):
    name = "glob"
    _verb = "Find"

    @override
    async def _do(self, context: ToolContext, /, pattern: str, path: str = ".") -> ToolOutput:
        """Find files by name. Files ignored by .gitignore are left out, hidden ones are included, links not followed.

        Args:
            pattern: Such as *.py (a name, in any folder), src/**/*.{ts,tsx} (from path on), !*.md (all but these).
            path: The folder to look in.
        """
        real = granted_path(context, path)
        with open_folder(real) as folder:
            found = sorted(await _files(folder, _relative(pattern, real)))
        if not found:
            return ToolOutput(
                f"No file matches {shown(pattern, 200)} below {shown(path)}. {_IGNORED}", summary="no files"
            )
        prefix = _prefix(context.workspace, real)
        lines = _bounded([prefix + shown(name.decode(errors="replace")) for name in found[:MAX_FILES]])
        left = len(found) - len(lines)
        count = counted(len(found), "file") if len(found) < _MAX_LISTED_FILES else f"at least {len(found):,} files"
        if left:
            lines.append(f"[{counted(left, 'more file')} ({count} in all). Narrow the pattern or the path.]")
        return ToolOutput("\n".join(lines), summary=count)


class Grep(_Finding):
    name = SEARCH
    _verb = "Search for"

    def __init__(self, limits: Iterable[Rule] = ()) -> None:
        """`limits`: the user's rules; files that they are about are not searched."""
        super().__init__()
        self._limits = about((READ,), limits)

    @override
    async def _do(
        self,
        running: ToolContext,
        /,
        pattern: str,
        path: str = ".",
        glob: str | None = None,
        context: Annotated[int, Meta(ge=0, le=50)] = 0,
    ) -> ToolOutput:
        """Search the contents of files for a regular expression (Rust syntax: no look-around, no back-references).

        Matches come below the name of their file as line number, colon and text. Binary files and files ignored by
        .gitignore are left out, hidden ones included, links not followed.

        Args:
            pattern: (?i) in front ignores case; \\n makes it search across lines.
            path: The folder or file to search.
            glob: Only files whose name matches, such as *.py or src/**/*.ts; !*.md leaves files out.
            context: Lines before and after each match.
        """
        real = granted_path(running, path)
        if not real.exists():
            raise missing(path, real)
        arguments = [*_LINES, f"--context={context}", f"--regexp={pattern}"]
        if "\n" in pattern or r"\n" in pattern:
            arguments.append("--multiline")
        if real.is_dir():
            matches = await self._in_folder(arguments, real, glob, running.workspace)
        else:
            matches = await self._in_file(arguments, real, display_path(running.workspace, real))
        if not matches.count:
            place = "this folder" if path in {"", "."} else shown(path)
            what = f"No match for {shown(pattern, 200)} in {place}."
            return ToolOutput(f"{what} {matches.why_none}".rstrip(), summary="no matches")
        return ToolOutput(matches.text, summary=matches.summary, outcome=matches.outcome)

    async def _in_folder(
        self, arguments: list[str], real: Path, glob: str | None, workspace: WorkspaceView
    ) -> "_Matches":
        def is_hidden(name: bytes) -> bool:
            path = os.path.join(real, os.fsdecode(name))  # noqa: PTH118 - as rg has it
            return catching_path(self._limits, path, str(workspace.root)) is not None

        why_none = f"{_IGNORED} {_HIDDEN}" if self._limits else _IGNORED
        with open_folder(real) as folder:
            wanted = None if glob is None else await _files(folder, _relative(glob, real))
            chosen = () if glob is None else (f"--glob={_relative(glob, real)}",)
            prefix, spaced = _prefix(workspace, real), "--context=0" not in arguments
            matches = _Matches(spaced, prefix, wanted, why_none, is_hidden=is_hidden if self._limits else None)
            async with search((*arguments, "--sort=path", *chosen, *_WALK, "--", "."), folder) as rg:
                await matches.take(rg)
        return matches

    async def _in_file(self, arguments: list[str], real: Path, name: str) -> "_Matches":
        matches = _Matches("--context=0" not in arguments, name=name)
        with open_folder(real.parent) as folder, open_file(real) as stream:
            async with search((*arguments, "--color=never", "--", "-"), folder, stdin=stream) as rg:
                await matches.take(rg)
        return matches


class _Matches:
    """The matches found so far: the first ones as text, the rest only counted."""

    def __init__(
        self,
        spaced: bool,
        prefix: str = "",
        wanted: set[bytes] | None = None,
        why_none: str = "",
        name: str = "",
        is_hidden: Callable[[bytes], bool] | None = None,
    ) -> None:
        """`spaced`: matches come with context lines, and gaps are marked. `wanted`: the files that count (None: all),
        without those that are hidden. `name`: the file's name if only one is searched. `why_none`: what to say if
        nothing is found.
        """
        self._is_hidden = is_hidden
        self._hidden: tuple[bytes, bool] = (b"", False)
        self.count = 0
        self._spaced = spaced
        self.why_none = why_none
        self._prefix = prefix
        self._wanted = wanted
        self._name = name
        self._hits: list[Hit] = []
        self._lines: list[str] = []
        self._bytes = 0
        self._file: bytes | None = None
        self._files = 0
        self._last = 0
        self._shown = 0
        self._files_cut = 0
        self._cut_file: bytes | None = None

    async def take(self, rg: RunningSearch) -> None:
        """Read the output of `rg`, up to `_MAX_COUNTED_MATCHES`. Raises ToolFailure if it refused the search."""
        name = b""
        async for line in rg.records(b"\n"):
            if _ABOUT_BINARY.search(line):
                self.why_none = self.why_none or "It is a binary file."
                continue
            path, nul, text = line.partition(b"\0")
            name += path
            if not nul:
                name += b"\n"
                continue
            self._add(name.removeprefix(b"./"), text)
            name = b""
            if self.count >= _MAX_COUNTED_MATCHES:
                return
        errors = await rg.errors()
        if errors and not self.count:
            raise _refusal(errors)

    @property
    def summary(self) -> str:
        bound = "at least " if self.count >= _MAX_COUNTED_MATCHES else ""
        return f"{bound}{counted(self.count, 'match', 'matches')} in {counted(self._files, 'file', 'files')}"

    @property
    def outcome(self) -> Outcome:
        return Outcome(hits=tuple(self._hits), hit_count=self._shown)

    @property
    def text(self) -> str:
        hidden = self.count - self._shown
        if not hidden:
            return "\n".join(self._lines)
        more = f"{counted(hidden, 'more match', 'more matches')} in {counted(self._files_cut, 'file')}"
        return "\n".join([*self._lines, f"[{more}; {self.summary} in all. Narrow the pattern, the path or the glob.]"])

    def _add(self, name: bytes, text: bytes) -> None:
        if self._wanted is not None and name not in self._wanted:
            return
        if self._is_hidden is not None:
            if name != self._hidden[0]:
                self._hidden = name, self._is_hidden(name)
            if self._hidden[1]:
                return
        parsed = _Line.read(text)
        is_new = name != self._file
        if is_new:
            self._file, self._last = name, 0
            self._files += 1
        self.count += parsed.is_match
        if self._shown >= MAX_MATCHES or self._bytes >= MAX_BYTES:
            if parsed.is_match and name != self._cut_file:
                self._cut_file = name
                self._files_cut += 1
            return
        file = self._name or self._prefix + shown(name.decode(errors="replace"))
        if parsed.is_match and len(self._hits) < HITS_KEPT:
            self._hits.append(Hit(file, parsed.number, parsed.text[:HIT_CHARS]))
        if is_new:
            self._add_line(file)
        elif self._spaced and parsed.number > self._last + 1:
            self._add_line("--")
        self._add_line(f"{parsed.number}{':' if parsed.is_match else '-'}{parsed.text}")
        self._shown += parsed.is_match
        self._last = parsed.number

    def _add_line(self, line: str) -> None:
        self._lines.append(line)
        self._bytes += len(line.encode()) + 1


class _Line(msgspec.Struct, frozen=True):
    """One line that rg printed: a match, or context."""

    number: int
    is_match: bool
    text: str

    @classmethod
    def read(cls, printed: bytes) -> "_Line":
        found = re.match(rb"(\d+)([:-])", printed)
        if found is None:
            raise ToolFailure(
                "ripgrep printed something unexpected: the `rg` on this machine may be older than 13.",
                "Use a command such as grep, and tell the user.",
            )
        text = printed[found.end() :].removesuffix(b"\r").decode(errors="replace")
        return cls(int(found[1]), found[2] == b":", text)


async def _files(folder: int, glob: str) -> set[bytes]:
    """The files below `folder` that match `glob` and are not ignored, as relative paths; at most `_MAX_LISTED_FILES`.

    For files that match a given glob, rg does not apply .gitignore. So it runs with the glob and without it, and only
    files found both times count.
    """
    async with search(("--files", "--null", "--sort=path", f"--glob={glob}", *_WALK), folder) as rg:
        matching = await _names(rg)
    if not matching:
        return matching
    async with search(("--files", "--null", *_WALK), folder) as rg:
        return {name async for name in rg.records(b"\0") if name in matching}


async def _names(rg: RunningSearch) -> set[bytes]:
    names: set[bytes] = set()
    async for name in rg.records(b"\0"):
        names.add(name)
        if len(names) >= _MAX_LISTED_FILES:
            return names
    errors = await rg.errors()
    if errors and not names:
        raise _refusal(errors)
    return names


def _refusal(errors: str) -> ToolFailure:
    """rg's error message in plain words, and what to do about it."""
    parse = re.search(r"regex parse error:.*\nerror: (.+)", errors, re.DOTALL)
    if parse:
        return ToolFailure(
            f"The pattern is not a valid regular expression: {parse[1].splitlines()[0]}.",
            "To search for text as it is, put a backslash before each of "
            r"\ . + * ? ( ) | [ ] { } ^ $, as in foo\(bar\).",
        )
    glob = re.search(r"error parsing glob .*?: (.+)", errors)
    if glob:
        return ToolFailure(f"The glob is not valid: {glob[1]}.", "A backslash takes a special character as it is.")
    return ToolFailure(
        f"The search failed: {shown(errors.removeprefix('rg: ').splitlines()[0], 300)}",
        "Try a narrower path or a simpler pattern.",
    )


def _relative(glob: str, real: Path) -> str:
    """`glob` relative to the searched folder, as rg takes it. Raises ToolFailure."""
    negated = glob.startswith("!")
    bare = glob.removeprefix("!").removeprefix("./").removeprefix(f"{real}/")
    if not bare or "\0" in bare:
        raise ToolFailure("The glob is empty or holds a NUL character.", "Give a pattern such as *.py.")
    return f"!{bare}" if negated else bare


def _prefix(workspace: WorkspaceView, real: Path) -> str:
    """The prefix for names found below `real` that makes them paths other tools accept."""
    where = display_path(workspace, real)
    return "" if where == "." else f"{where.rstrip('/')}/"


def _bounded(lines: list[str]) -> list[str]:
    size = 0
    for index, line in enumerate(lines):
        size += len(line.encode()) + 1
        if size > MAX_BYTES:
            return lines[:index]
    return lines
