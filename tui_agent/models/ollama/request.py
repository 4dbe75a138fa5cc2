"""Encodes requests for Ollama's ``/api/chat``."""

import msgspec

from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import safe_id, safe_name
from tui_agent.models.encoding import (
    PICTURES,
    UNSEEN,
    Fields,
    MessageCache,
    arguments_of,
    encode,
    function_tools,
    result_text,
    unseen,
)


class OllamaOptions(msgspec.Struct, frozen=True):
    """The parts of a request that depend on the model: its name, the context to load it with, in tokens (0: do not
    say), whether to ask for thinking, and whether it accepts pictures.
    """

    model: str
    context: int
    thinks: bool
    sees: bool
    effort: str = ""


class Piece(msgspec.Struct, frozen=True):
    """JSON, and its size in bytes without pictures: of a request, or of one message, which is empty or some objects
    separated by commas.
    """

    data: bytes
    size: int


class OllamaEncoder:
    """Encodes requests; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self) -> None:
        self._pieces: MessageCache[Piece] = MessageCache()

    def encode(self, request: ModelRequest, options: OllamaOptions) -> Piece:
        """The request's body, with the messages last, so that a longer conversation's body extends a shorter one's.

        ``truncate`` and ``shift`` (from Ollama 0.12.6) make it refuse a request that does not fit, instead of silently
        dropping the oldest messages before or during the answer.
        """
        head: Fields = {"model": options.model, "stream": True, "truncate": False, "shift": False}
        if options.thinks:
            # Only some models know levels; Ollama takes them for a plain yes where they are not known.
            head["think"] = {"": True, "low": "low", "medium": "medium"}.get(options.effort, "high")
        sized = {"num_ctx": options.context} if options.context else {}
        head["options"] = {**sized, "num_predict": request.max_tokens}
        if request.tools:
            head["tools"] = function_tools(request.tools)
        sees = options.sees
        made = self._pieces.of(request.messages, lambda message, before: _encoded(message, before, sees), variant=sees)
        pieces = [piece for piece in made if piece.data]
        if request.system.strip():
            system = encode({"role": "system", "content": valid_text(request.system)})
            pieces.insert(0, Piece(system, len(system)))
        begin = encode(head)[:-1]
        body = begin + b',"messages":[' + b",".join(piece.data for piece in pieces) + b"]}"
        return Piece(body, len(begin) + sum(piece.size for piece in pieces))


def _encoded(message: RequestMessage, before: RequestMessage | None, sees: bool) -> Piece:
    fields = (
        _assistant_message(message) if message.role == "assistant" else _user_message(message, _names_of(before), sees)
    )
    data = b",".join(map(encode, fields))
    pictures = sum(len(image) for field in fields for image in _images_in(field))
    return Piece(data, len(data) - pictures)


def _images_in(field: Fields) -> list[str]:
    images = field.get("images")
    return images if isinstance(images, list) else []


def _assistant_message(message: RequestMessage) -> list[Fields]:
    """An assistant's message. The model's template drops thinking that it no longer needs."""
    texts: list[str] = []
    thinking: list[str] = []
    calls: list[Fields] = []
    for block in message.blocks:
        match block:
            case Text() if block.text.strip():
                texts.append(valid_text(block.text))
            case Reasoning() if block.text.strip():
                thinking.append(valid_text(block.text))
            case ToolCall():
                function = {"index": len(calls), "name": safe_name(block.name), "arguments": arguments_of(block)}
                calls.append({"id": safe_id(block.id), "function": function})
    if not texts and not calls:
        return []
    fields: Fields = {"role": "assistant", "content": "\n\n".join(texts)}
    if thinking:
        fields["thinking"] = "\n\n".join(thinking)
    if calls:
        fields["tool_calls"] = calls
    return [fields]


def _user_message(message: RequestMessage, names: dict[str, str], sees: bool) -> list[Fields]:
    """A message with role user: a message for each tool result, then one for the user's text and pictures."""
    results: list[Fields] = []
    texts: list[str] = []
    instead: list[str] = []
    pictures: list[str] = []
    for block in message.blocks:
        images: tuple[Image, ...] = ()
        match block:
            case ToolResult():
                name = names.get(block.call_id, "unnamed")
                result: Fields = {"role": "tool", "content": result_text(block), "tool_name": name}
                results.append({**result, "tool_call_id": safe_id(block.call_id)})
                images = block.images
            case Text() if block.text.strip():
                texts.append(valid_text(block.text))
            case Image():
                images = (block,)
        for image in images:
            if told := unseen(image) if sees else UNSEEN:
                instead.append(told)
            else:
                pictures.append(image.data)
    text = "\n\n".join((*texts, *instead)) or (PICTURES if results and pictures else "")
    if not text and not pictures:
        return results
    said: Fields = {"role": "user", "content": text}
    if pictures:
        said["images"] = pictures
    return [*results, said]


def _names_of(message: RequestMessage | None) -> dict[str, str]:
    blocks = message.blocks if message is not None else ()
    return {block.id: safe_name(block.name) for block in blocks if isinstance(block, ToolCall)}
