"""Reads the streamed answers of the Gemini API."""

import json
from base64 import b64encode
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import DecodeError, structs

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.wire import read_arguments, write_opaque
from tui_agent.models.base import (
    Completed,
    InvalidRequest,
    Metered,
    ReasoningDelta,
    StopReason,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    Unavailable,
)
from tui_agent.models.encoding import encode, unused_id, with_sources
from tui_agent.models.errors import ServerRefusedError
from tui_agent.models.gemini.request import wants_signatures
from tui_agent.models.http import read_error

if TYPE_CHECKING:
    from google.genai.types import (
        FunctionCall,
        GenerateContentResponse,
        GenerateContentResponseUsageMetadata,
        Part,
    )
    from pydantic import BaseModel

Answer = TypeVar("Answer", bound="BaseModel")

_STOP: dict[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "CONTINUATION": "max_tokens",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "LANGUAGE": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "MODEL_ARMOR": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}
_BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})


def in_types_of_sdk(kind: type[Answer], data: Any) -> Answer:
    """An answer in the SDK's types. They forbid fields that are newer than they are, so those are left out.

    Raises ``pydantic.ValidationError``, and `msgspec.DecodeError` for a number in place of a name.
    """
    from pydantic import ValidationError

    while True:
        try:
            return kind.model_validate(data)
        except ValidationError as error:
            newer = [each["loc"] for each in error.errors() if each["type"] == "extra_forbidden"]
            if not newer:
                raise
            for *path, name in newer:
                reduce(getitem, path, data).pop(name)
        except AttributeError as error:  # the SDK takes every value of an enumeration for a text
            raise DecodeError(str(error)) from error


@dataclass(slots=True)
class _Open:
    """Text or thoughts that are still streaming. `opaque` is set when the signature arrives, which ends the text."""

    thought: bool
    pieces: list[str] = field(default_factory=list)
    opaque: str = ""


