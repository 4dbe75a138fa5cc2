"""Reads the streamed answers of the Gemini API."""

import json
from base64 import b64encode
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import DecodeError, structs
from typing_extensions import override

from tui_agent.conversation.blocks import ToolCall, valid_text
from tui_agent.conversation.entries import Usage
from tui_agent.conversation.wire import write_opaque
from tui_agent.models.adapter import OpenText, Reply, closed, open_text
from tui_agent.models.base import (
    Completed,
    InvalidRequest,
    Metered,
    StopReason,
    StreamEvent,
    ToolCallDelta,
    Unavailable,
)
from tui_agent.models.encoding import encode, with_sources
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


class GeminiReply(Reply):
    """Reads the stream's chunks in order; `complete` after a chunk with a finish reason."""

    def __init__(self, model: str, taken: frozenset[str] = frozenset()) -> None:
        super().__init__(model, taken)
        self._version = ""
        self._blocks: list[OpenText | ToolCall] = []
        self._usage = Usage()
        self._reason = ""
        self._pages: dict[str, str] = {}
        self._searches = 0

    @override
    def read(self, data: bytes) -> list[StreamEvent]:
        """Read one chunk, or a list of them. Raises `ServerRefusedError`; ValueError if it is malformed."""
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

    @override
    def completed(self) -> Completed:
        """The whole answer. Raises `Unavailable` if the model failed to write one, since a retry may help.

        An answer with a call to an unknown tool counts: the turn tells the model about it.
        """
        calls = any(isinstance(block, ToolCall) for block in self._blocks)
        if self._reason in _BROKEN and not calls:
            raise Unavailable("Gemini wrote a tool call that cannot be read", advice="try again")
        if self._reason == "MISSING_THOUGHT_SIGNATURE":
            raise InvalidRequest(
                "Gemini misses a thought signature in the conversation: start a new one or compact it."
            )
        blocks = tuple(map(closed, self._blocks))
        reason = _STOP.get(self._reason)
        if reason is None:
            if not blocks:
                raise Unavailable("Gemini stopped without an answer", advice="try again")
            reason = "end_turn"
        if calls and reason == "end_turn":
            reason = "tool_calls"
        used = structs.replace(self._usage, searches=self._searches)
        return Completed(with_sources(blocks, self._pages), used, reason, valid_text(self._version or self._model))

    def _part(self, part: "Part") -> StreamEvent | None:
        signature = b64encode(part.thought_signature).decode() if part.thought_signature else ""
        if part.function_call is not None:
            return self._call(part.function_call, signature)
        event = open_text(self._blocks, thought=bool(part.thought)).add(part.text) if part.text else None
        if signature and not part.thought:
            self._sign(signature, apart=not part.text)
        return event

    def _sign(self, signature: str, *, apart: bool) -> None:
        """Attach a signature to the last text; `apart`: it came in an empty part of its own and is sent back so."""
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, OpenText) and not last.thought:
            place = {"apart": "yes"} if apart else {}
            last.opaque = write_opaque(model=self._model, signature=signature, **place)

    def _call(self, call: "FunctionCall", signature: str) -> StreamEvent:
        api_id = valid_text(call.id or "")
        fields = {"model": self._model}
        if signature:
            fields["signature"] = signature
        if api_id:
            fields["id"] = api_id
        opaque = write_opaque(**fields) if len(fields) > 1 else ""
        made = self._made_call(api_id, call.name or "", encode(call.args or {}).decode(), opaque)
        self._blocks.append(made)
        return ToolCallDelta(len(self._blocks) - 1, made.name, len(made.arguments))


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
