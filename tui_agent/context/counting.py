"""Token counts of texts and raw sizes: estimated, and corrected by what providers report.

Without a tokenizer, a character-class rule applies: 0.33 tokens for each ASCII character, 1.5 for any other, and 1,200
for an image (docs/context.md, "Token budget"). With a tokenizer, `Counter` counts texts with it, and raw sizes, whose
text is not at hand, by the rule times the density of the texts counted so far. The provider's own counts correct both
(`Ratios`).
"""

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.sizes import Category, TextSize, size_of_block, size_of_text

if TYPE_CHECKING:
    from tui_agent.conversation.view import View

ASCII_TOKENS = 0.33
OTHER_TOKENS = 1.5
IMAGE_TOKENS = 1_200
UNSEEN_TOKENS = 15
"""Tokens of what a model that takes no pictures is told in place of one."""
CACHED_COUNTS = 4_096
"""How many counts of texts are cached, by content."""
DENSITY_CHARS = 400_000
"""After this many characters, older texts weigh half as much in a content class's density."""

RATIO_SAMPLES = 9
"""A content class's ratio is the median of this many newest samples."""
LOWEST_RATIO, HIGHEST_RATIO = 1 / 3, 3.0
"""No tokenizer accounts for a sample outside these: the provider added or left out something."""
SMALLEST_SAMPLE = 200
"""The fewest estimated tokens of a valid sample."""
RULE_START = 1.0
"""The initial ratio to the rule, before any measurement."""
TOKENIZER_START = 1.25
"""The initial ratio to a tokenizer: its ranks are for another vendor's models, and count too few tokens for most."""

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


def estimate(size: TextSize, *, image_tokens: int = IMAGE_TOKENS) -> int:
    """Estimated tokens of a raw size, by the character-class rule."""
    return _estimate_text(size) + round(size.images * image_tokens)


def _estimate_text(size: TextSize) -> int:
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
    """Counts tokens. `name` identifies its vocabulary, the "shape" of its counts."""

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int:
        """The number of tokens of a text; an estimate for a very long one."""
        ...


class _Density(msgspec.Struct, frozen=True):
    """The totals of the tokenizer and of the rule for the same texts."""

    counted: float = 0.0
    ruled: float = 0.0

    @property
    def factor(self) -> float:
        return self.counted / self.ruled if self.ruled > 0 else 1.0

    def plus(self, counted: int, ruled: int) -> "_Density":
        fade = 0.5 if self.ruled > DENSITY_CHARS * ASCII_TOKENS else 1.0
        return _Density(self.counted * fade + counted, self.ruled * fade + ruled)


class Counter:
    """Counts tokens with the tokenizer if there is one, else by the rule. Owns the cache of counts."""

    def __init__(self, tokenizer: Tokenizer | None = None, *, image_tokens: int = IMAGE_TOKENS) -> None:
        self._tokenizer = tokenizer
        self.image_tokens = image_tokens
        self._cache: OrderedDict[bytes, int] = OrderedDict()
        self._densities: dict[ContentClass, _Density] = {}

    def use(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._cache.clear()
        self._densities.clear()

    @property
    def shape(self) -> str:
        """The name of the way of counting: ``rule``, or the tokenizer's name."""
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
        """Tokens of a block; signatures and other opaque payloads are counted by the rule."""
        match block:
            case Text():
                return self.text(block.text)
            case ToolResult():
                images = sum(image.weight for image in block.images)
                return self.text(block.text, "results") + round(images * self.image_tokens)
            case ToolCall():
                return self.text(block.name, "calls") + self.text(block.arguments, "calls")
            case _:
                return self.size(size_of_block(block), class_of(block))

    def size(self, size: TextSize, content: ContentClass = "results") -> int:
        """Tokens of a raw size of this content class."""
        density = self._densities.get(content)
        ruled = _estimate_text(size)
        counted = ruled if density is None else math.ceil(ruled * density.factor)
        return counted + round(size.images * self.image_tokens)

    def categories(self, view: "View") -> dict[Category, int]:
        """Tokens of the next request by category, in constant time."""
        return {category: self.size(size, CLASS_OF[category]) for category, size in view.sizes().items()}


class Ratios:
    """Ratios of measured to estimated tokens, one for each model, shape and content class.

    A ratio is the median of the newest samples, so that a single outlier does not move it. A sample is the growth of
    one class between two calls without an edit of the view between them (docs/context.md, "Token budget"); samples that
    no tokenizer explains are rejected. Owns the samples of all models.
    """

    def __init__(self, known: Mapping[str, Sequence[float]] | None = None) -> None:
        self._samples: dict[str, tuple[float, ...]] = {}
        self._learned: set[str] = set()
        self._middles: dict[tuple[str, str, ContentClass], float] = {}
        for key, samples in (known or {}).items():
            taken = tuple(float(sample) for sample in samples if _is_plausible(sample))[-RATIO_SAMPLES:]
            if taken:
                self._samples[key] = taken

    def learn(self, model: str, shape: str, content: ContentClass, *, measured: float, estimated: float) -> bool:
        """Take in a sample, in tokens; False if it is too small or implausible."""
        if estimated < SMALLEST_SAMPLE or not _is_plausible(measured / estimated):
            return False
        key = _key(model, shape, content)
        self._samples[key] = (*self._samples.get(key, ()), measured / estimated)[-RATIO_SAMPLES:]
        self._learned.add(key)
        self._middles = {}
        return True

    def ratio(self, model: str, shape: str, content: ContentClass) -> float:
        """The factor for estimates of this class: its own ratio, else the median of the model's other classes."""
        # `learn` in another thread replaces `_middles`: store the result in the dict that belongs to these samples.
        known, asked = self._middles, (model, shape, content)
        found = known.get(asked)
        if found is None:
            found = known[asked] = self._middle(model, shape, content)
        return found

    def has_sample(self, model: str, shape: str, content: ContentClass) -> bool:
        return _key(model, shape, content) in self._samples

    def _middle(self, model: str, shape: str, content: ContentClass) -> float:
        from statistics import median

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
        """All samples as plain data, to save and pass to the next `Ratios`."""
        return {key: list(samples) for key, samples in self._samples.items()}

    def learned(self) -> dict[str, list[float]]:
        """As `export`, but only what has samples that were taken in since."""
        return {key: list(self._samples[key]) for key in self._learned}


def _key(model: str, shape: str, content: ContentClass) -> str:
    return f"{model}|{shape}|{content}"


def _is_plausible(ratio: object) -> bool:
    return isinstance(ratio, float | int) and LOWEST_RATIO <= ratio <= HIGHEST_RATIO
