"""A request's JSON, put together from pieces that are encoded once.

The SDKs walk and encode the whole conversation on every call, on the event loop (90 ms at 10,000 messages). Here each
message is encoded when it is first sent and its bytes are kept as long as the message is part of the next request, so
that a call costs what is new, and the prefix is the same bytes every time, in every process.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import msgspec

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolDefinition, ToolResult, valid_text
from tui_agent.conversation.request import RequestMessage
from tui_agent.conversation.wire import fresh_id, is_object

Fields: TypeAlias = dict[str, object]
Piece = TypeVar("Piece")

NO_TEXT = "(no output)"
_PICTURES = "(pictures of the results above)"
_UNSEEN = "(a picture, which this model cannot see)"


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


def function_tools(tools: Iterable[ToolDefinition]) -> list[Fields]:
    """Definitions as Chat Completions has them, and Ollama after it."""
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
    ]


def result_text(result: ToolResult) -> str:
    """A result's text where there is no other way to say that it is an error, and none may be empty."""
    text = valid_text(result.text) if result.text.strip() else NO_TEXT
    return f"Error: {text}" if result.is_error else text


class Asked(NamedTuple):
    """A message of the user's: the results in it, what the user said, and the pictures to be shown of both."""

    results: list[ToolResult]
    text: str
    pictures: list[Image]


def asked_in(message: RequestMessage, sees: bool) -> Asked:
    """What a message asks, where pictures are shown in a user's message alone; `sees`: whether they are at all."""
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    texts = [valid_text(block.text) for block in message.blocks if isinstance(block, Text) and block.text.strip()]
    pictures: list[Image] = []
    for block in message.blocks:
        pictures += [block] if isinstance(block, Image) else block.images if isinstance(block, ToolResult) else ()
    if not sees:
        texts += [_UNSEEN] * len(pictures)
        pictures = []
    return Asked(results, "\n\n".join(texts) or (_PICTURES if results and pictures else ""), pictures)


def own_id(given: str, taken: set[str]) -> str:
    """The id of a new call, which none of the conversation has yet: the `given` one where there is one."""
    call_id = valid_text(given)
    if not call_id or call_id in taken:
        call_id = fresh_id()
    taken.add(call_id)
    return call_id


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
