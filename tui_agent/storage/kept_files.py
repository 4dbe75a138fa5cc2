"""Contents of files as they were before a tool changed them, beside the log that names them by their SHA-256.

A content that an entry names is whole and synced before that entry. What a command might change is copied beforehand
without that, *stashed*: it goes again when the session is closed, unless an entry has come to name it.
"""

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from threading import Lock
from typing import Final

from tui_agent.durable import PRIVATE_FILE, make_private_folder, sync_folder, write_file
from tui_agent.storage.errors import explained

KEPT_FOLDER: Final = "files"
NO_ROOM: Final = "there was no room left to keep it"
DIGEST_LENGTH: Final = 64
"""Characters of a SHA-256 in hex."""


def kept_path(digest: str) -> str:
    """Where a content is kept, relative to the session's folder."""
    return f"{KEPT_FOLDER}/{digest[:2]}/{digest[2:]}"


class _Problem:
    why = ""


@contextmanager
def _told() -> Iterator[_Problem]:
    """Take what the operating system refuses for a reason."""
    problem = _Problem()
    try:
        yield problem
    except OSError as error:
        problem.why = f"it could not be kept ({error.strerror or error})"


class KeptFiles:
    """The kept contents of the session in `folder`, at most `max_bytes` of them. Every call may touch the disk.

    What keeps says why it did not, in a few words, and nothing where it did: a change goes on either way.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._session = folder
        self._folder = folder / KEPT_FOLDER
        self._max_bytes = max_bytes
        self._digests: set[str] | None = None
        self._total = 0
        self._unsynced: set[str] = set()
        self._one_at_a_time = Lock()

    def keep(self, content: bytes) -> str:
        """Keep a content for good."""
        digest = sha256(content).hexdigest()
        with self._one_at_a_time, _told() as problem:
            if digest in self._known():
                self._sync(digest)
            elif not self._has_room(len(content)):
                return NO_ROOM
            else:
                make_private_folder(self._path(digest).parent)
                write_file(self._path(digest), content)
                self._add(digest, len(content))
        return problem.why

    def stash(self, content: bytes, digest: str) -> str:
        """Copy a content that may be needed."""
        with self._one_at_a_time, _told() as problem:
            if digest in self._known():
                return ""
            if not self._has_room(len(content)):
                return NO_ROOM
            path = self._path(digest)
            make_private_folder(path.parent)
            temporary = path.with_name(f".{digest[:16]}.{token_hex(4)}.tmp")
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "wb") as file:
                file.write(content)
            temporary.replace(path)
            self._add(digest, len(content))
            self._unsynced.add(digest)
        return problem.why

    def keep_stashed(self, digest: str) -> str:
        """Keep for good what was stashed."""
        with self._one_at_a_time, _told() as problem:
            if digest not in self._known():
                return "its copy is gone"
            self._sync(digest)
        return problem.why

    def read(self, digest: str) -> bytes | None:
        """A kept content; None where it is gone, or no longer what was kept."""
        try:
            content = self._path(digest).read_bytes()
        except OSError:
            return None
        return content if sha256(content).hexdigest() == digest else None

    def forget_others(self, needed: Collection[str]) -> None:
        """Remove what nothing names, also what an earlier run of the program left. Raises `StorageError`."""
        with self._one_at_a_time, explained(self._folder):
            if not self._folder.exists():
                return
            for path in self._folder.glob("*/*"):
                if self._digest(path) not in needed:
                    path.unlink(missing_ok=True)
            for folder in self._folder.iterdir():
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                self._folder.rmdir()
            self._digests = None
            self._unsynced.clear()

    def _known(self) -> set[str]:
        if self._digests is None:
            self._digests, self._total = set(), 0
            for path in self._folder.glob("*/*"):
                if len(digest := self._digest(path)) == DIGEST_LENGTH:
                    self._add(digest, path.stat().st_size)
        return self._digests

    def _add(self, digest: str, size: int) -> None:
        if self._digests is not None:
            self._digests.add(digest)
        self._total += size

    def _has_room(self, size: int) -> bool:
        return self._total + size <= self._max_bytes

    def _sync(self, digest: str) -> None:
        if digest not in self._unsynced:
            return
        path = self._path(digest)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(path.parent)
        sync_folder(self._folder)
        self._unsynced.discard(digest)

    def _path(self, digest: str) -> Path:
        return self._session / kept_path(digest)

    @staticmethod
    def _digest(path: Path) -> str:
        return f"{path.parent.name}{path.name}"
