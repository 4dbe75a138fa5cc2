"""Message lists of the Gemini API: contents.

In a block's opaque text, `thought` and `thoughtSignature` are those of a reasoning part; `after` holds parts after the
block that have only a signature, if the block itself has no field for it.
"""

import base64
import json
from collections.abc import Sequence
from typing import Final

from msgspec import structs
from typing_extensions import override

from tui_agent.context.forms.shared import (
    ASSISTANT,
    USER,
    Fields,
    Json,
    Place,
    Reader,
    Writer,
    arguments_at,
    as_json,
    can_be_shown,
    checked_picture,
    digest,
    items,
    kept,
    mapping,
    marked,
    own,
    rest,
    text_at,
    text_of,
    unseen,
    with_text,
)
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Message, Role
from tui_agent.conversation.wire import read_opaque, safe_name, write_opaque

SENTINEL: Final = "skip_thought_signature_validator"
"""The signature to send for a call that Gemini did not make (Gemini API, thought signatures)."""

_DATA: Final = ("text", "inlineData", "functionCall", "functionResponse")
_CAMEL: Final = {
    "inline_data": "inlineData",
    "mime_type": "mimeType",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "thought_signature": "thoughtSignature",
}


class GeminiReader(Reader):
    """Reads ``contents``."""

    form = "gemini"

    @override
    def read(self, place: Place, message: object) -> list[Message]:
        fields = mapping(message, place)
        match fields.get("role", "user"):
            case "user":
                role, read_part = USER, self._asked
            case "model":
                role, read_part = ASSISTANT, self._said
            case other:
                raise place.at("role").unknown(f'expected "user" or "model", got {other!r:.80}')
        blocks: list[Block] = []
        for given, at in items(fields.get("parts"), place.at("parts")):
            part = _camel(given)
            if role == "assistant" and blocks and _is_only_signed(part):
                blocks[-1] = self._signed(blocks[-1], part, at)
            else:
                blocks.append(read_part(part, at))
        return self.entries(place, role, blocks, rest(fields, ("role", "parts"), place))

    def _asked(self, part: Fields, place: Place) -> Block:
        match _data_of(part, place):
            case "text":
                return marked("gemini", Text(text_at(part, "text", place)), extra=rest(part, ("text",), place))
            case "inlineData":
                return _picture(part, place)
            case "functionResponse":
                return self._result(part, place)
            case other:
                raise place.at(other).unknown("only the model calls functions")

    def _said(self, part: Fields, place: Place) -> Block:
        signature = _base64(part, "thoughtSignature", place) if part.get("thoughtSignature") else ""
        match _data_of(part, place):
            case "text" if part.get("thought") is True:
                thought = Reasoning(text_at(part, "text", place))
                extra = rest(part, ("text", "thought", "thoughtSignature"), place)
                return marked("gemini", thought, thought="yes", thoughtSignature=signature, extra=extra)
            case "text":
                text = Text(text_at(part, "text", place), self._opaque(signature))
                return marked("gemini", text, extra=rest(part, ("text", "thoughtSignature"), place))
            case "functionCall":
                return self._call(part, signature, place)
            case other:
                raise place.at(other).unknown("this cannot be read in what the model says")

    def _call(self, part: Fields, signature: str, place: Place) -> ToolCall:
        where = place.at("functionCall")
        fields = mapping(part["functionCall"], where)
        arguments = arguments_at(fields.get("args") or {}, where.at("args"))
        call = self.called(text_at(fields, "id", where) if fields.get("id") else "", text_at(fields, "name", where))
        return marked(
            "gemini",
            ToolCall(call.own_id, call.name, arguments, self._opaque(signature, call.id)),
            content="given" if "args" in fields else "absent",
            extra=rest(part, ("functionCall", "thoughtSignature"), place),
            inner=rest(fields, ("id", "name", "args"), where),
        )

    def _opaque(self, signature: str, call_id: str = "") -> str:
        """The opaque text in our adapter's form; that sends a signature back only to the model that made it."""
        if not signature and not call_id:
            return ""
        fields = {"model": self.model.partition(":")[2] or self.model, "signature": signature, "id": call_id}
        return write_opaque(**{name: text for name, text in fields.items() if text})

    def _signed(self, block: Block, part: Fields, place: Place) -> Block:
        """A block with the following part, which has only a signature, attached."""
        signature = _base64(part, "thoughtSignature", place)
        fields = read_opaque(block.opaque)
        if isinstance(block, Text) and "signature" not in fields and len(part) == len(("text", "thoughtSignature")):
            signed = {**fields, **read_opaque(self._opaque(signature)), "apart": "yes"}
            return structs.replace(block, opaque=write_opaque(**signed))
        after = [*_after(block), {**part, "thoughtSignature": signature}]
        return marked("gemini", block, after=as_json(after, place))

    def _result(self, part: Fields, place: Place) -> ToolResult:
        where = place.at("functionResponse")
        fields = mapping(part["functionResponse"], where)
        given_id = text_at(fields, "id", where) if fields.get("id") else ""
        call = self.answered(where, given_id, text_at(fields, "name", where))
        result = ToolResult(call.own_id, "")
        response = dict(mapping(fields.get("response"), where.at("response")))
        match list(response.items()):
            case [("output" | "error" as kind, str(text))]:
                result = with_text("gemini", structs.replace(result, is_error=kind == "error"), valid_text(text))
            case _:
                text = as_json(response, where.at("response"))
                result = marked("gemini", structs.replace(result, text=text), content=f"json {digest(text)}")
        if "parts" in fields:
            images = tuple(_picture(_camel(each), at) for each, at in items(fields["parts"], where.at("parts")))
            result = marked("gemini", structs.replace(result, images=images), parts="yes")
        return marked(
            "gemini",
            result,
            call_id="absent" if call.id and not given_id else "",
            extra=rest(part, ("functionResponse",), place),
            inner=rest(fields, ("id", "name", "response", "parts"), where),
        )


