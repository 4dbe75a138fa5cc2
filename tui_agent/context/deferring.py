"""Which tools of servers the model is told of from the beginning, and what the others would cost.

A definition stands at the very front of every request, so a set that changes in mid-session would cost the whole
cache. A small set is told whole; of a larger one the model looks up what it needs, and nothing in front changes.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from tui_agent.context.counting import estimate
from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.conversation.sizes import size_of_tools


class Arranged(NamedTuple):
    """Definitions in their order; `tokens` of those that are told, and `deferred` of those that are not."""

    definitions: tuple[ToolDefinition, ...]
    tokens: int
    deferred: int


def arranged(offered: Iterable[tuple[ToolDefinition, bool]], limit: int) -> Arranged:
    """Definitions as a request is to carry them: whole where all of them together take at most `limit` tokens; else
    those stay whole that came with True, and the others are deferred.
    """
    given = sorted(offered, key=lambda each: each[0].name)
    everything = tokens_of(definition for definition, _ in given)
    if everything <= limit:
        return Arranged(tuple(definition for definition, _ in given), everything, 0)
    told = tokens_of(definition for definition, always in given if always)
    definitions = tuple(msgspec.structs.replace(definition, deferred=not always) for definition, always in given)
    return Arranged(definitions, told, everything - told)


def tokens_of(definitions: Iterable[ToolDefinition]) -> int:
    """About how many tokens definitions take in a request, deferred or not."""
    return estimate(size_of_tools(msgspec.structs.replace(each, deferred=False) for each in definitions))
