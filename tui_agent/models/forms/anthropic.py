"""Message lists of Anthropic's Messages API."""

import json
from collections.abc import Sequence

from typing_extensions import override

from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Role
from tui_agent.conversation.wire import safe_id, safe_name, write_opaque
from tui_agent.models.anthropic.request import parts_for
from tui_agent.models.encoding import encode
from tui_agent.models.forms.reading import (
    PARTS,
    TEXT,
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
from tui_agent.models.originals import Json, original, stands_for


class AnthropicForm(FormReader):
    """``messages``."""

    form = "anthropic"

    @override
    def read_message(self, fields: Json, place: MessagePlace) -> list[Message]:
        role, content = fields.get("role"), fields.get("content")
        if role not in ("user", "assistant", "system"):
            raise place.at("role").unknown(f'expected "user" or "assistant", got {role!r:.80}')
        if isinstance(content, str):
            parts: list[Part] = [(Text(content) if content.strip() else None, {"type": "text", "text": content})]
        else:
            read = self._said if role == "assistant" else self._asked
            parts = [(read(part, at), part) for part, at in items(content, place.at("content"))]
        around = {**fields, "content": TEXT if isinstance(content, str) else PARTS}
        own: Role = "assistant" if role == "assistant" else "user"
        return self.entries(parts, own, around, fields, "notice" if role == "system" else "")

    def _asked(self, fields: Json, place: MessagePlace) -> Block | None:
        if fields.get("type") != "tool_result":
            return _part(fields, place)
        call = self.answered(place.at("tool_use_id"), text_at(fields, "tool_use_id", place))
        content = fields.get("content")
        parts: list[Text | Image] = [Text(content)] if isinstance(content, str) else []
        if isinstance(content, list):
            parts = [_part(part, at) or Text("") for part, at in items(content, place.at("content"))]
        return self.result(call, parts, fields, is_error=fields.get("is_error") is True)

    def _said(self, fields: Json, place: MessagePlace) -> Block | None:
        match fields.get("type"):
            case "thinking":
                opaque = write_opaque(signature=text_at(fields, "signature", place))
                return Reasoning(text_at(fields, "thinking", place), opaque)
            case "redacted_thinking":
                return Reasoning("", write_opaque(redacted=text_at(fields, "data", place)))
            case "tool_use":
                arguments = arguments_at(fields.get("input"), place.at("input"))
                return self.called(text_at(fields, "id", place), text_at(fields, "name", place), arguments)
            case "text":
                return _part(fields, place)
        return stands_for(fields)

    @override
    def write_message(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        parts = self.parts(blocks, role)
        # The API refuses an assistant's message that ends in thinking.
        while role == "assistant" and parts and parts[-1].get("type") in ("thinking", "redacted_thinking"):
            parts.pop()
        around = note_around(self.form, blocks)
        if around is None:
            around = self.around(role, blocks)
        if not parts and around.get("content") in (TEXT, PARTS):
            return []
        return [filled(around, "content", parts)]

    @override
    def by_itself(self, block: Block, role: Role) -> list[Json]:
        calls = {block.call_id: self.answered_as(block)[0]} if isinstance(block, ToolResult) else None
        found: list[Json] = json.loads(encode(parts_for(block, role, calls=calls)))
        return found

    @override
    def around(self, role: Role, blocks: Sequence[Block]) -> Json:
        match blocks:
            case [Text() as text] if original(self.form, text) is None:
                return {"role": role, "content": TEXT}
        return {"role": role, "content": PARTS}

    @override
    def written_as(self, call: ToolCall) -> tuple[str, str]:
        fields: Json = next((each for each in original(self.form, call) or () if "id" in each), {})
        return str(fields.get("id") or safe_id(call.id)), str(fields.get("name") or safe_name(call.name))


def _part(fields: Json, place: MessagePlace) -> Text | Image | None:
    match fields.get("type"):
        case "text":
            text = text_at(fields, "text", place)
            return Text(text) if text.strip() else None
        case "image":
            source = mapping(fields.get("source"), place.at("source"))
            if source.get("type") == "base64":
                media_type = text_at(source, "media_type", place.at("source"))
                return Image(media_type, text_at(source, "data", place.at("source")))
    return stands_for(fields)
