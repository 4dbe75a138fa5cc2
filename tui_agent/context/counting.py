"""Raw sizes and texts into tokens, before any provider has counted.

Without a tokenizer a character-class rule stands in: 0.33 token per ASCII character and 1.5 per other one, an image
1,200 (README, reference: token budget). With one, texts are counted by it, and running sizes, whose text is not at
hand, by the rule times how dense the texts seen so far were. What a model really counts corrects both (`calibration`).
"""

import math
from collections import OrderedDict
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from tui_agent.context.tokenizer import Tokenizer
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.sizes import Category, Size, size_of_block, size_of_text
from tui_agent.conversation.view import View

ASCII_TOKENS = 0.33
OTHER_TOKENS = 1.5
IMAGE_TOKENS = 1_200

CACHED_COUNTS = 4_096
"""How many texts' counts are kept, by content."""
DENSITY_CHARS = 400_000
"""Characters after which older texts weigh half as much in the density of a content class."""

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
    return math.ceil(size.ascii * ASCII_TOKENS + size.other * OTHER_TOKENS) + round(size.images * image_tokens)


def categories(view: View) -> dict[Category, int]:
    """Estimated tokens of the next request, per category."""
    return {category: estimate(size) for category, size in view.sizes().items()}


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
                return self.text(block.text, "results") + len(block.images) * self._image_tokens
            case ToolCall():
                return self.text(block.name, "calls") + self.text(block.arguments, "calls")
            case _:
                return self.size(size_of_block(block), class_of(block))

    def size(self, size: Size, content: ContentClass = "results") -> int:
        """Tokens of a raw size of this content class."""
        ruled = estimate(size._replace(images=0))
        factor = self._densities.get(content, _Density()).factor
        return math.ceil(ruled * factor) + round(size.images * self._image_tokens)

    def categories(self, view: View) -> dict[Category, int]:
        """Tokens of the next request, per category; costs the same however long the conversation is."""
        return {category: self.size(size, CLASS_OF[category]) for category, size in view.sizes().items()}
