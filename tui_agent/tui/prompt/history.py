"""The history of texts the user sent, across sessions."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from tui_agent.system.durable import write_file

MAX_ENTRIES: Final = 1_000
"""Entries read from the file; at twice as many it is rewritten."""

MAX_SAVED_CHARACTERS: Final = 250_000
"""For longer texts the file gets the text with its pastes as chips."""

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""Bytes read from the end of the file; at twice as many it is rewritten."""


class PromptHistory:
    """Texts in the order they were sent, and the user's position while they step through them.

    The file has one JSON string on each line and is readable by the user alone; several processes may append to it. If
    it cannot be read or written, the history lives in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries: list[str] | None = None
        self._place: int | None = None
        self._draft = ""

    def add(self, text: str, *, saved: str | None = None) -> None:
        """Append a sent text; the file gets `saved` in its place, unless that is too long."""
        entries = self._loaded()
        self.reset()
        if not text.strip() or (entries and entries[-1] == text):
            return
        entries.append(text)
        whole = text if saved is None else saved
        self._save(whole if len(whole) <= MAX_SAVED_CHARACTERS else text[:MAX_SAVED_CHARACTERS])

    def older(self, current: str) -> str | None:
        """The next older text that starts with what the prompt held before the first step back; None: there is none."""
        entries = self._loaded()
        if self._place is None:
            self._draft = current
        start = len(entries) if self._place is None else self._place
        for place in range(start - 1, -1, -1):
            if entries[place].startswith(self._draft) and entries[place] != current:
                self._place = place
                return entries[place]
        return None

    def newer(self, current: str) -> str | None:
        """The next newer text, finally what the prompt held before the first step back; None if not stepping back."""
        if self._place is None:
            return None
        entries = self._loaded()
        for place in range(self._place + 1, len(entries)):
            if entries[place].startswith(self._draft) and entries[place] != current:
                self._place = place
                return entries[place]
        draft = self._draft
        self.reset()
        return draft

    def newest_first(self) -> tuple[str, ...]:
        """All sent texts without duplicates, newest first."""
        return tuple(dict.fromkeys(reversed(self._loaded())))

    def reset(self) -> None:
        """Forget the position: the next step back starts at the newest text."""
        self._place = None
        self._draft = ""

    def _loaded(self) -> list[str]:
        if self._entries is None:
            self._entries = _read(self._path) if self._path is not None else []
            if self._path is not None and (len(self._entries) > 2 * MAX_ENTRIES or _is_too_large(self._path)):
                self._entries = self._entries[-MAX_ENTRIES:]
                with suppress(OSError):
                    write_file(self._path, b"".join(map(_line, self._entries)), durable=False)
        return self._entries

    def _save(self, text: str) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
                file.write(_line(text))
        except OSError:
            self._path = None


def _read(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_FILE_BYTES))
            lines = file.read(MAX_FILE_BYTES).splitlines()
    except OSError:
        return []
    return [text for line in lines if (text := _parsed(line)) is not None]


def _is_too_large(path: Path) -> bool:
    try:
        return path.stat().st_size > 2 * MAX_FILE_BYTES
    except OSError:
        return False


def _parsed(line: bytes) -> str | None:
    """The text of one line of the file; None if the line is truncated or damaged."""
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None


def _line(text: str) -> bytes:
    return json.dumps(text).encode() + b"\n"
