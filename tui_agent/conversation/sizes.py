"""Raw sizes in characters and images, which are independent of any tokenizer."""

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolDefinition, ToolResult

Category: TypeAlias = Literal[
    "system", "tools", "user", "notices", "assistant", "reasoning", "calls", "results", "summaries"
]
CATEGORIES: tuple[Category, ...] = get_args(Category)


class TextSize(msgspec.Struct, frozen=True, gc=False):
    """Counts of ASCII characters, other characters, and images (a downscaled one counts as a fraction)."""

    ascii: int = 0
    other: int = 0
    images: float = 0

    @property
    def characters(self) -> int:
        return self.ascii + self.other

    def plus(self, more: "TextSize") -> "TextSize":
        return TextSize(self.ascii + more.ascii, self.other + more.other, self.images + more.images)

    def minus(self, less: "TextSize") -> "TextSize":
        return TextSize(self.ascii - less.ascii, self.other - less.other, self.images - less.images)


NOTHING = TextSize()


def total_size(sizes: Iterable[TextSize]) -> TextSize:
    total = NOTHING
    for size in sizes:
        total = total.plus(size)
    return total


def size_of_text(*texts: str) -> TextSize:
    plain = other = 0
    for text in texts:
        if text.isascii():
            plain += len(text)
        else:
            ascii_here = len(text.encode("ascii", "ignore"))
            plain += ascii_here
            other += len(text) - ascii_here
    return TextSize(plain, other)


def size_of_block(block: Block) -> TextSize:
    """The size of a block as it is sent. The opaque payload of reasoning counts as text."""
    match block:
        case Text():
            return size_of_text(block.text)
        case Reasoning():
            return size_of_text(block.text, block.opaque)
        case ToolCall():
            return size_of_text(block.name, block.arguments)
        case ToolResult():
            size = size_of_text(block.text)
            return size.plus(TextSize(images=sum(image.weight for image in block.images))) if block.images else size
        case Image():
            return TextSize(images=block.weight)


def size_of_tools(tools: Iterable[ToolDefinition]) -> TextSize:
    """The total size of the tool definitions, without deferred ones."""
    undeferred = (tool for tool in tools if not tool.deferred)
    return size_of_text(*(part for tool in undeferred for part in (tool.name, tool.description, tool.schema)))
