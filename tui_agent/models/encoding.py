"""Incremental encoding of requests as JSON.

The SDKs encode the whole conversation on every call, on the event loop (90 ms at 10,000 messages). Here, each message
is encoded once and its bytes are kept while it is part of the requests. So a call costs only what is new, and a prefix
always has the same bytes, in every process.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from hashlib import blake2b
from itertools import count, repeat
from typing import Generic, TypeAlias, TypeVar

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import (
    Block,
    Image,
    Reasoning,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    valid_text,
)
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.states import NO_OUTPUT
from tui_agent.conversation.wire import COUNTED_ID, fresh_id, is_object, next_id, read_opaque, with_pages

Fields: TypeAlias = dict[str, object]
Piece = TypeVar("Piece")

PICTURES = "(pictures of the results above)"
UNSEEN = "(a picture, which this model cannot see)"
_COMMON_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""Media types of pictures that every provider accepts."""


class MessageCache(Generic[Piece]):
    """Caches a piece, such as the JSON, for each message of the latest request.

    Keyed by the identity of the message and of the one before it, whose calls it may answer. A view returns the same
    object for an unchanged message.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[RequestMessage, RequestMessage | None, Piece]] = {}

    def of(
        self,
        messages: Iterable[RequestMessage],
        make: Callable[[RequestMessage, RequestMessage | None], Piece],
        *,
        variant: Hashable = None,
        keep: bool = True,
    ) -> list[Piece]:
        """A piece for each message. `make` is called only for those not in the cache, which is kept per `variant`.

        `keep`: cache the pieces of this request instead of those of the one before.
        """
        kept: dict[Hashable, tuple[RequestMessage, RequestMessage | None, Piece]] = {}
        pieces: list[Piece] = []
        before: RequestMessage | None = None
        for message in messages:
            key = (id(before), id(message), variant)
            made = self._made.get(key) or (message, before, make(message, before))
            kept[key] = made
            pieces.append(made[2])
            before = message
        if keep:
            self._made = kept
        return pieces


def encode(fields: object) -> bytes:
    """Encode as JSON, in the given order of the fields."""
    return msgspec.json.encode(fields)


def arguments_of(call: ToolCall) -> msgspec.Raw:
    """A call's arguments as raw JSON, to embed in a request."""
    return msgspec.Raw(call.arguments.encode() if is_object(call.arguments) else b"{}")


def schema_of(schema: str) -> msgspec.Raw:
    """A tool's JSON Schema as raw JSON, to embed in a request."""
    return msgspec.Raw(schema.encode() if is_object(schema) else b'{"type":"object"}')


def function_tools(tools: Iterable[ToolDefinition]) -> list[Fields]:
    """Tool definitions in the format of Chat Completions and Ollama."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": valid_text(tool.description),
                "parameters": schema_of(tool.schema),
            },
        }
        for tool in tools
        if not tool.hosted
    ]


def with_sources(blocks: tuple[Block, ...], pages: Mapping[str, str]) -> tuple[Block, ...]:
    """An answer whose text ends with the pages that the provider's web search found: titles by their addresses.

    Such an answer comes in many pieces of text, cut where it cites a page.
    """
    if not pages:
        return blocks
    text = "".join(block.text for block in blocks if isinstance(block, Text))
    rest = (block for block in blocks if not isinstance(block, Text))
    return (*rest, Text(valid_text(with_pages(text, pages))))


def unseen(image: Image) -> str:
    """The text in place of a picture of a kind that not every provider accepts; empty if it can be sent."""
    return "" if image.media_type in _COMMON_PICTURES else f"(a picture that cannot be shown here: {image.media_type})"


def result_text(result: ToolResult) -> str:
    """A result's text for APIs that have no error flag and accept no empty text."""
    text = valid_text(result.text) if result.text.strip() else NO_OUTPUT
    return f"Error: {text}" if result.is_error else text


def unused_id(given: str, taken: set[str]) -> str:
    """An id for a new call that is not in `taken`: `given` if possible. Adds it to `taken`."""
    call_id = valid_text(given)
    if COUNTED_ID.fullmatch(call_id):
        call_id = next(each for each in map(next_id, repeat(call_id), count(1)) if each not in taken)
    if not call_id or call_id in taken:
        call_id = fresh_id()
    taken.add(call_id)
    return call_id


def without_calls(message: RequestMessage) -> RequestMessage:
    """The message with calls and results as text, for models without tools; the same object if it has none."""
    if not any(isinstance(block, ToolCall | ToolResult) for block in message.blocks):
        return message
    blocks: list[Block] = []
    for block in message.blocks:
        match block:
            case ToolCall():
                blocks.append(Text(f"[called {block.name} with {block.arguments}]"))
            case ToolResult():
                blocks += [Text(f"[result of the call]\n{block.text}"), *block.images]
            case _:
                blocks.append(block)
    return RequestMessage(message.role, tuple(blocks))


_SIGNED = frozenset({"signature", "redacted", "encrypted", "details"})


def signed_texts(messages: Iterable[RequestMessage]) -> frozenset[str]:
    """The opaque texts of all blocks with signed reasoning."""
    opaque = {block.opaque for message in messages for block in message.blocks if block.opaque}
    return frozenset(text for text in opaque if not _SIGNED.isdisjoint(read_opaque(text)))


def signature_digest(opaque: str) -> str:
    """A short digest of a block's opaque text, under which a refusal of it is remembered."""
    return blake2b(opaque.encode(errors="replace"), digest_size=8).hexdigest()


def without_signed(message: RequestMessage, refused: Container[str]) -> RequestMessage:
    """The message without reasoning and signatures whose digest is among the refused; the same if it has none."""
    dropped = {block.opaque for block in message.blocks if block.opaque and signature_digest(block.opaque) in refused}
    if not dropped:
        return message
    blocks = [block for block in message.blocks if block.opaque not in dropped or not isinstance(block, Reasoning)]
    return structs.replace(
        message, blocks=tuple(structs.replace(each, opaque="") if each.opaque in dropped else each for each in blocks)
    )


def call_ids(messages: Iterable[RequestMessage]) -> frozenset[str]:
    """The ids of all calls in a request."""
    return frozenset(
        block.id
        for message in messages
        if message.role == "assistant"
        for block in message.blocks
        if isinstance(block, ToolCall)
    )
