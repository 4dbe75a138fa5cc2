"""Encodes requests for OpenAI's Chat Completions, which many servers implement."""

import re
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import is_object, read_opaque, safe_id, safe_name
from tui_agent.models.encoding import Fields, Pieces, encode, function_tools, result_text, user_message_of
from tui_agent.models.openai.service import Thoughts

LONGEST_ID = 40
"""The most characters of a call's id (OpenAI, Chat Completions)."""
LONGEST_NAME = 64
"""The most characters of a tool's name (OpenAI, function calling)."""

_STRICT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_BRIDGE_TEXT = "(I have read the results.)"


class ChatOptions(NamedTuple):
    """The parts of a request that depend on the server and the model.

    `limit`: the parameter with the most tokens of the answer. `sees`: the model accepts pictures. `counts`: ask for
    usage. `strict`: call ids must be nine letters or digits, and only the model may speak right after a result
    (Mistral).
    """

    model: str
    limit: str
    thoughts: Thoughts
    sees: bool
    counts: bool = True
    strict: bool = False


class ChatEncoder:
    """Encodes requests; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self) -> None:
        self._pieces: Pieces[bytes] = Pieces()

    def encode(self, request: ModelRequest, options: ChatOptions) -> bytes:
        """The request's body, with the messages last, so that a longer conversation's body extends a shorter one's."""
        head: Fields = {"model": options.model, "stream": True, options.limit: request.max_tokens}
        if options.counts:
            head["stream_options"] = {"include_usage": True}
        if request.tools:
            head["tools"] = function_tools(request.tools)
        made = self._pieces.of(
            request.messages,
            lambda message, _: _encoded(message, options),
            variant=(options.thoughts, options.sees, options.strict),
            keep=not request.one_off,
        )
        pieces = [piece for piece in made if piece]
        if request.system.strip():
            pieces.insert(0, encode({"role": "system", "content": valid_text(request.system)}))
        return encode(head)[:-1] + b',"messages":[' + b",".join(pieces) + b"]}"


def _encoded(message: RequestMessage, options: ChatOptions) -> bytes:
    """One message's JSON: objects separated by commas; empty if nothing of it is sent."""
    fields = _assistant_message(message, options) if message.role == "assistant" else _user_message(message, options)
    return b",".join(map(encode, fields))


def _assistant_message(message: RequestMessage, options: ChatOptions) -> list[Fields]:
    thoughts: Thoughts = options.thoughts
    texts: list[str] = []
    calls: list[Fields] = []
    reasoning: list[str] = []
    details: list[object] = []
    for block in message.blocks:
        match block:
            case Text() if block.text.strip():
                texts.append(valid_text(block.text))
            case Reasoning():
                reasoning.append(valid_text(block.text))
                details += _details(block)
            case ToolCall():
                arguments = block.arguments if is_object(block.arguments) else "{}"
                function = {"name": short_name(block.name), "arguments": arguments}
                calls.append({"id": _id(block.id, options), "type": "function", "function": function})
            case _:
                pass
    if not texts and not calls:
        return []
    fields: Fields = {"role": "assistant", "content": "\n\n".join(texts) or None}
    if thoughts == "content" and (text := "\n\n".join(filter(str.strip, reasoning))):
        fields["reasoning_content"] = text
    if thoughts == "details" and details:
        fields["reasoning_details"] = details
    if calls:
        fields["tool_calls"] = calls
    return [fields]


def _details(block: Reasoning) -> list[object]:
    """OpenRouter's details of reasoning, which are sent back unchanged."""
    told = read_opaque(block.opaque).get("details", "")
    return [msgspec.Raw(each.encode()) for each in msgspec.json.decode(told, type=list[str])] if told else []


def _user_message(message: RequestMessage, options: ChatOptions) -> list[Fields]:
    """A message with role user: a message for each tool result, then one for the user's text and pictures."""
    asked = user_message_of(message, options.sees)
    results: list[Fields] = [
        {"role": "tool", "tool_call_id": _id(result.call_id, options), "content": result_text(result)}
        for result in asked.results
    ]
    if options.strict and results and (asked.text or asked.pictures):
        results.append({"role": "assistant", "content": _BRIDGE_TEXT})
    if not asked.pictures:
        return [*results, {"role": "user", "content": asked.text}] if asked.text else results
    parts: list[Fields] = [{"type": "text", "text": asked.text}] if asked.text else []
    parts += [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in asked.pictures]
    return [*results, {"role": "user", "content": parts}]


def _id(call_id: str, options: ChatOptions) -> str:
    if not options.strict:
        return short_id(call_id)
    return call_id if _STRICT_ID.fullmatch(call_id) else blake2b(valid_text(call_id).encode()).hexdigest()[:9]


def short_id(call_id: str) -> str:
    """A call's id, shortened to `LONGEST_ID`."""
    safe = safe_id(call_id)
    return safe if len(safe) <= LONGEST_ID else safe_id(f"{call_id} ")  # what holds a blank is hashed


def short_name(name: str) -> str:
    """A tool's name, shortened to `LONGEST_NAME` and made valid even if the model made it up."""
    return safe_name(name)[:LONGEST_NAME]


def data_url(image: Image) -> str:
    """A picture as a ``data:`` URL."""
    return f"data:{image.media_type};base64,{image.data}"
