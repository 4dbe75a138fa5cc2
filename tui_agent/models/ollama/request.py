"""A request as the JSON of Ollama's ``/api/chat``."""

from typing import NamedTuple

from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import safe_id, safe_name
from tui_agent.models.encoding import Fields, Pieces, arguments_of, asked_in, encode, function_tools, result_text


class Options(NamedTuple):
    """What of a request depends on the model: its name, the context it is loaded with (0: not ours to size), whether
    it is asked to think, and whether it sees pictures.
    """

    model: str
    context: int
    thinks: bool
    sees: bool


class Encoded(NamedTuple):
    """A request's body, and its size in bytes without pictures."""

    body: bytes
    size: int


class _Piece(NamedTuple):
    """One message's JSON: several objects, separated by commas; empty where nothing of it is sent."""

    data: bytes
    size: int


class RequestEncoder:
    """Encodes requests, keeping each message's bytes as long as it is part of the latest one."""

    def __init__(self) -> None:
        self._pieces: Pieces[_Piece] = Pieces()

    def encode(self, request: ModelRequest, options: Options) -> Encoded:
        """The request's body. What grows comes last: a longer conversation's body begins as a shorter one's.

        ``truncate`` and ``shift`` (Ollama 0.12.6 and later) make it refuse what does not fit, instead of leaving out
        the oldest messages, before or while it answers.
        """
        head: Fields = {"model": options.model, "stream": True, "truncate": False, "shift": False}
        if options.thinks:
            head["think"] = True
        sized = {"num_ctx": options.context} if options.context else {}
        head["options"] = {**sized, "num_predict": request.max_tokens}
        if request.tools:
            head["tools"] = function_tools(request.tools)
        sees = options.sees
        made = self._pieces.of(request.messages, lambda message, before: _encoded(message, before, sees), way=sees)
        pieces = [piece for piece in made if piece.data]
        if request.system.strip():
            system = encode({"role": "system", "content": valid_text(request.system)})
            pieces.insert(0, _Piece(system, len(system)))
        begin = encode(head)[:-1]
        body = begin + b',"messages":[' + b",".join(piece.data for piece in pieces) + b"]}"
        return Encoded(body, len(begin) + sum(piece.size for piece in pieces))


def _encoded(message: RequestMessage, before: RequestMessage | None, sees: bool) -> _Piece:
    fields = _said(message) if message.role == "assistant" else _asked(message, _names_of(before), sees)
    data = b",".join(map(encode, fields))
    pictures = sum(len(image) for field in fields for image in _images_in(field))
    return _Piece(data, len(data) - pictures)


def _images_in(field: Fields) -> list[str]:
    images = field.get("images")
    return images if isinstance(images, list) else []


def _said(message: RequestMessage) -> list[Fields]:
    """The assistant's message. Its template leaves out the thinking that is not wanted any more."""
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
            case _:
                pass
    if not texts and not calls:
        return []
    fields: Fields = {"role": "assistant", "content": "\n\n".join(texts)}
    if thinking:
        fields["thinking"] = "\n\n".join(thinking)
    if calls:
        fields["tool_calls"] = calls
    return [fields]


def _asked(message: RequestMessage, names: dict[str, str], sees: bool) -> list[Fields]:
    """The results, a message each, then what the user said."""
    asked = asked_in(message, sees)
    results: list[Fields] = [
        {
            "role": "tool",
            "content": result_text(result),
            "tool_name": names.get(result.call_id, "unnamed"),
            "tool_call_id": safe_id(result.call_id),
        }
        for result in asked.results
    ]
    if not asked.text and not asked.pictures:
        return results
    said: Fields = {"role": "user", "content": asked.text}
    if asked.pictures:
        said["images"] = [image.data for image in asked.pictures]
    return [*results, said]


def _names_of(message: RequestMessage | None) -> dict[str, str]:
    blocks = message.blocks if message is not None else ()
    return {block.id: safe_name(block.name) for block in blocks if isinstance(block, ToolCall)}
