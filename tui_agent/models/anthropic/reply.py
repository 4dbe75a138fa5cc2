"""Reads the streamed answers of Anthropic's Messages API."""

import json
from dataclasses import dataclass, field
from itertools import zip_longest

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, text_in, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.wire import read_arguments, write_opaque
from tui_agent.models.adapter import Reply
from tui_agent.models.base import Completed, Metered, ReasoningDelta, StopReason, StreamEvent, TextDelta, ToolCallDelta
from tui_agent.models.encoding import encode, with_sources
from tui_agent.models.errors import ServerRefusedError
from tui_agent.models.http import read_error
from tui_agent.models.originals import with_original
from tui_agent.text import one_line

_STOP: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "stop_sequence": "end_turn",
    "pause_turn": "paused",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "compaction": "end_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
}


_LONGEST_REASON = 60
PAUSED = "(searching)"
"""The text of an answer that the server has paused before its first word."""


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _Written(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _Iteration(msgspec.Struct):
    type: str = ""
    input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _Written | None = None
    output_tokens: int | None = None


class _ServerTools(msgspec.Struct):
    web_search_requests: int | None = None


class _Usage(_Iteration):
    output_tokens_details: _OutputDetails | None = None
    iterations: list[_Iteration] | None = None
    server_tool_use: _ServerTools | None = None


class _Kind(msgspec.Struct):
    type: str = ""


class _Diagnostics(msgspec.Struct):
    cache_miss_reason: _Kind | None = None


class _ContentBlock(msgspec.Struct):
    type: str
    id: str = ""
    name: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: dict[str, object] | None = None
    content: object = None


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    diagnostics: _Diagnostics | None = None
    usage: _Usage | None = None
    content: list[_ContentBlock] | None = None
    stop_reason: str | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str
    index: int = 0
    message: _Message | None = None
    content_block: _ContentBlock | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None


_KNOWN = frozenset({"message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop"})
_WHOLE = "message"
"""What a server that does not stream answers with."""


@dataclass(slots=True)
class _Open:
    """A block that is still streaming. `pieces` are of its text, its thinking, or its arguments; `as_sent`: the JSON it
    began with.
    """

    start: _ContentBlock
    as_sent: dict[str, object] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)
    signature: str = ""
    size: int = 0


