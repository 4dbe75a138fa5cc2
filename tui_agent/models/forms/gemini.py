"""Message lists of the Gemini API: contents."""

import json
from collections.abc import Sequence

from msgspec import structs
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Role
from tui_agent.conversation.wire import read_opaque, safe_name, write_opaque
from tui_agent.models.encoding import encode
from tui_agent.models.forms.reading import (
    PARTS,
    FormReader,
    MessagePlace,
    Part,
    arguments_at,
    filled,
    items,
    mapping,
    note_around,
    text_at,
)
from tui_agent.models.gemini.request import SENTINEL, CallKey, parts_for
from tui_agent.models.originals import Json, as_json, notes, original, stands_for

_CAMEL = {
    "inline_data": "inlineData",
    "mime_type": "mimeType",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "thought_signature": "thoughtSignature",
}


class GeminiForm(FormReader):
    """``contents``."""

    form = "gemini"
    results_alone = True

    @override
    def read_message(self, fields: Json, place: MessagePlace) -> list[Message]:
        role = fields.get("role") or "user"
        if role not in ("user", "model", "function"):
            raise place.at("role").unknown(f'expected "user" or "model", got {role!r:.80}')
        parts: list[Part] = []
        for part, at in items(fields.get("parts") or [], place.at("parts")):
            before = parts[-1][0] if parts else None
            block = self._said(_camel(part), at) if role == "model" else self._asked(_camel(part), at)
            # A signature in a part of its own belongs to the text before it.
            signature = _camel(part).get("thoughtSignature") if block is None else None
            if signature and isinstance(before, Text) and "signature" not in read_opaque(before.opaque):
                opaque = self._signed(str(signature), apart="yes")
                parts[-1] = (structs.replace(before, opaque=opaque), parts[-1][1])
            parts.append((block, part))
        around = {**fields, "parts": PARTS} if fields.get("parts") else fields
        return self.entries(parts, "assistant" if role == "model" else "user", around, fields)

    def _asked(self, part: Json, place: MessagePlace) -> Block | None:
        match part:
            case {"text": str(text)}:
                return Text(text) if text.strip() else None
            case {"functionResponse": dict(fields)}:
                return self._result(part, fields, place.at("functionResponse"))
        return _picture(part)

    def _said(self, part: Json, place: MessagePlace) -> Block | None:
        signature = str(part.get("thoughtSignature") or "")
        match part:
            case {"text": str(text), "thought": True}:
                return Reasoning(text)
            case {"text": str(text)}:
                return Text(text, self._signed(signature)) if text.strip() else None
            case {"functionCall": dict(fields)}:
                at = place.at("functionCall")
                arguments = arguments_at(fields.get("args") or {}, at.at("args"))
                call_id = str(fields.get("id") or "")
                return self.called(call_id, text_at(fields, "name", at), arguments, self._signed(signature, id=call_id))
        return stands_for(part)

    def _signed(self, signature: str, **fields: str) -> str:
        """The opaque text in our adapter's form; that sends a signature back only to the model that made it."""
        kept = {name: text for name, text in {"signature": signature, **fields}.items() if text}
        return write_opaque(model=self.model.partition(":")[2] or self.model, **kept) if kept else ""

    def _result(self, part: Json, fields: Json, place: MessagePlace) -> ToolResult:
        call = self.answered(place, str(fields.get("id") or ""), text_at(fields, "name", place))
        response = mapping(fields.get("response"), place.at("response"))
        match list(response.items()):
            case [("output" | "error" as kind, str(text))]:
                is_error = kind == "error"
            case _:
                text, is_error = as_json(response), False
        pictures = [_picture(_camel(each)) for each, _ in items(fields.get("parts") or [], place.at("parts"))]
        return self.result(call, [Text(text), *pictures], part, is_error=is_error)

    @override
    def write_message(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        parts, around = self.parts(blocks, role), note_around(self.form, blocks)
        if not parts and (around is None or around.get("parts") == PARTS):
            return []
        # Gemini 3.6 and later refuse responses that share a content with anything else.
        apart = _split(parts) if role == "user" and not self._is_placed(blocks) else ([], parts)
        own = self.around(role, blocks)
        contents = [each for each in apart if each] or [parts]
        return [filled(around if around and not n else own, "parts", each) for n, each in enumerate(contents)]

    def _is_placed(self, blocks: Sequence[Block]) -> bool:
        return any("place" in notes(self.form, block) for block in blocks)

    @override
    def parts(self, blocks: Sequence[Block], role: Role) -> list[Json]:
        parts: list[Json] = []
        calls = 0
        for block in blocks:
            given = original(self.form, block)
            own = self.by_itself(block, role) if given is None else given
            if given is None and calls and isinstance(block, ToolCall) and own[0].get("thoughtSignature") == SENTINEL:
                del own[0]["thoughtSignature"]  # only the first call of a message needs it
            parts += own
            calls += isinstance(block, ToolCall)
        if role == "user" and not self._is_placed(blocks):
            answers, said = _split(parts)
            return answers + said
        return parts

    @override
    def by_itself(self, block: Block, role: Role) -> list[Json]:
        calls: dict[str, CallKey] = {}
        if isinstance(block, ToolResult):
            call_id, name = self.answered_as(block)
            known = any(call.id == block.call_id for call in self.asked)
            calls = {block.call_id: CallKey(name, call_id)} if known else {}
        found: list[Json] = json.loads(encode(parts_for(block, role, None, calls, unsigned=True)))
        return found

    @override
    def around(self, role: Role, blocks: Sequence[Block]) -> Json:
        return {"role": "model" if role == "assistant" else "user", "parts": PARTS}

    @override
    def written_as(self, call: ToolCall) -> tuple[str, str]:
        for part in original(self.form, call) or ():
            fields = _camel(part).get("functionCall")
            if isinstance(fields, dict):
                return str(fields.get("id") or ""), str(fields.get("name"))
        return read_opaque(call.opaque).get("id", ""), safe_name(call.name)


def _split(parts: Sequence[Json]) -> tuple[list[Json], list[Json]]:
    """The responses among these parts, and the others."""
    found: tuple[list[Json], list[Json]] = ([], [])
    for part in parts:
        found[not {"functionResponse", "function_response"} & part.keys()].append(part)
    return found


def _camel(part: Json) -> Json:
    return {_CAMEL.get(key, key): value for key, value in part.items()}


def _picture(part: Json) -> Text | Image:
    data = part.get("inlineData")
    match _camel(data) if isinstance(data, dict) else {}:
        case {"mimeType": str(media_type), "data": str(content)} if media_type.startswith("image/"):
            return Image(media_type, content)
    return stands_for(part)
