"""The named context policies: trade-offs between the cost of a session and how much of it stays verbatim.

Each is on the frontier of the two, as measured by `python -m tests.bench.frontier` (docs/policies.md).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import structs

from tui_agent.settings.schema import PolicyName, Settings


class Policy(msgspec.Struct, frozen=True):
    """A policy's meaning in words, and its settings, which apply unless they are set by their own keys."""

    meaning: str
    values: Mapping[str, int | float]


POLICIES: Final[Mapping[PolicyName, Policy]] = {
    "thrifty": Policy(
        "costs little; less stays word for word",
        {
            "compaction.thrift": 3.0,
            "compaction.keep_recent_tokens": 8_000,
            "compaction.keep_recent_share": 0.03,
            "compaction.facts_tokens": 2_000,
        },
    ),
    "balanced": Policy(
        "the default",
        {
            "compaction.thrift": 4.0,
            "compaction.keep_recent_tokens": 20_000,
            "compaction.keep_recent_share": 0.05,
            "compaction.facts_tokens": 3_000,
        },
    ),
    "careful": Policy(
        "more stays word for word; costs most",
        {
            "compaction.thrift": 4.0,
            "compaction.keep_recent_tokens": 40_000,
            "compaction.keep_recent_share": 0.25,
            "compaction.facts_tokens": 4_000,
        },
    ),
}


def with_policy(settings: Settings, name: PolicyName) -> Settings:
    """The settings with another policy; settings given by their own keys stay."""
    changed = structs.replace(settings, context=structs.replace(settings.context, policy=name))
    for key, value in POLICIES[name].values.items():
        section, _, field = key.partition(".")
        if not settings.is_set(key):
            inner = structs.replace(getattr(changed, section), **{field: value})
            changed = structs.replace(changed, **{section: inner})
    return changed
