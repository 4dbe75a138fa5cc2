"""Reads the streamed answers of Ollama's ``/api/chat``."""

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import ToolCall, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.models.adapter import OpenText, Reply, closed, open_text
from tui_agent.models.base import Completed, StopReason, StreamEvent, Timings, ToolCallDelta
from tui_agent.models.encoding import encode
from tui_agent.models.errors import ServerRefusedError, WrongServerError
from tui_agent.models.http import read_error

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


class OllamaReply(Reply):
    """Reads the stream's lines in order; `complete` after the last one.

    `prompt_tokens` is then the prompt's size as the server reports it (0: it does not); `size` is the request's size in
    bytes, set by the adapter. `max_tokens` is the request's.
    """

    def __init__(self, model: str, taken: frozenset[str] = frozenset(), max_tokens: int = 0) -> None:
        super().__init__(model, taken)
        self.prompt_tokens = 0
        self.size = 0
        self._max_tokens = max_tokens
        self._blocks: list[OpenText | ToolCall] = []
        self._output = 0
        self._timings: Timings | None = None
        self._reason = ""

    @override
    def read(self, data: bytes) -> list[StreamEvent]:
        """Read one line. Raises `ServerRefusedError`, `WrongServerError`; `msgspec.DecodeError` if it is malformed."""
        line = msgspec.convert(parsed_line(data), _Line)
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

    @override
    def completed(self) -> Completed:
        blocks = tuple(map(closed, self._blocks))
        reason: StopReason = "tool_calls" if any(isinstance(block, ToolCall) for block in blocks) else "end_turn"
        if self._reason == "length":
            # Without ``shift``, an answer also ends when the context is full.
            reason = "max_tokens" if self._output >= self._max_tokens else "context_window"
        usage = Usage(input_tokens=self.prompt_tokens, output_tokens=self._output)
        return Completed(blocks, usage, reason, valid_text(self._model), timings=self._timings)

    def _message(self, message: _Message) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if message.thinking:
            events.append(open_text(self._blocks, thought=True).add(message.thinking))
        if message.content:
            events.append(open_text(self._blocks, thought=False).add(message.content))
        events += map(self._call, message.tool_calls or ())
        return events

    def _call(self, raw: _Call) -> StreamEvent:
        given = raw.function.arguments
        text = given if isinstance(given, str) else encode(given or {}).decode()
        call = self._made_call(raw.id, raw.function.name, text)
        self._blocks.append(call)
        return ToolCallDelta(len(self._blocks) - 1, call.name, len(call.arguments))


def parsed_line(line: bytes) -> object:
    """Parse a line of an answer. Raises `ServerRefusedError` if it reports an error, `WrongServerError` if it is a web
    page's, and `msgspec.DecodeError`.
    """
    if line.lstrip().startswith(b"<"):
        raise WrongServerError("Ollama's address")
    parsed: object = msgspec.json.decode(line)
    if isinstance(parsed, dict) and parsed.get("error"):
        raise ServerRefusedError(msgspec.structs.replace(read_error(line), status=-1))
    return parsed
