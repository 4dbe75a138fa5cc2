"""What the trace says of each entry of the log."""

import msgspec

from tui_agent.conversation.blocks import Reasoning, Text, ToolCall, ToolResult
from tui_agent.conversation.entries import (
    AnyEntry,
    Checkpointed,
    ContextEntry,
    Message,
    Partial,
    Summarized,
    UnattributedCall,
)
from tui_agent.storage.store import TraceSink


def trace_entry(trace: TraceSink, entry: AnyEntry) -> None:
    """Record an entry: a message split into what was said, thought, called, answered and used."""
    match entry:
        case Message():
            _trace_message(trace, entry)
        case Summarized() | Checkpointed():
            trace.record("context_compaction", entry)
        case ContextEntry():
            trace.record("context", entry)
        case UnattributedCall():
            used = {"seq": entry.seq, "model": entry.model, "cost_usd": entry.cost_usd, "purpose": entry.purpose}
            trace.record("model_usage", {**used, **msgspec.structs.asdict(entry.usage)})
        case Partial():
            pass
        case _:
            trace.record("session", entry)


def _trace_message(trace: TraceSink, message: Message) -> None:
    said: dict[str, object] = {"seq": message.seq, "role": message.role}
    text = "\n\n".join(block.text for block in message.blocks if isinstance(block, Text))
    if text:
        trace.record("message", {**said, "kind": message.kind, "text": text, "stop_reason": message.stop_reason})
    for block in message.blocks:
        match block:
            case Reasoning():
                trace.record("reasoning", {**said, "text": block.text})
            case ToolCall():
                trace.record("tool_call", {**said, "id": block.id, "name": block.name, "arguments": block.arguments})
            case ToolResult():
                trace.record(
                    "tool_result",
                    {
                        **said,
                        "call_id": block.call_id,
                        "text": block.text,
                        "is_error": block.is_error,
                        "artifact": message.artifact,
                        "duration_ms": message.duration_ms,
                    },
                )
            case _:
                pass
    if message.usage is not None:
        trace.record(
            "model_usage",
            {
                **said,
                "model": message.model,
                "cost_usd": message.cost_usd,
                "stop_reason": message.stop_reason,
                "duration_ms": message.duration_ms,
                **msgspec.structs.asdict(message.usage),
            },
        )
