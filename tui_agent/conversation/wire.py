"""The parts of a message as every provider takes them: a call's arguments, ids and names; and the opaque text of a
block, which carries what only one provider understands.
"""

import json
import re
from hashlib import blake2b
from uuid import uuid4

import msgspec

from tui_agent.conversation.blocks import valid_text

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNNAMABLE = re.compile(r"[^a-zA-Z0-9_-]")

_objects = msgspec.json.Decoder(dict[str, object])


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
    return msgspec.json.encode(fields).decode()
