"""Remembers the reasoning whose signature a provider has refused.

Neither the request nor a later one can be sent with it, in this process or the next, so digests of it are kept in the
home folder, by provider, address and model. The log keeps the reasoning itself; delete `refused-reasoning.json` to have
it sent again.
"""

import os
from collections.abc import Iterable

from tui_agent.models.learned import Learned
from tui_agent.models.provider import Provider

_KNOWN = Learned("refused-reasoning.json", most=50)
MOST_KEPT = 5_000
"""The most refusals remembered for a model; the oldest are forgotten first, and would be refused once more."""


def load_refused(provider: Provider, model: str) -> frozenset[str]:
    """The digests of what this provider, at its current address, has refused of a model. Reads a file."""
    return frozenset(_KNOWN.of(_key(provider, model)))


def save_refused(provider: Provider, model: str, refused: Iterable[str]) -> None:
    """Add digests to a file."""
    before = _KNOWN.of(_key(provider, model))
    _KNOWN.keep(_key(provider, model), [*before, *sorted(set(refused) - set(before))][-MOST_KEPT:])


def _key(provider: Provider, model: str) -> str:
    address = next(filter(None, map(os.environ.get, provider.addresses)), "")
    return f"{provider.id} {address} {model}"
