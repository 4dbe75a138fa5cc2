"""Encodes requests for OpenAI's Responses API, which is told not to store them."""

from hashlib import blake2b
from typing import NamedTuple

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import is_object, read_opaque
from tui_agent.models.encoding import NO_TEXT, Fields, Pieces, encode, schema_of
from tui_agent.models.openai.chat_request import data_url, short_id, short_name

SEPARATOR = "\n\n"
"""Separates the parts of a reasoning summary in a block."""


class ResponsesOptions(NamedTuple):
    """The parts of a request that depend on the model: whether it reasons, whether to ask for summaries of its
    reasoning (OpenAI: verified accounts only), and whether it accepts pictures.
    """

    model: str
    reasons: bool
    summaries: bool
    sees: bool = True


class ResponsesEncoder:
    """Encodes requests; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self) -> None:
        self._pieces: Pieces[bytes] = Pieces()

    def encode(self, request: ModelRequest, options: ResponsesOptions) -> bytes:
        """The request's body, with the messages last, so that a longer conversation's body extends a shorter one's."""
        head: Fields = {
            "model": options.model,
            "stream": True,
            "store": False,
            "max_output_tokens": request.max_tokens,
        }
        if options.reasons:
            head["include"] = ["reasoning.encrypted_content"]
            if options.summaries:
                head["reasoning"] = {"summary": "auto"}
        if request.system.strip():
            head["instructions"] = valid_text(request.system)
        if request.tools:
            head["tools"] = [
                {
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
        if pieces and not request.one_off:
            # Routes requests with the same prefix to the same cache (OpenAI, prompt caching).
            head["prompt_cache_key"] = blake2b(
                request.system.encode(errors="replace") + pieces[0], digest_size=16
            ).hexdigest()
        return encode(head)[:-1] + b',"input":[' + b",".join(pieces) + b"]}"


def _encoded(message: RequestMessage, options: ResponsesOptions) -> bytes:
    """One message's items, separated by commas; empty if nothing of it is sent."""
    items = (
        _assistant_message(message.blocks, options)
        if message.role == "assistant"
        else _user_message(message.blocks, options.sees)
    )
    return b",".join(map(encode, items))


def _assistant_message(blocks: tuple[Block, ...], options: ResponsesOptions) -> list[Fields]:
    items: list[Fields] = []
    for block in blocks:
        match block:
            case Text() if block.text.strip():
                content = [{"type": "output_text", "text": valid_text(block.text)}]
                phase = read_opaque(block.opaque).get("phase")
                told = {"phase": phase} if phase else {}
                items.append({"type": "message", "role": "assistant", "content": content, **told})
            case Reasoning() if options.reasons and (item := _reasoning(block)) is not None:
                items.append(item)
            case ToolCall():
                arguments = block.arguments if is_object(block.arguments) else "{}"
                items.append(
                    {
                        "type": "function_call",
                        "call_id": short_id(block.id),
                        "name": short_name(block.name),
                        "arguments": arguments,
                    }
                )
            case _:
                pass
    # The API refuses reasoning that nothing follows, as in an answer interrupted while the model was thinking.
    while items and items[-1]["type"] == "reasoning":
        items.pop()
    return items


def _reasoning(block: Reasoning) -> Fields | None:
    """The item as the API sent it; None if it is from another API."""
    told = read_opaque(block.opaque)
    if "encrypted" not in told:
        return None
    summary: list[Fields] = []
    start = 0
    for size in map(int, filter(None, told.get("parts", "").split(","))):
        summary.append({"type": "summary_text", "text": block.text[start : start + size]})
        start += size + len(SEPARATOR)
    return {
        "type": "reasoning",
        "id": told.get("id", ""),
        "summary": summary,
        "encrypted_content": told["encrypted"],
    }


def _user_message(blocks: tuple[Block, ...], sees: bool) -> list[Fields]:
    """A message with role user: the outputs of calls, then the user's text and pictures."""
    outputs: list[Fields] = []
    parts: list[Fields] = []
    for block in blocks:
        match block:
            case ToolResult():
                outputs.append(_output(block, sees))
            case Text() if block.text.strip():
                parts.append({"type": "input_text", "text": valid_text(block.text)})
            case Image():
                parts.append(_image(block, sees))
            case _:
                pass
    return [*outputs, {"type": "message", "role": "user", "content": parts}] if parts else outputs


def _output(result: ToolResult, sees: bool) -> Fields:
    text = valid_text(result.text) if result.text.strip() else "" if result.images else NO_TEXT
    text = f"Error: {text}" if result.is_error else text
    output: str | list[Fields] = text
    if result.images:
        output = [{"type": "input_text", "text": text}] if text else []
        output += [_image(image, sees) for image in result.images]
    return {"type": "function_call_output", "call_id": short_id(result.call_id), "output": output}


def _image(image: Image, sees: bool) -> Fields:
    if not sees:
        return {"type": "input_text", "text": "(a picture, which this model cannot see)"}
    return {"type": "input_image", "detail": "auto", "image_url": data_url(image)}
