"""The neutral format: a JSON object a line with `role`, `text`, `tool_calls`, `tool_call_id` and, if known, `time`,
`model`, `usage` and `exit_code` (docs/replay.md).
"""

from typing_extensions import override

from tui_agent.conversation.blocks import Block, Text, ToolCall
from tui_agent.conversation.entries import Outcome, Usage
from tui_agent.storage.recordings.fields import Json
from tui_agent.storage.recordings.recording import RecordingReader


class NeutralReader(RecordingReader):
    @override
    def take(self, number: int, line: bytes) -> None:
        record, builder = Json.decode(line), self.builder
        time, text, answered = record["time"].seconds, record["text"].text, record["tool_call_id"].text
        match record["role"].text:
            case "system":
                builder.system = text or builder.system
            case "assistant":
                blocks: list[Block] = [Text(text)] if text.strip() else []
                blocks += [
                    ToolCall(call["id"].text, call["name"].text, call["args"].arguments)
                    for call in record["tool_calls"]
                ]
                usage = builder.usage(number, record["usage"], _used)
                builder.answer(number, blocks, time, model=record["model"].text, usage=usage)
            case "compaction":
                usage = builder.usage(number, record["usage"], _used)
                builder.compaction(number, text, time, usage=usage, keeps=record["keeps"].count)
            case "user" | "tool" if answered:
                outcome = Outcome(exit_code=record["exit_code"].exit_code)
                builder.result(number, answered, [Text(text)], time, is_error=record["is_error"].flag, outcome=outcome)
            case "user":
                builder.user(number, [Text(text)], time)
            case "tool":
                raise ValueError("a tool's result without tool_call_id")
            case other:
                raise ValueError(f"unknown role {other[:40]!r}")


def _used(record: Json) -> Usage:
    if not record["input_tokens"]:
        raise ValueError("input_tokens are missing")
    names = ("input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")
    return Usage(*(record[name].count for name in names))
