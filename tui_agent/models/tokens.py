"""Tokens, counted here: with tiktoken, if its ranks are on disk; and upper bounds, for servers that neither count a
request nor refuse one that is too long: of a text, and of a request from the one before, whose tokens were counted.

tiktoken downloads its ranks on first use, from a host that many machines cannot reach. Nothing is downloaded here:
`load_tokenizer` asks tiktoken only for an encoding whose ranks are in its cache, under its name for the file (the SHA-1
of its URL) and with its SHA-256. URLs and hashes are those of ``tiktoken_ext.openai_public``.

Bytes alone do not tell: prose has 0.3 tokens per byte, hashes, addresses and numbers have up to one, and scripts differ
by the tokenizer. So each kind of text has a bound of its own. They were measured with the tokenizers of Llama 2 and 3,
Mistral, Qwen 2.5 and Gemma 2 on texts of 75 kinds, from prose and code to hex dumps and 20 scripts: none of these has
more tokens, prose and code have a quarter to a third fewer.
"""

import os
import re
import tempfile
from collections.abc import Sequence
from hashlib import sha1, sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tui_agent.conversation.request import ModelRequest

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


_DENSE = re.compile(rb"[A-Za-z]*[0-9][0-9A-Za-z]*|[A-Za-z]{20,}")
_WORD = re.compile(rb"[A-Za-z]+")
_SPACES = re.compile(rb"[ \t]+")
_LINES = re.compile(rb"[\r\n]+")
_PICTURE = re.compile(rb'data:image/[^"]*')
_LETTERS = bytes(range(65, 91)) + bytes(range(97, 123))
_NO_LETTERS = bytes(set(range(256)) - set(_LETTERS))
_NO_PUNCTUATION = _LETTERS + b"0123456789 \t\r\n" + bytes(range(128, 256))

PICTURE_TOKENS = 1_200
"""Assumed tokens of a picture, since tokenizers count only text."""
DENSE = 1.1
"""Tokens per character of numbers, hashes and base64: many tokenizers have one for each digit."""
PUNCTUATION = 0.85
LINE = 1.05
WORD, LETTER = 1.05, 0.05
"""Tokens of a word, and more for each of its letters."""
SPACE, FURTHER_SPACE = 0.65, 0.4
"""Tokens of the first of several spaces, and of the others: most belong to the word that they precede."""

_LEADS = (
    (0xC2, 0xC5, 2, 1.05),  # accents and letters of Latin scripts, which break a word apart
    (0xC6, 0xCF, 2, 0.57),  # Greek
    (0xD0, 0xD3, 2, 0.35),  # Cyrillic
    (0xD4, 0xD6, 2, 1.05),  # Armenian, Hebrew vowel signs
    (0xD7, 0xDF, 2, 0.62),  # Hebrew, Arabic
    (0xE0, 0xE0, 3, 1.05),  # India and Thai, but for `_COMMON_E0`
    (0xE1, 0xE1, 3, 1.05),  # Georgian, Ethiopic, Khmer, Vietnamese
    (0xE2, 0xE2, 3, 0.55),  # punctuation, symbols, frames
    (0xE3, 0xE3, 3, 0.42),  # kana
    (0xE4, 0xE9, 3, 0.65),  # Han
    (0xEA, 0xED, 3, 0.67),  # Hangul
    (0xEE, 0xEF, 3, 1.05),  # full-width forms and others
    (0xF0, 0xF4, 4, 1.05),  # emoji and rare Han
)
"""The first byte of a character in UTF-8, from and to; the character's bytes; tokens per byte."""
_COMMON_E0 = (b"\xe0\xa4", b"\xe0\xa5", b"\xe0\xa6", b"\xe0\xa7", b"\xe0\xae", b"\xe0\xaf", b"\xe0\xb8", b"\xe0\xb9")
"""Of these, what many tokenizers know: Devanagari, Bengali, Tamil and Thai."""
_FEWER = 0.52
"""How many tokens per byte those have less than others with the same first byte."""


