"""Counts tokens with tiktoken, if its ranks are on disk.

tiktoken downloads its ranks on first use, from a host that many machines cannot reach. Nothing is downloaded here:
`load_tokenizer` asks tiktoken only for an encoding whose ranks are in its cache, under its name for the file (the SHA-1
of its URL) and with its SHA-256. URLs and hashes are those of ``tiktoken_ext.openai_public``.
"""

import os
import tempfile
from collections.abc import Sequence
from hashlib import sha1, sha256
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import tiktoken

CHUNK_CHARS = 16_384
"""Longer text is tokenized in chunks of this many characters: the regular expression has a limited stack."""
SAMPLED_CHUNKS = 24
"""In a text of more chunks, this many evenly spread ones are tokenized and extrapolated."""


class Ranks(msgspec.Struct, frozen=True):
    """The ranks of one of tiktoken's encodings: their URL, and the SHA-256 of that file."""

    encoding: str
    url: str
    sha256: str


RANKS = (
    Ranks(
        "o200k_base",
        "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    Ranks(
        "cl100k_base",
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
)


def load_tokenizer(known: Sequence[Ranks] = RANKS) -> "TiktokenTokenizer | None":
    """The first of `known` whose ranks are in tiktoken's cache; None if there is none.

    Takes some tenths of a second: call it in a thread. Never downloads anything and never raises.
    """
    if (folder := cache_folder()) is None:
        return None
    for ranks in known:
        try:
            kept = (folder / sha1(ranks.url.encode(), usedforsecurity=False).hexdigest()).read_bytes()
            if sha256(kept).hexdigest() == ranks.sha256:
                import tiktoken

                return TiktokenTokenizer(tiktoken.get_encoding(ranks.encoding))
        except (OSError, ValueError, ImportError):
            continue
    return None


def cache_folder() -> Path | None:
    """The folder of tiktoken's cache; None if it is turned off."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return Path(os.environ[variable]) if os.environ[variable] else None
    return Path(tempfile.gettempdir()) / "data-gym-cache"


class TiktokenTokenizer:
    """A tiktoken encoding, with bounded time and memory."""

    def __init__(self, encoding: "tiktoken.Encoding") -> None:
        self._encoding = encoding

    @property
    def name(self) -> str:
        return self._encoding.name

    def count(self, text: str) -> int:
        """The number of tokens of a text; an estimate for a very long one."""
        starts = range(0, len(text), CHUNK_CHARS)
        if len(starts) <= SAMPLED_CHUNKS:
            return sum(self._count(text[start : start + CHUNK_CHARS]) for start in starts)
        spread = [starts[index * (len(starts) - 1) // (SAMPLED_CHUNKS - 1)] for index in range(SAMPLED_CHUNKS)]
        chunks = [text[start : start + CHUNK_CHARS] for start in spread]
        return round(sum(map(self._count, chunks)) * len(text) / sum(map(len, chunks)))

    def _count(self, chunk: str) -> int:
        return len(self._encoding.encode_ordinary(chunk))
