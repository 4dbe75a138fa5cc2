"""What the id of a Claude model says about it: its kind of thinking, what it caches, its limits."""

from typing import Literal, NamedTuple, TypeAlias

from tui_agent.regex import regex

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
