"""A project's memory: the tool `memory`, the notes it writes, and ``MEMORY.md``, their index.

The user may edit the folder too: other text in the index is kept, and notes that were added, removed or renamed by hand
are recognised.
"""

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import valid_text
from tui_agent.regex import regex
from tui_agent.system.durable import PRIVATE_FILE, PRIVATE_FOLDER, make_private_folder
from tui_agent.system.regular import read_at_most
from tui_agent.tools.base import Access, Effect, Preview, ToolContext, ToolFailure, ToolOutput, WorkspaceView
from tui_agent.tools.built_in import Described
from tui_agent.tools.files.confined import explained, open_file, write_atomically
from tui_agent.tools.gate.workspace import shown
from tui_agent.tools.notes.front_matter import header, split_front_matter
from tui_agent.tools.threads import Cancellation, in_thread
from tui_agent.visible import visible_line

NAME = "memory"
"""The tool's name."""
UNTRUSTED = "written in a folder that was not trusted"
"""The origin recorded in a note that was written in such a folder."""
INDEX_FILE = "MEMORY.md"
MAX_NAME = 60
MAX_DESCRIPTION = 200
"""Characters of a note's description in the index."""
MAX_TEXT = 20_000
"""Characters of one note: what fits on one page of a file read."""
MAX_NOTES = 500
MAX_INDEX = 1_000_000
"""The most bytes of the index that are read."""

_TIMEOUT_S = 10.0
_POLL_S = 0.02
_TITLE = "# Memory"
_LINE = regex(r"[ \t]*[-*] \[(?P<name>[^\]]*)\]\((?:\./)?(?P<file>[^)/\\]+\.md)\)(?:[ \t]*[:—–-][ \t]*(?P<text>.*))?")
_NAME = regex(r"[a-z0-9]+(?:-[a-z0-9]+)*")


class Note(msgspec.Struct, frozen=True):
    """A note in the index. `missing`: its file does not exist."""

    name: str
    description: str
    file: Path
    missing: bool = False


def memory_folder(home: Path, project: Path) -> Path:
    """The folder of a project's notes, named after the project's root and a digest of its path."""
    root = os.path.realpath(project)
    slug = re.sub(r"[^a-z0-9]+", "-", Path(root).name.lower()).strip("-")[:40] or "project"
    return Path(os.path.realpath(home)) / "memory" / f"{slug}-{blake2b(os.fsencode(root), digest_size=6).hexdigest()}"


