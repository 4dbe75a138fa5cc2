"""What a log holds that can be searched for: each entry as the texts a model saw or wrote there."""

import json
import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolResult, valid_text
from tui_agent.conversation.entries import AnyEntry, Artifact, Checkpointed, Digested, Message, Queued, Summarized

Role: TypeAlias = Literal[
    "user",
    "assistant",
    "reasoning",
    "tool_call",
    "tool_result",
    "raw_output",
    "notice",
    "summary",
    "checkpoint",
    "digest",
    "history",
]

RECALL_TOOL: Final = "recall"
"""Its calls and answers only quote what stands elsewhere, and would be found before it."""

_SUMMARY_LENGTH = 160
_NESTED = 32


class Precedence:
    """Which text of one entry is shown where several hold what was looked for: the lowest."""

    FILE: Final = 0
    TEXT: Final = 1
    JSON: Final = 2
    RAW: Final = 3
    HISTORY: Final = 4


class Passage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One text and where it stands: entry, its time, who wrote it, the call it belongs to, its file in the session."""

    seq: int
    time: float
    role: Role
    text: str
    tool: str = ""
    call: str = ""
    path: str = ""
    precedence: int = Precedence.TEXT


class Call(NamedTuple):
    """A tool call: the entry it stands in, its tool, its arguments on one short line."""

    seq: int
    tool: str
    arguments: str


_NO_CALL = Call(0, "", "")


def passages_of(entry: AnyEntry, calls: dict[str, Call]) -> Iterator[Passage]:
    """What `entry` itself holds; `calls` are the calls made so far, those in it included.

    What was never meant for a model (`agent_visible` false) is left out, and the pieces of a reply that its message
    supersedes.
    """
    match entry:
        case Message() if entry.agent_visible:
            for block in entry.blocks:
                yield from _block(entry, block, calls)
        case Queued():
            for block in entry.blocks:
                if isinstance(block, Text):
                    yield Passage(seq=entry.seq, time=entry.time, role="user", text=block.text)
        case Digested():
            yield Passage(seq=entry.seq, time=entry.time, role="digest", text=entry.text)
        case Summarized() | Checkpointed():
            yield Passage(seq=entry.seq, time=entry.time, role=entry.compaction, text=entry.text)
        case _:
            pass


def artifacts_of(entry: AnyEntry, calls: dict[str, Call]) -> Iterator[tuple[Artifact, Passage]]:
    """The file that holds the whole of a result, and the passage it is (still without its text)."""
    if isinstance(entry, Message) and entry.artifact is not None and entry.agent_visible:
        passage = _file_of(entry, entry.artifact.path, calls)
        if passage.tool != RECALL_TOOL:
            yield entry.artifact, passage


def raw_output_of(answer: Message, path: str, calls: dict[str, Call]) -> Passage:
    """The raw output of the command that `answer` answers, still without its text."""
    passage = _file_of(answer, path, calls)
    return msgspec.structs.replace(passage, role="raw_output", precedence=Precedence.RAW)


def call_of(message: Message, block: ToolCall) -> Call:
    """The call a block of `message` makes."""
    return Call(message.seq, block.name, _one_line(block.arguments))


def _file_of(message: Message, path: str, calls: dict[str, Call]) -> Passage:
    made = (calls.get(block.call_id) for block in message.blocks if isinstance(block, ToolResult))
    call = next(made, None) or _NO_CALL
    return Passage(
        seq=message.seq,
        time=message.time,
        role="tool_result" if message.kind == "tool_result" else message.role,
        text="",
        tool=call.tool,
        call=call.arguments,
        path=path,
        precedence=Precedence.FILE,
    )


def _block(message: Message, block: Block, calls: dict[str, Call]) -> Iterator[Passage]:
    match block:
        case Text():
            role: Role = "notice" if message.kind == "notice" else message.role
            yield Passage(seq=message.seq, time=message.time, role=role, text=block.text)
        case Reasoning():
            yield Passage(seq=message.seq, time=message.time, role="reasoning", text=block.text)
        case ToolCall():
            call = call_of(message, block)
            if call.tool != RECALL_TOOL:
                yield from _call(message, block, call)
        case ToolResult():
            made = calls.get(block.call_id, _NO_CALL)
            if made.tool != RECALL_TOOL:
                yield Passage(
                    seq=message.seq,
                    time=message.time,
                    role="tool_result",
                    text=block.text,
                    tool=made.tool,
                    call=made.arguments,
                )
        case _:
            pass


def _call(message: Message, block: ToolCall, call: Call) -> Iterator[Passage]:
    written = block.malformed or block.arguments
    texts = [] if block.malformed else [text for text in _strings(block.arguments) if text not in written]
    for text, precedence in (
        *((text, Precedence.TEXT) for text in texts),
        (f"{block.name}({written})", Precedence.JSON),
    ):
        yield Passage(
            seq=message.seq,
            time=message.time,
            role="tool_call",
            text=text,
            tool=call.tool,
            call=call.arguments,
            precedence=precedence,
        )


def _strings(arguments: str) -> list[str]:
    """The string values in a JSON text, as they are meant: quoted with escapes they could not be found by quoting."""
    try:
        pending: list[tuple[object, int]] = [(msgspec.json.decode(arguments.encode()), 0)]
    except (msgspec.DecodeError, RecursionError):
        return []
    found: list[str] = []
    while pending:
        value, depth = pending.pop()
        if isinstance(value, str):
            found.append(valid_text(value))
        elif isinstance(value, dict | list) and depth < _NESTED:
            inner = [*value, *value.values()] if isinstance(value, dict) else value
            pending.extend((item, depth + 1) for item in inner)
    return found


def _one_line(arguments: str) -> str:
    """`path="a.py", limit=20`, cut to a length that fits a line."""
    try:
        decoded = msgspec.json.decode(arguments.encode())
    except (msgspec.DecodeError, RecursionError):
        decoded = None
    text = arguments
    if isinstance(decoded, dict):
        text = ", ".join(f"{key}={_value(value)}" for key, value in decoded.items())
    text = re.sub(r"\s+", " ", valid_text(text))
    return text if len(text) <= _SUMMARY_LENGTH else f"{text[: _SUMMARY_LENGTH - 1]}…"


def _value(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value[:_SUMMARY_LENGTH], ensure_ascii=False)
    return valid_text(msgspec.json.encode(value).decode())
