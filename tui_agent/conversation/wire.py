"""How things stand in what models read and write: a call's arguments, ids and names, which providers disagree on, calls
of deferred tools, the pages of a web search, a block's opaque text.

A model calls deferred tools with the tool `call_tool`. The rest of the program sees the inner call: that is what
permission is asked for, what is shown and what runs.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from itertools import accumulate
from typing import Final
from uuid import uuid4

import msgspec

from tui_agent.conversation.blocks import ToolCall, ToolDefinition, valid_text
from tui_agent.conversation.entries import Hit
from tui_agent.regex import regex
from tui_agent.system.lenient import decoded, object_in
from tui_agent.text import clean, one_line

_NAME = regex(r"[a-zA-Z0-9_-]{1,128}")
_UNNAMABLE = regex(r"[^a-zA-Z0-9_-]")

COUNTED_ID = regex(r"(functions\.[a-zA-Z0-9_.-]+):(\d{1,9})")
"""How Kimi K2's models write ids: the tool, and the call's number. They read the ids of earlier calls, and stop calling
tools where these look otherwise (Moonshot AI, tool call guidance).
"""

CALL_TOOL: Final = "call_tool"
"""The tool with which a model calls deferred ones."""
_PAGES: Final = "\n\nSources:\n"

_MARKS = regex(r"[\[\]{}]")
_TEXTS = regex(r'"(?:[^"\\]|\\.)*"')
_DEEPEST = 400


def is_object(text: str) -> bool:
    """Whether a text is a JSON object that everything that looks into it can follow."""
    if decoded(text, dict[str, object]) is None:
        return False
    # From Python 3.14 on the parser goes as deep as its stack, which is deeper than what is written in Python can.
    if text.count("{") + text.count("[") <= _DEEPEST:
        return True
    marks = _MARKS.findall(_TEXTS.sub("", text))
    return max(accumulate(1 if mark in "{[" else -1 for mark in marks)) <= _DEEPEST


def read_arguments(text: str) -> tuple[str, str]:
    """Normalise a call's arguments to (`arguments`, `malformed`) of a `ToolCall`.

    A valid object gives (its JSON text, ""); anything else gives ("{}", the text as the model wrote it). Escaped lone
    surrogates, which strict JSON parsers reject, become U+FFFD.
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
    """A tool's name in a form every provider accepts, even if the model made it up."""
    if _NAME.fullmatch(name):
        return name
    return _UNNAMABLE.sub("_", name)[:128] or "unnamed"


def safe_id(call_id: str) -> str:
    """A call's id in a form every provider accepts; equal ids give equal results."""
    if _NAME.fullmatch(call_id):
        return call_id
    return "call_" + blake2b(valid_text(call_id).encode(), digest_size=12).hexdigest()


def next_id(call_id: str, number: int) -> str:
    """Another id for a call whose id another one has, in the same form; `number`: 2 is the first to try, then 3."""
    counted = COUNTED_ID.fullmatch(call_id)
    return f"{counted[1]}:{int(counted[2]) + number - 1}" if counted else f"{call_id}-{number}"


def fresh_id() -> str:
    """A new id, for a call that came without one."""
    return "call_" + uuid4().hex


def read_opaque(opaque: str) -> dict[str, str]:
    """Decode a block's opaque text; empty if it is not in the format of `write_opaque`."""
    return (decoded(opaque, dict[str, str]) if opaque else None) or {}


def write_opaque(**fields: str) -> str:
    return msgspec.json.encode(fields).decode()


def inner_call(call: ToolCall) -> ToolCall:
    """The call inside a call of `call_tool`, with the outer call's id; any other call unchanged."""
    if call.name != CALL_TOOL or call.malformed:
        return call
    given = object_in(call.arguments)
    name, arguments = given.get("name"), given.get("arguments", {})
    if not isinstance(name, str) or name in ("", CALL_TOOL):
        return call
    # Some models pass the object as a JSON string.
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return msgspec.structs.replace(call, name=name, arguments=text)


def full_description(definition: ToolDefinition) -> str:
    """A deferred tool's definition as text, for the result of a tool search."""
    return f"{definition.name}\n{definition.description}\nArguments: {definition.schema}"


def with_pages(text: str, pages: Mapping[str, str]) -> str:
    """The text with the pages that a provider's web search found at its end: titles by their addresses."""
    found = (f"{one_line(clean(title), 200)}: {one_line(clean(url), 1_000)}" for url, title in pages.items())
    return f"{text}{_PAGES}" + "\n".join(f"{number}. {page}" for number, page in enumerate(found, 1))


def pages_of(text: str) -> tuple[Hit, ...]:
    """The pages in such lists: titles and addresses, the first list's first. Untrusted text."""
    found: list[Hit] = []
    for listed in text.split(_PAGES)[1:]:
        for line in listed.splitlines():
            number, _, page = line.partition(". ")
            if not number.isdecimal():
                break
            title, _, url = page.rpartition(": ")
            found.append(Hit(title, 0, url))
    return tuple(found)
