"""The files of a session that entries refer to: full tool results, summarised turns, raw command output.

A file is complete and synced before its path is returned. It never changes afterwards: the entry that refers to it
contains its SHA-256.
"""

import asyncio
import re
from hashlib import sha256
from pathlib import Path
from typing import Final

from tui_agent.conversation.blocks import valid_text
from tui_agent.conversation.entries import Artifact
from tui_agent.regex import regex
from tui_agent.storage.errors import Damaged, explained
from tui_agent.system.durable import append_to_file, make_private_folder, threaded, to_completion, write_file

RESULTS_FOLDER: Final = "large_tool_results"
HISTORY_FOLDER: Final = "conversation_history"
RAW_FOLDER: Final = "raw"

_NAME_LENGTH = 80
_UNSAFE = regex(r"[^A-Za-z0-9_-]+")
_RESERVED = regex(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)


def safe_name(text: str) -> str:
    """A file name for `text` that is valid on every file system; different texts give different names."""
    name = _UNSAFE.sub("_", text).strip("_")[:_NAME_LENGTH]
    if name and name == text and not _RESERVED.fullmatch(name):
        return name
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name}-{digest}" if name else digest


class Artifacts:
    """The files of the session in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._turn = asyncio.Lock()

    async def save(self, name: str, text: str, *, evicted: bool = False) -> Artifact:
        """Save `text` as ``large_tool_results/<name>``, or reuse the file that already has the same text.

        Raises `StorageError`.
        """
        async with self._turn:
            return await to_completion(asyncio.to_thread(self._save, name, text, evicted))

    async def append_history(self, thread: str, text: str) -> str:
        """Append `text` to the history of this name; returns its path in the folder. Raises `StorageError`."""
        async with self._turn:
            return await to_completion(asyncio.to_thread(self._append_history, thread, valid_text(text).encode()))

    @threaded
    def read(self, artifact: Artifact) -> str:
        """The full text. Raises `StorageError` if the file is gone or has changed."""
        return self.read_now(artifact)

    def read_now(self, artifact: Artifact) -> str:
        """The same, without a thread."""
        path = self.path_of(artifact)
        with explained(path):
            data = path.read_bytes()
        if sha256(data).hexdigest() != artifact.sha256:
            raise Damaged(f"{path} is no longer what was saved: its SHA-256 differs.")
        return data.decode()

    def path_of(self, artifact: Artifact) -> Path:
        """The absolute path of the file. Raises `Damaged` if it is outside of the session's folder."""
        path = (self.folder / artifact.path).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise Damaged(f"The saved file {artifact.path!r} does not lie in its session's folder.")
        return path

    def _save(self, name: str, text: str, evicted: bool) -> Artifact:
        data = valid_text(text).encode()
        folder = self._folder(RESULTS_FOLDER)
        digest = sha256(data).hexdigest()
        with explained(folder):
            path = next((each for each in sorted(folder.iterdir()) if _holds(each, data)), None)
            if path is None:
                path = folder / safe_name(name)
                if path.exists():
                    path = folder / f"{path.name}-{digest[:16]}"
                write_file(path, data)
        return Artifact(path.relative_to(self.folder).as_posix(), len(data), digest, evicted)

    def _append_history(self, thread: str, data: bytes) -> str:
        path = self._folder(HISTORY_FOLDER) / f"{safe_name(thread)}.md"
        with explained(path):
            append_to_file(path, data)
        return path.relative_to(self.folder).as_posix()

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        with explained(folder):
            make_private_folder(folder)
        return folder


def _holds(path: Path, data: bytes) -> bool:
    return path.suffix != ".tmp" and path.stat().st_size == len(data) and path.read_bytes() == data
