"""A request's JSON, put together from pieces that are encoded once.

The SDKs walk and encode the whole conversation on every call, on the event loop (90 ms at 10,000 messages). Here each
message is encoded when it is first sent and its bytes are kept as long as the message is part of the next request, so
that a call costs what is new, and the prefix is the same bytes every time, in every process.
"""

import json
import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias
from uuid import uuid4

import msgspec

from tui_agent.conversation.blocks import ToolCall, valid_text
from tui_agent.conversation.request import RequestMessage

Fields: TypeAlias = dict[str, object]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNNAMABLE = re.compile(r"[^a-zA-Z0-9_-]")

_objects = msgspec.json.Decoder(dict[str, object])


def encode(fields: object) -> bytes:
    """JSON in the order the fields were given."""
    return msgspec.json.encode(fields)


def is_object(text: str) -> bool:
    """Is this the text of one JSON object?"""
    try:
        _objects.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def read_arguments(text: str) -> tuple[str, str]:
    """What a model wrote as a call's arguments, as (the text of one JSON object, what it wrote where that is none).

    A lone surrogate written as an escape (which strict JSON readers refuse) becomes U+FFFD.
    """
    text = valid_text(text)
    stripped = text.strip()
    if not stripped:
        return "{}", ""
    if is_object(stripped):
        return stripped, ""
    try:
        value = json.loads(stripped)
        if isinstance(value, dict):
            repaired = valid_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
            if is_object(repaired):
                return repaired, ""
    except (ValueError, RecursionError):
        pass
    return "{}", text


def arguments_of(call: ToolCall) -> msgspec.Raw:
    """A call's arguments, to be put into a request as they are."""
    return msgspec.Raw(call.arguments.encode() if is_object(call.arguments) else b"{}")


def schema_of(schema: str) -> msgspec.Raw:
    """A tool's JSON Schema, to be put into a request as it is."""
    return msgspec.Raw(schema.encode() if is_object(schema) else b'{"type":"object"}')


def safe_name(name: str) -> str:
    """A tool's name as every provider accepts it, also where a model made one up."""
    if _NAME.fullmatch(name):
        return name
    return _UNNAMABLE.sub("_", name)[:128] or "unnamed"


def safe_id(call_id: str) -> str:
    """A call's id as every provider accepts it: the same for the same id."""
    if _NAME.fullmatch(call_id):
        return call_id
    return "call_" + blake2b(valid_text(call_id).encode(), digest_size=12).hexdigest()


def fresh_id() -> str:
    """An id for a call that came without one of its own."""
    return "call_" + uuid4().hex


def call_ids(messages: Iterable[RequestMessage]) -> frozenset[str]:
    """The ids of all calls in a request."""
    return frozenset(
        block.id
        for message in messages
        if message.role == "assistant"
        for block in message.blocks
        if isinstance(block, ToolCall)
    )


def read_opaque(opaque: str) -> dict[str, str]:
    """The fields an adapter put into a block's opaque text; none where it is another's."""
    if not opaque:
        return {}
    try:
        return msgspec.json.decode(opaque, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}


def write_opaque(**fields: str) -> str:
    """An adapter's fields as a block's opaque text."""
    return encode(fields).decode()
