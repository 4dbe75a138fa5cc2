"""Encodes requests for OpenAI's Chat Completions, which many servers implement."""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import COUNTED_ID, is_object, read_opaque, safe_id, safe_name
from tui_agent.models.encoding import (
    PICTURES,
    UNSEEN,
    Fields,
    MessageCache,
    encode,
    function_tools,
    result_text,
    unseen,
)
from tui_agent.models.gemini.request import SENTINEL, wants_signatures
from tui_agent.models.openai.service import Thoughts
from tui_agent.models.originals import original

LONGEST_ID = 40
"""The most characters of a call's id (OpenAI, Chat Completions)."""
LONGEST_NAME = 64
"""The most characters of a tool's name (OpenAI, function calling)."""

_STRICT_ID = re.compile(r"[a-zA-Z0-9]{9}")
_FRAGMENTED = ("reasoning.text", "reasoning.summary")
_BRIDGE_TEXT = "(I have read the results.)"


class ChatOptions(msgspec.Struct, frozen=True):
    """The parts of a request that depend on the server and the model.

    `limit`: the parameter with the most tokens of the answer. `sees`: the model accepts pictures. `counts`: ask for
    usage. `strict`: call ids must be nine letters or digits, and only the model may speak right after a result
    (Mistral). `counted`: call ids must look as the model writes them (Kimi K2). `empty`: an answer without text has an
    empty one (LM Studio).
    """

    model: str
    limit: str
    thoughts: Thoughts
    sees: bool
    counts: bool = True
    strict: bool = False
    effort: str = ""
    counted: bool = False
    empty: bool = False


class ChatEncoder:
    """Encodes requests; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self) -> None:
        self._pieces: MessageCache[bytes] = MessageCache()

    def encode(self, request: ModelRequest, options: ChatOptions) -> bytes:
        """The request's body, with the messages last, so that a longer conversation's body extends a shorter one's."""
        head: Fields = {"model": options.model, "stream": True, options.limit: request.max_tokens}
        if options.counts:
            head["stream_options"] = {"include_usage": True}
        if options.effort:
            head["reasoning_effort"] = "xhigh" if options.effort == "max" else options.effort
        if request.tools:
            head["tools"] = function_tools(request.tools)
        made = self._pieces.of(
            request.messages,
            lambda message, before: _encoded(message, before, options),
            variant=(options.thoughts, options.sees, options.strict, options.empty),
            keep=not request.one_off,
        )
        pieces = [piece for piece in made if piece]
        if request.system.strip():
            pieces.insert(0, encode({"role": "system", "content": valid_text(request.system)}))
        return encode(head)[:-1] + b',"messages":[' + b",".join(pieces) + b"]}"


def _encoded(message: RequestMessage, before: RequestMessage | None, options: ChatOptions) -> bytes:
    """One message's JSON: objects separated by commas; empty if nothing of it is sent."""
    if message.role == "assistant":
        return b",".join(map(encode, _assistant_message(message, options)))
    calls = [block for block in before.blocks if isinstance(block, ToolCall)] if before is not None else []
    return b",".join(map(encode, _user_message(message, {call.id: call.name for call in calls}, options)))


def _assistant_message(message: RequestMessage, options: ChatOptions) -> list[Fields]:
    texts: list[Block] = []
    calls: list[Fields] = []
    reasoning: list[str] = []
    details: list[Fields] = []
    for block in message.blocks:
        match block:
            case Text() if block.text.strip():
                texts.append(block)
            case Reasoning():
                reasoning.append(valid_text(block.text))
                for detail in _details(block):
                    _add_detail(detail, details)
            case ToolCall():
                call_id = _id(block.id, block.name, options)
                given = original("openai", block)
                calls += [call_for(block, call_id)] if given is None else [{**each, "id": call_id} for each in given]
    if not texts and not calls:
        return []
    none = "" if options.empty else None
    fields: Fields = {"role": "assistant", "content": _content(texts, options) if texts else none}
    if options.thoughts == "content":
        # DeepSeek and Kimi refuse calls without it, also those of other models, and for Kimi an empty one is none.
        thought = "\n\n".join(filter(str.strip, reasoning))
        fields["reasoning_content"] = thought or (" " if "kimi" in options.model.lower() else "")
    if options.thoughts == "details":
        details += _excuse(calls, details, options.model)
        if details:
            fields["reasoning_details"] = details
    if calls:
        fields["tool_calls"] = calls
    return [fields]


def _content(blocks: Sequence[Block], options: ChatOptions) -> str | list[Fields]:
    """Texts and pictures as a message's content: one text, or the list of parts if it is more than that."""
    parts: list[Fields] = []
    for block in blocks:
        given = original("openai", block)
        parts += [part_for(block, sees=options.sees)] if given is None else given
    texts = [text for part in parts if part.keys() == {"type", "text"} and isinstance(text := part["text"], str)]
    return "\n\n".join(texts) if len(texts) == len(parts) else parts


