"""Message lists of Anthropic's Messages API."""

import json
from collections.abc import Sequence

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
    call_fields,
    can_be_shown,
    checked_picture,
    content_of,
    items,
    kept,
    listed,
    mapping,
    marked,
    own,
    parts_of,
    rest,
    text_at,
    text_of,
    unseen,
    with_parts,
    with_text,
)
from tui_agent.conversation.blocks import Block, Image, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Message, Role
from tui_agent.conversation.wire import read_opaque, safe_id, safe_name, write_opaque


class AnthropicReader(Reader):
    """Reads ``messages``."""

    form = "anthropic"

    @override
    def read(self, place: Place, message: object) -> list[Message]:
        fields = mapping(message, place)
        content, keys = fields.get("content"), rest(fields, ("role", "content"), place)
        match fields.get("role"):
            case "user":
                role, read_block = USER, self._asked
            case "assistant":
                role, read_block = ASSISTANT, self._said
            case other:
                raise place.at("role").unknown(f'expected "user" or "assistant", got {other!r:.80}')
        if isinstance(content, str):
            return self.entries(place, role, [Text(valid_text(content))], keys)
        blocks = [read_block(block, at) for block, at in items(content, place.at("content"))]
        return self.entries(place, role, listed("anthropic", blocks), keys)

    def _asked(self, fields: Fields, place: Place) -> Block:
        if fields.get("type") != "tool_result":
            return _part(fields, place)
        call = self.answered(place.at("tool_use_id"), text_at(fields, "tool_use_id", place))
        is_error = fields.get("is_error") is True
        known = ("type", "tool_use_id", "content", *(["is_error"] if is_error else []))
        result = ToolResult(call.own_id, "", is_error=is_error)
        result = marked("anthropic", result, extra=rest(fields, known, place))
        content = fields.get("content")
        if content is None:
            return marked("anthropic", result, content="absent")
        if isinstance(content, str):
            return with_text("anthropic", result, valid_text(content))
        parts = [_part(part, at) for part, at in items(content, place.at("content"))]
        return with_parts("anthropic", result, parts)

    def _said(self, fields: Fields, place: Place) -> Block:
        match fields.get("type"):
            case "text":
                return _part(fields, place)
            case "thinking":
                opaque = write_opaque(signature=text_at(fields, "signature", place))
                thinking = Reasoning(text_at(fields, "thinking", place), opaque)
                return marked("anthropic", thinking, extra=rest(fields, ("type", "thinking", "signature"), place))
            case "redacted_thinking":
                redacted = Reasoning("", write_opaque(redacted=text_at(fields, "data", place)))
                return marked("anthropic", redacted, extra=rest(fields, ("type", "data"), place))
            case "tool_use":
                name = text_at(fields, "name", place)
                arguments = arguments_at(fields.get("input"), place.at("input"))
                call = self.called(text_at(fields, "id", place), name)
                extra = rest(fields, ("type", "id", "name", "input"), place)
                return marked("anthropic", ToolCall(call.own_id, name, arguments), extra=extra, **call_fields(call))
        raise place.at("type").unknown(f"blocks of type {fields.get('type')!r:.80} cannot be read here")


def _part(fields: Fields, place: Place) -> Text | Image:
    match fields.get("type"):
        case "text":
            return marked(
                "anthropic", Text(text_at(fields, "text", place)), extra=rest(fields, ("type", "text"), place)
            )
        case "image":
            return _picture(fields, place)
    raise place.at("type").unknown(f"blocks of type {fields.get('type')!r:.80} cannot be read here")


def _picture(fields: Fields, place: Place) -> Image:
    where = place.at("source")
    source = mapping(fields.get("source"), where)
    if source.get("type") != "base64":
        raise where.at("type").unknown(f"only pictures in base64 can be read, got {source.get('type')!r:.80}")
    media_type = checked_picture(text_at(source, "media_type", where), where.at("media_type"))
    return marked(
        "anthropic",
        Image(media_type, text_at(source, "data", where)),
        extra=rest(fields, ("type", "source"), place),
        inner=rest(source, ("type", "media_type", "data"), where),
    )


class AnthropicWriter(Writer):
    """Writes ``messages``."""

    form = "anthropic"

    @override
    def write(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        results = [self._result(block) for block in blocks if isinstance(block, ToolResult)]
        said = [block for block in blocks if not isinstance(block, ToolResult)]
        # The API refuses an assistant's message that ends in thinking.
        while said and isinstance(said[-1], Reasoning):
            said.pop()
        written = results + [fields for block in said if (fields := self._block(block)) is not None]
        if not written:
            return []
        return [{"role": role, "content": content_of("anthropic", blocks, written), **self.message_keys(blocks)}]

    def _block(self, block: Block) -> Json | None:
        noted, opaque = own("anthropic", block), read_opaque(block.opaque)
        match block:
            case Text() if block.text.strip():
                return {"type": "text", "text": block.text, **kept(noted)}
            case Image() if can_be_shown("anthropic", block):
                source = {"type": "base64", "media_type": block.media_type, "data": block.data}
                return {"type": "image", "source": {**source, **kept(noted, "inner")}, **kept(noted)}
            case Image():
                return {"type": "text", "text": unseen(block)}
            case Reasoning() if "redacted" in opaque:
                return {"type": "redacted_thinking", "data": opaque["redacted"], **kept(noted)}
            case Reasoning() if "signature" in opaque:
                thinking = {"thinking": block.text, "signature": opaque["signature"]}
                return {"type": "thinking", **thinking, **kept(noted)}
            case ToolCall():
                call_id, name = noted.get("call_id") or safe_id(block.id), noted.get("name") or safe_name(block.name)
                self.called(block, call_id, name)
                arguments: object = json.loads(block.arguments)
                return {"type": "tool_use", "id": call_id, "name": name, "input": arguments, **kept(noted)}
            case _:
                return None

    def _result(self, result: ToolResult) -> Json:
        fields: Json = {"type": "tool_result", "tool_use_id": self.answered(result).id}
        parts, text = parts_of("anthropic", result), text_of("anthropic", result)
        if parts is None and result.images and not result.is_error:  # the content of an error must be text
            parts = [*([Text(result.text)] if result.text.strip() else []), *result.images]
        if parts is not None:
            fields["content"] = [self._block(part) or {"type": "text", "text": ""} for part in parts]
        elif text is not None:
            fields["content"] = text
        if result.is_error:
            fields["is_error"] = True
        return {**fields, **kept(own("anthropic", result))}
