"""Encodes requests for the Gemini API's ``generateContent``."""

import re
from typing import NamedTuple

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.wire import read_opaque, safe_name
from tui_agent.models.encoding import Fields, Pieces, arguments_of, encode, schema_of

SENTINEL = "skip_thought_signature_validator"
"""Sent as the signature of calls that this model did not make (Gemini API, thought signatures)."""

_UNSIGNED = re.compile(r"gemini-(1|2)\b|gemma")
_THOUGHTLESS = re.compile(r"gemini-(1|2\.0)\b|gemma")
_NO_TEXT = "(no output)"


def wants_signatures(model: str) -> bool:
    """Whether the first call of a step must have a signature: from Gemini 3 on."""
    return _UNSIGNED.match(model) is None


class _CallKey(NamedTuple):
    """The fields of a call that its result repeats: the name, and the API's id (empty: none)."""

    name: str
    api_id: str


class RequestEncoder:
    """Encodes requests for one model; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._pieces: Pieces[bytes] = Pieces()

    def encode(self, request: ModelRequest) -> bytes:
        """The request's body."""
        head: Fields = {}
        if request.system.strip():
            head["systemInstruction"] = {"parts": [{"text": valid_text(request.system)}]}
        if request.tools:
            declarations = [
                {
                    "name": tool.name,
                    "description": valid_text(tool.description),
                    "parametersJsonSchema": schema_of(tool.schema),
                }
                for tool in request.tools
            ]
            head["tools"] = [{"functionDeclarations": declarations}]
        config: Fields = {"maxOutputTokens": request.max_tokens}
        if _THOUGHTLESS.match(self._model) is None:
            config["thinkingConfig"] = {"includeThoughts": True}
        head["generationConfig"] = config
        contents = filter(None, self._pieces.of(request.messages, self.encode_message))
        return encode(head)[:-1] + b',"contents":[' + b",".join(contents) + b"]}"

    def encode_message(self, message: RequestMessage, before: RequestMessage | None) -> bytes:
        """Encode one message, which may answer the calls of the message `before`; empty if nothing of it is sent."""
        if message.role == "assistant":
            role, parts = "model", self._assistant_message(message.blocks)
        else:
            role, parts = "user", _user_message(message.blocks, _calls_of(before))
        return encode({"role": role, "parts": parts}) if parts else b""

    def _assistant_message(self, blocks: tuple[Block, ...]) -> list[Fields]:
        parts: list[Fields] = []
        unsigned = wants_signatures(self._model)
        for block in blocks:
            match block:
                case Text() if block.text.strip():
                    parts += self._text(block)
                case ToolCall():
                    part: Fields = {"functionCall": _call(block)}
                    signature = self._signature(block.opaque)
                    if signature or unsigned:
                        part["thoughtSignature"] = signature or SENTINEL
                    unsigned = False
                    parts.append(part)
                case _:
                    pass  # thoughts are not sent back; their signatures travel with calls and text
        return parts

    def _text(self, block: Text) -> list[Fields]:
        part: Fields = {"text": valid_text(block.text)}
        signature = self._signature(block.opaque)
        if not signature:
            return [part]
        if "apart" in read_opaque(block.opaque):
            return [part, {"text": "", "thoughtSignature": signature}]
        return [{**part, "thoughtSignature": signature}]

    def _signature(self, opaque: str) -> str:
        """The signature, if it is this model's; else empty."""
        fields = read_opaque(opaque)
        return fields.get("signature", "") if fields.get("model") == self._model else ""


def _calls_of(message: RequestMessage | None) -> dict[str, _CallKey]:
    calls: dict[str, _CallKey] = {}
    for block in message.blocks if message is not None else ():
        if isinstance(block, ToolCall):
            calls[block.id] = _CallKey(safe_name(block.name), read_opaque(block.opaque).get("id", ""))
    return calls


def _call(call: ToolCall) -> Fields:
    fields: Fields = {"name": safe_name(call.name), "args": arguments_of(call)}
    api_id = read_opaque(call.opaque).get("id", "")
    return {"id": api_id, **fields} if api_id else fields


def _user_message(blocks: tuple[Block, ...], calls: dict[str, _CallKey]) -> list[Fields]:
    """The parts of a user message: tool results first."""
    answers: list[Fields] = []
    rest: list[Fields] = []
    for block in blocks:
        match block:
            case ToolResult():
                answers.append({"functionResponse": _answer(block, calls.get(block.call_id))})
                rest += [_image(image) for image in block.images]
            case Text() if block.text.strip():
                rest.append({"text": valid_text(block.text)})
            case Image():
                rest.append(_image(block))
            case Reasoning() | _:
                pass
    return answers + rest


def _answer(result: ToolResult, call: _CallKey | None) -> Fields:
    text = valid_text(result.text) if result.text.strip() else _NO_TEXT
    fields: Fields = {"id": call.api_id} if call is not None and call.api_id else {}
    fields["name"] = call.name if call is not None else "unnamed"
    fields["response"] = {"error" if result.is_error else "output": text}
    return fields


def _image(image: Image) -> Fields:
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}
