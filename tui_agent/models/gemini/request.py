"""Encodes requests for the Gemini API's ``generateContent``."""

from collections.abc import Mapping

import msgspec

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.request import ModelRequest, RequestMessage
from tui_agent.conversation.states import NO_OUTPUT
from tui_agent.conversation.wire import read_opaque, safe_name
from tui_agent.models.encoding import Fields, MessageCache, arguments_of, encode, schema_of, unseen
from tui_agent.models.originals import original
from tui_agent.regex import regex

SENTINEL = "skip_thought_signature_validator"
"""Sent as the signature of calls that this model did not make (Gemini API, thought signatures)."""

_UNSIGNED = regex(r"gemini-(1|2)\b|gemma")
_BUDGETS = {"low": 1_024, "medium": 8_192, "high": 24_576}
"""Tokens that stand for a level (Gemini API: OpenAI compatibility)."""
_THOUGHTLESS = regex(r"gemini-(1|2\.0)\b|gemma")


def _thinking(model: str, effort: str) -> Fields:
    """How much to think: a level from Gemini 3 on, a budget in tokens before (Gemini API: thinking)."""
    if not effort:
        return {}
    if _UNSIGNED.match(model) is not None:
        return {"thinkingBudget": _BUDGETS.get(effort, _BUDGETS["high"])}
    return {"thinkingLevel": effort if effort in ("low", "medium") else "high"}


def wants_signatures(model: str) -> bool:
    """Whether the first call of a step must have a signature: from Gemini 3 on."""
    return _UNSIGNED.match(model) is None


class CallKey(msgspec.Struct, frozen=True):
    """The fields of a call that its result repeats: the name, and the API's id (empty: none)."""

    name: str
    api_id: str


class GeminiEncoder:
    """Encodes requests for one model; keeps the bytes of each message while it is part of the latest request."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._pieces: MessageCache[bytes] = MessageCache()

    def encode(self, request: ModelRequest, effort: str = "") -> bytes:
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
                if not tool.hosted
            ]
            given: list[Fields] = [{"functionDeclarations": declarations}] if declarations else []
            head["tools"] = [*given, {"googleSearch": {}}] if len(declarations) < len(request.tools) else given
        config: Fields = {"maxOutputTokens": request.max_tokens}
        if _THOUGHTLESS.match(self._model) is None:
            config["thinkingConfig"] = {"includeThoughts": True, **_thinking(self._model, effort)}
        head["generationConfig"] = config
        contents = filter(None, self._pieces.of(request.messages, self.encode_message))
        return encode(head)[:-1] + b',"contents":[' + b",".join(contents) + b"]}"

    def encode_message(self, message: RequestMessage, before: RequestMessage | None) -> bytes:
        """Encode one message, which may answer the calls of the message `before`, as contents separated by commas.

        Empty if nothing of it is sent.
        """
        unsigned, calls = wants_signatures(self._model), _calls_of(before)
        parts: list[Fields] = []
        for block in message.blocks:
            given = original("gemini", block) if made_by(block.opaque) in ("", self._model) else None
            parts += parts_for(block, message.role, self._model, calls, unsigned=unsigned) if given is None else given
            unsigned = unsigned and not isinstance(block, ToolCall)
        if message.role == "assistant":
            return encode({"role": "model", "parts": parts}) if parts else b""
        answers = [part for part in parts if "functionResponse" in part]
        said = [part for part in parts if "functionResponse" not in part]
        # Later models refuse responses that share a content with anything else, earlier ones two contents of one role.
        contents = (answers, said) if wants_signatures(self._model) else ([*answers, *said],)
        return b",".join(encode({"role": "user", "parts": each}) for each in contents if each)


def _calls_of(message: RequestMessage | None) -> dict[str, CallKey]:
    calls: dict[str, CallKey] = {}
    for block in message.blocks if message is not None else ():
        if isinstance(block, ToolCall):
            calls[block.id] = CallKey(safe_name(block.name), read_opaque(block.opaque).get("id", ""))
    return calls


def made_by(opaque: str) -> str:
    """The model whose signature is in a block's opaque text; empty if there is none."""
    return read_opaque(opaque).get("model", "")


def parts_for(
    block: Block, role: str, model: str | None, calls: Mapping[str, CallKey], *, unsigned: bool
) -> list[Fields]:
    """A block's parts of a message, for this model (None: for the one that made it).

    `calls` are those that the message answers. `unsigned`: a call of another model, or of none, has to be excused.
    """
    match block:
        case Text() if block.text.strip():
            part: Fields = {"text": valid_text(block.text)}
            signature = _signature(block.opaque, model)
            if not signature:
                return [part]
            if "apart" in read_opaque(block.opaque):
                return [part, {"text": "", "thoughtSignature": signature}]
            return [{**part, "thoughtSignature": signature}]
        case ToolCall():
            api_id = read_opaque(block.opaque).get("id", "")
            fields: Fields = {"name": safe_name(block.name), "args": arguments_of(block)}
            part = {"functionCall": {"id": api_id, **fields} if api_id else fields}
            if signature := _signature(block.opaque, model) or (SENTINEL if unsigned else ""):
                part["thoughtSignature"] = signature
            return [part]
        case ToolResult():
            answer: Fields = {"functionResponse": _answer(block, calls.get(block.call_id))}
            return [answer, *map(_image, block.images)]
        case Image() if role == "user":
            return [_image(block)]
        case _:
            return []  # thoughts are not sent back; their signatures travel with calls and text


def _signature(opaque: str, model: str | None) -> str:
    """The signature, if it is this model's; else empty."""
    fields = read_opaque(opaque)
    return fields.get("signature", "") if model in (None, fields.get("model")) else ""


def _answer(result: ToolResult, call: CallKey | None) -> Fields:
    text = valid_text(result.text) if result.text.strip() else NO_OUTPUT
    fields: Fields = {"id": call.api_id} if call is not None and call.api_id else {}
    fields["name"] = call.name if call is not None else "unnamed"
    fields["response"] = {"error" if result.is_error else "output": text}
    return fields


def _image(image: Image) -> Fields:
    if instead := unseen(image):
        return {"text": instead}
    return {"inlineData": {"mimeType": image.media_type, "data": image.data}}
