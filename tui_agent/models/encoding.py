"""A request's JSON, put together from pieces that are encoded once.

The SDKs walk and encode the whole conversation on every call, on the event loop (90 ms at 10,000 messages). Here each
message is encoded when it is first sent and its bytes are kept as long as the message is part of the next request, so
that a call costs what is new, and the prefix is the same bytes every time, in every process.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeAlias, TypeVar

import msgspec

from tui_agent.conversation.blocks import Block, Text, ToolCall, ToolResult
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.wire import is_object

Fields: TypeAlias = dict[str, object]
Piece = TypeVar("Piece")


class Pieces(Generic[Piece]):
    """What became of each message of the latest request.

    A message is told by its identity and that of the message before it, which holds the calls it answers: a view hands
    out the same object for an unchanged message.
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[RequestMessage, RequestMessage | None, Piece]] = {}

    def of(
        self,
        messages: Iterable[RequestMessage],
        make: Callable[[RequestMessage, RequestMessage | None], Piece],
        *,
        way: Hashable = None,
        keep: bool = True,
    ) -> list[Piece]:
        """A piece for each message, made anew only where it was not part of the latest request or made another `way`.

        `keep`: this is the latest one from here on.
        """
        kept: dict[Hashable, tuple[RequestMessage, RequestMessage | None, Piece]] = {}
        pieces: list[Piece] = []
        before: RequestMessage | None = None
        for message in messages:
            key = (id(before), id(message), way)
            made = self._made.get(key) or (message, before, make(message, before))
            kept[key] = made
            pieces.append(made[2])
            before = message
        if keep:
            self._made = kept
        return pieces


def encode(fields: object) -> bytes:
    """JSON in the order the fields were given."""
    return msgspec.json.encode(fields)


def arguments_of(call: ToolCall) -> msgspec.Raw:
    """A call's arguments, to be put into a request as they are."""
    return msgspec.Raw(call.arguments.encode() if is_object(call.arguments) else b"{}")


def schema_of(schema: str) -> msgspec.Raw:
    """A tool's JSON Schema, to be put into a request as it is."""
    return msgspec.Raw(schema.encode() if is_object(schema) else b'{"type":"object"}')


def without_calls(message: RequestMessage) -> RequestMessage:
    """A message as text, its calls and their results too: for a model that knows no tools. The same object where it
    has none.
    """
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
    return message._replace(blocks=tuple(blocks))


def call_ids(messages: Iterable[RequestMessage]) -> frozenset[str]:
    """The ids of all calls in a request."""
    return frozenset(
        block.id
        for message in messages
        if message.role == "assistant"
        for block in message.blocks
        if isinstance(block, ToolCall)
    )
