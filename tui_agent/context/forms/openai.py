"""Message lists of OpenAI's Chat Completions API, and of the many programs that use it.

In a block's opaque text, `role` is that of a system or developer message; `refusal` says whether a text was a message's
``refusal`` or a part of that type; `arguments` are those the model wrote, if they were no valid JSON object.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from typing_extensions import override

from tui_agent.context.forms.shared import (
    Fields,
    Json,
    Place,
    Reader,
    Writer,
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
from tui_agent.conversation.blocks import Block, Image, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Message, Role, tool_result
from tui_agent.conversation.request import OPENING
from tui_agent.conversation.wire import read_arguments, safe_id, safe_name

_SYSTEM: Final = ("system", "developer")
_OF_RESULTS: Final = "(pictures of the results above)"


def split_system(messages: Sequence[object]) -> tuple[str, Sequence[object]]:
    """Split an OpenAI list into the texts of its leading system and developer messages, and the rest.

    A system prompt is not part of a conversation: read as a message, it would be summarised with the turns around it.
    Raises `UnknownForm`.
    """
    texts: list[str] = []
    for number, message in enumerate(messages):
        fields = mapping(message, Place(number))
        if fields.get("role") not in _SYSTEM:
            return "\n\n".join(texts), messages[number:]
        texts += [part.text for part in _parts(fields, Place(number)) if isinstance(part, Text)]
    return "\n\n".join(texts), ()


class OpenAiReader(Reader):
    """Reads ``messages``."""

    form = "openai"

    @override
    def read(self, place: Place, message: object) -> list[Message]:
        fields = mapping(message, place)
        match fields.get("role"):
            case "user":
                return self.entries(place, "user", _parts(fields, place), rest(fields, ("role", "content"), place))
            case "assistant":
                return self._assistant(fields, place)
            case "tool":
                self.last_role = "tool"
                return [tool_result(self._result(fields, place))]
            case "system" | "developer" as role:
                notices = [marked("openai", part, role=role) for part in _parts(fields, place)]
                return self.entries(place, "user", notices, rest(fields, ("role", "content"), place), named=role)
            case other:
                raise place.at("role").unknown(f"a message of {other!r:.80} cannot be read")

    def _assistant(self, fields: Fields, place: Place) -> list[Message]:
        content, refusal, known = fields.get("content"), fields.get("refusal"), ["role", "content"]
        blocks: list[Block] = []
        if content is not None:
            blocks += _parts(fields, place)
        if fields.get("tool_calls"):
            known.append("tool_calls")
            said = any(isinstance(block, Text) and block.text.strip() for block in blocks)
            blank = f"={content}" if isinstance(content, str) and not said else ""
            calls = [self._call(call, at) for call, at in items(fields["tool_calls"], place.at("tool_calls"))]
            calls[0] = marked("openai", calls[0], content=blank if "content" in fields else "absent")
            blocks = [*(blocks if said else []), *calls]
        elif content is None and isinstance(refusal, str):
            known.append("refusal")
            blocks = [marked("openai", Text(valid_text(refusal)), refusal="message")]
        return self.entries(place, "assistant", blocks or [Text("")], rest(fields, known, place))

    def _call(self, fields: Fields, place: Place) -> ToolCall:
        if fields.get("type", "function") != "function":
            raise place.at("type").unknown(f"only calls of functions can be read, got {fields.get('type')!r:.80}")
        where = place.at("function")
        function = mapping(fields.get("function"), where)
        written = text_at(function, "arguments", where)
        arguments, malformed = read_arguments(written)
        call = self.called(text_at(fields, "id", place), text_at(function, "name", where))
        return marked(
            "openai",
            ToolCall(call.own_id, call.name, arguments, malformed=malformed),
            arguments="" if written == arguments else f"={written}",
            extra=rest(fields, ("id", "type", "function"), place),
            inner=rest(function, ("name", "arguments"), where),
            **call_fields(call),
        )

    def _result(self, fields: Fields, place: Place) -> ToolResult:
        call = self.answered(place.at("tool_call_id"), text_at(fields, "tool_call_id", place))
        result, content = ToolResult(call.own_id, ""), fields.get("content")
        if isinstance(content, str):
            result = with_text("openai", result, valid_text(content))
        else:
            parts = _parts(fields, place)
            if any(isinstance(part, Image) for part in parts):
                raise place.at("content").unknown("a result is text alone")
            result = with_parts("openai", result, parts)
        return marked("openai", result, message=rest(fields, ("role", "tool_call_id", "content"), place))


def _parts(fields: Fields, place: Place) -> list[Text | Image]:
    """A message's content, a text or a list of parts."""
    content = fields.get("content")
    if isinstance(content, str):
        return [Text(valid_text(content))]
    return listed("openai", [_part(part, at) for part, at in items(content, place.at("content"))])


