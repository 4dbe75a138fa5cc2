"""How raw sizes and texts become tokens, before a provider has counted and after.

Without a tokenizer a character-class rule stands in: 0.33 token per ASCII character and 1.5 per other one, an image
1,200 (docs/context.md, "Token budget"). With one, texts are counted by it (`Counter`), and running sizes, whose text is
not at hand, by the rule times how dense the texts seen so far were. What a model really counts corrects both
(`Ratios`).

tiktoken fetches its ranks from a host that many machines cannot reach, the first time it is asked. Here nothing is ever
fetched: `load_tokenizer` reads the ranks from tiktoken's own cache, under the name tiktoken gives them (the SHA-1 of
their address), and only where they are what tiktoken expects (their SHA-256). Addresses, hashes and patterns are those
of ``tiktoken_ext.openai_public``.
"""

import math
import os
import tempfile
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b, sha1, sha256
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.sizes import Category, Size, size_of_block, size_of_text

if TYPE_CHECKING:
    import tiktoken

    from tui_agent.conversation.view import View

ASCII_TOKENS = 0.33
OTHER_TOKENS = 1.5
IMAGE_TOKENS = 1_200
CACHED_COUNTS = 4_096
"""How many texts' counts are kept, by content."""
DENSITY_CHARS = 400_000
"""Characters after which older texts weigh half as much in the density of a content class."""

RATIO_SAMPLES = 9
"""The newest samples of a content class that its ratio is the median of."""
LOWEST_RATIO, HIGHEST_RATIO = 1 / 3, 3.0
"""A sample outside these is no matter of tokenizers: the provider added or left out something."""
SMALLEST_SAMPLE = 200
"""Estimated tokens a sample must have at least."""
RULE_START = 1.0
"""The ratio to the rule before anything was measured."""
TOKENIZER_START = 1.25
"""The same for a tokenizer: the ranks on disk are of another vendor's models and count too few tokens for most."""

CHUNK_CHARS = 16_384
"""Longer text is tokenized in chunks of this many characters: the regular expression has a limited stack."""
SAMPLED_CHUNKS = 24
"""Of a text of more chunks than this, that many, evenly spread, are tokenized and stand for the rest."""

ContentClass: TypeAlias = Literal["fixed", "prose", "reasoning", "calls", "results"]
CONTENT_CLASSES: tuple[ContentClass, ...] = ("fixed", "prose", "reasoning", "calls", "results")
CLASS_OF: dict[Category, ContentClass] = {
    "system": "fixed",
    "tools": "fixed",
    "user": "prose",
    "notices": "prose",
    "assistant": "prose",
    "summaries": "prose",
    "reasoning": "reasoning",
    "calls": "calls",
    "results": "results",
}


def estimate(size: Size, *, image_tokens: int = IMAGE_TOKENS) -> int:
    """Tokens of a raw size, by the character-class rule."""
    return _estimate_text(size) + round(size.images * image_tokens)


def _estimate_text(size: Size) -> int:
    return math.ceil(size.ascii * ASCII_TOKENS + size.other * OTHER_TOKENS)


def class_of(block: Block) -> ContentClass:
    """The content class a block of a message belongs to."""
    match block:
        case Text() | Image():
            return "prose"
        case Reasoning():
            return "reasoning"
        case ToolCall():
            return "calls"
        case ToolResult():
            return "results"


class Tokenizer(Protocol):
    """Counts tokens. `name` is the shape it counts in."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int:
        """How many tokens a text has; of a very long one about how many."""
        ...


class _Density(NamedTuple):
    """What the tokenizer and the rule counted for the same texts."""

    counted: float = 0.0
    ruled: float = 0.0

    @property
    def factor(self) -> float:
        return self.counted / self.ruled if self.ruled > 0 else 1.0

    def plus(self, counted: int, ruled: int) -> "_Density":
        fade = 0.5 if self.ruled > DENSITY_CHARS * ASCII_TOKENS else 1.0
        return _Density(self.counted * fade + counted, self.ruled * fade + ruled)


class Counter:
    """Counts in one shape: the tokenizer's where there is one, else the rule's. Owns the cache of counts."""

    def __init__(self, tokenizer: Tokenizer | None = None, *, image_tokens: int = IMAGE_TOKENS) -> None:
        self._tokenizer = tokenizer
        self._image_tokens = image_tokens
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._densities: dict[ContentClass, _Density] = {}

    def use(self, tokenizer: Tokenizer) -> None:
        """Count with this tokenizer from now on."""
        self._tokenizer = tokenizer
        self._cache.clear()
        self._densities.clear()

    @property
    def shape(self) -> str:
        """The name of the shape that is counted in: ``rule``, or the tokenizer's."""
        return self._tokenizer.name if self._tokenizer is not None else "rule"

    def text(self, text: str, content: ContentClass = "prose") -> int:
        """Tokens of a text of this content class."""
        ruled = estimate(size_of_text(text))
        if self._tokenizer is None or not text:
            return ruled
        key = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        known = self._cache.get(key)
        if known is None:
            known = self._cache[key] = self._tokenizer.count(text)
            self._densities[content] = self._densities.get(content, _Density()).plus(known, ruled)
            if len(self._cache) > CACHED_COUNTS:
                self._cache.popitem(last=False)
        else:
            self._cache.move_to_end(key)
        return known

    def block(self, block: Block) -> int:
        """Tokens of a block; a signature or other opaque payload counts by the rule."""
        match block:
            case Text():
                return self.text(block.text)
            case ToolResult():
                images = sum(image.weight for image in block.images)
                return self.text(block.text, "results") + round(images * self._image_tokens)
            case ToolCall():
                return self.text(block.name, "calls") + self.text(block.arguments, "calls")
            case _:
                return self.size(size_of_block(block), class_of(block))

    def size(self, size: Size, content: ContentClass = "results") -> int:
        """Tokens of a raw size of this content class."""
        density = self._densities.get(content)
        ruled = _estimate_text(size)
        counted = ruled if density is None else math.ceil(ruled * density.factor)
        return counted + round(size.images * self._image_tokens)

    def categories(self, view: "View") -> dict[Category, int]:
        """Tokens of the next request, per category; costs the same however long the conversation is."""
        return {category: self.size(size, CLASS_OF[category]) for category, size in view.sizes().items()}