class AnthropicReply(Reply):
    """Reads the stream's events in order; `complete` after the last one."""

    def __init__(self, model: str, taken: frozenset[str] = frozenset()) -> None:
        super().__init__(model, taken)
        self._blocks: dict[int, _Open] = {}
        self._usage = _Usage()
        self._stop_reason = ""
        self._pages: dict[str, str] = {}
        self._id = self._cache_miss = ""

    @override
    def read(self, data: bytes) -> list[StreamEvent]:
        """Read one event, or a whole answer. Raises `ServerRefusedError`; ValueError if it is malformed."""
        parsed = json.loads(data) if data.strip() != b"[DONE]" else None
        kind = parsed.get("type") if isinstance(parsed, dict) else None
        if isinstance(parsed, dict) and "error" in parsed and kind in (None, "error"):
            raise ServerRefusedError(read_error(data))
        if isinstance(parsed, dict) and kind == _WHOLE:
            events = self._begin(msgspec.convert(parsed, _Message), parsed.get("content"))
            self.complete = True
            return events
        if kind not in _KNOWN:
            return []
        event = msgspec.convert(parsed, _Event)
        found: StreamEvent | None = None
        match event.type:
            case "message_start" if event.message is not None:
                return self._begin(event.message)
            case "content_block_start" if event.content_block is not None:
                as_sent = parsed.get("content_block") if isinstance(parsed, dict) else None
                found = self._open_block(event.index, event.content_block, as_sent)
            case "content_block_delta" if event.delta is not None:
                found = self._add(event.index, event.delta)
            case "message_delta":
                if event.delta is not None and event.delta.stop_reason:
                    self._stop_reason = event.delta.stop_reason
                self._count(event.usage)
                found = Metered(self._used())
            case "message_stop":
                self.complete = self.started
        return [found] if found is not None else []

    @override
    def completed(self) -> Completed:
        blocks = tuple(block for index in sorted(self._blocks) if (block := self._closed(self._blocks[index])))
        calls = any(isinstance(block, ToolCall) for block in blocks)
        reason = _STOP.get(self._stop_reason, "tool_calls" if calls else "end_turn")
        if reason == "tool_calls" and not calls:
            reason = "end_turn"
        elif reason == "paused" and calls:
            reason = "tool_calls"
        blocks = with_sources(blocks, self._pages)
        if reason == "paused":
            # The server goes on from what it has sent, searches and their results included (Anthropic, server tools).
            whole = [_as_sent(opened) for _, opened in sorted(self._blocks.items())]
            blocks = (with_original("anthropic", Text(text_in(blocks, between="") or PAUSED), whole),)
        return Completed(
            blocks,
            self._used(),
            reason,
            valid_text(self._model),
            cache_miss=one_line(self._cache_miss, _LONGEST_REASON),
            answer_id=valid_text(self._id),
        )

    def _begin(self, message: _Message, as_sent: object = None) -> list[StreamEvent]:
        """Start the answer, which may have blocks already. A gateway that asks upstream again starts it twice."""
        self.started = True
        if message.id != self._id:
            self._blocks.clear()
        self._model = message.model or self._model
        self._id = message.id
        self._stop_reason = message.stop_reason or ""
        missed = message.diagnostics.cache_miss_reason if message.diagnostics is not None else None
        self._cache_miss = missed.type if missed is not None else ""
        self._count(message.usage)
        originals = as_sent if isinstance(as_sent, list) else []
        blocks = enumerate(zip_longest(message.content or (), originals))
        opened = [self._open_block(index, block, original) for index, (block, original) in blocks if block is not None]
        return [Metered(self._used()), *(event for event in opened if event is not None)]

    def _open_block(self, index: int, start: _ContentBlock, as_sent: object) -> StreamEvent | None:
        opened = _Open(start, as_sent if isinstance(as_sent, dict) else {}, signature=start.signature or "")
        self._blocks[index] = opened
        if start.type == "web_search_tool_result" and isinstance(start.content, list):
            pages = [each for each in start.content if isinstance(each, dict)]  # else it is an error's
            self._pages |= {str(each.get("url")): str(each.get("title") or "") for each in pages}
        if start.type == "tool_use":
            return ToolCallDelta(index, valid_text(start.name), 0)
        given = (start.text if start.type == "text" else start.thinking) or ""
        return self._piece(opened, index, given) if given else None

    def _add(self, index: int, delta: _Delta) -> StreamEvent | None:
        opened = self._blocks.get(index)
        if opened is None:
            return None
        if delta.signature:
            opened.signature += delta.signature
        text = {"text": delta.text, "thinking": delta.thinking}.get(opened.start.type, delta.partial_json)
        return self._piece(opened, index, text) if text else None

    def _piece(self, opened: _Open, index: int, text: str) -> StreamEvent | None:
        text = valid_text(text)
        opened.pieces.append(text)
        opened.size += len(text)
        match opened.start.type:
            case "text":
                return TextDelta(text)
            case "thinking":
                return ReasoningDelta(text)
            case "tool_use":
                return ToolCallDelta(index, valid_text(opened.start.name), opened.size)
            case _:
                return None

    def _closed(self, opened: _Open) -> Block | None:
        start, text = opened.start, "".join(opened.pieces)
        match start.type:
            case "text":
                return Text(text) if text else None
            case "thinking":
                opaque = write_opaque(signature=valid_text(opened.signature)) if opened.signature else ""
                return Reasoning(text, opaque) if text or opaque else None
            case "redacted_thinking" if start.data:
                return Reasoning("", write_opaque(redacted=valid_text(start.data)))
            case "tool_use":
                # Some gateways send the whole input in the first event.
                whole = text or (encode(start.input).decode() if start.input else "")
                return self._made_call(start.id, start.name, whole)
            case "compaction":
                summary = opened.as_sent.get("content")
                if not isinstance(summary, str) or not opened.as_sent.get("signature"):
                    return None
                return Text(valid_text(summary), write_opaque(compaction=encode(opened.as_sent).decode()))
            case _:
                return None

    def _count(self, usage: _Usage | None) -> None:
        """Update the usage: later figures are cumulative and replace earlier ones."""
        if usage is not None:
            for name in _Usage.__struct_fields__:
                if (value := getattr(usage, name)) is not None:
                    setattr(self._usage, name, value)

    def _used(self) -> Usage:
        """The usage so far. Anthropic's ``input_tokens`` excludes cache reads and writes; ours is the whole prompt."""
        used = self._usage
        # A summary that the server writes is billed beside the answer (Anthropic, compaction).
        billed = [used, *(each for each in used.iterations or () if each.type == "compaction")]
        read = sum(each.cache_read_input_tokens or 0 for each in billed)
        written = sum(each.cache_creation_input_tokens or 0 for each in billed)
        for_an_hour = sum(each.cache_creation.ephemeral_1h_input_tokens or 0 for each in billed if each.cache_creation)
        details = used.output_tokens_details
        return Usage(
            input_tokens=sum(each.input_tokens or 0 for each in billed) + read + written,
            cache_read_tokens=read,
            cache_write_tokens=written,
            output_tokens=sum(each.output_tokens or 0 for each in billed),
            reasoning_tokens=(details.thinking_tokens or 0) if details is not None else 0,
            cache_write_hour_tokens=min(written, for_an_hour),
            searches=(used.server_tool_use.web_search_requests or 0) if used.server_tool_use else 0,
        )


def _as_sent(opened: _Open) -> dict[str, object]:
    """A block's JSON, whole."""
    text = "".join(opened.pieces)
    match opened.start.type:
        case "text":
            return {"type": "text", "text": text}
        case "thinking":
            return {"type": "thinking", "thinking": text, "signature": opened.signature}
        case _ if text:
            return {**opened.as_sent, "input": json.loads(read_arguments(text)[0])}
        case _:
            return opened.as_sent
