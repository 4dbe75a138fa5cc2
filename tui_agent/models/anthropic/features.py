"""What a server in Anthropic's place does without.

Many servers speak the Messages API, each a part of it. Which part is found out by asking for all of it once: what a
refusal names is left out from there on. That is kept in the home folder, by address and model, so that the next start
does not ask again; remove `messages-features.json` there to have it found out anew.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from tui_agent.durable import make_private_folder, write_file
from tui_agent.models.address import host_of
from tui_agent.settings.sources import home_folder

Feature: TypeAlias = Literal["betas", "binding", "display", "adaptive", "thinking", "caching", "parameter"]
"""Of a request: the beta header; thinking bound to its prefix; summaries of thinking; thinking as much as the model
sees fit; thinking at all; cache marks; the query's ``beta=true``."""

FILE = "messages-features.json"
MOST_KEPT = 200
VARIABLE = "ANTHROPIC_BASE_URL"

_NAMED: tuple[tuple[re.Pattern[str], Feature], ...] = (
    (re.compile(r"block_binding|prefix_mismatch", re.IGNORECASE), "binding"),
    (
        re.compile(
            r"anthropic-beta|beta (?:header|flag|feature)|\bbetas?\b.{0,40}not (?:supported|allowed)", re.IGNORECASE
        ),
        "betas",
    ),
    (re.compile(r"thinking\W{0,3}(?:\w+\W{0,3})?display|\bdisplay\b", re.IGNORECASE), "display"),
    (re.compile(r"\badaptive\b", re.IGNORECASE), "adaptive"),
    (re.compile(r"thinking|budget_tokens", re.IGNORECASE), "thinking"),
    (re.compile(r"cache_control|prompt caching", re.IGNORECASE), "caching"),
    (re.compile(r"query param|\?beta", re.IGNORECASE), "parameter"),
)
_entries = msgspec.json.Decoder(dict[str, list[str]])


def elsewhere() -> str:
    """The address of the server in Anthropic's place; empty where that is Anthropic's own."""
    url = os.environ.get(VARIABLE, "").strip().rstrip("/")
    host = host_of(url)
    return url if host and not f".{host}".endswith(".anthropic.com") else ""


def refused_feature(text: str, without: frozenset[Feature]) -> Feature | None:
    """The feature a refusal names, of those that are still asked for; None where it is about something else."""
    return next((feature for pattern, feature in _NAMED if feature not in without and pattern.search(text)), None)


def remembered(address: str, model: str) -> frozenset[Feature]:
    """What this server does without for this model, as far as it was found out. Reads a file."""
    known = _read().get(_key(address, model), [])
    return frozenset(feature for feature in get_args(Feature) if feature in known)


def remember(address: str, model: str, without: frozenset[Feature]) -> None:
    """Keep what was found out. Writes a file; where that cannot be, it is found out again."""
    kept = _read()
    kept.pop(_key(address, model), None)
    kept[_key(address, model)] = sorted(without)
    newest = dict(list(kept.items())[-MOST_KEPT:])
    with suppress(OSError):
        make_private_folder(_path().parent)
        write_file(_path(), msgspec.json.encode(newest))


def _read() -> dict[str, list[str]]:
    try:
        return _entries.decode(_path().read_bytes())
    except (OSError, msgspec.DecodeError):
        return {}


def _path() -> Path:
    return home_folder(os.environ) / FILE


def _key(address: str, model: str) -> str:
    return f"{address} {model}"
