"""Whether the words of a plain command lead out of the workspace, judged before it runs and by what is on disk then.

Looking is bounded: by the paths of a line, their parts, and the entries of folders that a pattern is held against. What
would take more is not known, and so is what other programs change between the look and the run: no more than a sandbox
can tell that.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tui_agent.tools.base import WorkspaceView
from tui_agent.tools.gate.guarded import is_guarded
from tui_agent.tools.gate.patterns import matches
from tui_agent.tools.gate.shell_line import SimpleCommand, Word
from tui_agent.tools.gate.workspace import shown

NOWHERE: Final = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty", "-"})
"""Paths that are no file of the disk."""
MAX_PARTS: Final = 400
"""Parts of all paths of a line that are looked up."""
MAX_ENTRIES: Final = 1_000
"""Entries of folders that the patterns of a line are held against."""

_JOINTS: Final = re.compile(r"[=:,]")
_LETTER: Final = re.compile(r"-[A-Za-z0-9]")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|\A[^/\s]+@[^/\s]+:", re.ASCII)


class Stray(Exception):
    """A word leads where it may not; the message says why."""


class Reach:
    """What the words of one line lead to. `folder` is where its commands run: a `cd` in front of them moves it."""

    def __init__(self, workspace: WorkspaceView) -> None:
        self._workspace = workspace
        self._parts = self._entries = 0
        self._files_too = False
        self.folder = workspace.root

    def move(self, command: SimpleCommand) -> None:
        """Follow a `cd`: only into a folder inside, named without ``..`` and links, which bash reads its own way, and
        only where the rest of the line waits for it. Raises Stray.
        """
        target = command.texts[1] if len(command.words) == 2 else ""
        told = "it changes to a folder that is not known before it runs"
        if not target or target.startswith("-") or command.words[1].glob or command.then not in {"&&", ""}:
            raise Stray(told)
        if ".." in target.split("/"):
            raise Stray(told)
        place = os.path.join(self.folder, target)  # noqa: PTH118 - a Path would take "." and "//" away
        real = self._real(target)
        if not self._workspace.contains(real) or not real.is_dir() or str(real) != os.path.normpath(place):
            raise Stray(f"it changes to `{shown(target, 200)}`, which is outside the project, a link, or no folder")
        self.folder = real

    def check_read(self, paths: Iterable[Word], texts: Iterable[Word]) -> None:
        """Raises Stray when a path, or a text that is one, leads to what may not be read unasked."""
        for word in paths:
            for path in self._meant(word):
                if not self._readable(path):
                    raise Stray(f"`{shown(word.text, 200)}` leads outside the project")
        for word in texts:
            for path in self._meant(word):
                if word.text != "/" and not self._readable(path) and os.path.lexists(path):
                    raise Stray(f"`{shown(word.text, 200)}` leads outside the project")

    def check_flat(self, paths: Iterable[Word]) -> None:
        """Raises Stray for a folder: what links in it lead to would be read."""
        for word in paths:
            if any(path.is_dir() for path in self._meant(word)):
                raise Stray(f"`{shown(word.text, 200)}` is a folder, whose links it follows")

    def check_any(self, words: Sequence[Word]) -> None:
        """The same for a program of which only its name is known, so that each piece of a word may be a path, and one
        that it changes. Raises Stray.
        """
        self._files_too = True
        for word in words:
            if _ADDRESS.search(word.text):
                raise Stray(f"`{shown(word.text, 200)}` is an address")
            for piece in _pieces(word):
                for path in self._meant(piece):
                    self._check_changed(piece, path)

    def check_patterns(self, words: Sequence[Word]) -> None:
        """What the shell itself makes of patterns must lie inside. Raises Stray."""
        for word in words:
            if word.glob:
                self.check_read((word,), ())

    def _check_changed(self, word: Word, path: Path) -> None:
        if str(path) in NOWHERE:
            return
        if not self._workspace.contains(path):
            raise Stray(f"`{shown(word.text, 200)}` leads outside the project")
        if is_guarded(path, self._workspace):
            raise Stray(f"`{shown(word.text, 200)}` shapes how agents, shells and tools work here")
        try:
            found = path.lstat()
        except (OSError, ValueError):
            return
        if found.st_nlink > 1 and not path.is_dir():
            raise Stray(f"`{shown(word.text, 200)}` has a second name, which may be outside the project")

    def _readable(self, path: Path) -> bool:
        return str(path) in NOWHERE or self._workspace.contains(path) or self._workspace.owns(path)

    def _meant(self, word: Word) -> Iterator[Path]:
        if word.text in NOWHERE:
            return
        if not word.glob:
            yield self._real(word.text)
            return
        yield from self._expanded(word)

    def _real(self, text: str) -> Path:
        self._parts += text.count("/") + 1
        if self._parts > MAX_PARTS:
            raise Stray("it names more paths than are looked up")
        try:
            return Path(os.path.realpath(os.path.join(self.folder, text)))  # noqa: PTH118 - as the kernel reads it
        except (OSError, ValueError):
            raise Stray(f"`{shown(text, 200)}` cannot be looked up") from None

    def _expanded(self, word: Word) -> Iterator[Path]:
        """Where a pattern may lead: at least everything that the shell makes of it."""
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
            raise Stray("a pattern leads outside the project")
        try:
            entries = os.scandir(folder)
        except (OSError, ValueError):
            return
        with entries:
            for entry in entries:
                self._entries += 1
                if self._entries > MAX_ENTRIES:
                    raise Stray("a pattern stands for more files than are looked at")
                wanted = entry.is_symlink() or (entry.is_dir() if more else self._files_too)
                if wanted and matches(part, entry.name):
                    yield folder / entry.name


def _pieces(word: Word) -> Iterator[Word]:
    if word.glob:
        yield word
        return
    texts = [word.text, *_JOINTS.split(word.text)[1:]]
    if _LETTER.match(word.text):
        texts.append(word.text[2:])
    for text in texts:
        if text:
            yield Word(text, text)