def _part(part: Fields, place: Place) -> Text | Image:
    match part.get("type"):
        case "text":
            return marked("openai", Text(text_at(part, "text", place)), extra=rest(part, ("type", "text"), place))
        case "refusal":
            refused = marked("openai", Text(text_at(part, "refusal", place)), refusal="part")
            return marked("openai", refused, extra=rest(part, ("type", "refusal"), place))
        case "image_url":
            return _picture(part, place)
        case other:
            raise place.at("type").unknown(f"parts of type {other!r:.80} cannot be read")


def _picture(part: Fields, place: Place) -> Image:
    where = place.at("image_url")
    link = mapping(part.get("image_url"), where)
    head, comma, data = text_at(link, "url", where).partition(",")
    if not (comma and head.startswith("data:") and head.endswith(";base64")):
        raise where.at("url").unknown("only pictures in a data URL (data:image/png;base64,…) can be read")
    media_type = checked_picture(head.removeprefix("data:").removesuffix(";base64"), where.at("url"))
    return marked(
        "openai",
        Image(media_type, data),
        extra=rest(part, ("type", "image_url"), place),
        inner=rest(link, ("url",), where),
    )


class OpenAiWriter(Writer):
    """Writes ``messages``."""

    form = "openai"

    @override
    def write(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        if role == "assistant":
            return self._assistant(blocks)
        if tuple(blocks) == (Text(OPENING),):  # this form may begin with the assistant
            return []
        results = [block for block in blocks if isinstance(block, ToolResult)]
        said = [block for block in blocks if isinstance(block, Text | Image)]
        shown = [image for result in results for image in result.images]
        if shown:
            said = [*([] if said else [Text(_OF_RESULTS)]), *shown, *said]
        written = [self._result(result) for result in results]
        for name, group in groupby(said, key=lambda block: own("openai", block).get("role", "user")):
            written += self._message(name, list(group))
        return written

    def _assistant(self, blocks: Sequence[Block]) -> list[Json]:
        texts = [block for block in blocks if isinstance(block, Text)]
        calls = [block for block in blocks if isinstance(block, ToolCall)]
        if not calls:
            return self._message("assistant", texts)
        message: Json = {"role": "assistant", "content": None}
        spelled = own("openai", calls[0]).get("content", "")
        if texts:
            message["content"] = content_of("openai", texts, [_text(text) for text in texts])
        elif spelled.startswith("="):
            message["content"] = spelled[1:]
        elif spelled == "absent":
            del message["content"]
        return [{**message, "tool_calls": [self._call(call) for call in calls], **self.message_keys(blocks)}]

    def _message(self, role: str, blocks: Sequence[Text | Image]) -> list[Json]:
        keys = self.message_keys(blocks)
        match blocks:
            case [Text() as text] if own("openai", text).get("refusal") == "message":
                return [{"role": role, "content": None, "refusal": text.text, **keys}]
        parts = [_shown(block) if isinstance(block, Image) else _text(block) for block in blocks]
        return [{"role": role, "content": content_of("openai", blocks, parts), **keys}] if parts else []

    def _call(self, call: ToolCall) -> Json:
        noted = own("openai", call)
        call_id, name = noted.get("call_id") or safe_id(call.id), noted.get("name") or safe_name(call.name)
        self.called(call, call_id, name)
        arguments = noted["arguments"][1:] if "arguments" in noted else call.arguments
        function = {"name": name, "arguments": arguments, **kept(noted, "inner")}
        return {"id": call_id, "type": "function", "function": function, **kept(noted)}

    def _result(self, result: ToolResult) -> Json:
        parts, text = parts_of("openai", result), text_of("openai", result)
        content: object = f"Error: {text}" if result.is_error else text
        if parts is not None:
            content = [_text(part) for part in parts if isinstance(part, Text)]
        keys = self.message_keys([result])
        return {"role": "tool", "tool_call_id": self.answered(result).id, "content": content, **keys}


def _text(text: Text) -> Json:
    noted = own("openai", text)
    kind = "refusal" if noted.get("refusal") == "part" else "text"
    return {"type": kind, kind: text.text, **kept(noted)}


def _shown(image: Image) -> Json:
    if not can_be_shown("openai", image):
        return {"type": "text", "text": unseen(image)}
    noted = own("openai", image)
    link = {"url": f"data:{image.media_type};base64,{image.data}", **kept(noted, "inner")}
    return {"type": "image_url", "image_url": link, **kept(noted)}
