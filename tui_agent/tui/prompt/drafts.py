"""Unsent text of the prompt, kept on disk so that it survives any end of the program."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import time
from typing import Final, NamedTuple

import msgspec

from tui_agent.storage.errors import StorageError
from tui_agent.storage.session_lock import SessionLock
from tui_agent.system.durable import make_private_folder, write_file

MAX_CHARACTERS: Final = 4_000_000
"""The longest draft that is saved whole; in a longer one, pastes are reduced to their chips."""
KEPT_S: Final = 30 * 86_400.0
"""Seconds after which a draft that nobody came back to is deleted."""
_NAME: Final = "draft.json"


class PromptDraft(NamedTuple):
    """An unsent text. folder: the working folder. session: the session's id; empty before a session was open."""

    folder: str
    session: str
    text: str


class ReturnedDrafts(NamedTuple):
    """What ended processes have left: of this session, as one text, and of others in this folder, oldest first."""

    text: str
    others: tuple[str, ...]


class _Left(msgspec.Struct, frozen=True):
    draft: PromptDraft
    written_at: float
    place: Path
    lock: SessionLock


class Drafts:
    """The draft of this process, and those that ended processes have left.

    Each process has a folder below `home`, locked while it runs. Errors of the disk are ignored: they must not keep the
    user from typing.
    """

    def __init__(self, home: Path, folder: Path) -> None:
        self._home = home / "drafts"
        self._folder = str(folder)
        self.session = ""
        self._text = ""
        self._written = PromptDraft("", "", "")
        self._place: Path | None = None
        self._lock: SessionLock | None = None
        self._turn = Lock()

    def hold(self, text: str) -> None:
        """Set the draft that the next `write` saves."""
        self._text = text if text.strip() else ""

    def write(self) -> None:
        """Save the draft, or delete the file if the draft is empty. Callable from any thread."""
        with self._turn, suppress(OSError, StorageError):
            draft = PromptDraft(self._folder, self.session, self._text)
            if draft.text == self._written.text and (not draft.text or draft == self._written):
                return
            if draft.text:
                # Not synced: that would only help after a power cut, and costs too much here.
                write_file(self._own() / _NAME, json.dumps(draft._asdict()).encode(), durable=False)
            elif self._place is not None:
                (self._place / _NAME).unlink(missing_ok=True)
            self._written = draft

    def bring_back(self) -> ReturnedDrafts:
        """Take the drafts left in this folder or session. Those of the session become this process's draft."""
        found: list[_Left] = []
        with suppress(OSError):
            for place in self._home.iterdir():
                with suppress(OSError, StorageError):
                    found += self._left_in(place)
        found.sort(key=lambda left: left.written_at)
        text = "\n".join(left.draft.text for left in found if self._is_of_session(left.draft))
        if text:
            self.hold("\n".join(filter(None, (text, self._text))))
            self.write()
        for left in found:
            shutil.rmtree(left.place, ignore_errors=True)
            left.lock.release()
        return ReturnedDrafts(text, tuple(left.draft.text for left in found if not self._is_of_session(left.draft)))

    def close(self) -> None:
        """Release the lock, and delete the folder unless it holds an unsent text."""
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

    def _is_of_session(self, draft: PromptDraft) -> bool:
        return "" != draft.session == self.session

    def _left_in(self, place: Path) -> "list[_Left]":
        if SessionLock.is_held(place):
            return []
        # Raises if another process takes it over at the same time.
        lock = SessionLock.acquire(place)
        is_ours = False
        try:
            draft = _read(place / _NAME)
            if draft is None or (written_at := (place / _NAME).stat().st_mtime) < time() - KEPT_S:
                shutil.rmtree(place, ignore_errors=True)
            elif is_ours := draft.folder == self._folder or self._is_of_session(draft):
                return [_Left(draft, written_at, place, lock)]
        finally:
            if not is_ours:
                lock.release()
        return []


def _read(path: Path) -> PromptDraft | None:
    """The draft in a file; None if there is none or it cannot be read."""
    try:
        found = json.loads(path.read_bytes())
        draft = PromptDraft(**found) if isinstance(found, dict) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return draft if draft is not None and all(isinstance(each, str) for each in draft) else None
