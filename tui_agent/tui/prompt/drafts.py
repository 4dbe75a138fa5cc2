"""What is written and not sent yet, on disk: it outlasts the program, however that ends."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import time
from typing import Final, NamedTuple

from tui_agent.durable import PRIVATE_FILE, make_private_folder
from tui_agent.storage.errors import StorageError
from tui_agent.storage.session_lock import SessionLock

MAX_CHARACTERS: Final = 4_000_000
"""Of a longer text what was pasted is left out."""
KEPT_S: Final = 30 * 86_400.0
"""Seconds for which a draft waits until its folder is worked in again."""
_NAME: Final = "draft.json"


class Draft(NamedTuple):
    """A text, and where it was written: the working folder, and the session's id, empty before there was one."""

    folder: str
    session: str
    text: str


class _Left(NamedTuple):
    text: str
    written_at: float
    place: Path
    lock: SessionLock


class Drafts:
    """The draft of this process, in a folder of its own below `home`, which a lock says is in use; and those of
    processes that are gone. A disk that cannot be written to is no reason to keep anyone from typing.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home / "drafts"
        self._folder = str(folder)
        self.session = ""
        self._text = ""
        self._written = Draft("", "", "")
        self._place: Path | None = None
        self._lock: SessionLock | None = None
        self._turn = Lock()

    def hold(self, text: str) -> None:
        """Have this as the draft from the next `write` on."""
        self._text = text if text.strip() else ""

    def write(self) -> None:
        """Bring the draft to the disk; from any thread."""
        with self._turn, suppress(OSError, StorageError):
            draft = Draft(self._folder, self.session, self._text)
            if draft.text == self._written.text and (not draft.text or draft == self._written):
                return
            if draft.text:
                _replace(self._own() / _NAME, draft)
            elif self._place is not None:
                (self._place / _NAME).unlink(missing_ok=True)
            self._written = draft

    def bring_back(self) -> str:
        """What was written in this folder, or in this session, and never sent; it is the draft of this process from
        here on. Empty: nothing.
        """
        found: list[_Left] = []
        with suppress(OSError):
            for place in self._home.iterdir():
                with suppress(OSError, StorageError):
                    found += self._left_in(place)
        text = "\n".join(left.text for left in sorted(found, key=lambda left: left.written_at))
        if found:
            self.hold("\n".join(filter(None, (text, self._text))))
            self.write()
        for left in found:
            shutil.rmtree(left.place, ignore_errors=True)
            left.lock.release()
        return text

    def close(self) -> None:
        """Leave nothing behind but a text that was not sent."""
        with self._turn:
            if self._lock is not None:
                if self._place is not None and not self._written.text:
                    shutil.rmtree(self._place, ignore_errors=True)
                self._lock.release()
                self._lock = None

    def _own(self) -> Path:
        if self._place is None:
            place = self._home / f"{os.getpid()}-{os.urandom(4).hex()}"
            make_private_folder(place)
            self._lock = SessionLock.acquire(place)
            self._place = place
        return self._place

    def _left_in(self, place: Path) -> "list[_Left]":
        if place == self._place or SessionLock.is_held(place):
            return []
        # Of two programs that look at the same time one gets it.
        lock = SessionLock.acquire(place)
        is_meant = False
        try:
            draft = _read(place / _NAME)
            if draft is None or (written_at := (place / _NAME).stat().st_mtime) < time() - KEPT_S:
                shutil.rmtree(place, ignore_errors=True)
            elif is_meant := draft.folder == self._folder or "" != draft.session == self.session:
                return [_Left(draft.text, written_at, place, lock)]
        finally:
            if not is_meant:
                lock.release()
        return []


def _replace(path: Path, draft: Draft) -> None:
    """Have all of it there, or what was there before. Not synced: that is for power cuts, and costs too much here."""
    new = path.with_suffix(".new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE), "wb") as file:
        file.write(json.dumps(draft._asdict()).encode())
    new.replace(path)


def _read(path: Path) -> Draft | None:
    """The draft in a file; None where there is none that can be read."""
    try:
        found = json.loads(path.read_bytes())
        draft = Draft(**found) if isinstance(found, dict) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return draft if draft is not None and all(isinstance(each, str) for each in draft) else None
