"""Counts tokens with tiktoken, if its ranks are on disk.

tiktoken downloads its ranks on first use, from a host that many machines cannot reach. Nothing is downloaded here:
`load_tokenizer` reads the ranks from tiktoken's cache, by tiktoken's name for the file (the SHA-1 of its URL), and only
if they match tiktoken's SHA-256. URLs, hashes and patterns are those of ``tiktoken_ext.openai_public``.
"""

import os
import tempfile
from base64 import b64decode
from collections.abc import Sequence
from hashlib import sha1, sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import tiktoken

CHUNK_CHARS = 16_384
"""Longer text is tokenized in chunks of this many characters: the regular expression has a limited stack."""
SAMPLED_CHUNKS = 24
"""In a text of more chunks, this many evenly spread ones are tokenized and extrapolated."""


class Vocabulary(NamedTuple):
    """A vocabulary: the URL of its ranks, the SHA-256 of that file, and the pattern that splits text."""

    name: str
    url: str
    sha256: str
    pattern: str


VOCABULARIES = (
    Vocabulary(
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
    Vocabulary(
        "cl100k_base",
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
)


def load_tokenizer(
    known: Sequence[Vocabulary] = VOCABULARIES, folder: Path | None = None
) -> "TiktokenTokenizer | None":
    """The first of `known` whose ranks are in `folder` (by default tiktoken's cache); None if there is none.

    Takes some tenths of a second: call it in a thread. Never downloads anything and never raises.
    """
    folder = folder or cache_folder()
    if folder is None:
        return None
    for vocabulary in known:
        path = folder / sha1(vocabulary.url.encode(), usedforsecurity=False).hexdigest()
        try:
            return _load(vocabulary, path.read_bytes())
        except (OSError, ValueError, ImportError):
            continue
    return None


def cache_folder() -> Path | None:
    """The folder of tiktoken's cache; None if it is turned off."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return Path(os.environ[variable]) if os.environ[variable] else None
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _load(vocabulary: Vocabulary, data: bytes) -> "TiktokenTokenizer":
    """Raises `ValueError` if the data are not the ranks of this vocabulary."""
    if sha256(data).hexdigest() != vocabulary.sha256:
        raise ValueError(f"not the ranks of {vocabulary.name}")
    import tiktoken

    pairs = (line.split() for line in data.splitlines() if line)
    mergeable = {b64decode(token): int(rank) for token, rank in pairs}
    return TiktokenTokenizer(
        tiktoken.Encoding(vocabulary.name, pat_str=vocabulary.pattern, mergeable_ranks=mergeable, special_tokens={})
    )


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
