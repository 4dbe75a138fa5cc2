"""The folders of commands, agents, styles and hooks: in the project, if it is trusted, and in the user's folder."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from tui_agent.conversation.blocks import valid_text
from tui_agent.regular import read_at_most
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.confined import open_file
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.front_matter import split_front_matter

MOST_FILES: Final = 200
"""The most files read in one folder."""
MOST_BYTES: Final = 262_144
"""The most bytes of one file."""

Source: TypeAlias = Literal["project", "yours"]


class Shelf(NamedTuple):
    """A folder of extensions: the user's, or the project's, whose links must not lead outside `within`."""

    folder: Path
    source: Source
    within: Path | None = None


class Written(NamedTuple):
    """A Markdown file with its front matter parsed. `problem`: why it cannot be used; empty if it can."""

    name: str
    keys: dict[str, str]
    text: str
    file: Path
    source: Source
    problem: str = ""

    def key(self, *names: str) -> str:
        """The value, on one line, of the first of these keys that is set."""
        found = next((self.keys[name] for name in names if self.keys.get(name)), "")
        return shown(" ".join(valid_text(found).split()), 1_000)


def written(shelves: tuple[Shelf, ...], room: str) -> tuple[Written, ...]:
    """The Markdown files in the subfolder `room` of each shelf, by name; for equal names, the first shelf wins.

    A file in a folder below is called ``folder:name``. Reads files: call it in a thread. Never raises.
    """
    found: dict[str, Written] = {}
    for shelf in shelves:
        for name, path in _files(shelf, shelf.folder / room):
            found.setdefault(name, _read(name, path, shelf.source))
    return tuple(found[name] for name in sorted(found))


def signature(shelves: tuple[Shelf, ...], *rooms: str) -> tuple[object, ...]:
    """A value that changes whenever a file is added, removed or written. Cheap: reads no file."""
    files = (path for shelf in shelves for room in rooms for _, path in _files(shelf, shelf.folder / room))
    return tuple(_state(path) for path in files)


def _files(shelf: Shelf, folder: Path) -> Iterator[tuple[str, Path]]:
    for entry in _listed(folder):
        if entry.name.endswith(".md"):
            yield from _within(shelf, entry.name.removesuffix(".md"), Path(entry.path))
        elif not entry.name.startswith(".") and entry.is_dir():
            for below in _listed(Path(entry.path)):
                if below.name.endswith(".md"):
                    yield from _within(shelf, f"{entry.name}:{below.name.removesuffix('.md')}", Path(below.path))


def _within(shelf: Shelf, name: str, path: Path) -> Iterator[tuple[str, Path]]:
    real = Path(os.path.realpath(path))
    leads_out = shelf.within is not None and not real.is_relative_to(os.path.realpath(shelf.within))
    if name.strip() and not name.startswith(".") and not leads_out and real.is_file():
        yield "".join(name.lower().split()), real


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(islice(entries, MOST_FILES), key=lambda entry: entry.name)
    except OSError:
        return []


def _read(name: str, file: Path, source: Source) -> Written:
    name = shown(name, 64)
    try:
        with open_file(file) as stream:
            text = read_at_most(stream, MOST_BYTES).decode(errors="replace")
    except (ToolFailure, OSError) as error:
        return Written(name, {}, "", file, source, str(error))
    keys, body = split_front_matter(text)
    return Written(name, keys, valid_text(body).strip(), file, source, "" if body.strip() else "it says nothing")


def _state(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
    except OSError as error:
        return (str(path), error.errno)
    return (str(path), found.st_ino, found.st_size, found.st_mtime_ns)
