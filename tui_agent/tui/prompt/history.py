"""What the user sent before, across sessions."""

import json
import os
from pathlib import Path
from typing import Final

MAX_ENTRIES: Final = 1_000
"""Entries read from the file; when it has grown to twice as many it is rewritten."""

MAX_SAVED_CHARACTERS: Final = 250_000
"""Of a longer text the file gets what was written, without what was pasted."""

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""Bytes read from the file, its newest; when it has grown to twice as many it is rewritten."""


class PromptHistory:
    """Texts in the order they were sent, and a place among them while the user looks back.

    The file holds one JSON string a line and is private to the user; several programs may append to it. A file that
    cannot be read or written is no reason to keep anyone from typing: the history then lasts as long as the program.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._entries: list[str] | None = None
        self._place: int | None = None
        self._draft = ""

    def add(self, text: str, *, saved: str | None = None) -> None:
        """Remember a text that was sent; `saved` is what the file gets instead of it, where that is not too long."""
        entries = self._loaded()
        self.reset()
        if not text.strip() or (entries and entries[-1] == text):
            return
        entries.append(text)
        whole = text if saved is None else saved
        self._save(whole if len(whole) <= MAX_SAVED_CHARACTERS else text[:MAX_SAVED_CHARACTERS])

    def older(self, current: str) -> str | None:
        """The nearest older text that starts with what was typed before looking back; None: there is none."""
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
        """The nearest newer text, at the end what was typed before looking back; None: not looking back."""
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
        """All that was sent, each text once."""
        return tuple(dict.fromkeys(reversed(self._loaded())))

    def reset(self) -> None:
        """Stop looking back."""
        self._place = None
        self._draft = ""

    def _loaded(self) -> list[str]:
        if self._entries is None:
            self._entries = _read(self._path) if self._path is not None else []
            if self._path is not None and (len(self._entries) > 2 * MAX_ENTRIES or _is_too_large(self._path)):
                self._entries = self._entries[-MAX_ENTRIES:]
                _rewrite(self._path, self._entries)
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
    """The text of one line; None for a line cut or damaged by whatever wrote it."""
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return text if isinstance(text, str) else None


def _rewrite(path: Path, entries: list[str]) -> None:
    shorter = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(shorter, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.writelines(map(_line, entries))
        shorter.replace(path)
    except OSError:
        shorter.unlink(missing_ok=True)


def _line(text: str) -> bytes:
    return json.dumps(text).encode() + b"\n"