def part_for(block: Block, *, sees: bool = True) -> Fields:
    """A text or a picture as a part of a content; `sees`: the model accepts pictures."""
    if isinstance(block, Image):
        if instead := unseen(block) if sees else UNSEEN:
            return {"type": "text", "text": instead}
        return {"type": "image_url", "image_url": {"url": data_url(block)}}
    return {"type": "text", "text": valid_text(block.text) if isinstance(block, Text) else ""}


def call_for(call: ToolCall, call_id: str) -> Fields:
    """A call, under this id."""
    arguments = call.arguments if is_object(call.arguments) else "{}"
    return {"id": call_id, "type": "function", "function": {"name": short_name(call.name), "arguments": arguments}}


def result_for(result: ToolResult, call_id: str) -> Fields:
    """The message that answers the call with this id."""
    return {"role": "tool", "tool_call_id": call_id, "content": result_text(result)}


def _details(block: Reasoning) -> list[Fields]:
    """OpenRouter's details of reasoning, as they were streamed."""
    details = read_opaque(block.opaque).get("details", "")
    return [msgspec.json.decode(each, type=Fields) for each in msgspec.json.decode(details or "[]", type=list[str])]


def _excuse(calls: list[Fields], details: list[Fields], model: str) -> list[Fields]:
    """What excuses a step of another model, or of none, to Gemini behind OpenRouter, which wants it signed."""
    name = model.rpartition("/")[2]
    signed = any(detail.get("type") == "reasoning.encrypted" for detail in details)
    if not calls or signed or not name.startswith("gemini-") or not wants_signatures(name):
        return []
    kind = {"type": "reasoning.encrypted", "format": "google-gemini-v1", "index": 0}
    return [{**kind, "id": calls[0]["id"], "data": SENTINEL}]


def _add_detail(detail: Fields, before: list[Fields]) -> None:
    """Add a detail to those before it. Text is streamed in fragments, and its signature is that of the whole."""
    whole = before[-1] if before else {}
    same = all(whole.get(name) == detail.get(name) for name in ("type", "index"))
    if not same or detail.get("type") not in _FRAGMENTED or whole.get("signature"):
        before.append(detail)
        return
    for name in ("text", "summary"):
        begun, piece = whole.get(name), detail.get(name)
        if isinstance(begun, str) and isinstance(piece, str):
            detail = {**detail, name: begun + piece}
    whole |= {name: value for name, value in detail.items() if value is not None}


def _user_message(message: RequestMessage, called: Mapping[str, str], options: ChatOptions) -> list[Fields]:
    """A message with role user: a message for each tool result, then one for the user's text and pictures.

    `called`: the names of the tools that the results are of, by the calls' ids.
    """
    written: list[Fields] = []
    pictures: list[Block] = []
    said: list[Block] = []
    for block in message.blocks:
        match block:
            case ToolResult():
                call_id = _id(block.call_id, called.get(block.call_id, ""), options)
                given = original("openai", block)
                written += [{**(given[0] if given else result_for(block, call_id)), "tool_call_id": call_id}]
                pictures += block.images
            case Image() | Text() if not isinstance(block, Text) or block.text.strip():
                said.append(block)
    if pictures and not said and options.sees:
        said.append(Text(PICTURES))
    said += pictures
    if not said:
        return written
    if options.strict and written:
        written.append({"role": "assistant", "content": _BRIDGE_TEXT})
    return [*written, {"role": "user", "content": _content(said, options)}]


def _id(call_id: str, name: str, options: ChatOptions) -> str:
    if options.counted:
        number = int.from_bytes(blake2b(valid_text(call_id).encode(), digest_size=4).digest(), "big") % 10**9
        return call_id if COUNTED_ID.fullmatch(call_id) else f"functions.{short_name(name)}:{number}"
    if not options.strict:
        return short_id(call_id)
    return call_id if _STRICT_ID.fullmatch(call_id) else blake2b(valid_text(call_id).encode()).hexdigest()[:9]


def short_id(call_id: str) -> str:
    """A call's id, shortened to `LONGEST_ID`."""
    if len(call_id) <= LONGEST_ID and COUNTED_ID.fullmatch(call_id):
        return call_id
    safe = safe_id(call_id)
    return safe if len(safe) <= LONGEST_ID else safe_id(f"{call_id} ")  # what holds a blank is hashed


def short_name(name: str) -> str:
    """A tool's name, shortened to `LONGEST_NAME` and made valid even if the model made it up."""
    return safe_name(name)[:LONGEST_NAME]


def data_url(image: Image) -> str:
    """A picture as a ``data:`` URL."""
    return f"data:{image.media_type};base64,{image.data}"
