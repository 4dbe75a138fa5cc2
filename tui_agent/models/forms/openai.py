"""Message lists of OpenAI's Chat Completions API, and of the many programs that use it."""

import json
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import Message, Role
from tui_agent.conversation.request import RequestMessage
from tui_agent.models.encoding import PICTURES, encode
from tui_agent.models.forms.reading import (
    PARTS,
    TEXT,
    FormReader,
    MessagePlace,
    Part,
    filled,
    items,
    mapping,
    note_around,
    plain,
    text_at,
)
from tui_agent.models.openai.chat_request import call_for, part_for, result_for, short_id, short_name
from tui_agent.models.originals import Form, Json, as_json, marked, original, stands_for

_SYSTEM: Final = ("system", "developer")


def split_system(messages: Sequence[object]) -> tuple[str, Sequence[object]]:
    """Split an OpenAI list into the texts of its leading system and developer messages, and the rest.

    A system prompt is not part of a conversation: read as a message, it would be summarised with the turns around it.
    Raises `UnknownForm`.
    """
    texts: list[str] = []
    for number, message in enumerate(messages):
        fields = mapping(plain(message, MessagePlace(number)), MessagePlace(number))
        if fields.get("role") not in _SYSTEM:
            return "\n\n".join(texts), messages[number:]
        texts += [part.text for part, _ in content_parts(fields, MessagePlace(number)) if isinstance(part, Text)]
    return "\n\n".join(texts), ()


