"""A probe of one setting: the real thing is built under two values of it, and something it does must differ."""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tui_agent.settings import GivenValue, Settings, load_settings
from tui_agent.settings.sources import Overrides

Observe: TypeAlias = Callable[[Settings, Path], Awaitable[object] | object]
"""Builds the real thing in a folder of its own; what it answers depends on the settings alone."""


class Probe(NamedTuple):
    """Another value than the default, what shows the difference, and the settings it takes for that."""

    changed: GivenValue
    observe: Observe
    given: Mapping[str, GivenValue] = {}

    async def seen(self, folder: Path, **changed: GivenValue) -> object:
        """What is observed in the empty `folder`, with `changed` on top of the given settings."""
        overrides: Overrides = dict(self.given) | changed
        loaded = load_settings(folder / "home", None, overrides=overrides)
        found = self.observe(loaded, folder)
        return await found if isawaitable(found) else found