class Ratios:
    """What a model really counts over what was estimated, one ratio per model, shape and content class.

    A ratio is the median of the newest samples, so that a single odd call does not move it. A sample is the growth of a
    single class between two calls with no edit of the view between them (docs/context.md, "Token budget"); one that
    lies outside what any tokenizer does is not taken. Owns the samples of all models.
    """

    def __init__(self, known: Mapping[str, Sequence[float]] | None = None) -> None:
        self._samples: dict[str, tuple[float, ...]] = {}
        self._middles: dict[tuple[str, str, ContentClass], float] = {}
        for key, samples in (known or {}).items():
            taken = tuple(float(sample) for sample in samples if _is_plausible(sample))[-RATIO_SAMPLES:]
            if taken:
                self._samples[key] = taken

    def learn(self, model: str, shape: str, content: ContentClass, *, measured: float, estimated: float) -> bool:
        """Take in a sample, in tokens; False where it is too small or too far off to be one."""
        if estimated < SMALLEST_SAMPLE or not _is_plausible(measured / estimated):
            return False
        key = _key(model, shape, content)
        self._samples[key] = (*self._samples.get(key, ()), measured / estimated)[-RATIO_SAMPLES:]
        self._middles = {}
        return True

    def ratio(self, model: str, shape: str, content: ContentClass) -> float:
        """What an estimate of this class is multiplied by: its own ratio, else the middle of the model's others."""
        # A thread that asks while another learns keeps what it found with the samples it was found in.
        known, asked = self._middles, (model, shape, content)
        found = known.get(asked)
        if found is None:
            found = known[asked] = self._middle(model, shape, content)
        return found

    def _middle(self, model: str, shape: str, content: ContentClass) -> float:
        own = self._samples.get(_key(model, shape, content))
        if own:
            return median(own)
        others = [
            median(samples) for each in CONTENT_CLASSES if (samples := self._samples.get(_key(model, shape, each)))
        ]
        if others:
            return median(others)
        return RULE_START if shape == "rule" else TOKENIZER_START

    def export(self) -> dict[str, list[float]]:
        """All samples, as plain data to be kept and given to the next `Ratios`."""
        return {key: list(samples) for key, samples in self._samples.items()}


def _key(model: str, shape: str, content: ContentClass) -> str:
    return f"{model}|{shape}|{content}"


def _is_plausible(ratio: object) -> bool:
    return isinstance(ratio, float | int) and LOWEST_RATIO <= ratio <= HIGHEST_RATIO


class Encoding(NamedTuple):
    """A vocabulary: where its ranks come from, the SHA-256 of that file, and the pattern that splits text."""

    name: str
    url: str
    sha256: str
    pattern: str


ENCODINGS = (
    Encoding(
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
    Encoding(
        "cl100k_base",
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
        r"|\s+(?!\S)|\s",
    ),
)


def load_tokenizer(encodings: Sequence[Encoding] = ENCODINGS, folder: Path | None = None) -> Tokenizer | None:
    """The first of `encodings` whose ranks lie in `folder` (by default tiktoken's cache); None where none does.

    Takes some tenths of a second: call it in a thread. Never fetches anything and raises nothing.
    """
    folder = folder or cache_folder()
    if folder is None:
        return None
    for encoding in encodings:
        path = folder / sha1(encoding.url.encode(), usedforsecurity=False).hexdigest()
        try:
            return _load(encoding, path.read_bytes())
        except (OSError, ValueError, ImportError):
            continue
    return None


def cache_folder() -> Path | None:
    """Where tiktoken keeps ranks; None where its cache is turned off."""
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return Path(os.environ[variable]) if os.environ[variable] else None
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _load(encoding: Encoding, data: bytes) -> Tokenizer:
    """Raises `ValueError` where the data are not the ranks of this encoding."""
    if sha256(data).hexdigest() != encoding.sha256:
        raise ValueError(f"not the ranks of {encoding.name}")
    import tiktoken

    pairs = (line.split() for line in data.splitlines() if line)
    mergeable = {b64decode(token): int(rank) for token, rank in pairs}
    return _Tiktoken(
        tiktoken.Encoding(encoding.name, pat_str=encoding.pattern, mergeable_ranks=mergeable, special_tokens={})
    )


class _Tiktoken:
    """Counts in bounded time and memory."""

    def __init__(self, encoding: "tiktoken.Encoding") -> None:
        self._encoding = encoding

    @property
    def name(self) -> str:
        return self._encoding.name

    def count(self, text: str) -> int:
        starts = range(0, len(text), CHUNK_CHARS)
        if len(starts) <= SAMPLED_CHUNKS:
            return sum(self._count(text[start : start + CHUNK_CHARS]) for start in starts)
        spread = [starts[index * (len(starts) - 1) // (SAMPLED_CHUNKS - 1)] for index in range(SAMPLED_CHUNKS)]
        chunks = [text[start : start + CHUNK_CHARS] for start in spread]
        return round(sum(map(self._count, chunks)) * len(text) / sum(map(len, chunks)))

    def _count(self, chunk: str) -> int:
        return len(self._encoding.encode_ordinary(chunk))