class OpenAiForm(FormReader):
    """``messages``."""

    form: Form = "openai"
    results_apart = True

    @override
    def read_message(self, fields: Json, place: MessagePlace) -> list[Message]:
        match fields.get("role"):
            case "assistant":
                return self._assistant(fields, place)
            case "tool":
                call = self.answered(place.at("tool_call_id"), text_at(fields, "tool_call_id", place))
                return self.read_result(call, fields, "content", place)
            case "function":
                call = self.answered(place.at("name"), "", text_at(fields, "name", place))
                return self.read_result(call, fields, "content", place)
            case "user" | "system" | "developer" as role:
                content = fields.get("content")
                around = {**fields, "content": TEXT if isinstance(content, str) else PARTS}
                parts = content_parts(fields, place)
                return self.entries(parts, "user", around, fields, "" if role == "user" else "notice")
            case other:
                raise place.at("role").unknown(f"a message of {other!r:.80} cannot be read")

    def read_result(self, call: ToolCall, fields: Json, key: str, place: MessagePlace) -> list[Message]:
        """The entry of a result whose content is under a key."""
        content = fields.get(key)
        parts: list[Text | Image] = [Text(content)] if isinstance(content, str) else []
        if isinstance(content, list):
            parts = [part_of(part, at) or Text("") for part, at in items(content, place.at(key))]
        elif content is not None and not parts:
            parts = [Text(as_json(content))]
        result = self.result(call, parts, fields)
        # The results of several calls are in the order of the calls; these came in another one.
        number = len(self.asked) - len(self._open) - 1
        if self.asked[number : number + 1] != [call]:
            result = marked(self.form, result, place=str(number))
        return self.entries([(result, fields)], "user", None, fields)

    def _assistant(self, fields: Json, place: MessagePlace) -> list[Message]:
        content, refusal, around = fields.get("content"), fields.get("refusal"), dict(fields)
        parts: list[Part] = []
        if isinstance(content, list) or (isinstance(content, str) and content.strip()):
            parts += content_parts(fields, place)
            around["content"] = TEXT if isinstance(content, str) else PARTS
        elif isinstance(refusal, str) and refusal.strip():
            parts.append((Text(refusal), {"type": "text", "text": refusal}))
            around["refusal"] = TEXT
        if fields.get("tool_calls"):
            around["tool_calls"] = PARTS
            parts += [(self._call(call, at), call) for call, at in items(fields["tool_calls"], place.at("tool_calls"))]
        elif isinstance(function := fields.get("function_call"), dict):
            around["function_call"] = PARTS
            at = place.at("function_call")
            called = self.called("", text_at(function, "name", at), text_at(function, "arguments", at))
            parts.append((called, function))
        return self.entries(parts, "assistant", around, fields)

    def _call(self, fields: Json, place: MessagePlace) -> ToolCall:
        kind = str(fields.get("type") or "function")
        at = place.at(kind)
        function = mapping(fields.get(kind), at)
        written = text_at(function, "arguments", at) if kind == "function" else as_json(function)
        return self.called(text_at(fields, "id", place), text_at(function, "name", at), written)

    @override
    def write_message(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        results = [block for block in blocks if isinstance(block, ToolResult)]
        calls = self.parts([block for block in blocks if isinstance(block, ToolCall)], role)
        said = [block for block in blocks if isinstance(block, Text | Image)]
        shown = [each for result in results if original(self.form, result) is None for each in result.images]
        said = [*([Text(PICTURES)] if shown and not said else []), *shown, *said]
        written = self.parts(results, role)
        parts, around = self.parts(said, role), note_around(self.form, said or blocks)
        if not parts and not calls and (around is None or around.get("content") in (TEXT, PARTS)):
            return written
        if around is None:
            around = self.around(role, [*said, *(block for block in blocks if isinstance(block, ToolCall))])
        message = filled(filled(filled(around, "content", parts), "refusal", parts), "tool_calls", calls)
        if message.get("function_call") == PARTS:
            message["function_call"] = calls[0] if calls else None
        return [*written, message]

    @override
    def by_itself(self, block: Block, role: Role) -> list[Json]:
        match block:
            case Text() if not block.text.strip():
                return []
            case Text() | Image():
                fields = part_for(block)
            case ToolCall():
                fields = call_for(block, short_id(block.id))
            case ToolResult():
                fields = result_for(block, self.answered_as(block)[0])
            case _:
                return []
        found: Json = json.loads(encode(fields))
        return [found]

    @override
    def around(self, role: Role, blocks: Sequence[Block]) -> Json:
        said = [block for block in blocks if isinstance(block, Text | Image)]
        plain_text = len(said) == 1 and isinstance(said[0], Text) and original(self.form, said[0]) is None
        around: Json = {"role": role, "content": TEXT if plain_text else PARTS if said else None}
        return {**around, "tool_calls": PARTS} if any(isinstance(block, ToolCall) for block in blocks) else around

    @override
    def written_as(self, call: ToolCall) -> tuple[str, str]:
        for fields in original(self.form, call) or ():
            function = fields.get(str(fields.get("type") or "function"))
            name = function.get("name") if isinstance(function, dict) else fields.get("name")
            return str(fields.get("id") or ""), str(name)
        return short_id(call.id), short_name(call.name)

    @override
    def may_begin_with(self, first: Sequence[RequestMessage]) -> bool:
        return True


def content_parts(fields: Json, place: MessagePlace) -> list[Part]:
    """A message's content, a text or a list of parts."""
    content = fields.get("content")
    if isinstance(content, str):
        return [(Text(content) if content.strip() else None, {"type": "text", "text": content})]
    return [(part_of(part, at), part) for part, at in items(content, place.at("content"))]


def part_of(part: Json, place: MessagePlace) -> Text | Image | None:
    """A part of a content in either of OpenAI's APIs; None if it says nothing."""
    link = part.get("image_url")
    match part:
        case {"type": "text" | "input_text" | "output_text"}:
            text = text_at(part, "text", place)
            return Text(text) if text.strip() else None
        case {"type": "refusal", "refusal": str(refused)} if refused.strip():
            return Text(refused)
        case {"type": "image_url" | "input_image"}:
            url = str(link.get("url") if isinstance(link, dict) else link)
            head, comma, data = url.partition(",")
            if comma and head.startswith("data:image/") and head.endswith(";base64"):
                return Image(head.removeprefix("data:").removesuffix(";base64"), data)
    return stands_for(part)