def _camel(part: Fields) -> Json:
    return {_CAMEL.get(key, key): value for key, value in part.items()}


def _data_of(part: Fields, place: Place) -> str:
    """The key of a part's data, which determines its kind."""
    found = [key for key in _DATA if part.get(key) is not None]
    if not found:
        raise place.at(next(iter(part), "text")).unknown("this part is no text, picture, function call or response")
    if len(found) > 1:
        raise place.at(found[1]).unknown(f"a part is one thing, and this one is {found[0]} already")
    return found[0]


def _is_only_signed(part: Fields) -> bool:
    return bool(part.get("thoughtSignature")) and part.get("text") == "" and part.get("thought") is not True


def _base64(fields: Fields, key: str, place: Place) -> str:
    """The bytes under a key, as base64."""
    value = fields.get(key)
    return base64.b64encode(value).decode() if isinstance(value, bytes) else text_at(fields, key, place)


def _picture(part: Fields, place: Place) -> Image:
    where = place.at("inlineData")
    data = _camel(mapping(part.get("inlineData"), where))
    media_type = checked_picture(text_at(data, "mimeType", where), where.at("mimeType"))
    return marked(
        "gemini",
        Image(media_type, _base64(data, "data", where)),
        extra=rest(part, ("inlineData",), place),
        inner=rest(data, ("mimeType", "data"), where),
    )


def _after(block: Block) -> list[Json]:
    found: list[Json] = json.loads(own("gemini", block).get("after", "[]"))
    return found


class GeminiWriter(Writer):
    """Writes ``contents``."""

    form = "gemini"

    @override
    def write(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        if role == "assistant":
            written: Json = {"role": "model", "parts": self._said(blocks)}
        else:
            written = {"role": "user", "parts": self._asked(blocks)}
        return [{**written, **self.message_keys(blocks)}] if written["parts"] else []

    def _said(self, blocks: Sequence[Block]) -> list[Json]:
        parts: list[Json] = []
        has_call = False
        for block in blocks:
            noted, opaque = own("gemini", block), read_opaque(block.opaque)
            signed = {"thoughtSignature": opaque["signature"]} if "signature" in opaque else {}
            match block:
                case Text() if block.text.strip():
                    if "apart" in opaque:
                        parts += [{"text": block.text, **kept(noted)}, {"text": "", **signed}]
                    else:
                        parts.append({"text": block.text, **signed, **kept(noted)})
                case Reasoning() if "thought" in noted:
                    signed = {"thoughtSignature": noted["thoughtSignature"]} if "thoughtSignature" in noted else {}
                    parts.append({"text": block.text, "thought": True, **signed, **kept(noted)})
                case ToolCall():
                    if not signed and not noted and not has_call:
                        signed = {"thoughtSignature": SENTINEL}
                    parts.append({"functionCall": self._call(block), **signed, **kept(noted)})
                    has_call = True
                case _:
                    continue
            parts += _after(block)
        return parts

    def _call(self, call: ToolCall) -> Json:
        noted = own("gemini", call)
        name, call_id = call.name if noted else safe_name(call.name), read_opaque(call.opaque).get("id", "")
        self.called(call, call_id, name)
        fields: Json = {"id": call_id, "name": name} if call_id else {"name": name}
        if noted.get("content") != "absent":
            fields["args"] = json.loads(call.arguments)
        return {**fields, **kept(noted, "inner")}

    def _asked(self, blocks: Sequence[Block]) -> list[Json]:
        answers: list[Json] = []
        said: list[Json] = []
        for block in blocks:
            match block:
                case ToolResult():
                    answers.append(self._result(block))
                    if "parts" not in own("gemini", block):
                        said += [_inline(image) for image in block.images]
                case Text() if block.text.strip():
                    said.append({"text": block.text, **kept(own("gemini", block))})
                case Image():
                    said.append(_inline(block))
                case _:
                    continue
        return answers + said

    def _result(self, result: ToolResult) -> Json:
        noted, call = own("gemini", result), self.answered(result)
        fields: Json = {"id": call.id} if call.id and "call_id" not in noted else {}
        fields["name"] = call.name
        if noted.get("content") == f"json {digest(result.text)}":
            fields["response"] = json.loads(result.text)
        else:
            fields["response"] = {"error" if result.is_error else "output": text_of("gemini", result)}
        if "parts" in noted:
            fields["parts"] = [_inline(image) for image in result.images]
        return {"functionResponse": {**fields, **kept(noted, "inner")}, **kept(noted)}


def _inline(image: Image) -> Json:
    if not can_be_shown("gemini", image):
        return {"text": unseen(image)}
    noted = own("gemini", image)
    data = {"mimeType": image.media_type, "data": image.data, **kept(noted, "inner")}
    return {"inlineData": data, **kept(noted)}
