"""A tokenizer where its ranks are already on disk.

tiktoken fetches its ranks from a host that many machines cannot reach, the first time it is asked. Here nothing is
ever fetched: the ranks are read from tiktoken's own cache, under the name tiktoken gives them (the SHA-1 of their
address), and only where they are what tiktoken expects (their SHA-256). Addresses, hashes and patterns are those of
``tiktoken_ext.openai_public``.
"""

import os
import tempfile
from base64 import b64decode
from collections.abc import Sequence
from hashlib import sha1, sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import tiktoken

PIECE_CHARS = 16_384
"""Longer text is counted in pieces of this many characters: the regular expression has a limited stack."""
SAMPLED_PIECES = 24
"""Of a text of more pieces than this, that many, evenly spread, are counted and stand for the rest."""


class Tokenizer(Protocol):
    """Counts tokens. `name` is the shape it counts in."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int: ...


class Ranks(NamedTuple):
    """An encoding: where its ranks come from, the SHA-256 of that file, and the pattern that splits text."""

    name: str
    url: str
    sha256: str
    pattern: str


KNOWN = (
    Ranks(
        "o200k_base",
        "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        "|".join(
            (
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
                r"\p{N}{1,3}",
                r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                r"\s*[\r\n]+",
                r"\s+(?!\S)",
                r"\s+",
            )
        ),
    ),
    Ranks(
        "cl100k_base",
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
)


def load_tokenizer(encodings: Sequence[Ranks] = KNOWN, folder: Path | None = None) -> Tokenizer | None:
    """The first of `encodings` whose ranks lie in `folder` (by default tiktoken's cache); None where none does.

    Takes some tenths of a second: call it in a thread. Never fetches anything and raises nothing.
    """
    folder = folder or cache_folder()
    if folder is None:
        return None
    for ranks in encodings:
        path = folder / sha1(ranks.url.encode(), usedforsecurity=False).hexdigest()
        try:
            return _load(ranks, path.read_bytes())
        except (OSError, ValueError, ImportError):
            continue
    return None


def cache_folder() -> Path | None:
    """Where tiktoken keeps its ranks; None where its cache is turned off."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return Path(os.environ[variable]) if os.environ[variable] else None
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _load(ranks: Ranks, data: bytes) -> Tokenizer:
    """Raises `ValueError` where the data is not what these ranks are."""
    if sha256(data).hexdigest() != ranks.sha256:
        raise ValueError(f"not the ranks of {ranks.name}")
    import tiktoken

    pairs = (line.split() for line in data.splitlines() if line)
    mergeable = {b64decode(token): int(rank) for token, rank in pairs}
    return _Tiktoken(tiktoken.Encoding(ranks.name, pat_str=ranks.pattern, mergeable_ranks=mergeable, special_tokens={}))


class _Tiktoken:
    """Counts in bounded time and memory."""

    def __init__(self, encoding: "tiktoken.Encoding") -> None:
        self._encoding = encoding

    @property
    def name(self) -> str:
        return self._encoding.name

    def count(self, text: str) -> int:
        starts = range(0, len(text), PIECE_CHARS)
        if len(starts) <= SAMPLED_PIECES:
            return sum(self._count(text[start : start + PIECE_CHARS]) for start in starts)
        chosen = [starts[index * (len(starts) - 1) // (SAMPLED_PIECES - 1)] for index in range(SAMPLED_PIECES)]
        pieces = [text[start : start + PIECE_CHARS] for start in chosen]
        return round(sum(map(self._count, pieces)) * len(text) / sum(map(len, pieces)))

    def _count(self, piece: str) -> int:
        return len(self._encoding.encode_ordinary(piece))
