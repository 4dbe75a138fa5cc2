"""Reads the streamed answers of Chat Completions.

Servers send calls in pieces or whole, with or without an index or an id; empty chunks; usage at the end, in every
chunk, or never; reasoning under three names. This reader accepts all of that.
"""

from dataclasses import dataclass, field

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.wire import is_object, write_opaque
from tui_agent.models.adapter import OpenText, Reply, open_text
from tui_agent.models.base import (
    Completed,
    Metered,
    StopReason,
    StreamEvent,
    Timings,
    ToolCallDelta,
    Unavailable,
)
from tui_agent.models.encoding import encode
from tui_agent.models.errors import ServerRefusedError
from tui_agent.models.http import read_error

_END = b"[DONE]"
_STOP: dict[str, StopReason] = {
    "stop": "end_turn",
    "eos": "end_turn",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "max_tokens",
    "model_length": "context_window",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "context_window",
    "content_filter": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
}
TICKS = 10**10
"""xAI's unit of cost, in a dollar."""
_FAILED = frozenset(
    {
        "abort",
        "engine_overloaded",
        "error",
        "insufficient_system_resource",
        "malformed_function_call",
        "network_error",
    }
)


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, object] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    text: str | None = None
    thinking: "str | list[_Part] | None" = None


class _Message(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[msgspec.Raw] | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    finish_reason: str | None = None


class InputDetails(msgspec.Struct):
    """The cached part of a prompt, in both of OpenAI's APIs."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    """The reasoning part of an answer, in both of OpenAI's APIs."""

    reasoning_tokens: int | None = None


class Charged(msgspec.Struct):
    """What a call cost, as some servers of both of OpenAI's APIs say in its usage.

    `cost`: in USD (OpenRouter, Vercel's gateway), or with its `total_cost` (Perplexity). `is_byok`: OpenRouter used the
    account's own key at the upstream server, which charges `upstream_inference_cost` beside it. xAI counts in ticks.
    """

    cost: object = None
    is_byok: object = None
    cost_details: object = None
    cost_in_usd_ticks: object = None

    @property
    def usd(self) -> float | None:
        """The dollars; None if the server does not say, or says nothing but zero, as some do for all calls."""
        cost = self.cost.get("total_cost") if isinstance(self.cost, dict) else self.cost
        details = self.cost_details if isinstance(self.cost_details, dict) and self.is_byok else {}
        ticks = self.cost_in_usd_ticks
        amounts = (cost, details.get("upstream_inference_cost"), ticks / TICKS if isinstance(ticks, int) else None)
        return sum(each for each in amounts if isinstance(each, int | float)) or None


class _Usage(Charged):
    """Usage. Outside of the details, DeepSeek and Together report the cache, Azure the reasoning."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None


class _Groq(msgspec.Struct):
    usage: _Usage | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's timings; `prompt_n` are the prompt tokens that were not in its cache."""

    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_ms: float = 0.0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    object: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    x_groq: _Groq | None = None
    timings: _Timings | None = None
    error: msgspec.Raw = msgspec.Raw()


_chunks = msgspec.json.Decoder(_Chunk)


@dataclass(slots=True)
class _OpenCall:
    """A call that is still streaming."""

    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    size: int = 0


class ChatReply(Reply):
    """Reads the stream's chunks in order; `complete` after a finish reason or the end marker.

    `usage` is what the server reported (`metered`: it did), or was set with `count`. `reason`: why the answer ended, in
    the server's word; empty if it did not say. `max_tokens` is the request's (0: do not tell a full window from it).
    """

    def __init__(self, model: str, taken: frozenset[str] = frozenset(), max_tokens: int = 0) -> None:
        super().__init__(model, taken)
        self._max_tokens = max_tokens
        self._blocks: list[OpenText | _OpenCall] = []
        self._calls: dict[int, _OpenCall] = {}
        self.usage = Usage()
        self._charged: float | None = None
        self.reason = ""
        self.metered = False
        self._refused = False
        self._timings: Timings | None = None

    @override
    def read(self, data: bytes) -> list[StreamEvent]:
        """Read one event's data. Raises `msgspec.DecodeError`, and `ServerRefusedError`."""
        if data.strip() == _END:
            self.complete = self.complete or self.started
            return []
        chunk = _chunks.decode(data)
        # OpenRouter repeats the end of an answer that was cut as an error.
        if bytes(chunk.error) not in (b"", b"null") and not self.complete:
            refusal = read_error(data)
            if not refusal.written:
                raise ServerRefusedError(refusal)
            self.take_in(refusal.written)
        events: list[StreamEvent] = []
        if chunk.model:
            self._model = chunk.model
        for choice in chunk.choices or ():
            self.started = True
            # Perplexity sends both; one of them is empty, or the whole answer so far.
            whole = choice.message is not None and (choice.delta is None or chunk.object == "chat.completion")
            part = choice.message if whole else choice.delta
            events += self._message(part) if part is not None else ()
            if choice.finish_reason or whole:
                self.reason, self.complete = (choice.finish_reason or self.reason or "stop").lower(), True
        if (took := chunk.timings) is not None:
            self._timings = Timings(took.prompt_ms / 1000, took.predicted_ms / 1000, max(0, took.prompt_n))
        used = chunk.usage or (chunk.x_groq.usage if chunk.x_groq is not None else None)
        if used is not None:
            self.metered = True
            self.usage = _counted(used, self.usage)
            self._charged = used.usd if used.usd is not None else self._charged
            events.append(Metered(self.usage, self._charged))
        return events

    @property
    def empty(self) -> bool:
        """Whether the answer has no blocks."""
        return not self._blocks

    @property
    def said(self) -> str:
        """Everything the model wrote: text, thoughts, and the arguments of calls."""
        return "".join(piece for opened in self._blocks for piece in opened.pieces)

    def count(self, read: int, written: int) -> None:
        """Set the tokens read and written, if the server does not report them."""
        self.usage = msgspec.structs.replace(self.usage, input_tokens=read, output_tokens=written)

    def take_in(self, written: str) -> None:
        """End the answer with output that the server rejected, as text."""
        open_text(self._blocks, thought=False).add(written)
        self.complete = self.started = True

    @override
    def completed(self) -> Completed:
        """The whole answer. Raises `Unavailable` if the server aborted it, since a retry may help."""
        if self.reason in _FAILED:
            raise Unavailable(f"{self._model} stopped in the middle of its answer", advice="try again")
        blocks = tuple(block for opened in self._blocks if (block := self._closed(opened)) is not None)
        calls = any(isinstance(block, ToolCall) for block in blocks)
        reason = "refusal" if self._refused else _STOP.get(self.reason, "end_turn")
        if reason in ("end_turn", "tool_calls"):
            reason = "tool_calls" if calls else "end_turn"
        if reason == "max_tokens" and 0 < self.usage.output_tokens < self._max_tokens:
            reason = "context_window"  # it ended where the window did
        return Completed(
            blocks, self.usage, reason, valid_text(self._model), timings=self._timings, charged_usd=self._charged
        )

    def _message(self, message: _Message) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        details = [bytes(each).decode() for each in message.reasoning_details or ()]
        thought = message.reasoning_content or message.reasoning or _thought_in(message.content)
        if thought or details:
            opened = open_text(self._blocks, thought=True)
            opened.details += details
            if thought:
                events.append(opened.add(thought))
        text = _text_of(message.content) or message.refusal
        if text:
            events.append(open_text(self._blocks, thought=False).add(text))
        self._refused = self._refused or bool(message.refusal)
        for number, call in enumerate(message.tool_calls or ()):
            events.append(self._call(call, first=number == 0))
        return events

    def _call(self, call: _Call, *, first: bool) -> StreamEvent:
        """Add a piece to the call with its index; without an index, to the newest call, unless it has another id.

        Without either, the `first` of a chunk continues the newest call, unless that is whole or has another name.
        """
        index = call.index if call.index is not None else max(0, len(self._calls) - 1)
        opened = self._calls.get(index)
        named = call.function.name if call.function is not None else ""
        if opened is not None and call.index is None and not call.id:
            begins = not first or bool(named and (named != opened.name or is_object("".join(opened.pieces))))
        else:
            begins = opened is None or bool(call.id and opened.id and call.id != opened.id)
        if opened is None or begins:
            index = index if opened is None else len(self._calls)
            opened = self._calls[index] = _OpenCall()
            self._blocks.append(opened)
        opened.id = call.id or opened.id
        function = call.function or _Function()
        name = valid_text(function.name or "")
        if name != opened.name:  # some servers repeat it with every piece
            opened.name += name
        given = function.arguments
        piece = valid_text(given if isinstance(given, str) else encode(given).decode() if given else "")
        opened.pieces.append(piece)
        opened.size += len(piece)
        return ToolCallDelta(index, opened.name, opened.size)

    def _closed(self, opened: OpenText | _OpenCall) -> Block | None:
        text = "".join(opened.pieces)
        if isinstance(opened, _OpenCall):
            return self._made_call(opened.id, opened.name, text)
        if not opened.thought:
            return Text(text) if text else None
        opaque = write_opaque(details=encode(opened.details).decode()) if opened.details else ""
        return Reasoning(text, opaque) if text or opaque else None


def _text_of(content: str | list[_Part] | None) -> str:
    """The text of a content, which may come in parts."""
    return "".join(part.text or "" for part in content) if isinstance(content, list) else content or ""


def _thought_in(content: str | list[_Part] | None) -> str:
    """The thoughts among the parts of a content (Mistral)."""
    parts = content if isinstance(content, list) else ()
    thoughts = [part.thinking for part in parts if part.thinking]
    return "".join(each if isinstance(each, str) else _text_of(each) for each in thoughts)


def _counted(usage: _Usage, before: Usage) -> Usage:
    """The usage with a chunk's figures, which are cumulative; what the chunk leaves out stays as it was.

    The prompt's count includes cache reads, the answer's includes reasoning: always with OpenAI, and here. xAI's leaves
    it out, and so does Gemini's at its address for OpenAI's clients; their total has it.
    """
    read, written = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = usage.prompt_cache_hit_tokens or (read.cached_tokens if read is not None else None) or usage.cached_tokens
    thought = (written.reasoning_tokens if written is not None else None) or usage.reasoning_tokens or 0
    answer = usage.completion_tokens or 0
    if usage.total_tokens and usage.prompt_tokens:
        answer = max(answer, usage.total_tokens - usage.prompt_tokens)
    elif thought > answer:
        answer += thought
    return Usage(
        input_tokens=max(0, usage.prompt_tokens or before.input_tokens),
        cache_read_tokens=max(0, cached or before.cache_read_tokens),
        cache_write_tokens=max(0, (read.cache_write_tokens if read is not None else None) or before.cache_write_tokens),
        output_tokens=max(0, answer or before.output_tokens),
        reasoning_tokens=max(0, thought or before.reasoning_tokens),
    )
