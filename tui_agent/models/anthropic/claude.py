"""What Claude models can do, by their ids, and what other servers of the Messages API than Anthropic's lack.

Many servers implement part of the Messages API. We first send requests with all features, and leave out each feature
that a refusal names. The result is saved in the home folder, by address and model, so that the next start need not
repeat it; delete `messages-features.json` to start over.
"""

import os
import re
from typing import Literal, NamedTuple, TypeAlias, get_args

from tui_agent.models.provider import Learned
from tui_agent.regex import regex
from tui_agent.system.network import host_of

Thinking: TypeAlias = Literal["adaptive", "enabled", "off"]

_NEW = regex(r"claude-(?P<line>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?!\d)")
_OLD = regex(r"claude-(?P<major>\d)(?:-(?P<minor>\d))?(?:-(?P<line>[a-z]+))?(?!\d)")

# Tokens of the smallest cacheable prefix (Anthropic, prompt caching); 1,024 for models that are not listed.
_CACHE_MINIMUM = {
    ("opus", 5, 5): 512,
    ("haiku", 5, 5): 2048,
    ("opus", 4, 5): 4096,
    ("opus", 4, 6): 4096,
    ("opus", 4, 7): 4096,
    ("opus", 4, 8): 4096,
    ("sonnet", 4, 6): 2048,
    ("haiku", 4, 5): 4096,
    ("haiku", 3, 5): 2048,
    ("haiku", 3, 0): 2048,
}


PICTURE_BYTES = 24_000_000
"""Bytes in base64 of all pictures of a request: three quarters of its 32 MB (Anthropic, vision), the rest for text."""
_FEW_PICTURES, _MANY_PICTURES, _SMALL_WINDOW = 100, 600, 200_000


class ClaudeId(NamedTuple):
    """A model's line (empty: unknown) and version ((0, 0): unknown)."""

    line: str
    version: tuple[int, int]


def parse_id(model: str) -> ClaudeId:
    """Parse a model id: ``claude-opus-5-5`` is Opus 5.5, ``claude-3-7-sonnet-latest`` is Sonnet 3.7."""
    named = model[max(0, model.find("claude-")) :]  # clouds prefix it with a region and the vendor
    found = _NEW.match(named) or _OLD.match(named)
    if found is None:
        return ClaudeId("", (0, 0))
    return ClaudeId(found["line"] or "", (int(found["major"]), int(found["minor"] or 0)))


def binds_reasoning(model: str) -> bool:
    """Whether the API accepts the model's thinking back only after the prefix it was generated with.

    It does so from Fable and Mythos 5.1 and from Opus, Sonnet and Haiku 5.5 on (Anthropic, preserved thinking). Assumed
    if the version is unknown.
    """
    line, version = parse_id(model)
    if version == (0, 0):
        return True
    return version >= ((5, 1) if line in ("fable", "mythos") else (5, 5))


def signs_summaries(model: str) -> bool:
    """Whether the model writes summaries that the API signs and takes back, until the Models API says it: from 4.6 on
    (Anthropic, compaction on demand).
    """
    return parse_id(model).version >= (4, 6)


def thinking_of(model: str) -> Thinking:
    """The kind of thinking to request (Anthropic, extended thinking: adaptive from 4.6 on, a budget from 3.7 on)."""
    version = parse_id(model).version
    if version == (0, 0) or version >= (4, 6):
        return "adaptive"
    return "enabled" if version >= (3, 7) else "off"


def defers_tools(model: str) -> bool:
    """Whether the model supports deferred tool definitions: from 4.5 on (Anthropic, tool search tool). Assumed if the
    version is unknown.
    """
    version = parse_id(model).version
    return version == (0, 0) or version >= (4, 5)


def cache_minimum_of(model: str) -> int:
    """The smallest prefix that is cached, in tokens."""
    line, version = parse_id(model)
    return _CACHE_MINIMUM.get((line, *version), 1024)


def most_pictures(window: int) -> int:
    """The most pictures in a request (Anthropic, vision: 100 with a window of 200,000 tokens, 600 with larger ones)."""
    return _FEW_PICTURES if window <= _SMALL_WINDOW else _MANY_PICTURES


Feature: TypeAlias = Literal[
    "betas", "binding", "display", "adaptive", "thinking", "hour", "caching", "parameter", "compaction"
]
"""In this order: the beta header; thinking bound to its prefix; summaries of thinking; adaptive thinking; any thinking;
caches that live an hour; cache marks; the query parameter ``beta=true``; summaries that the server writes and signs."""

FEATURES_FILE = "messages-features.json"
_KNOWN = Learned(FEATURES_FILE, most=200)
ADDRESS = "ANTHROPIC_BASE_URL"

_NAMED: tuple[tuple[re.Pattern[str], Feature], ...] = (
    (regex(r"compact(?:ion\b|-2026)", re.IGNORECASE), "compaction"),
    (regex(r"block_binding|prefix_mismatch", re.IGNORECASE), "binding"),
    (
        regex(r"anthropic-beta|beta (?:header|flag|feature)|\bbetas?\b.{0,40}not (?:supported|allowed)", re.IGNORECASE),
        "betas",
    ),
    (regex(r"thinking\W{0,3}(?:\w+\W{0,3})?display|\bdisplay\b", re.IGNORECASE), "display"),
    (regex(r"\badaptive\b", re.IGNORECASE), "adaptive"),
    (regex(r"thinking|budget_tokens|reasoning[._]effort", re.IGNORECASE), "thinking"),
    (regex(r"cache_control\b.*\bttl\b|\bttl\b.{0,40}(?:1h|extra|support|permit)", re.IGNORECASE), "hour"),
    (regex(r"cache_control|prompt caching", re.IGNORECASE), "caching"),
    (regex(r"query param|\?beta", re.IGNORECASE), "parameter"),
)


def other_server() -> str:
    """The address of the server that replaces Anthropic's; empty if none does."""
    url = os.environ.get(ADDRESS, "").strip().rstrip("/")
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
