"""`@path` in a prompt: where one is being written, what it may become, and which pictures a text names."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tui_agent.conversation.blocks import Image
from tui_agent.tools.base import ToolFailure
from tui_agent.tui.completion import Choice, Completion

if TYPE_CHECKING:
    from tui_agent.tui.file_index import FileIndex

MAX_PICTURES: Final = 8
"""Pictures of one message; each is bounded by what `read_file` shows."""

PICTURES: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")

_BEING_WRITTEN: Final = re.compile(r"(?:^|(?<=[\s(\[{,;:]))@(?:\"([^\"]*)|([^\s\"]*))$")
_MENTION: Final = re.compile(r"(?:^|(?<=[\s(\[{,;:]))@(?:\"([^\"\n]+)\"|([^\s\"]+))")
_MAX_PATH: Final = 4_096


class Mention(NamedTuple):
    """The mention before the cursor: the character it starts at, its ``@``, and what stands of its path."""

    start: int
    typed: str


class Pictures(NamedTuple):
    """The pictures a text names, and a sentence for each that cannot be sent."""

    images: tuple[Image, ...] = ()
    problems: tuple[str, ...] = ()


class ProjectFiles:
    """What a prompt may mention of the project in `folder`. The files are listed at the first mention."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._index: FileIndex | None = None

    def wanted(self, before_cursor: str) -> bool:
        """Whether a path is being written."""
        return mention_before(before_cursor) is not None

    async def complete(self, before_cursor: str) -> Completion | None:
        """The files and folders that may be meant, the best first."""
        mention = mention_before(before_cursor)
        if mention is None:
            return None
        if self._index is None:
            from tui_agent.tui.file_index import FileIndex

            self._index = FileIndex(self._folder)
        paths = await self._index.search(mention.typed)
        return Completion(mention.start, tuple(Choice(_following(path), path, final=False) for path in paths))

    def dropped(self, text: str) -> str:
        """The mention of a picture whose path was pasted, as terminals do when a file is dragged in."""
        return picture_pasted(text, self._folder)

    async def close(self) -> None:
        """Stop a listing that runs."""
        if self._index is not None:
            await self._index.close()


def mention_before(text: str) -> Mention | None:
    """The mention that `text`, a line up to the cursor, ends with."""
    found = _BEING_WRITTEN.search(text[-_MAX_PATH:])
    if found is None:
        return None
    return Mention(max(0, len(text) - _MAX_PATH) + found.start(), found[1] if found[1] is not None else found[2])


def as_mention(path: str) -> str:
    """The path as it is written in a prompt."""
    return f'@"{path}"' if re.search(r"[\s,;]", path) else f"@{path}"


def mentioned(text: str) -> list[str]:
    """The paths that a text mentions."""
    return [found[1] or found[2].rstrip(".,;:!?)]}'") for found in _MENTION.finditer(text)]


def picture_pasted(text: str, folder: Path) -> str:
    """The mention of a picture whose path was pasted, as terminals do when a file is dragged in; empty: it is none."""
    if len(text) > _MAX_PATH or "\n" in text.strip():
        return ""
    path = _dropped_path(text.strip())
    if path is None or path.suffix.lower() not in PICTURES or not path.is_absolute() or not path.is_file():
        return ""
    if not str(path).isprintable() or '"' in str(path):
        return ""
    inside = path.is_relative_to(folder)
    return as_mention(str(path.relative_to(folder) if inside else path))


def read_pictures(text: str, folder: Path) -> Pictures:
    """The pictures that a text mentions. Reads files: call it in a thread."""
    images: list[Image] = []
    problems: list[str] = []
    names = [name for name in dict.fromkeys(mentioned(text)) if name.lower().endswith(PICTURES)]
    for name in names[:MAX_PICTURES]:
        try:
            images.append(_picture(folder / Path(name).expanduser()))
        except (OSError, RuntimeError, ValueError, ToolFailure) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            problems.append(f"{name}: {reason}")
    if len(names) > MAX_PICTURES:
        problems.append(f"only the first {MAX_PICTURES} of {len(names)} pictures are sent")
    return Pictures(tuple(images), tuple(problems))


def _picture(path: Path) -> Image:
    import base64

    from tui_agent.tools.encodings import HEAD, sniff
    from tui_agent.tools.files import MAX_IMAGE_BYTES

    if not path.is_file():
        raise ToolFailure("there is no such file")
    with path.open("rb") as file:
        data = file.read(MAX_IMAGE_BYTES + 1)
    if len(data) > MAX_IMAGE_BYTES:
        raise ToolFailure(f"it is too large to be sent (at most {MAX_IMAGE_BYTES / 1024**2:.2f} MiB); scale it down")
    kind = sniff(data[:HEAD], whole=len(data) <= HEAD)
    if not kind.is_image:
        raise ToolFailure("it is no picture of a kind that can be sent (PNG, JPEG, GIF, WebP)")
    return Image(kind.media, base64.b64encode(data).decode())


def _following(path: str) -> str:
    """What stands in the prompt when a path is taken: after a folder more may follow, after a file a new word."""
    written = as_mention(path)
    if path.endswith("/"):
        return written.removesuffix('"')
    return f"{written} "


def _dropped_path(text: str) -> Path | None:
    """A path as terminals paste it: plain, quoted, with backslashes, or as a ``file:`` address."""
    import shlex
    from urllib.parse import unquote, urlsplit

    if text.startswith("file://"):
        return Path(unquote(urlsplit(text).path))
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if len(words) == 1:
        return Path(words[0])
    return Path(text) if text.startswith("/") else None
