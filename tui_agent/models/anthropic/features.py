"""The features of the Messages API that other servers than Anthropic's lack.

Many servers implement part of the Messages API. We first send requests with all features, and leave out each feature
that a refusal names. The result is saved in the home folder, by address and model, so that the next start need not
repeat it; delete `messages-features.json` to start over.
"""

import os
import re
from typing import Literal, TypeAlias, get_args

from tui_agent.models.learned import Learned
from tui_agent.system.address import host_of

Feature: TypeAlias = Literal[
    "betas", "binding", "display", "adaptive", "thinking", "hour", "caching", "parameter", "compaction"
]
"""In this order: the beta header; thinking bound to its prefix; summaries of thinking; adaptive thinking; any thinking;
caches that live an hour; cache marks; the query parameter ``beta=true``; summaries that the server writes and signs."""

FILE = "messages-features.json"
_KNOWN = Learned(FILE, most=200)
VARIABLE = "ANTHROPIC_BASE_URL"

_NAMED: tuple[tuple[re.Pattern[str], Feature], ...] = (
    (re.compile(r"compact(?:ion\b|-2026)", re.IGNORECASE), "compaction"),
    (re.compile(r"block_binding|prefix_mismatch", re.IGNORECASE), "binding"),
    (
        re.compile(
            r"anthropic-beta|beta (?:header|flag|feature)|\bbetas?\b.{0,40}not (?:supported|allowed)", re.IGNORECASE
        ),
        "betas",
    ),
    (re.compile(r"thinking\W{0,3}(?:\w+\W{0,3})?display|\bdisplay\b", re.IGNORECASE), "display"),
    (re.compile(r"\badaptive\b", re.IGNORECASE), "adaptive"),
    (re.compile(r"thinking|budget_tokens|reasoning[._]effort", re.IGNORECASE), "thinking"),
    (re.compile(r"cache_control\b.*\bttl\b|\bttl\b.{0,40}(?:1h|extra|support|permit)", re.IGNORECASE), "hour"),
    (re.compile(r"cache_control|prompt caching", re.IGNORECASE), "caching"),
    (re.compile(r"query param|\?beta", re.IGNORECASE), "parameter"),
)


def other_server() -> str:
    """The address of the server that replaces Anthropic's; empty if none does."""
    url = os.environ.get(VARIABLE, "").strip().rstrip("/")
    host = host_of(url)
    return url if host and not f".{host}".endswith(".anthropic.com") else ""


def refused_feature(text: str, without: frozenset[Feature]) -> Feature | None:
    """The feature that a refusal names, other than those in `without`; None if it is about something else."""
    return next((feature for pattern, feature in _NAMED if feature not in without and pattern.search(text)), None)


def load_unsupported(address: str, model: str) -> frozenset[Feature]:
    """The features known to be missing for this server and model. Reads a file."""
    known = _KNOWN.of(f"{address} {model}")
    return frozenset(feature for feature in get_args(Feature) if feature in known)


def save_unsupported(address: str, model: str, without: frozenset[Feature]) -> None:
    """Save the missing features of a server and model to a file."""
    _KNOWN.keep(f"{address} {model}", sorted(without))
