"""Lists of items of OpenAI's Responses API: its input and output."""

import json
from collections.abc import Sequence
from typing import Final

from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, ToolCall, ToolResult
from tui_agent.conversation.entries import Kind, Message, Role
from tui_agent.conversation.view import View
from tui_agent.models.encoding import encode
from tui_agent.models.forms.openai import OpenAiForm, content_parts
from tui_agent.models.forms.reading import PARTS, TEXT, MessagePlace, Part, filled, items, note_around, text_at
from tui_agent.models.openai.chat_request import short_id, short_name
from tui_agent.models.openai.responses_request import PART_TYPES, SEPARATOR, items_for
from tui_agent.models.originals import Form, Json, as_json, original, stands_for

_CLIENT: Final = (
    "function_call",
    "custom_tool_call",
    "computer_call",
    "local_shell_call",
    "shell_call",
    "apply_patch_call",
)
"""The calls that the program answers. All others are the API's own, and have their output in an item of the answer."""


class ResponsesForm(OpenAiForm):
    """``input``. Items that only the API understands stand in the conversation as texts, and go out unchanged."""

    form: Form = "responses"

    def __init__(self, model: str = "", after: View | None = None) -> None:
        super().__init__(model, after)
        self._thought: list[Part] = []

    @override
    def read_message(self, fields: Json, place: MessagePlace) -> list[Message]:
        kind, role = str(fields.get("type") or "message"), fields.get("role")
        if kind == "message" and role in ("user", "assistant", "system", "developer"):
            around = {**fields, "content": TEXT if isinstance(fields.get("content"), str) else PARTS}
            parts = content_parts(fields, place)
            if isinstance(fields.get("content"), str):
                said = "output_text" if role == "assistant" else "input_text"
                parts = [(block, {**part, "type": said}) for block, part in parts]
            own: Role = "assistant" if role == "assistant" else "user"
            return self.entries(parts, own, around, fields, "" if role in ("user", "assistant") else "notice")
        if kind == "message":
            raise place.at("role").unknown(f"a message of {role!r:.80} cannot be read")
        ours = kind.removesuffix("_output") in _CLIENT or fields.get("execution") == "client"
        if ours and kind.endswith("_output"):
            call = self.answered(place.at("call_id"), text_at(fields, "call_id", place))
            return self.read_result(call, fields, "output", place)
        block: Block = stands_for(fields)
        if ours:
            arguments = fields.get("arguments")
            written = arguments if isinstance(arguments, str) else as_json(fields)
            block = self.called(text_at(fields, "call_id", place), str(fields.get("name") or kind), written)
        elif kind == "reasoning":
            summary = items(fields.get("summary") or [], place.at("summary"))
            # It belongs to the item that follows: no provider takes an answer of reasoning alone.
            self._thought.append((Reasoning(SEPARATOR.join(str(each.get("text")) for each, _ in summary)), fields))
            return []
        return self.entries([(block, fields)], "user" if kind.endswith("_response") else "assistant", None, fields)

    @override
    def entries(
        self, parts: Sequence[Part], role: Role, around: Json | None, whole: Json, kind: Kind = ""
    ) -> list[Message]:
        thought, self._thought = self._thought, []
        return super().entries([*(thought if role == "assistant" else ()), *parts], role, around, whole, kind)

    @override
    def write_message(self, role: Role, blocks: Sequence[Block]) -> list[Json]:
        parts: list[Json] = []
        written: list[Json] = []
        for block in blocks:
            for each in self.parts([block], role):
                (parts if each.get("type") in PART_TYPES else written).append(each)
        around = note_around(self.form, blocks)
        if not parts and around is None:
            return written
        return [*written, filled(around or self.around(role, blocks), "content", parts)]

    @override
    def by_itself(self, block: Block, role: Role) -> list[Json]:
        found: list[Json] = json.loads(encode(items_for(block, role, lambda call_id: self._id(block, call_id))))
        call = next((call for call in self.asked if isinstance(block, ToolResult) and call.id == block.call_id), None)
        for each in (original(self.form, call) or ()) if call is not None else ():
            found[0]["type"] = f"{each.get('type')}_output"
        return found

    def _id(self, block: Block, call_id: str) -> str:
        return self.answered_as(block)[0] if isinstance(block, ToolResult) else short_id(call_id)

    @override
    def around(self, role: Role, blocks: Sequence[Block]) -> Json:
        return {"type": "message", "role": role, "content": PARTS}

    @override
    def written_as(self, call: ToolCall) -> tuple[str, str]:
        for fields in original(self.form, call) or ():
            return str(fields.get("call_id")), call.name
        return short_id(call.id), short_name(call.name)
