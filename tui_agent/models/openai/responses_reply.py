"""Reads the streamed answers of OpenAI's Responses API."""

from dataclasses import dataclass, field

import msgspec
from typing_extensions import override

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.wire import write_opaque
from tui_agent.models.adapter import Reply
from tui_agent.models.base import (
    Completed,
    Metered,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from tui_agent.models.encoding import with_sources
from tui_agent.models.errors import ErrorReply, ServerRefusedError
from tui_agent.models.http import read_error
from tui_agent.models.openai.chat_reply import Charged, InputDetails, OutputDetails
from tui_agent.models.openai.responses_request import SEPARATOR


class _Usage(Charged):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class _Error(msgspec.Struct):
    code: str | None = None
    type: str | None = None
    message: str | None = None


class _Why(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    status: str | None = None
    error: _Error | None = None
    incomplete_details: _Why | None = None
    output: list[msgspec.Raw] | None = None


class _Source(msgspec.Struct):
    """A page that a text cites, or that a search found."""

    url: str | None = None
    title: str | None = None


class _Action(msgspec.Struct):
    type: str = ""
    sources: list[_Source] | None = None


class _Part(msgspec.Struct):
    type: str = ""
    annotations: list[_Source] | None = None
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    phase: str | None = None
    encrypted_content: str | None = None
    summary: list[_Part] | None = None
    content: list[_Part] | None = None
    action: _Action | None = None


class _Kind(msgspec.Struct):
    type: str = ""
    object: str = ""
    error: msgspec.Raw = msgspec.Raw()


class _Window(msgspec.Struct):
    """What a conversation was compacted to: all items to send in its place, the last of them opaque."""

    id: str = ""
    usage: _Usage | None = None
    output: list[msgspec.Raw] = []


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    delta: str | None = None
    item: msgspec.Raw = msgspec.Raw()
    response: _Response | None = None
    error: _Error | None = None
    code: str | None = None
    message: str | None = None


_kinds, _events, _items = msgspec.json.Decoder(_Kind), msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Item)
_windows, _responses = msgspec.json.Decoder(_Window), msgspec.json.Decoder(_Response)
_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_ARGUMENTS = "response.function_call_arguments.delta"
_ADDED, _DONE = "response.output_item.added", "response.output_item.done"
_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_KNOWN = (
    _REASONING | _TEXT | _ENDINGS | {_ARGUMENTS, _ADDED, _DONE, "error", "response.created", "response.in_progress"}
)
_SEARCH = "web_search_call"
_COMPACTIONS = frozenset({"compaction", "compaction_summary"})
_ITEMS = frozenset({"message", "reasoning", "function_call", _SEARCH})


@dataclass(slots=True)
class _Open:
    """An item that is still streaming; `part` is the part of its summary that is being written."""

    item: _Item
    pieces: list[str] = field(default_factory=list)
    part: int = 0
    size: int = 0
    refused: bool = False


class ResponsesReply(Reply):
    """Reads the stream's events in order; `complete` after the event that ends the response. `name`: the model's in
    settings and entries.
    """

    def __init__(self, model: str, taken: frozenset[str] = frozenset(), name: str = "") -> None:
        super().__init__(model, taken)
        self._items: dict[int, _Open] = {}
        self._usage = Usage()
        self._charged: float | None = None
        self._why = ""
        self._id = ""
        self._name = name
        self._compacted: tuple[Text, ...] = ()

    @override
    def read(self, data: bytes) -> list[StreamEvent]:
        """Read one event's data, or a whole answer. Raises `msgspec.DecodeError`, and `ServerRefusedError`."""
        if data.strip() == b"[DONE]":
            return []
        kind = _kinds.decode(data)
        if kind.object == "response.compaction":
            return self._take_window(_windows.decode(data))
        if kind.object == "response":  # a server that does not stream
            self.started = True
            response = _responses.decode(data)
            return self._response(f"response.{response.status}", response)
        if not kind.type and bytes(kind.error) not in (b"", b"null"):
            raise ServerRefusedError(read_error(data))
        if kind.type not in _KNOWN:
            return []
        event = _events.decode(data)
        if event.response is not None:
            self.started = True
            return self._response(event.type, event.response)
        if event.type == "error":
            error = event.error or _Error(event.code, "", event.message)
            raise ServerRefusedError(ErrorReply(0, error.code or error.type or "", error.message or ""))
        item_event = self._item(event)
        return [item_event] if item_event is not None else []

    @override
    def completed(self) -> Completed:
        blocks = tuple(
            block for index in sorted(self._items) if (block := self._closed(self._items[index])) is not None
        )
        reason: StopReason = "tool_calls" if any(isinstance(block, ToolCall) for block in blocks) else "end_turn"
        items = [opened.item for opened in self._items.values()]
        parts = [part for item in items for part in item.content or ()]
        refused = any(opened.refused for opened in self._items.values()) or any(part.refusal for part in parts)
        if self._why == "max_output_tokens":
            reason = "max_tokens"
        elif self._why == "content_filter" or refused:
            reason = "refusal"
        found = [source for part in parts for source in part.annotations or ()]
        actions = [item.action for item in items if item.type == _SEARCH and item.action is not None]
        found += [source for action in actions for source in action.sources or ()]
        pages = {source.url: source.title or "" for source in reversed(found) if source.url}
        used = msgspec.structs.replace(self._usage, searches=sum(action.type == "search" for action in actions))
        blocks = with_sources(blocks, dict(reversed(pages.items())))
        return Completed(
            (*self._compacted, *blocks),
            used,
            reason,
            valid_text(self._model),
            answer_id=valid_text(self._id),
            charged_usd=self._charged,
        )

    def _response(self, kind: str, response: _Response) -> list[StreamEvent]:
        self._model, self._id = response.model or self._model, response.id or self._id
        if kind == "response.failed":
            error = response.error or _Error()
            raise ServerRefusedError(ErrorReply(0, error.code or "server_error", error.message or ""))
        if response.usage is not None:
            self._usage, self._charged = _counted(response.usage), response.usage.usd
        if kind in _ENDINGS:
            if not self._items:
                self._items = {index: _Open(_item_in(item)) for index, item in enumerate(response.output or ())}
            self.complete = True
            self._why = (response.incomplete_details.reason or "") if response.incomplete_details is not None else ""
        return [Metered(self._usage, self._charged)] if response.usage is not None else []

    def _take_window(self, window: _Window) -> list[StreamEvent]:
        self.started = self.complete = True
        self._id, self._usage = window.id, _counted(window.usage or _Usage())
        for item in window.output:
            if _kinds.decode(item).type in _COMPACTIONS and (sealed := _items.decode(item).encrypted_content):
                items = b",".join(map(bytes, window.output)).decode()
                self._compacted = (Text("", write_opaque(compacted=items, encrypted=sealed, model=self._name)),)
        return [Metered(self._usage)]

    def _item(self, event: _Event) -> StreamEvent | None:
        index = event.output_index
        if event.type in (_ADDED, _DONE):
            item = _item_in(event.item)
            if event.type == _ADDED:
                self._items[index] = _Open(item)
                return ToolCallDelta(index, item.name or "", 0) if item.type == "function_call" else None
            # The complete item, which is authoritative. Parts that were not streamed are not shown as deltas.
            self._items.setdefault(index, _Open(item)).item = item
            return None
        opened_or_none = self._items.get(index)
        if opened_or_none is None or not event.delta:
            return None
        return self._delta(event, opened_or_none, valid_text(event.delta))

    def _delta(self, event: _Event, opened: _Open, text: str) -> StreamEvent | None:
        if event.type in _REASONING:
            before = SEPARATOR if event.summary_index != opened.part else ""
            opened.part = event.summary_index
            opened.pieces.append(before + text)
            return ReasoningDelta(before + text)
        if event.type in _TEXT:
            opened.refused = opened.refused or event.type == "response.refusal.delta"
            opened.pieces.append(text)
            return TextDelta(text)
        if event.type == _ARGUMENTS:
            opened.pieces.append(text)
            opened.size += len(text)
            return ToolCallDelta(event.output_index, opened.item.name or "", opened.size)
        return None

    def _closed(self, opened: _Open) -> Block | None:
        item, streamed = opened.item, "".join(opened.pieces)
        match item.type:
            case "message":
                whole = "".join(part.text or part.refusal or "" for part in item.content or ())
                opaque = write_opaque(phase=valid_text(item.phase)) if item.phase else ""
                text = valid_text(whole) or streamed
                return Text(text, opaque) if text else None
            case "reasoning":
                return _reasoning(item, streamed)
            case "function_call":
                return self._made_call(item.call_id or "", item.name or "", item.arguments or streamed)
            case _:
                return None


def _item_in(item: msgspec.Raw) -> _Item:
    """Parse an item of the answer; of an unknown kind, only its kind."""
    kind = _kinds.decode(item).type if bytes(item) else ""
    return _items.decode(item) if kind in _ITEMS else _Item(kind)


def _reasoning(item: _Item, streamed: str) -> Reasoning | None:
    """A reasoning item with everything needed to send it back unchanged."""
    parts = [part.text or "" for part in item.summary or ()]
    shown = [part.text or "" for part in item.content or ()]
    text = SEPARATOR.join(parts) or "".join(shown) or streamed
    if not item.encrypted_content:
        return Reasoning(valid_text(text)) if text else None
    fields = {"id": valid_text(item.id or ""), "encrypted": valid_text(item.encrypted_content)}
    if parts:
        fields["parts"] = ",".join(str(len(part)) for part in parts)
    return Reasoning(valid_text(text), write_opaque(**fields))


def _counted(usage: _Usage) -> Usage:
    """The usage. The prompt's count includes cache reads and writes, the answer's includes reasoning."""
    read, written = usage.input_tokens_details or InputDetails(), usage.output_tokens_details or OutputDetails()
    return Usage(
        input_tokens=max(0, usage.input_tokens or 0),
        cache_read_tokens=max(0, read.cached_tokens or 0),
        cache_write_tokens=max(0, read.cache_write_tokens or 0),
        output_tokens=max(0, usage.output_tokens or 0),
        reasoning_tokens=max(0, written.reasoning_tokens or 0),
    )
