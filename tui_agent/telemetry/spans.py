"""Spans and measurements from the entries of a log: turn → model call → tool call, and the steps of the context.

The ids follow from the session and the entries, so a call's span has its id before it ends, and a session that is sent
again has the same spans. Without `content`, nothing that was said, and no argument or result, is in them.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec
from msgspec import structs

from tui_agent.conversation.blocks import ToolCall, ToolResult, text_in
from tui_agent.conversation.entries import (
    AnyEntry,
    Checkpointed,
    Cleared,
    ContextEntry,
    Delivered,
    Digested,
    Message,
    Queued,
    Recorded,
    Summarized,
    UnattributedCall,
    Usage,
)
from tui_agent.conversation.wire import inner_call
from tui_agent.models.errors import redact
from tui_agent.telemetry import names
from tui_agent.tracing import SpanContext
from tui_agent.version import __version__

Value: TypeAlias = "str | bool | int | float | tuple[str, ...]"
Attributes: TypeAlias = Mapping[str, Value]

CONTENT_CHARS: Final = 32_000
"""Characters of one text that are sent if the user wants what was said to be sent."""
_OWN_ERRORS: Final = frozenset(("context", "internal", "listener", "tool", "writer"))
"""Kinds of noted errors that end no turn."""
_STEPS: Final = {Summarized: "summary", Checkpointed: "checkpoint", Digested: "digest", Cleared: "cleared"}


class SpanEvent(msgspec.Struct, frozen=True):
    """Something that happened in a span, at a time in seconds since 1970."""

    name: str
    time: float
    attributes: Attributes


class Span(msgspec.Struct, frozen=True):
    """A span that has ended. `parent`: 0 if there is none. Times in seconds since 1970. `error`: its kind, or empty.

    `remote`: the parent is a span of another program, with these flags.
    """

    name: str
    here: SpanContext
    parent: int
    start: float
    end: float
    attributes: Attributes
    error: str = ""
    outward: bool = False
    moments: tuple[SpanEvent, ...] = ()
    remote: SpanContext | None = None


class MetricValue(msgspec.Struct, frozen=True):
    """A value of a metric."""

    metric: names.Metric
    value: float
    attributes: Attributes


Signal: TypeAlias = Span | MetricValue


class _Note(msgspec.Struct):
    kind: str = ""
    retry_s: float = 0.0


class _Turn:
    """The turn that is running."""

    def __init__(self, here: SpanContext, start: float) -> None:
        self.here, self.start, self.last = here, start, start
        self.usage, self.cost, self.calls, self.model = Usage(), 0.0, 0, ""
        self.moments: list[SpanEvent] = []
        self.error = self.said = self.answer = ""
        self.answered = False


class Spans:
    """Makes signals of the entries of one conversation's log, in the order in which they were appended.

    `session`: its id. `parent`: the span that its turns belong to. `agent`: what answers, for a subtask its tool.
    """

    def __init__(
        self, session: str, *, parent: SpanContext | None = None, agent: str = names.AGENT, content: bool = False
    ) -> None:
        self.session, self.parent = session, parent
        self._agent, self.content = agent, content
        self._turn: _Turn | None = None
        self._calls: dict[str, tuple[ToolCall, SpanContext, int]] = {}
        self._writing: list[UnattributedCall] = []
        self._queued: dict[int, Queued] = {}

    def call(self, call_id: str) -> SpanContext | None:
        """The span of a tool call that the model has made."""
        return self._calls[call_id][1] if call_id in self._calls else None

    def take(self, entry: AnyEntry, *, live: bool = True) -> Iterator[Signal]:
        """The signals of the next entry. Not `live`: a turn has ended where the log tells of something else."""
        turn = self._turn
        if turn is not None and not live:
            over = turn.answered and isinstance(entry, ContextEntry | UnattributedCall)
            if over or (isinstance(entry, Message) and _begins(entry)):
                yield from self.end_turn(turn.last)
        match entry:
            case Message(role="assistant"):
                yield from self._answer(entry)
            case Message(kind="tool_result"):
                yield from self._results(entry)
            case Message() if _begins(entry):
                self._begin(entry.seq, entry.time, text_in(entry.blocks))
            case Queued(kind=""):
                self._queued[entry.seq] = entry
                if live:
                    self._begin(entry.seq, entry.time, "")
            case Delivered():
                if (queued := self._queued.pop(entry.queued, None)) is not None:
                    self._begin(entry.seq, entry.time, text_in(queued.blocks))
            case UnattributedCall(purpose="unfinished"):
                yield from self._call(entry, entry.usage, "unfinished", self._within(entry.seq, entry.time), 0)
            case UnattributedCall(purpose="tool"):
                return
            case UnattributedCall():
                self._writing.append(entry)
            case Summarized() | Checkpointed() | Digested() | Cleared():
                yield from self._step(entry)
            case Recorded(kind="error"):
                yield from self._error(entry)
            case _:
                return
        if self._turn is not None:
            self._turn.last = max(self._turn.last, entry.time)

    def end_turn(self, now: float, stop_reason: str = "") -> Iterator[Signal]:
        """The signals of the end of the running turn, if one runs."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        yield from self._unwritten(turn)
        error = turn.error if stop_reason in ("", "error") else ""
        error = error or (stop_reason if stop_reason in ("error", "interrupted") else "")
        attributes = {
            **self._of_model(names.INVOKE_AGENT, turn.model),
            names.AGENT_NAME: self._agent,
            names.AGENT_VERSION: __version__,
            names.CALLS: turn.calls,
            names.COST: turn.cost,
            **_usage(turn.usage),
            **({names.FINISH_REASONS: (names.FINISHED.get(stop_reason, stop_reason),)} if stop_reason else {}),
            **self._said(names.INPUT_MESSAGES, "user", turn.said),
            **self._said(names.OUTPUT_MESSAGES, "assistant", turn.answer),
        }
        duration = max(0.0, now - turn.start)
        yield Span(
            f"{names.INVOKE_AGENT} {self._agent}",
            turn.here,
            self.parent.span if self.parent is not None else 0,
            turn.start,
            turn.start + duration,
            attributes,
            error,
            moments=tuple(turn.moments),
            remote=self.parent,
        )
        common = {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: self._agent}
        yield MetricValue(names.TURN_DURATION, duration, {**common, **({names.ERROR: error} if error else {})})

    def _begin(self, seq: int, time: float, said: str) -> _Turn:
        """The running turn, which begins now if none runs."""
        if self._turn is None:
            self._turn = _Turn(self._root(seq), time)
            self._calls = {}
        self._turn.said = "\n\n".join(filter(None, (self._turn.said, said)))
        return self._turn

    def _root(self, seq: int) -> SpanContext:
        """A span of its own, below that of whoever started the program; else it begins a trace."""
        span = self._number(8, "turn", seq)
        if self.parent is not None:
            return SpanContext(self.parent.trace, span, self.parent.flags)
        return SpanContext(self._number(16, "trace", seq), span)

    def _number(self, size: int, *parts: object) -> int:
        """A number of so many bytes, other than 0."""
        text = "\0".join(map(str, (self.session, *parts)))
        return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:size]) or 1

    def _child(self, of: SpanContext, *parts: object) -> SpanContext:
        return structs.replace(of, span=self._number(8, of.span, *parts))

    def _within(self, seq: int, time: float) -> SpanContext:
        return self._begin(seq, time, "").here

    def _answer(self, message: Message) -> Iterator[Signal]:
        start = message.time - message.duration_ms / 1000
        turn = self._begin(message.seq, start, "")
        if message.usage is None:  # an answer that broke off; the program's own words
            return
        here = self._child(turn.here, "call", message.seq)
        turn.error, turn.answer = "", text_in(message.blocks)
        turn.answered = not any(isinstance(block, ToolCall) for block in message.blocks)
        yield from self._call(message, message.usage, message.stop_reason, turn.here, message.duration_ms, here)
        for block in message.blocks:
            if isinstance(block, ToolCall):
                self._calls[block.id] = inner_call(block), self._child(here, "tool", block.id), here.span

    def _call(
        self,
        entry: Message | UnattributedCall,
        usage: Usage,
        ended: str,
        parent: SpanContext,
        duration_ms: int,
        here: SpanContext | None = None,
    ) -> Iterator[Signal]:
        """The signals of a model call."""
        seconds, cost = duration_ms / 1000, entry.cost_usd or 0.0
        names_of_call = self._of_model(names.CHAT, entry.model)
        attributes: dict[str, Value] = {**names_of_call, names.STREAM: True, **_usage(usage)}
        if entry.cost_usd is not None:
            attributes[names.COST] = entry.cost_usd
        if isinstance(entry, Message):
            attributes[names.FINISH_REASONS] = (names.FINISHED.get(ended, ended),)
            attributes |= self._said(names.OUTPUT_MESSAGES, "assistant", text_in(entry.blocks))
        else:
            attributes[names.PURPOSE] = entry.purpose
        error = ended if ended in ("interrupted", "unfinished") else ""
        if self._turn is not None:
            self._turn.usage += usage
            self._turn.cost += cost
            self._turn.calls += 1
            self._turn.model = self._turn.model or entry.model
        name = f"{names.CHAT} {names_of_call.get(names.MODEL, '')}".rstrip()
        here = here or self._child(parent, "call", entry.seq)
        yield Span(name, here, parent.span, entry.time - seconds, entry.time, attributes, error, outward=True)
        measured = {key: value for key, value in names_of_call.items() if key != names.CONVERSATION}
        yield MetricValue(names.TOKENS, usage.input_tokens, {**measured, names.TOKEN_TYPE: "input"})
        yield MetricValue(names.TOKENS, usage.output_tokens, {**measured, names.TOKEN_TYPE: "output"})
        yield MetricValue(names.CACHE_READS, usage.cache_read_tokens, measured)
        yield MetricValue(names.CACHE_WRITES, usage.cache_write_tokens, measured)
        yield MetricValue(names.DOLLARS, cost, measured)
        if duration_ms:
            yield MetricValue(names.CALL_DURATION, seconds, measured)

    def _results(self, message: Message) -> Iterator[Signal]:
        for block in message.blocks:
            if not isinstance(block, ToolResult) or block.call_id not in self._calls or self._turn is None:
                continue
            call, here, asked = self._calls[block.call_id]
            error = message.stop_reason or ("tool_error" if block.is_error else "")
            common: dict[str, Value] = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: call.name}
            attributes = {
                **common,
                names.CONVERSATION: self.session,
                names.TOOL_CALL: call.id,
                names.TOOL_TYPE: "function",
                **self._shown(names.TOOL_ARGUMENTS, call.arguments),
                **self._shown(names.TOOL_RESULT, block.text),
            }
            seconds = message.duration_ms / 1000
            name, start = f"{names.EXECUTE_TOOL} {call.name}", message.time - seconds
            yield Span(name, here, asked, start, message.time, attributes, error)
            yield MetricValue(names.TOOL_DURATION, seconds, {**common, **({names.ERROR: error} if error else {})})

    def _step(self, entry: ContextEntry) -> Iterator[Signal]:
        """The signals of a context step, with the model calls that it needed."""
        calls, self._writing = self._writing, []
        start = min((each.time - each.duration_ms / 1000 for each in calls), default=entry.time)
        parent = self._turn.here if self._turn is not None else None
        here = self._child(parent, "step", entry.seq) if parent is not None else self._root(entry.seq)
        attributes: dict[str, Value] = {
            names.OPERATION: names.COMPACT,
            names.CONVERSATION: self.session,
            names.STEP: _STEPS[type(entry)],
            names.BEFORE: entry.before,
            names.AFTER: entry.after,
            names.SAVED: entry.saved_usd,
        }
        if isinstance(entry, Summarized | Checkpointed):
            attributes[names.WAITED] = entry.waited_s
            attributes |= {names.COST: entry.cost_usd} if entry.cost_usd is not None else {}
        above, remote = (parent.span, None) if parent is not None else (0, self.parent)
        above = remote.span if remote is not None else above
        yield Span(f"{names.COMPACT} {_STEPS[type(entry)]}", here, above, start, entry.time, attributes, remote=remote)
        for each in calls:
            yield from self._call(each, each.usage, "", here, each.duration_ms)

    def _unwritten(self, turn: _Turn) -> Iterator[Signal]:
        """The calls of models for steps that were not entered."""
        calls, self._writing = self._writing, []
        for each in calls:
            yield from self._call(each, each.usage, "", turn.here, each.duration_ms)

    def _error(self, entry: Recorded) -> Iterator[Signal]:
        note = _Note()
        with suppress(msgspec.MsgspecError):
            note = msgspec.json.decode(entry.body, type=_Note)
        if self._turn is None or note.kind in _OWN_ERRORS:
            return
        if not note.retry_s:
            self._turn.error = note.kind
            return
        attributes: Attributes = {names.ERROR: note.kind, names.WAIT_S: note.retry_s}
        self._turn.moments.append(SpanEvent(names.WAIT, entry.time, attributes))
        yield MetricValue(names.WAITS, note.retry_s, {names.ERROR: note.kind})

    def _of_model(self, operation: str, model: str) -> dict[str, Value]:
        provider, colon, name = model.partition(":")
        attributes: dict[str, Value] = {names.OPERATION: operation, names.CONVERSATION: self.session}
        if model:
            attributes[names.PROVIDER] = names.PROVIDERS.get(provider, provider) if colon else model
            attributes[names.MODEL] = name or model
        return attributes

    def _said(self, key: str, role: str, text: str) -> dict[str, Value]:
        if not self.content or not text:
            return {}
        parts = [{"type": "text", "content": _bounded(text)}]
        return {key: msgspec.json.encode([{"role": role, "parts": parts}]).decode()}

    def _shown(self, key: str, text: str) -> dict[str, Value]:
        return {key: _bounded(text)} if self.content else {}


def spans_of(spans: Spans, entries: Iterable[AnyEntry]) -> Iterator[Span]:
    """The spans of a whole log."""
    last = 0.0
    for entry in entries:
        last = max(last, entry.time)
        yield from (each for each in spans.take(entry, live=False) if isinstance(each, Span))
    yield from (each for each in spans.end_turn(last) if isinstance(each, Span))


def _begins(message: Message) -> bool:
    """Whether it is a prompt of the user's."""
    return message.role == "user" and not message.kind and message.agent_visible


def _bounded(text: str) -> str:
    """The beginning of a text, without keys; what is left out begins behind any key that would be cut."""
    return redact(text[: 2 * CONTENT_CHARS])[:CONTENT_CHARS]


def _usage(usage: Usage) -> dict[str, Value]:
    return {name: getattr(usage, field) for field, name in names.USAGE.items()}