class GeminiReply:
    """Reads the stream's chunks in order; `complete` after a chunk with a finish reason.

    `taken` are the ids of the conversation's earlier calls; a new call with one of them gets another id.
    """

    def __init__(self, model: str, taken: frozenset[str] = frozenset()) -> None:
        self.complete = False
        self.started = False
        self._model = model
        self._version = ""
        self._taken = set(taken)
        self._blocks: list[_Open | ToolCall] = []
        self._usage = Usage()
        self._reason = ""
        self._pages: dict[str, str] = {}
        self._searches = 0

    def read(self, data: object) -> list[StreamEvent]:
        """Read one chunk, or a list of them. Raises `ServerRefusedError`; ValueError if it is malformed."""
        if not isinstance(data, bytes):
            raise TypeError(f"{type(data).__name__} is no data of an event")
        chunks = json.loads(data)
        events: list[StreamEvent] = []
        for chunk in chunks if isinstance(chunks, list) else [chunks]:  # without ``alt=sse`` they come as one list
            if isinstance(chunk, dict) and "error" in chunk:
                raise ServerRefusedError(read_error(encode(chunk)))
            from google.genai.types import GenerateContentResponse

            events += self._read(in_types_of_sdk(GenerateContentResponse, chunk))
        return events

    def _read(self, chunk: "GenerateContentResponse") -> list[StreamEvent]:
        self.started = True
        self._version = chunk.model_version or self._version
        events: list[StreamEvent] = []
        if chunk.usage_metadata is not None:
            self._usage = _used(chunk.usage_metadata, self._usage)
            events.append(Metered(self._usage))
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason is not None:
            self._reason, self.complete = "SAFETY", True
        if not chunk.candidates:
            return events
        candidate = chunk.candidates[0]
        parts = (candidate.content.parts if candidate.content is not None else None) or []
        events += [event for part in parts if (event := self._part(part)) is not None]
        if (found := candidate.grounding_metadata) is not None:
            webs = [chunk.web for chunk in found.grounding_chunks or () if chunk.web is not None]
            self._pages |= {web.uri: web.title or "" for web in webs if web.uri}
            queries = len(found.web_search_queries or ())
            self._searches = max(self._searches, queries if wants_signatures(self._model) else min(1, queries))
        if candidate.finish_reason is not None:
            self._reason = str(getattr(candidate.finish_reason, "value", candidate.finish_reason))
            self.complete = True
        return events

    def completed(self) -> Completed:
        """The whole answer. Raises `Unavailable` if the model failed to write one, since a retry may help.

        An answer with a call to an unknown tool counts: the turn tells the model about it.
        """
        calls = any(isinstance(block, ToolCall) for block in self._blocks)
        if self._reason in _BROKEN and not calls:
            raise Unavailable("Gemini wrote a tool call that cannot be read: try again.")
        if self._reason == "MISSING_THOUGHT_SIGNATURE":
            raise InvalidRequest(
                "Gemini misses a thought signature in the conversation: start a new one or compact it."
            )
        blocks = tuple(block for opened in self._blocks if (block := _closed(opened)) is not None)
        reason = _STOP.get(self._reason)
        if reason is None:
            if not blocks:
                raise Unavailable("Gemini stopped without an answer: try again.")
            reason = "end_turn"
        if calls and reason == "end_turn":
            reason = "tool_calls"
        used = structs.replace(self._usage, searches=self._searches)
        return Completed(with_sources(blocks, self._pages), used, reason, valid_text(self._version or self._model))

    def _part(self, part: "Part") -> StreamEvent | None:
        signature = b64encode(part.thought_signature).decode() if part.thought_signature else ""
        if part.function_call is not None:
            return self._call(part.function_call, signature)
        text = valid_text(part.text or "")
        if part.thought:
            return self._add(text, thought=True)
        event = self._add(text, thought=False)
        if signature:
            self._sign(signature, apart=not text)
        return event

    def _add(self, text: str, *, thought: bool) -> StreamEvent | None:
        if not text:
            return None
        last = self._blocks[-1] if self._blocks else None
        if not isinstance(last, _Open) or last.thought is not thought or last.opaque:
            last = _Open(thought)
            self._blocks.append(last)
        last.pieces.append(text)
        return ReasoningDelta(text) if thought else TextDelta(text)

    def _sign(self, signature: str, *, apart: bool) -> None:
        """Attach a signature to the last text; `apart`: it came in an empty part of its own and is sent back so."""
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, _Open) and not last.thought:
            place = {"apart": "yes"} if apart else {}
            last.opaque = write_opaque(model=self._model, signature=signature, **place)

    def _call(self, call: "FunctionCall", signature: str) -> StreamEvent:
        arguments, malformed = read_arguments(encode(call.args or {}).decode())
        api_id = valid_text(call.id or "")
        call_id = unused_id(api_id, self._taken)
        fields = {"model": self._model}
        if signature:
            fields["signature"] = signature
        if api_id:
            fields["id"] = api_id
        opaque = write_opaque(**fields) if len(fields) > 1 else ""
        name = valid_text(call.name or "")
        self._blocks.append(ToolCall(call_id, name, arguments, opaque, malformed))
        return ToolCallDelta(len(self._blocks) - 1, name, len(arguments))


def _closed(opened: _Open | ToolCall) -> Block | None:
    if isinstance(opened, ToolCall):
        return opened
    text = "".join(opened.pieces)
    return Reasoning(text) if opened.thought else Text(text, opened.opaque)


def _used(usage: "GenerateContentResponseUsageMetadata", before: Usage) -> Usage:
    """The usage with a chunk's figures, which are cumulative; what the chunk leaves out stays as it was.

    Gemini's prompt count includes cache reads; its candidates' count excludes thoughts.
    """
    prompt = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    thoughts = usage.thoughts_token_count or 0
    return Usage(
        input_tokens=prompt or before.input_tokens,
        cache_read_tokens=usage.cached_content_token_count or before.cache_read_tokens,
        output_tokens=((usage.candidates_token_count or 0) + thoughts) or before.output_tokens,
        reasoning_tokens=thoughts or before.reasoning_tokens,
    )
