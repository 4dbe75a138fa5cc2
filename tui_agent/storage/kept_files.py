"""Saves the contents of files before tools change them; the log refers to them by SHA-256.

A content is complete and synced before the entry that refers to it. Before a command runs, the files it might change
are copied to an unnamed temporary file, the *stash*, which the system removes however the program ends.
"""

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import wraps
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import IO, Final, ParamSpec

from tui_agent.storage.errors import explained
from tui_agent.system.durable import PRIVATE_FOLDER, make_private_folder, write_file

Parameters = ParamSpec("Parameters")

KEPT_FOLDER: Final = "files"
NO_ROOM: Final = "there was no room left to keep it"
GONE: Final = "its copy is gone"
DIGEST_LENGTH: Final = 64
"""Characters of a SHA-256 in hex."""


def kept_path(digest: str) -> str:
    """The path of a saved content, relative to the session's folder."""
    return f"{KEPT_FOLDER}/{digest[:2]}/{digest[2:]}"


def _failure_as_reason(keeps: Callable[Parameters, str]) -> Callable[Parameters, str]:
    """Return an OSError as the reason why something was not saved, instead of raising it."""

    @wraps(keeps)
    def keeping(*args: Parameters.args, **kwargs: Parameters.kwargs) -> str:
        try:
            return keeps(*args, **kwargs)
        except OSError as error:
            return f"it could not be kept ({error.strerror or error})"

    return keeping


class KeptFiles:
    """The saved contents of the session in `folder`, at most `max_bytes` in total. Every call may access the disk.

    The methods that save return why they could not, in a few words, or an empty string: the change goes on either way.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._session = folder
        self._folder = folder / KEPT_FOLDER
        self._max_bytes = max_bytes
        self._digests: set[str] | None = None
        self._kept_bytes = 0
        self._stash: IO[bytes] | None = None
        self._stashed: dict[str, tuple[int, int]] = {}
        """The size and the offset of each content in the stash, in bytes."""
        self._stashed_bytes = 0
        self._lock = Lock()

    @_failure_as_reason
    def keep(self, content: bytes) -> str:
        """Save a content permanently."""
        with self._lock:
            return self._keep(content, sha256(content).hexdigest())

    @_failure_as_reason
    def stash(self, content: bytes, digest: str) -> str:
        """Copy a content to the stash, in case it is needed."""
        with self._lock:
            if digest in self._kept_digests() or digest in self._stashed:
                return ""
            if not self._has_room(len(content)):
                return NO_ROOM
            if self._stash is None:
                make_private_folder(self._session)
                self._stash = TemporaryFile(dir=self._session, buffering=0)  # noqa: SIM115 - it lives as long as this
            if os.pwrite(self._stash.fileno(), content, self._stashed_bytes) < len(content):
                return NO_ROOM
            self._stashed[digest] = len(content), self._stashed_bytes
            self._stashed_bytes += len(content)
            return ""

    @_failure_as_reason
    def keep_stashed(self, digest: str) -> str:
        """Save a stashed content permanently."""
        with self._lock:
            if digest in self._kept_digests():
                return ""
            place = self._stashed.get(digest)
            if place is None or self._stash is None:
                return GONE
            content = os.pread(self._stash.fileno(), *place)
            return self._keep(content, digest) if sha256(content).hexdigest() == digest else GONE

    def read(self, digest: str) -> bytes | None:
        """A saved content; None if it is gone or has changed."""
        try:
            content = self._path(digest).read_bytes()
        except OSError:
            return None
        return content if sha256(content).hexdigest() == digest else None

    def remove_unreferenced(self, needed: Collection[str]) -> None:
        """Remove contents that are not `needed`, left by an earlier run that was killed. Raises `StorageError`."""
        with self._lock, explained(self._folder):
            if not self._folder.exists():
                return
            for path in self._folder.glob("*/*"):
                if self._digest(path) not in needed:
                    path.unlink(missing_ok=True)
            for folder in (*self._folder.iterdir(), self._folder):
                with suppress(OSError):
                    folder.rmdir()
            self._digests = None

    def close(self) -> None:
        with self._lock:
            if self._stash is not None:
                self._stash.close()
            self._stash = None
            self._stashed.clear()

    def _keep(self, content: bytes, digest: str) -> str:
        known = self._kept_digests()
        if digest not in known:
            # A stashed content has already been counted.
            if digest not in self._stashed and not self._has_room(len(content)):
                return NO_ROOM
            make_private_folder(self._folder)
            path = self._path(digest)
            with suppress(FileExistsError):
                path.parent.mkdir(PRIVATE_FOLDER)
            write_file(path, content, durable=False)
            # One sync, for the file and its new name: this happens while a command's result is awaited, and `read`
            # checks the content.
            with path.open("rb") as file:
                os.fsync(file.fileno())
            known.add(digest)
            self._kept_bytes += len(content)
        return ""

    def _kept_digests(self) -> set[str]:
        if self._digests is None:
            self._digests, self._kept_bytes = set(), 0
            for path in self._folder.glob("*/*"):
                if len(digest := self._digest(path)) == DIGEST_LENGTH:
                    self._digests.add(digest)
                    self._kept_bytes += path.stat().st_size
        return self._digests

    def _has_room(self, size: int) -> bool:
        return self._kept_bytes + self._stashed_bytes + size <= self._max_bytes

    def _path(self, digest: str) -> Path:
        return self._session / kept_path(digest)

    @staticmethod
    def _digest(path: Path) -> str:
        return f"{path.parent.name}{path.name}"
