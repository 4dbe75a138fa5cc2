"""Reads the streamed answers of Ollama's ``/api/chat``."""

from dataclasses import dataclass, field

import msgspec

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.wire import read_arguments
from tui_agent.models.base import Completed, ReasoningDelta, StopReason, StreamEvent, TextDelta, ToolCallDelta
from tui_agent.models.encoding import encode, unused_id
from tui_agent.models.speed import Timings

NANO = 1e9
"""Ollama reports durations in nanoseconds."""


class _Function(msgspec.Struct):
    name: str = ""
    arguments: dict[str, object] | str | None = None


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(msgspec.Struct):
    model: str = ""
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_duration: int | None = None


@dataclass(slots=True)
class _Open:
    """Text or thoughts that are still streaming."""

    thought: bool
    pieces: list[str] = field(default_factory=list)


class OllamaReply:
    """Reads the stream's lines in order; `complete` after the last one.

    `prompt_tokens` is then the prompt's size as the server reports it (0: it does not); `size` is the request's size in
    bytes, set by the adapter. `max_tokens` is the request's. `taken` are the ids of the conversation's earlier calls; a
    call without an unused id gets a new one.
    """

    def __init__(self, model: str, taken: frozenset[str] = frozenset(), max_tokens: int = 0) -> None:
        self.complete = False
        self.started = False
        self.prompt_tokens = 0
        self.size = 0
        self._max_tokens = max_tokens
        self._model = model
        self._taken = set(taken)
        self._blocks: list[_Open | ToolCall] = []
        self._output = 0
        self._timings: Timings | None = None
        self._reason = ""

    def read(self, data: object) -> list[StreamEvent]:
        """Read one line. Raises `msgspec.ValidationError` if it is malformed."""
        line = msgspec.convert(data, _Line)
        self.started = True
        self._model = line.model or self._model
        events = self._message(line.message) if line.message is not None else []
        if line.done:
            self.complete = True
            self._reason = line.done_reason or ""
            if line.prompt_eval_duration or line.eval_duration:
                self._timings = Timings((line.prompt_eval_duration or 0) / NANO, (line.eval_duration or 0) / NANO)
            self.prompt_tokens, self._output = max(0, line.prompt_eval_count or 0), max(0, line.eval_count or 0)
        return events

    def completed(self) -> Completed:
        """The whole answer."""
        blocks = tuple(map(_closed, self._blocks))
        reason: StopReason = "tool_calls" if any(isinstance(block, ToolCall) for block in blocks) else "end_turn"
        if self._reason == "length":
            # Without ``shift``, an answer also ends when the context is full.
            reason = "max_tokens" if self._output >= self._max_tokens else "context_window"
        usage = Usage(input_tokens=self.prompt_tokens, output_tokens=self._output)
        return Completed(blocks, usage, reason, valid_text(self._model), timings=self._timings)

    def _message(self, message: _Message) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if message.thinking:
            events.append(ReasoningDelta(self._add(message.thinking, thought=True)))
        if message.content:
            events.append(TextDelta(self._add(message.content, thought=False)))
        events += map(self._call, message.tool_calls or ())
        return events

    def _add(self, text: str, *, thought: bool) -> str:
        text = valid_text(text)
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, _Open) or last.thought is not thought:
            last = _Open(thought)
            self._blocks.append(last)
        last.pieces.append(text)
        return text

    def _call(self, raw: _Call) -> StreamEvent:
        given = raw.function.arguments
        arguments, malformed = read_arguments(given if isinstance(given, str) else encode(given or {}).decode())
        call_id = unused_id(raw.id, self._taken)
        call = ToolCall(call_id, valid_text(raw.function.name), arguments, malformed=malformed)
        self._blocks.append(call)
        return ToolCallDelta(len(self._blocks) - 1, call.name, len(arguments))


def _closed(opened: _Open | ToolCall) -> Block:
    if isinstance(opened, ToolCall):
        return opened
    text = "".join(opened.pieces)
    return Reasoning(text) if opened.thought else Text(text)
