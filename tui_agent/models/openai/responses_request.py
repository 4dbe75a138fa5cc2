"""Encodes requests for OpenAI's Responses API, which is told not to store them."""

from collections.abc import Callable
from hashlib import blake2b

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import is_object, read_opaque
from tui_agent.models.encoding import UNSEEN, Fields, MessageCache, encode, result_text, schema_of, unseen
from tui_agent.models.openai.chat_request import data_url, short_id, short_name
from tui_agent.models.originals import original

SEPARATOR = "\n\n"
"""Separates the parts of a reasoning summary in a block."""


class ResponsesOptions(msgspec.Struct, frozen=True):
    """The parts of a request that depend on the model: whether it reasons, whether to ask for summaries of its
    reasoning (OpenAI: verified accounts only), and whether it accepts pictures. `status`: what it said has a status,
    which vLLM and gateways that hold to the reference demand; OpenAI does without.
    """

    model: str
    reasons: bool
    summaries: bool
    sees: bool = True
    effort: str = ""
    status: bool = False


class ResponsesEncoder:
    """Encodes requests; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self) -> None:
        self._pieces: MessageCache[bytes] = MessageCache()

    def encode(self, request: ModelRequest, options: ResponsesOptions) -> bytes:
        """The request's body, with the messages last, so that a longer conversation's body extends a shorter one's."""
        answers = request.summarize is None
        head: Fields = {"model": options.model}
        if answers:
            head |= {"stream": True, "store": False, "max_output_tokens": request.max_tokens}
        if options.reasons and answers:
            head["include"] = ["reasoning.encrypted_content"]
            reasoning: Fields = {"summary": "auto"} if options.summaries else {}
            if options.effort:
                reasoning["effort"] = "xhigh" if options.effort == "max" else options.effort
            if reasoning:
                head["reasoning"] = reasoning
        if request.system.strip():
            head["instructions"] = valid_text(request.system)
        if request.tools and answers:
            head["tools"] = [
                {"type": "web_search"}
                if tool.hosted
                else {
                    "type": "function",
                    "name": tool.name,
                    "description": valid_text(tool.description),
                    "parameters": schema_of(tool.schema),
                    "strict": False,
                }
                for tool in request.tools
            ]
        made = self._pieces.of(
            request.messages, lambda message, _: _encoded(message, options), variant=options, keep=not request.one_off
        )
        pieces = [piece for piece in made if piece]
        if pieces and answers and not request.one_off:
            # Routes requests with the same prefix to the same cache (OpenAI, prompt caching).
            head["prompt_cache_key"] = blake2b(
                request.system.encode(errors="replace") + pieces[0], digest_size=16
            ).hexdigest()
        return encode(head)[:-1] + b',"input":[' + b",".join(pieces) + b"]}"


def _encoded(message: RequestMessage, options: ResponsesOptions) -> bytes:
    """One message's items, separated by commas; empty if nothing of it is sent."""
    items: list[Fields] = []
    parts: list[Fields] = []
    compacted = b""
    for block in message.blocks:
        if isinstance(block, Text) and (window := read_opaque(block.opaque).get("compacted")):
            compacted = window.encode()  # it takes the place of the text, byte for byte
            continue
        given = original("responses", block)
        if isinstance(block, Reasoning) and not options.reasons:
            continue
        for each in items_for(block, message.role, short_id, sees=options.sees) if given is None else given:
            if "call_id" in each and isinstance(block, ToolCall | ToolResult):
                each["call_id"] = short_id(block.id if isinstance(block, ToolCall) else block.call_id)
            # Whatever else the user says follows the outputs as one message.
            if each.get("type") in PART_TYPES and message.role == "user":
                parts.append(each)
            else:
                items.append(_in_message(each, options) if each.get("type") in PART_TYPES else each)
    # The API refuses reasoning that nothing follows, as in an answer interrupted while the model was thinking.
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    if parts:
        items.append({"type": "message", "role": "user", "content": parts})
    return b",".join(filter(None, (compacted, *map(encode, items))))


PART_TYPES = frozenset({"input_text", "output_text", "input_image", "input_file", "input_audio", "refusal"})


def _in_message(part: Fields, options: ResponsesOptions) -> Fields:
    """A part of what the model said, as a message of its own."""
    extra = {"phase": phase} if (phase := part.pop("phase", None)) else {}
    if options.status:
        extra["status"] = "completed"
    if part.get("type") == "output_text":
        part = {**part, "annotations": part.get("annotations") or []}
    return {"type": "message", "role": "assistant", "content": [part], **extra}


def items_for(block: Block, role: str, call_id: Callable[[str], str], *, sees: bool = True) -> list[Fields]:
    """A block as items of the API, or as parts of a message; `call_id` gives the ids of calls."""
    match block:
        case Text() if block.text.strip() and role == "assistant":
            phase = read_opaque(block.opaque).get("phase")
            part: Fields = {"type": "output_text", "text": valid_text(block.text)}
            return [{**part, "phase": phase} if phase else part]
        case Text() if block.text.strip():
            return [{"type": "input_text", "text": valid_text(block.text)}]
        case Image() if role == "user":
            return [_image(block, sees)]
        case Reasoning():
            return _reasoning(block)
        case ToolCall():
            arguments = block.arguments if is_object(block.arguments) else "{}"
            named = {"call_id": call_id(block.id), "name": short_name(block.name)}
            return [{"type": "function_call", **named, "arguments": arguments}]
        case ToolResult():
            text = result_text(block) if block.text.strip() or block.is_error or not block.images else ""
            output: str | list[Fields] = text
            if block.images:
                output = [{"type": "input_text", "text": text}] if text else []
                output += [_image(image, sees) for image in block.images]
            return [{"type": "function_call_output", "call_id": call_id(block.call_id), "output": output}]
        case _:
            return []


def _reasoning(block: Reasoning) -> list[Fields]:
    """The item as the API sent it; none if it is from another API."""
    opaque = read_opaque(block.opaque)
    if "encrypted" not in opaque:
        return []
    summary: list[Fields] = []
    start = 0
    for size in map(int, filter(None, opaque.get("parts", "").split(","))):
        summary.append({"type": "summary_text", "text": block.text[start : start + size]})
        start += size + len(SEPARATOR)
    told = {"id": opaque.get("id", ""), "summary": summary, "encrypted_content": opaque["encrypted"]}
    return [{"type": "reasoning", **told}]


def _image(image: Image, sees: bool) -> Fields:
    if instead := unseen(image) if sees else UNSEEN:
        return {"type": "input_text", "text": instead}
    return {"type": "input_image", "detail": "auto", "image_url": data_url(image)}
