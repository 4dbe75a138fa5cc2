"""What the program knows of a provider, as one record: who serves models, how they are named, and how one is made.

Each package of `models/` has its record in `record.py`; `catalogue.PROVIDERS` lists them. Lists of models, questions
for a key, errors and the doctor read the record, so that no other table names a provider. Making a record imports no
SDK; `create` does so at first use.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tui_agent.models.base import LocalModels, Model, ModelProfile, OnHand, Pulled, Tier
from tui_agent.settings.schema import TierModels

NO_MODELS = TierModels(frontier="", mid="", small="")


def _not_signed_in() -> bool:
    return False


def _none_running(_local: LocalModels) -> Sequence[OnHand]:
    return ()


def _nothing_missing() -> str:
    return ""


@dataclass(frozen=True, kw_only=True)
class Provider:
    """Who serves models."""

    id: str
    """What stands before the colon in ``provider:model``."""
    title: str
    """What errors call it."""
    label: str
    """What lists to choose from call it."""
    create: Callable[[Provider, ModelProfile, LocalModels], Model] = field(compare=False)
    """The model behind a profile, given this record. Its SDK is imported when it is first asked."""
    profile: Callable[[str], ModelProfile] = field(compare=False)
    """What a model's id alone tells, tier and window left out."""

    keys: tuple[str, ...] = ()
    """Variables a key is read from, the one to name first; empty: it needs none."""
    keys_at: str = ""
    """The page keys are made at."""
    needs_key: bool = True
    """Whether nothing can be asked without one of `keys`."""
    signed_in: Callable[[], bool] = field(default=_not_signed_in, compare=False)
    """Whether there are credentials besides `keys`, on disk; asked where no key is set."""
    addresses: tuple[str, ...] = ()
    """Variables that name another address, for one kind of its models each; empty: there are none."""

    setting: str = ""
    """The setting that has its address, where no variable does."""

    models: TierModels = NO_MODELS
    """Its model of each tier."""
    suggested: tuple[str, ...] = ()
    """Names to offer where one is not known, as a user types them."""
    families: tuple[str, ...] = ()
    """How ids begin (before a hyphen) that need no provider before them."""
    aliases: tuple[str, ...] = ()
    """Other names for `id`."""
    tiers: Mapping[Tier, Sequence[str]] = field(default_factory=dict)
    """Tier by a part of the id (``*`` and ``[…]`` as in file names)."""
    free_names: bool = False
    """Whether an id may hold what separates the parts of an address (``hf.co/user/model:Q4``)."""
    catalogue: str = ""
    """What the price catalogue calls it; empty: it is not there."""
    listed: re.Pattern[str] | None = None
    """Which of the catalogue's models hold a conversation with tools, by the beginning of their ids."""
    running: Callable[[LocalModels], Sequence[OnHand]] = field(default=_none_running, compare=False)
    """The models it has now, where it can tell at once; may block for some seconds."""
    pull: Callable[[str, LocalModels], AsyncGenerator[Pulled, None]] | None = field(default=None, compare=False)
    """Has it download a model by its id, with_state how far it is. Raises `ModelError`."""

    package: str = ""
    """The package its models are asked through; empty: none of its own."""
    missing: Callable[[], str] = field(default=_nothing_missing, compare=False)
    """What has to be installed first, as one sentence; empty: nothing."""

    @property
    def default_model(self) -> str:
        """The name of the model to begin with; empty: there is none."""
        return f"{self.id}:{self.models.mid}" if self.models.mid else ""

    @property
    def where(self) -> str:
        """What to check where its address may be wrong: variables, or a setting."""
        return " or ".join(self.addresses) or self.setting

    @property
    def key(self) -> str:
        """The variable to set for a key; empty: it needs none."""
        return self.keys[0] if self.keys else ""

    def has_key(self) -> bool:
        """Whether there is a key, or it needs none."""
        return not self.needs_key or not self.keys or any(map(os.environ.get, self.keys)) or self.signed_in()
