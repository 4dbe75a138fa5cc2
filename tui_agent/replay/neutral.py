"""The neutral format: a JSON object a line with `role`, `text`, `tool_calls`, `tool_call_id` and, if known, `time`."""

from datetime import datetime

import msgspec

from tui_agent.conversation.blocks import Block, ToolCall, ToolResult, valid_text
from tui_agent.replay.gathering import Gathering, text_block


class _Call(msgspec.Struct):
    id: str
    name: str
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Line(msgspec.Struct):
    role: str
    text: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    is_error: bool = False
    time: float | str | None = None


_decoder = msgspec.json.Decoder(_Line)


def take(gathering: Gathering, number: int, line: bytes) -> str:
    """Take one line in; the text of a system prompt is returned, for everything else an empty text.

    A line that is none is noted as a problem.
    """
    try:
        said = _decoder.decode(line)
        time = seconds(said.time)
        calls = [_call(call) for call in said.tool_calls or ()]
    except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        gathering.problem(number, str(error))
        return ""
    text = said.text or ""
    match said.role:
        case "system":
            return text
        case "assistant":
            blocks: list[Block] = [text_block(text)] if text.strip() else []
            gathering.answer(number, [*blocks, *calls], time)
        case "user" | "tool" if said.tool_call_id:
            gathering.result(number, ToolResult(said.tool_call_id, valid_text(text), is_error=said.is_error), time)
        case "user":
            gathering.user(number, [text_block(text)], time)
        case "tool":
            gathering.problem(number, "a tool's result without tool_call_id")
        case other:
            gathering.problem(number, f"unknown role {other[:40]!r}")
    return ""


def seconds(time: float | str | None) -> float:
    """Seconds since the epoch of a number or an ISO 8601 text; 0 for none. Raises `ValueError`."""
    match time:
        case None | "":
            return 0.0
        case str():
            return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
        case number:
            return float(number)


def arguments_of(raw: bytes) -> str:
    """The arguments of a call as the text of a JSON object; a text that holds one is taken as it.

    Raises `ValueError`.
    """
    told: object = msgspec.json.decode(raw)
    if isinstance(told, str):
        told = msgspec.json.decode(told) if told.strip() else {}
    if isinstance(told, dict):
        return valid_text(msgspec.json.encode(told).decode())
    raise ValueError("the arguments of a call are no object")


def _call(call: _Call) -> ToolCall:
    return ToolCall(call.id, call.name, arguments_of(bytes(call.args)))