def most_tokens(text: bytes) -> int:
    """The most tokens that the UTF-8 text has; a data URL counts as a picture."""
    text, pictures = _PICTURE.subn(b"", text)
    dense = sum(map(len, _DENSE.findall(text)))
    rest = _DENSE.sub(b" ", text)
    spaces = _SPACES.findall(text)
    bound = (
        PICTURE_TOKENS * pictures
        + DENSE * dense
        + PUNCTUATION * len(text.translate(None, _NO_PUNCTUATION))
        + LINE * len(_LINES.findall(text))
        + WORD * len(_WORD.findall(rest))
        + LETTER * len(rest.translate(None, _NO_LETTERS))
        + SPACE * len(spaces)
        + FURTHER_SPACE * (sum(map(len, spaces)) - len(spaces))
    )
    return round(bound + beyond_ascii(text))


def beyond_ascii(text: bytes) -> float:
    """The part of the bound that is due to characters beyond ASCII."""
    if text.isascii():
        return 0.0
    most = sum(
        size * tokens * sum(text.count(lead) for lead in range(first, last + 1)) for first, last, size, tokens in _LEADS
    )
    return most - 3 * _FEWER * sum(map(text.count, _COMMON_E0))


class KnownSize(msgspec.Struct, frozen=True):
    """A request's size: `tokens` were counted with the previous request, `rest` are the bytes added since, without
    pictures.
    """

    tokens: int
    rest: int


class MeasuredRequest(NamedTuple):
    """A request with a known number of tokens. `size`: its bytes, without pictures; `body`: all of them, if they were
    given.
    """

    request: ModelRequest
    size: int
    tokens: int
    body: bytes = b""


PREFIX_TOKENS_PER_BYTE = 0.3
"""Tokens per byte of a system prompt and tool definitions, which are prose and JSON: ours have 0.23 to 0.25 with the
tokenizers of Llama 2 and 3, Mistral, Qwen 2.5 and Gemma 2.
"""
MARGIN = 1.15
"""How much denser a request may be than the last one that was counted, kind by kind of text."""


class LastMeasured:
    """Remembers the newest request with a known number of tokens."""

    def __init__(self) -> None:
        self._last: MeasuredRequest | None = None

    def take(self, request: ModelRequest, size: int, tokens: int, body: bytes = b"") -> None:
        """Remember the tokens of a request of `size` bytes."""
        if not request.one_off:
            self._last = MeasuredRequest(request, size, tokens, body)

    def known(self, request: ModelRequest, size: int) -> KnownSize:
        """What is known about a request of `size` bytes; nothing if it does not continue the last one."""
        if self._last is None:
            return KnownSize(0, size)
        last, last_size, tokens, _ = self._last
        before, here = last.messages, request.messages
        continues = (
            size >= last_size
            and 0 < len(before) <= len(here)
            and here[0] is before[0]
            and here[len(before) - 1] is before[-1]
            and (request.system, request.tools) == (last.system, last.tools)
        )
        return KnownSize(tokens, size - last_size) if continues else KnownSize(0, size)

    def at_most(self, request: ModelRequest, size: int, body: bytes) -> int:
        """An upper estimate of the tokens of a request of `size` bytes, from what was counted before.

        Takes a tenth of a second for half a megabyte: call it in a thread.
        """
        last, known = self._last, self.known(request, size)
        if known.tokens and last is not None and last.body:
            # What was added stands at the end, behind messages whose bytes stay the same.
            added = max(0, len(body) - len(last.body))
            return known.tokens + most_tokens(body[len(body) - added :])
        if last is not None and last.body:
            measured = min(1.0, MARGIN * last.tokens / max(1, most_tokens(last.body)))
            return round(measured * most_tokens(body))
        prefix = request.system.encode(errors="replace") + msgspec.json.encode(request.tools)
        said = most_tokens(body) - most_tokens(prefix)
        return round(PREFIX_TOKENS_PER_BYTE * len(prefix) + beyond_ascii(prefix) + max(0, said))
