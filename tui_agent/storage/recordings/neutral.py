"""The neutral format: a JSON object a line with `role`, `text`, `tool_calls`, `tool_call_id` and, if known, `time`,
`model` and `usage` (docs/replay.md).
"""

import msgspec

from tui_agent.conversation.blocks import Block, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.storage.recordings.building import UNUSABLE, ConversationBuilder, Count, arguments, seconds
from tui_agent.storage.recordings.recording import Format


class _NeutralUsage(msgspec.Struct):
    input_tokens: Count
    cache_read_tokens: Count = 0
    cache_write_tokens: Count = 0
    output_tokens: Count = 0


class _NeutralCall(msgspec.Struct):
    id: str
    name: str
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _NeutralLine(msgspec.Struct):
    role: str
    text: str | None = None
    tool_calls: list[_NeutralCall] | None = None
    tool_call_id: str | None = None
    is_error: bool = False
    time: float | str | None = None
    model: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    keeps: Count = 0


_neutral_line = msgspec.json.Decoder(_NeutralLine)
_neutral_usage = msgspec.json.Decoder(_NeutralUsage | None)


class NeutralReader:
    """Reads the neutral format."""

    format: Format = "neutral"
    abandoned = 0

    def __init__(self, builder: ConversationBuilder) -> None:
        self._builder = builder

    def take(self, number: int, line: bytes) -> None:
        """Read one line; an invalid line is noted as a problem."""
        try:
            told = _neutral_line.decode(line)
            time, text = seconds(told.time), valid_text(told.text or "")
            calls = [ToolCall(call.id, call.name, arguments(call.args)) for call in told.tool_calls or ()]
        except UNUSABLE as error:
            self._builder.problem(number, str(error))
            return
        match told.role:
            case "system":
                self._builder.system = text or self._builder.system
            case "assistant":
                blocks: list[Block] = [Text(text)] if text.strip() else []
                usage = self._usage(number, told.usage)
                self._builder.answer(number, [*blocks, *calls], time, model=told.model or "", usage=usage)
            case "compaction":
                usage = self._usage(number, told.usage)
                self._builder.compaction(number, text, time, usage=usage, keeps=told.keeps)
            case "user" | "tool" if told.tool_call_id:
                self._builder.result(number, ToolResult(told.tool_call_id, text, is_error=told.is_error), time)
            case "user":
                self._builder.user(number, [Text(text)], time)
            case "tool":
                self._builder.problem(number, "a tool's result without tool_call_id")
            case other:
                self._builder.problem(number, f"unknown role {other[:40]!r}")

    def _usage(self, number: int, told: msgspec.Raw) -> Usage | None:
        """The usage of a call; None if it is missing or invalid, which is noted as a problem."""
        try:
            usage = _neutral_usage.decode(told)
        except UNUSABLE as error:
            self._builder.problem(number, f"only its usage: {error}")
            return None
        if usage is None:
            return None
        return Usage(usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens)
