"""The record of a provider: its names and models, where its key and address come from, and how to create a model.

`records.py` has them all. Model lists, questions for keys, errors and the doctor read these records; no other table
names a provider. Records import no SDK; models do, on first use.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

import msgspec

from tui_agent.conversation.profile import ModelProfile, Tier
from tui_agent.models.base import InstalledModel, LocalModels, Model, PullProgress
from tui_agent.settings.schema import TierModels

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
