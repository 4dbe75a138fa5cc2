"""Session files of Claude Code: JSON lines of which `type` `user` and `assistant` hold the conversation.

The format is not documented by its maker; this reads what its files hold: an answer is written in one line per block,
all with the same `message.id`, results come in `user` lines, side chains are subtasks, and lines of other types
(summaries, snapshots, titles) say nothing to the model.
"""

import msgspec

from tui_agent.conversation.blocks import Block, Image, Reasoning, ToolCall, ToolResult, valid_text
from tui_agent.replay.gathering import Gathering, text_block
from tui_agent.replay.neutral import arguments_of, seconds


class _Part(msgspec.Struct):
    type: str
    text: str = ""


class _Content(msgspec.Struct):
    type: str
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: str | list[_Part] | None = None
    is_error: bool | None = None


class _Message(msgspec.Struct):
    content: str | list[_Content]
    id: str = ""
    model: str = ""


class _Header(msgspec.Struct, rename="camel"):
    type: str = ""
    is_sidechain: bool = False
    is_compact_summary: bool = False
    is_api_error_message: bool = False
    uuid: str = ""
    timestamp: str = ""


class _Line(msgspec.Struct):
    message: _Message


_header = msgspec.json.Decoder(_Header)
_line = msgspec.json.Decoder(_Line)


class ClaudeCode:
    """Reads the lines of one file. A line that was copied from a resumed session counts once."""

    def __init__(self, gathering: Gathering) -> None:
        self._gathering = gathering
        self._seen: set[str] = set()

    def take(self, number: int, line: bytes) -> None:
        """Take one line in; a line that cannot be understood is noted as a problem."""
        try:
            header = _header.decode(line)
            passed_over = header.is_sidechain or header.is_compact_summary or header.is_api_error_message
            if header.type not in ("user", "assistant") or passed_over or header.uuid in self._seen:
                return
            message, time = _line.decode(line).message, seconds(header.timestamp)
            content = message.content
            blocks = [_Content("text", text=content)] if isinstance(content, str) else content
            said = [block for part in blocks if (block := _block(part)) is not None]
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            self._gathering.problem(number, str(error))
            return
        if header.uuid:
            self._seen.add(header.uuid)
        if header.type == "assistant":
            model = message.model if message.model.startswith("claude") else ""
            self._gathering.answer(number, said, time, answer_id=message.id, model=model)
            return
        for block in said:
            if isinstance(block, ToolResult):
                self._gathering.result(number, block, time)
        spoken: list[Block] = [block for block in said if not isinstance(block, ToolResult)]
        if spoken:
            self._gathering.user(number, spoken, time)


def _block(part: _Content) -> Block | None:
    match part.type:
        case "text":
            return text_block(part.text) if part.text.strip() else None
        case "thinking":
            return Reasoning(valid_text(part.thinking))
        case "tool_use":
            return ToolCall(part.id, part.name, arguments_of(bytes(part.input)))
        case "tool_result":
            parts = [_Part("text", part.content)] if isinstance(part.content, str) else part.content or []
            text = "\n".join(each.text for each in parts if each.type == "text")
            images = tuple(Image("image/png", "") for each in parts if each.type == "image")
            return ToolResult(part.tool_use_id, valid_text(text), is_error=bool(part.is_error), images=images)
        case "image":
            return Image("image/png", "")
        case _:
            return None
