"""A request as the JSON of Chat Completions, as OpenAI defined it and many servers speak it."""

import re
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from tui_agent.conversation.blocks import Image, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import is_object, read_opaque, safe_id, safe_name
from tui_agent.models.encoding import Fields, Pieces, asked_in, encode, function_tools, result_text
from tui_agent.models.openai.service import Thoughts

LONGEST_ID = 40
"""Characters of a call's id (OpenAI, Chat Completions)."""
LONGEST_NAME = 64
"""Characters of a tool's name (OpenAI, function calling)."""

_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_BETWEEN = "(I have read the results.)"


class ChatOptions(NamedTuple):
    """What of a request depends on the server and the model: `limit` is the name of the most tokens of an answer,
    `sees` whether the model takes pictures, `counts` whether the server is asked to tell what was used. `strict`: the
    ids of calls have nine letters and digits, and nobody but the model speaks right after a result (Mistral).
    """

    model: str
    limit: str
    thoughts: Thoughts
    sees: bool
    counts: bool = True
    strict: bool = False


class ChatEncoder:
    """Encodes requests, keeping each message's bytes as long as it is part of the latest one."""

    def __init__(self) -> None:
        self._pieces: Pieces[bytes] = Pieces()

    def encode(self, request: ModelRequest, options: ChatOptions) -> bytes:
        """The request's body. What grows comes last: a longer conversation's body begins as a shorter one's."""
        head: Fields = {"model": options.model, "stream": True, options.limit: request.max_tokens}
        if options.counts:
            head["stream_options"] = {"include_usage": True}
        if request.tools:
            head["tools"] = function_tools(request.tools)
        made = self._pieces.of(
            request.messages,
            lambda message, _: _encoded(message, options),
            way=(options.thoughts, options.sees, options.strict),
            keep=not request.one_off,
        )
        pieces = [piece for piece in made if piece]
        if request.system.strip():
            pieces.insert(0, encode({"role": "system", "content": valid_text(request.system)}))
        return encode(head)[:-1] + b',"messages":[' + b",".join(pieces) + b"]}"


def _encoded(message: RequestMessage, options: ChatOptions) -> bytes:
    """One message's JSON: several objects, separated by commas; empty where nothing of it is sent."""
    fields = _said(message, options) if message.role == "assistant" else _asked(message, options)
    return b",".join(map(encode, fields))


def _said(message: RequestMessage, options: ChatOptions) -> list[Fields]:
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
    """The pieces of reasoning as OpenRouter gave them; they go back as they came."""
    told = read_opaque(block.opaque).get("details", "")
    return [msgspec.Raw(each.encode()) for each in msgspec.json.decode(told, type=list[str])] if told else []


def _asked(message: RequestMessage, options: ChatOptions) -> list[Fields]:
    """The results, a message each, then what the user said."""
    asked = asked_in(message, options.sees)
    results: list[Fields] = [
        {"role": "tool", "tool_call_id": _id(result.call_id, options), "content": result_text(result)}
        for result in asked.results
    ]
    if options.strict and results and (asked.text or asked.pictures):
        results.append({"role": "assistant", "content": _BETWEEN})
    if not asked.pictures:
        return [*results, {"role": "user", "content": asked.text}] if asked.text else results
    parts: list[Fields] = [{"type": "text", "text": asked.text}] if asked.text else []
    parts += [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in asked.pictures]
    return [*results, {"role": "user", "content": parts}]


def _id(call_id: str, options: ChatOptions) -> str:
    if not options.strict:
        return short_id(call_id)
    return call_id if _NINE.fullmatch(call_id) else blake2b(valid_text(call_id).encode()).hexdigest()[:9]


def short_id(call_id: str) -> str:
    """A call's id as these servers accept it, which is shorter than elsewhere."""
    safe = safe_id(call_id)
    return safe if len(safe) <= LONGEST_ID else safe_id(f"{call_id} ")  # what holds a blank is hashed


def short_name(name: str) -> str:
    """A tool's name as these servers accept it, also where a model made one up."""
    return safe_name(name)[:LONGEST_NAME]


def data_url(image: Image) -> str:
    """A picture as an address that holds it."""
    return f"data:{image.media_type};base64,{image.data}"
