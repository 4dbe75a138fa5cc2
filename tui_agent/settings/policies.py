"""The named choices between what a session costs and how much of it stays word for word.

Each is a point on the frontier of the two, as `python -m tests.bench.frontier` measures it (docs/policies.md).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import structs

from tui_agent.settings.schema import PolicyName, Settings


class Policy(NamedTuple):
    """What a choice means in words, and the settings it stands for: those that nobody has set otherwise."""

    meaning: str
    values: Mapping[str, int | float]


POLICIES: Final[Mapping[PolicyName, Policy]] = {
    "thrifty": Policy(
        "costs least; less stays word for word",
        {"compaction.thrift": 3.0, "compaction.keep_recent_tokens": 8_000, "compaction.facts_tokens": 2_000},
    ),
    "balanced": Policy(
        "the default",
        {"compaction.thrift": 4.0, "compaction.keep_recent_tokens": 20_000, "compaction.facts_tokens": 2_000},
    ),
    "careful": Policy(
        "more stays word for word; costs most",
        {"compaction.thrift": 4.0, "compaction.keep_recent_tokens": 40_000, "compaction.facts_tokens": 4_000},
    ),
}


def with_policy(settings: Settings, name: PolicyName) -> Settings:
    """The settings with another policy; what the user or a project has set by its own key stays."""
    changed = structs.replace(settings, context=structs.replace(settings.context, policy=name))
    for key, value in POLICIES[name].values.items():
        section, _, field = key.partition(".")
        if not settings.is_set(key):
            inner = structs.replace(getattr(changed, section), **{field: value})
            changed = structs.replace(changed, **{section: inner})
    return changed
