"""The record of a provider: its names and models, where its key and address come from, and how to create a model; and
what was learned of its servers from their refusals, kept in files of the home folder for the next processes.

`records.py` has all records. Model lists, questions for keys, errors and the doctor read these records; no other table
names a provider. Records import no SDK; models do, on first use.

Learned is, for example, reasoning whose signature a provider has refused: neither that request nor a later one can be
sent with it, so digests of it are kept, by provider, address and model. The log keeps the reasoning itself; delete
`refused-reasoning.json` to have it sent again.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from tui_agent.conversation.profile import ModelProfile, Tier
from tui_agent.models.base import InstalledModel, LocalModels, Model, PullProgress
from tui_agent.settings.schema import TierModels
from tui_agent.settings.sources import home_folder
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded_file

NO_MODELS = TierModels(frontier="", mid="", small="")


class Provider(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A service, or a program on the user's machine, that serves models."""

    id: str
    """The part before the colon in ``provider:model``."""
    title: str
    """Its name in errors."""
    label: str
    """Its name in lists."""
    create: Callable[[Provider, ModelProfile, LocalModels], Model]
    """Creates a model from this record and a profile. The model imports its SDK on first use."""
    profile: Callable[[str], ModelProfile]
    """The profile for a model id, as far as the id alone tells; without tier and window."""

    keys: tuple[str, ...] = ()
    """The environment variables for its key; messages name the first. Empty: it needs no key."""
    keys_page: str = ""
    """The web page where users create keys."""
    needs_key: bool = True
    """Whether requests need one of `keys`."""
    signed_in: Callable[[], bool] = lambda: False
    """Whether there are other credentials than `keys`, such as on disk. Called if no key is set."""
    addresses: tuple[str, ...] = ()
    """The environment variables that override its address, one for each kind of its models."""

    setting: str = ""
    """The setting with its address, if there is no variable for it."""

    models: TierModels = NO_MODELS
    """Its model of each tier."""
    suggested: tuple[str, ...] = ()
    """Names to suggest for an unknown one, in the form users type."""
    families: tuple[str, ...] = ()
    """Prefixes of ids (without the hyphen) that identify this provider, so that users need not name it."""
    aliases: tuple[str, ...] = ()
    """Other names for `id`."""
    tiers: Mapping[Tier, Sequence[str]] = msgspec.field(default_factory=dict)
    """Patterns for a part of the id (``*`` and ``[…]`` as in file names), by tier."""
    free_names: bool = False
    """Whether ids may contain the separators of a URL (``hf.co/user/model:Q4``)."""
    catalogue: str = ""
    """Its id in the price catalogue; empty: it is not listed."""
    listed: re.Pattern[str] | None = None
    """Matches the ids of the catalogue's models that can chat with tools."""
    installed: Callable[[LocalModels], Sequence[InstalledModel]] = lambda _local: ()
    """The models installed on its local server, if it answers at once; may block for some seconds."""
    pull: Callable[[str, LocalModels], AsyncGenerator[PullProgress, None]] | None = None
    """Downloads a model by its id, yielding the progress. Raises `ModelError`."""

    package: str = ""
    """The Python package of its SDK; empty: it has none."""
    missing: Callable[[], str] = lambda: ""
    """One sentence on what must be installed first; empty: nothing."""

    @property
    def where(self) -> str:
        """The variables or the setting with its address, for messages that say what to check."""
        return " or ".join(self.addresses) or self.setting

    @property
    def key(self) -> str:
        """The variable to set to its key; empty: it needs none."""
        return self.keys[0] if self.keys else ""

    def has_key(self) -> bool:
        """Whether there is a key, or it needs none."""
        return not self.needs_key or self.has_credentials()

    def has_credentials(self) -> bool:
        """Whether there is a key or a sign-in, or none exists for it."""
        return not self.keys or any(map(os.environ.get, self.keys)) or self.signed_in()


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