class Notes:
    """The notes in a folder, which need not exist yet. Its path must not contain links."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = folder / INDEX_FILE
        self._looked: str | None = None
        self._left: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the index that `look` last found was the one that this object's `write` and `remove` had left."""
        return self._left is not None and self._looked == self._left

    def look(self) -> str:
        """The present index, to be shown to the model. Raises ToolFailure if it cannot be read."""
        self._looked = self.text()
        return self._looked

    def file(self, name: str) -> Path:
        """The file of the note called `name`. Raises ToolFailure if that is not a valid name."""
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME or name == "memory":
            near = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:MAX_NAME].strip("-")
            hint = f", such as {near}" if near and near != "memory" else ""
            raise ToolFailure(
                f"{shown(name, 100) or 'An empty text'} is no name for a note.",
                f"Use lower-case words joined by hyphens, at most {MAX_NAME} characters{hint}.",
            )
        return self.folder / f"{name}.md"

    def text(self) -> str:
        """The present index; empty if there is none. Raises ToolFailure if it cannot be read."""
        if not os.path.lexists(self.index):
            return ""
        with open_file(self.index) as stream:
            return valid_text(read_at_most(stream, MAX_INDEX).decode(errors="replace"))

    def listed(self) -> tuple[Note, ...]:
        """The notes: those in the index first, then the others. Raises ToolFailure."""
        files = self._files()
        named = [match for match in map(_LINE.fullmatch, self.text().splitlines()) if match]
        notes = [
            Note(match["name"], (match["text"] or "").strip(), self.folder / match["file"], match["file"] not in files)
            for match in named
        ]
        known = {match["file"] for match in named}
        return (*notes, *(self._unlisted(name) for name in files if name not in known))

    def write(self, name: str, description: str, text: str, stop: Cancellation, origin: str = "") -> bool:
        """Create or replace a note, and its line in the index. Returns True if the note is new.

        `origin`, if given, is recorded in both. Raises ToolFailure and Stopped, and has changed nothing then.
        """
        file = self.file(name)
        with self._locked(stop):
            is_new = not os.path.lexists(file)
            if is_new and len(self._files()) >= MAX_NOTES:
                raise ToolFailure(
                    f"There are {MAX_NOTES} notes already, which is the most.", "Merge or remove some first."
                )
            keys = header({"name": name, "description": description} | ({"origin": origin} if origin else {}))
            content = valid_text(f"{keys}\n{text.strip()}\n")
            line = f"- [{name}]({name}.md): {description}" + (f" [{origin}]" if origin else "")
            index = self._index({f"{name}.md": line}, frozenset())
            write_atomically(file, content.encode(), stop)
            file.chmod(PRIVATE_FILE)
            self._replace_index(index, Cancellation())
        return is_new

    def remove(self, name: str, stop: Cancellation) -> None:
        """Remove a note and its line in the index. Raises ToolFailure if there is neither."""
        file = self.file(name)
        with self._locked(stop):
            before = self.text()
            index = self._index({}, frozenset((file.name,)))
            is_there = os.path.lexists(file)
            if not is_there and not any(_names(line) == file.name for line in before.splitlines()):
                raise ToolFailure(f"There is no note called {name}.", self._names())
            # Remove the line first: an unlisted note is found again, but a line without its note misleads.
            self._replace_index(index, stop)
            if is_there:
                with explained(file):
                    file.unlink()

    def _replace_index(self, index: str, stop: Cancellation) -> None:
        # If somebody else has changed the index meanwhile, the model does not know all of it.
        is_known = self.text() in {self._looked or "", self._left}
        write_atomically(self.index, index.encode(), stop)
        self.index.chmod(PRIVATE_FILE)
        if is_known:
            self._left = index

    def _index(self, written: dict[str, str], removed: frozenset[str]) -> str:
        """The index after a change.

        A line of `written` (by file name) replaces the old one, or comes first if it is new. Lines of notes that are
        `removed` or missing are left out, and unlisted notes get a line.
        """
        files = frozenset(self._files())
        kept: list[str] = []
        listed: set[str] = set()
        for line in self.text().splitlines() or [_TITLE, ""]:
            name = _names(line)
            if not name:
                kept.append(line)
            elif name not in listed and name not in removed and (name in files or name in written):
                kept.append(written.get(name, line))
                listed.add(name)
        new = [line for name, line in written.items() if name not in listed]
        found = [self._unlisted(name) for name in sorted(files - listed - removed - written.keys())]
        new += [f"- [{note.name}]({note.file.name}): {note.description}" for note in found]
        first = next((number for number, line in enumerate(kept) if _names(line)), len(kept))
        return "\n".join([*kept[:first], *new, *kept[first:]]).rstrip("\n") + "\n"

    def _unlisted(self, name: str) -> Note:
        file = self.folder / name
        try:
            with open_file(file) as stream:
                keys, text = split_front_matter(stream.read(65_536).decode(errors="replace"))
        except ToolFailure as failure:
            return Note(file.stem, shown(str(failure), MAX_DESCRIPTION), file)
        described = keys.get("description") or next((line for line in text.splitlines() if line.strip()), "")
        origin = f" [{one_line(keys['origin'])}]" if keys.get("origin") else ""
        return Note(file.stem, one_line(described) + origin, file)

    def _files(self) -> list[str]:
        """The file names of the notes."""
        try:
            with os.scandir(self.folder) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ToolFailure(
                f"{shown(str(self.folder))} cannot be read: {error.strerror}.", "Tell the user."
            ) from error
        return sorted(
            name
            for name in names
            if name.endswith(".md") and not name.startswith(".") and name.casefold() != INDEX_FILE.casefold()
        )[: 2 * MAX_NOTES]

    def _names(self) -> str:
        names = [Path(name).stem for name in self._files()]
        return f"There are: {shown(', '.join(names), 1_000)}." if names else "There are no notes yet."

    def _wait(self, lock: int, stop: Cancellation) -> None:
        """Take the lock. Raises ToolFailure if another session keeps it, and Stopped."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            stop.check()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ToolFailure("Another session is writing the notes just now.", "Try again.") from None
                time.sleep(_POLL_S)
            else:
                return

    @contextmanager
    def _locked(self, stop: Cancellation) -> Iterator[None]:
        """Lock the notes against writers in other sessions of the project."""
        with explained(self.folder):
            make_private_folder(self.folder)
            for folder in (self.folder, self.folder.parent):
                folder.chmod(PRIVATE_FOLDER)
            lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._wait(lock, stop)
            yield
        finally:
            os.close(lock)


class Memory(Described):
    """Writes and removes notes. They are outside the workspace; the gate judges a change as writing a file.

    In a project that is not `trusted`, files could make the model remember something: there the user is always asked,
    and the note records its origin.
    """

    name = NAME
    effect: Effect = "write"

    def __init__(self, notes: Notes, *, trusted: bool = True) -> None:
        super().__init__()
        self._notes = notes
        self._trusted = trusted

    @override
    def access(self, arguments: str, workspace: WorkspaceView) -> tuple[Access, ...]:
        given = self._signature.parse(arguments)
        file = str(self._notes.file(str(given["name"])))
        return (Access("write", file, guarded=not self._trusted),)

    @override
    def preview(self, arguments: str, workspace: WorkspaceView) -> Preview:
        given = self._signature.parse(arguments)
        if given["action"] == "remove":
            return Preview(f"Remove the note {given['name']}")
        text = f"{visible_line(str(given['description']))}\n\n{given['text']}"
        return Preview(f"Remember {given['name']}", text=text)

    async def run(self, arguments: str, context: ToolContext) -> ToolOutput:
        return await in_thread(lambda stop: self._signature.call(self._do, arguments, stop))

    @override
    def _do(
        self,
        stop: Cancellation,
        /,
        action: Literal["write", "remove"],
        name: str,
        description: str = "",
        text: str = "",
    ) -> ToolOutput:
        """Keep a note about this project for later sessions, or remove one.

        Note what will matter again and is not plain from the files: decisions and their reasons, what the person
        wants, pitfalls, commands that work. Never a secret. One subject a note. Later sessions see its name and
        description, and read it with read_file.

        Args:
            action: write takes the place of an old note of that name.
            name: Lower-case words joined by hyphens, such as release-steps.
            description: What it holds and when it helps, on one line.
            text: The whole note, in Markdown.
        """
        if action == "remove":
            self._notes.remove(name, stop)
            return ToolOutput(f"Removed the note {name}.", summary=f"removed {name}")
        described = one_line(description)
        if not described or not text.strip():
            raise ToolFailure("A note needs a description (one line) and a text.", "Nothing was written; give both.")
        if len(text) > MAX_TEXT:
            raise ToolFailure(
                f"The note is too long: {len(text):,} characters, at most {MAX_TEXT:,}.",
                "Nothing was written; keep what matters, or make several notes.",
            )
        is_new = self._notes.write(name, described, text, stop, "" if self._trusted else UNTRUSTED)
        done = "Wrote" if is_new else "Replaced"
        where = shown(str(self._notes.file(name)))
        return ToolOutput(f"{done} the note {name}: {where}", summary=f"{done.lower()} {name}")


def one_line(text: str) -> str:
    """A description for the index: on one line, cut at `MAX_DESCRIPTION` characters."""
    flat = shown(" ".join(valid_text(text).split()), 10 * MAX_DESCRIPTION)
    return flat if len(flat) <= MAX_DESCRIPTION else f"{flat[: MAX_DESCRIPTION - 1]}…"


def _names(line: str) -> str:
    """The file that a line of the index links to; empty for any other line."""
    match = _LINE.fullmatch(line)
    return match["file"] if match else ""
