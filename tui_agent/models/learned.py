"""What was learned of servers from their refusals, kept in files of the home folder for the next processes."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tui_agent.settings.sources import home_folder
from tui_agent.system.durable import make_private_folder, write_file

_entries = msgspec.json.Decoder(dict[str, list[str]])


class Learned(msgspec.Struct, frozen=True):
    """Words by key, such as a server's address and a model, in the file `name`; of at most `most` keys."""

    name: str
    most: int

    def of(self, key: str) -> Sequence[str]:
        """The words of a key. Reads a file."""
        return self._read().get(key, ())

    def keep(self, key: str, words: Sequence[str]) -> None:
        """Write the words of a key, the newest one; a failure only means that they have to be learned again."""
        kept: dict[str, Sequence[str]] = {**self._read()}
        kept.pop(key, None)
        kept[key] = words
        with suppress(OSError):
            make_private_folder(self._path.parent)
            write_file(self._path, msgspec.json.encode(dict(list(kept.items())[-self.most :])))

    def _read(self) -> dict[str, list[str]]:
        try:
            return _entries.decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}

    @property
    def _path(self) -> Path:
        return home_folder(os.environ) / self.name
