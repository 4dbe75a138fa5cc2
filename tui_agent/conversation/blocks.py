"""What a message is made of.

Blocks are frozen and always encode to the same bytes. They form no reference cycles, so the garbage collector need not
track them (`gc=False`). Data that only one provider understands, such as a signature or a redacted payload, travels in
a block's `opaque` string: that provider's adapter writes it, and only that adapter reads it and sends it back.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec


class Text(msgspec.Struct, frozen=True, gc=False, tag="text", omit_defaults=True):
    """Text by the user or the model."""

    text: str
    opaque: str = ""


class Reasoning(msgspec.Struct, frozen=True, gc=False, tag="reasoning", omit_defaults=True):
    """The model's reasoning; `text` may be empty if the provider returns only a signature. It is never sent to a model
    other than the one that wrote the message.
    """

    text: str
    opaque: str = ""


class ToolCall(msgspec.Struct, frozen=True, gc=False, tag="tool_call", omit_defaults=True):
    """A call that the model requests.

    `arguments` is always the text of one JSON object. If the model wrote something else, `arguments` is ``{}`` and
    `malformed` holds what it wrote.
    """

    id: str
    name: str
    arguments: str
    opaque: str = ""
    malformed: str = ""


class Image(msgspec.Struct, frozen=True, gc=False, tag="image", omit_defaults=True):
    """A picture, base64-encoded; `media_type` is ``image/png``, ``image/jpeg``, ``image/gif`` or ``image/webp``.

    `weight` is what it counts compared with a picture of full size; one that was scaled down counts less. `original` is
    the file with the original picture, relative to the session's folder; empty: this is the original.
    """

    media_type: str
    data: str
    opaque: str = ""
    weight: float = 1.0
    original: str = ""


class ToolResult(msgspec.Struct, frozen=True, gc=False, tag="tool_result", omit_defaults=True):
    """The result of one call: text as the model sees it, and pictures. `tools` are the tools found by the call:
    providers with deferred definitions show the model these, others show the text.
    """

    call_id: str
    text: str
    is_error: bool = False
    images: tuple[Image, ...] = ()
    opaque: str = ""
    tools: "tuple[ToolDefinition, ...]" = ()


Block: TypeAlias = Text | Reasoning | ToolCall | ToolResult | Image


class ToolDefinition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool's definition as sent to the model. `schema` is the JSON Schema of the arguments (an object), as JSON text.

    `deferred`: the definition is withheld until the model finds it with a tool search. `hosted`: the provider's own web
    search, which it runs itself while it answers.
    """

    name: str
    description: str
    schema: str
    deferred: bool = False
    hosted: bool = False


def text_in(blocks: Iterable[Block], kind: type[Text] | type[Reasoning] = Text, between: str = "\n\n") -> str:
    """The texts of all blocks of this kind, separated by blank lines."""
    return between.join(block.text for block in blocks if isinstance(block, kind) and block.text)


def valid_text(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD, so that it always encodes as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
