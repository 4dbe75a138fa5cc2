"""Whether the words of a plain command lead out of the workspace, judged by what is on disk before it runs.

The number of path parts and folder entries that are looked at is limited; a line that needs more counts as unknown.
What other programs change between this check and the run cannot be seen; only a sandbox protects against that.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from tui_agent.system.regular import is_folder
from tui_agent.tools.base import WorkspaceView
from tui_agent.tools.gate.patterns import matches
from tui_agent.tools.gate.shell_line import SimpleCommand, Word
from tui_agent.tools.gate.workspace import shown

NOWHERE: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "-"})
"""Paths that are not files on disk."""
MAX_PARTS: Final = 400
"""The most path parts that are looked up for one line."""
MAX_ENTRIES: Final = 1_000
"""The most folder entries that the patterns of one line are matched against."""
_MOST_LINKS: Final = 40
"""The most links that the kernel follows on the way to a file."""


class NotAllowed(Exception):
    """A word leads to a place that is not allowed; the message says why."""


class LinePaths:
    """Resolves the words of one line. `folder` is where its next command runs: a `cd` changes it."""

    def __init__(self, workspace: WorkspaceView) -> None:
        self._workspace = workspace
        self._parts = self._entries = 0
        self.folder = workspace.root

    def move(self, command: SimpleCommand) -> None:
        """Follow a `cd` into a folder inside. Raises NotAllowed for any other, for ``..`` and links, which bash
        resolves in its own way, and if the rest of the line does not wait for the `cd`.
        """
        target = command.texts[1] if len(command.words) == 2 else ""
        reason = "it changes to a folder that is not known before it runs"
        if not target or target.startswith("-") or command.words[1].glob or command.then not in {"&&", ""}:
            raise NotAllowed(reason)
        if ".." in target.split("/"):
            raise NotAllowed(reason)
        place = os.path.join(self.folder, target)  # noqa: PTH118 - a Path would drop "." and "//"
        real = self._real(target)
        if not self._workspace.contains(real) or not is_folder(real) or str(real) != os.path.normpath(place):
            raise NotAllowed(
                f"it changes to `{shown(target, 200)}`, which is outside the project, a link, or no folder"
            )
        self.folder = real

    def check_read(self, paths: Iterable[Word], texts: Iterable[Word]) -> None:
        """Raises NotAllowed if a path, or a text that is one, leads to a file that may not be read unasked."""
        for word, is_path in (*((word, True) for word in paths), *((word, False) for word in texts)):
            for path in self._paths_of(word):
                if not self._readable(path) and (is_path or (word.text != "/" and os.path.lexists(path))):
                    raise NotAllowed(f"`{shown(word.text, 200)}` leads outside the project")

    def named(self, words: Iterable[Word]) -> Iterator[Path]:
        """The existing files and folders that words lead to. Raises NotAllowed if they cannot be looked up."""
        for word in words:
            yield from filter(os.path.lexists, self._paths_of(word))
            if word.glob:
                start = Path("/") if word.text.startswith("/") else self.folder
                with suppress(ValueError, OSError):
                    yield from map(Path.resolve, islice(start.glob(word.text.lstrip("/")), MAX_ENTRIES))

    def check_flat(self, paths: Iterable[Word]) -> None:
        """Raises NotAllowed for a folder: the command would follow the links in it."""
        for word in paths:
            if any(is_folder(path) for path in self._paths_of(word)):
                raise NotAllowed(f"`{shown(word.text, 200)}` is a folder, whose links it follows")

    def check_patterns(self, words: Sequence[Word]) -> None:
        """Raises NotAllowed if the shell could expand a pattern to something outside."""
        self.check_read((word for word in words if word.glob), ())

    def _readable(self, path: Path) -> bool:
        return str(path) in NOWHERE or self._workspace.contains(path) or self._workspace.owns(path)

    def _paths_of(self, word: Word) -> Iterator[Path]:
        if word.text not in NOWHERE:
            yield from self._expanded(word) if word.glob else (self._real(word.text),)

    def _real(self, text: str) -> Path:
        self._parts += text.count("/") + 1
        if self._parts > MAX_PARTS:
            raise NotAllowed("it names more paths than are looked up")
        place = os.path.join(self.folder, text)  # noqa: PTH118 - as the kernel reads it
        try:
            if not _is_same_to_all(place):
                raise NotAllowed(f"`{shown(text, 200)}` leads elsewhere for each process")
            return Path(os.path.realpath(place))
        except (OSError, ValueError):
            raise NotAllowed(f"`{shown(text, 200)}` cannot be looked up") from None

    def _expanded(self, word: Word) -> Iterator[Path]:
        """The paths a pattern may lead to: at least all that the shell would expand it to."""
        first, *others = word.glob.split("/")
        start = Path("/") if first == "" else self.folder
        found = [start] if first == "" else list(self._matching(start, first, bool(others)))
        for part in others:
            if part:
                found = [path for folder in found for path in self._matching(folder, part, part is not others[-1])]
        for path in found:
            yield self._real(str(path))
        yield self._real(word.text)

    def _matching(self, folder: Path, part: str, more: bool) -> Iterator[Path]:
        if "*" not in part and "?" not in part:
            yield folder / re.sub(r"\\(.)", r"\1", part)
            return
        if not self._readable(Path(os.path.realpath(folder))):
            raise NotAllowed("a pattern leads outside the project")
        try:
            entries = os.scandir(folder)
        except (OSError, ValueError):
            return
        with entries:
            for entry in entries:
                self._entries += 1
                if self._entries > MAX_ENTRIES:
                    raise NotAllowed("a pattern stands for more files than are looked at")
                wanted = entry.is_symlink() or (more and entry.is_dir())
                if wanted and matches(part, entry.name):
                    yield folder / entry.name


def _is_same_to_all(path: str) -> bool:
    """Whether the way to an absolute path does not lead through ``/proc``, where links such as ``self/cwd`` mean to a
    command other files than to this program.
    """
    place, links, parts = "", 0, path.split("/")[::-1]
    while parts and place != "/proc" and links <= _MOST_LINKS:
        part = parts.pop()
        if part == "..":
            place = place.rpartition("/")[0]
        elif part not in {"", "."}:
            try:
                target = os.readlink(f"{place}/{part}")  # noqa: PTH115 - done for every part
            except OSError:
                place = f"{place}/{part}"
                continue
            links += 1
            place = "" if target.startswith("/") else place
            parts += target.split("/")[::-1]
    return place != "/proc" and links <= _MOST_LINKS
