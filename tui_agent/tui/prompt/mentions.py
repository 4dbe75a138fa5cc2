"""`@path` mentions in a prompt: completing them, and reading the pictures that a text mentions."""

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tui_agent.regex import regex
from tui_agent.text import expanded
from tui_agent.tui.prompt.completion import Completion, CompletionItem
from tui_agent.tui.prompt.pictures import CHIP, is_encoded, kept

if TYPE_CHECKING:
    from tui_agent.agent.turn.pictures import Pictures
    from tui_agent.tui.prompt.file_index import FileIndex

PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")

_BEING_WRITTEN: Final = regex(r"(?:^|(?<=[\s(\[{,;:]))@(?:\"([^\"]*)|([^\s\"]*))$")
_MAX_PATH: Final = 4_096
MOST_LOOKED_UP: Final = 20
"""The most mentions of one text that are checked on disk."""
_MAX_DROPPED: Final = 8 * _MAX_PATH


class Mention(msgspec.Struct, frozen=True):
    """The mention before the cursor: the character position of its ``@``, and the part of its path typed so far."""

    start: int
    typed: str


class ProjectFiles:
    """The project's files, for mentions in the prompt. They are listed at the first mention."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: FileIndex | None = None

    def wanted(self, before_cursor: str) -> bool:
        return mention_before(before_cursor) is not None

    async def complete(self, before_cursor: str) -> Completion | None:
        """Completions of the mention before the cursor, best first."""
        mention = mention_before(before_cursor)
        if mention is None:
            return None
        if self._index is None:
            from tui_agent.tui.prompt.file_index import FileIndex

            self._index = FileIndex(self._folder)
        paths = await self._index.search(mention.typed)
        return Completion(mention.start, tuple(CompletionItem(_following(path), path, final=False) for path in paths))

    def dropped(self, text: str) -> str:
        """If a pasted text is paths of pictures in the project: mentions of them; else empty."""
        return mentions_of(dropped_files(text), self._folder)

    def holds_pictures(self, text: str) -> bool:
        """Whether a pasted text is nothing but pictures: paths of pictures, or one in base64."""
        return bool(dropped_files(text)) or is_encoded(text)

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()


def mention_before(text: str) -> Mention | None:
    """The mention at the end of `text`, a line up to the cursor; None if there is none."""
    found = _BEING_WRITTEN.search(text[-_MAX_PATH:])
    if found is None:
        return None
    return Mention(max(0, len(text) - _MAX_PATH) + found.start(), found[1] if found[1] is not None else found[2])


def as_mention(path: str) -> str:
    """The mention of a path, quoted if necessary."""
    return f'@"{path}"' if re.search(r"[\s,;]", path) else f"@{path}"


def mentioned(text: str) -> list[str]:
    from tui_agent.agent.turn.pictures import mentions_in

    return [name for _, name in mentions_in(text)]


def missing_files(text: str, folder: Path) -> list[str]:
    """The mentioned files that do not exist. Reads the disk.

    Only names with a suffix count: ``@name`` alone may be a person. Pictures are left out: reading them reports it.
    """
    named = [name for name in dict.fromkeys(mentioned(text)) if ":" not in name][:MOST_LOOKED_UP]
    files = [name for name in named if Path(name).suffix and not name.lower().endswith(PICTURES)]
    return [name for name in files if not _is_there(folder, name)]


def dropped_files(text: str) -> tuple[Path, ...]:
    """The pictures, if a pasted text is nothing but their paths: that is what terminals paste for dragged files."""
    if len(text) > _MAX_DROPPED:
        return ()
    paths = _paths(text.strip())
    are_pictures = all(
        path.suffix.lower() in PICTURES and path.is_absolute() and str(path).isprintable() for path in paths
    )
    try:
        return paths if are_pictures and all(path.is_file() for path in paths) else ()
    except OSError:
        return ()


def mentions_of(paths: tuple[Path, ...], folder: Path) -> str:
    """Mentions of these files if all are in the project; else empty."""
    if not all(path.is_relative_to(folder) and '"' not in str(path) for path in paths):
        return ""
    return " ".join(as_mention(str(path.relative_to(folder))) for path in paths)


def read_pictures(text: str, folder: Path, session_folder: Path | None = None) -> "Pictures":
    """Read the pictures that a text mentions or has chips of, in their order, scaled and ready to send.

    Slow, it reads and writes files: call it in a thread.
    """
    from tui_agent.agent.turn.pictures import mentioned_pictures
    from tui_agent.agent.turn.pictures import read_pictures as read

    found = mentioned_pictures(text, folder)
    if session_folder is not None:
        found += [(chip.start(), chip.group(), partial(kept, chip, session_folder)) for chip in CHIP.finditer(text)]
    return read({name: reader for _, name, reader in sorted(found, key=lambda each: each[0])}, session_folder)


def names_pictures(text: str) -> bool:
    """Whether `read_pictures` would find any."""
    if "@" not in text:
        return bool(CHIP.search(text))
    return bool(CHIP.search(text)) or any(name.lower().endswith(PICTURES) for name in mentioned(text))


def _following(path: str) -> str:
    """The text to insert for a completed path: a file is followed by a space, a folder can be continued."""
    written = as_mention(path)
    if path.endswith("/"):
        return written.removesuffix('"')
    return f"{written} "


def _paths(text: str) -> tuple[Path, ...]:
    """One or more paths as terminals paste them: plain, quoted, escaped with backslashes, or as ``file:`` URLs."""
    import shlex
    from urllib.parse import unquote, urlsplit

    if "\n" not in text and Path(text).suffix.lower() in PICTURES and _is_file(text):
        return (Path(text),)
    try:
        words = shlex.split(text)
        return tuple(Path(unquote(urlsplit(word).path) if word.startswith("file://") else word) for word in words)
    except ValueError:
        return ()


def _is_there(folder: Path, name: str) -> bool:
    try:
        return (folder / expanded(name)).exists()
    except (OSError, ValueError):
        return True


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
