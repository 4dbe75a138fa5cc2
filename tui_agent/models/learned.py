"""What was learned of servers from their refusals, kept in files of the home folder for the next processes.

Such as reasoning whose signature a provider has refused: neither that request nor a later one can be sent with it, so
digests of it are kept, by provider, address and model. The log keeps the reasoning itself; delete
`refused-reasoning.json` to have it sent again.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tui_agent.models.provider import Provider
from tui_agent.settings.sources import home_folder
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded_file


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
        return decoded_file(self._path, dict[str, list[str]]) or {}

    @property
    def _path(self) -> Path:
        return home_folder(os.environ) / self.name


_REFUSED = Learned("refused-reasoning.json", most=50)
MOST_KEPT = 5_000
"""The most refusals remembered for a model; the oldest are forgotten first, and would be refused once more."""


def load_refused(provider: Provider, model: str) -> frozenset[str]:
    """The digests of what this provider, at its current address, has refused of a model. Reads a file."""
    return frozenset(_REFUSED.of(_key(provider, model)))


def save_refused(provider: Provider, model: str, refused: Iterable[str]) -> None:
    """Add digests to a file."""
    before = _REFUSED.of(_key(provider, model))
    _REFUSED.keep(_key(provider, model), [*before, *sorted(set(refused) - set(before))][-MOST_KEPT:])


def _key(provider: Provider, model: str) -> str:
    address = next(filter(None, map(os.environ.get, provider.addresses)), "")
    return f"{provider.id} {address} {model}"
