"""What a Claude model's id tells, before the Models API is asked: how it thinks, what it binds and caches."""

import re
from typing import Literal, NamedTuple, TypeAlias

Thinking: TypeAlias = Literal["adaptive", "enabled", "off"]

_NEW = re.compile(r"claude-(?P<line>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?!\d)")
_OLD = re.compile(r"claude-(?P<major>\d)(?:-(?P<minor>\d))?(?:-(?P<line>[a-z]+))?(?!\d)")

# Anthropic, prompt caching: the minimum cacheable length per model; 1,024 tokens where a model is not listed.
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
"""Bytes in base64 of all pictures of a request: of its 32 MB (Anthropic, vision), less a quarter for the text."""
_FEW_PICTURES, _MANY_PICTURES, _SMALL_WINDOW = 100, 600, 200_000


class ClaudeId(NamedTuple):
    """A model's line (empty: not told) and version ((0, 0): not told)."""

    line: str
    version: tuple[int, int]


def parse_id(model: str) -> ClaudeId:
    """``claude-opus-5-5`` is Opus 5.5, ``claude-3-7-sonnet-latest`` is Sonnet 3.7."""
    named = model[max(0, model.find("claude-")) :]  # a cloud puts a region and the maker before it
    found = _NEW.match(named) or _OLD.match(named)
    if found is None:
        return ClaudeId("", (0, 0))
    return ClaudeId(found["line"] or "", (int(found["major"]), int(found["minor"] or 0)))


def binds_reasoning(model: str) -> bool:
    """Is its thinking accepted back only under the prefix it was made under?

    So it is from Fable and Mythos 5.1 and from Opus, Sonnet and Haiku 5.5 on (Anthropic, preserved thinking); assumed
    of a model whose id tells nothing.
    """
    line, version = parse_id(model)
    if version == (0, 0):
        return True
    return version >= ((5, 1) if line in ("fable", "mythos") else (5, 5))


def thinking_of(model: str) -> Thinking:
    """The kind of thinking to ask for (Anthropic, extended thinking: adaptive from 4.6 on, a budget from 3.7 on)."""
    version = parse_id(model).version
    if version == (0, 0) or version >= (4, 6):
        return "adaptive"
    return "enabled" if version >= (3, 7) else "off"


def defers_tools(model: str) -> bool:
    """Does it take definitions of tools that it sees only once a search found them? So it is from 4.5 on (Anthropic,
    tool search tool); assumed of a model whose id tells nothing.
    """
    version = parse_id(model).version
    return version == (0, 0) or version >= (4, 5)


def cache_minimum_of(model: str) -> int:
    """The smallest prefix that is cached, in tokens."""
    line, version = parse_id(model)
    return _CACHE_MINIMUM.get((line, *version), 1024)


def most_pictures(window: int) -> int:
    """Pictures one request may hold (Anthropic, vision: 100 at a window of 200,000 tokens, 600 at larger ones)."""
    return _FEW_PICTURES if window <= _SMALL_WINDOW else _MANY_PICTURES
