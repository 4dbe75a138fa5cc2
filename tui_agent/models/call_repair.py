"""Repairs malformed tool calls of weak models, if only one reading is possible.

Models of a few billion parameters write calls as text, quote as in Python, leave trailing commas, or send ``"5"`` for
5. Valid calls stay the same, byte for byte. Nothing is made up: a tool, argument or end that the model did not write is
never added, so half a call never runs. For a call that cannot be repaired, the model is told its correct shape with an
example (`tools.schema`).

Whatever model answered, the blocks that enter the log are valid for every provider: valid text, calls with unique ids.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from tui_agent.conversation.blocks import Block, Reasoning, Text, ToolCall, ToolDefinition, valid_text
from tui_agent.conversation.view import View
from tui_agent.conversation.wire import fresh_id, is_object, next_id, read_arguments
from tui_agent.models.base import Completed
from tui_agent.regex import regex
from tui_agent.system.lenient import decoded

MAX_SEARCHED = 100_000
"""Longer texts are not searched for calls: they are answers."""
MAX_DEPTH = 20
"""Types are repaired down to this depth of nesting."""

_TAGGED = regex(
    r"<(?P<tag>tool_call|function_call|tool|function)(?:=(?P<name>[\w.-]{1,128}))?(?:>|(?=\{))\s*(?P<body>.*?)\s*</(?P=tag)>",
    re.DOTALL,
)
_FENCED = regex(r"```(?:json|tool_call|tool|python)?[ \t]*\n(?P<body>(?:(?!```).)*?)\n?```\s*\Z", re.DOTALL)
_MARK = regex(r"\A\s*(?:\[TOOL_CALLS\]|<\|python_tag\|>|<\|?tool_call\|?>)\s*")
_FENCE = regex(r"\A```\w*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
_COMMA = regex(r'("(?:[^"\\]|\\.)*")|,(?=\s*[}\]])', re.DOTALL)
_NUMBER = regex(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,3})?")

_SPACE = regex(r"\A(?:functions|default_api|tools)[.:]+")
"""Prefixes that OpenAI's and Gemini's models put before a tool's name."""
_SEVERAL = ("multi_tool_use.parallel", "multi_tool_use_parallel", "parallel")

_NAMES = ("name", "tool", "tool_name", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_IGNORED_KEYS = frozenset({"type", "id", "thought"})
"""Keys that a written call may have besides its name and arguments."""


class _Written(msgspec.Struct, frozen=True):
    """A call that a model wrote as text."""

    name: str
    arguments: dict[str, object]


def repaired_answer(completed: Completed, tools: Sequence[ToolDefinition], *, in_text: bool) -> Completed:
    """The answer with its calls repaired; `in_text`: see `repaired`."""
    ended = completed.stop_reason == "end_turn"
    blocks = repaired(completed.blocks, tools, in_text=in_text and ended)
    if blocks is completed.blocks:
        return completed
    calls = ended and any(isinstance(block, ToolCall) for block in blocks)
    reason = "tool_calls" if calls else completed.stop_reason
    return msgspec.structs.replace(completed, blocks=blocks, stop_reason=reason)


def valid_blocks(blocks: tuple[Block, ...], view: View) -> tuple[Block, ...]:
    """An answer's blocks made valid for the log: valid text, arguments that are a JSON object, and unique call ids.

    Every provider requires this of requests, but not every one guarantees it of answers.
    """
    seen: set[str] = set()
    numbers: dict[str, int] = {}
    renamed: list[Block] = []
    for block in blocks:
        match block:
            case ToolCall():
                given = name = valid_text(block.id) or "call"
                while name in seen or view.call(name) is not None:
                    numbers[given] = numbers.get(given, 1) + 1
                    name = next_id(given, numbers[given])
                seen.add(name)
                arguments, malformed = read_arguments(block.arguments)
                malformed = valid_text(block.malformed) or malformed
                block = ToolCall(name, valid_text(block.name), arguments, block.opaque, malformed)
            case Text() | Reasoning():
                block = msgspec.structs.replace(block, text=valid_text(block.text))
        renamed.append(block)
    return tuple(renamed)


def repaired(blocks: tuple[Block, ...], tools: Sequence[ToolDefinition], *, in_text: bool = False) -> tuple[Block, ...]:
    """An answer's blocks with its calls repaired; the same object if nothing was wrong.

    `in_text`: the server does not parse calls, so if the answer has none, look for them at the end of its last text.
    They count only if each is an object and names one of `tools`.
    """
    by_name = {tool.name: tool for tool in tools}
    mended = tuple(
        each
        for block in blocks
        for each in (_repaired_calls(block, by_name) if isinstance(block, ToolCall) else (block,))
    )
    last = mended[-1] if in_text and mended else None
    no_calls = not any(isinstance(block, ToolCall) for block in mended)
    if no_calls and isinstance(last, Text) and len(last.text) <= MAX_SEARCHED:
        said, written = _split(last.text)
        if written and all(call.name in by_name for call in written):
            fitted = ((each.name, fit(each.arguments, _schema(by_name[each.name]))) for each in written)
            calls = [ToolCall(fresh_id(), name, _text(arguments)) for name, arguments in fitted]
            mended = (*mended[:-1], *((msgspec.structs.replace(last, text=said),) if said else ()), *calls)
    same = len(mended) == len(blocks) and all(one is other for one, other in zip(mended, blocks, strict=True))
    return blocks if same else mended


def _repaired_calls(call: ToolCall, tools: Mapping[str, ToolDefinition]) -> tuple[ToolCall, ...]:
    """The repaired call, or several: OpenAI's models sometimes invent a call that contains others."""
    if call.name in tools or call.name not in _SEVERAL:
        return (_mended(call, tools),)
    tool_uses = (read_object(call.malformed or call.arguments) or {}).get("tool_uses")
    held: list[_Written] = []
    for each in tool_uses if isinstance(tool_uses, list) else ():
        match each:
            case {"recipient_name": str(name), "parameters": dict(arguments)} if _own_name(name, tools) in tools:
                held.append(_Written(_own_name(name, tools), arguments))
            case _:
                return (call,)
    return tuple(_mended(ToolCall(fresh_id(), each.name, _text(each.arguments)), tools) for each in held) or (call,)


def _own_name(name: str, tools: Mapping[str, ToolDefinition]) -> str:
    """A tool's name without the namespace that some models put before it."""
    bare = _SPACE.sub("", name)
    return bare if name not in tools and bare in tools else name


def _mended(call: ToolCall, tools: Mapping[str, ToolDefinition]) -> ToolCall:
    name = _own_name(call.name, tools)
    tool, given = tools.get(name), read_object(call.malformed or call.arguments)
    if tool is None:
        return call
    fitted = fit(given, _schema(tool)) if given is not None else None
    if fitted is None or (not call.malformed and _text(fitted) == _text(given)):
        return call if name == call.name else msgspec.structs.replace(call, name=name)
    return msgspec.structs.replace(call, name=name, arguments=_text(fitted), malformed="")


def _split(text: str) -> tuple[str, list[_Written]]:
    """Split a text into its prose and the calls at its end; no calls if it ends with anything else."""
    tagged = list(_TAGGED.finditer(text))
    if tagged:
        if _TAGGED.sub("", text[tagged[0].start() :]).strip():
            return text, []
        calls = [_calls_in(found["body"], found["name"] or "") for found in tagged]
        return text[: tagged[0].start()].strip(), [one for each in calls for one in each] if all(calls) else []
    if fenced := _FENCED.search(text):
        return text[: fenced.start()].strip(), _calls_in(fenced["body"])
    bare = _MARK.sub("", text).strip()
    return "", _calls_in(bare) if bare[:1] in ("{", "[") else []


def _calls_in(text: str, name: str = "") -> list[_Written]:
    """Parse a text as one call or a list of calls. With `name`, the text is only the arguments."""
    value = _read(text)
    if name:
        return [_Written(name, value)] if isinstance(value, dict) else []
    calls = [_call_of(one) for one in (value if isinstance(value, list) else [value])]
    return [call for call in calls if call is not None] if None not in calls else []


def _call_of(value: object) -> _Written | None:
    """Parse an object as a call: a name, arguments, and nothing else of meaning; None if it is not one."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    if isinstance(inner, dict) and value.keys() <= {"function"} | _IGNORED_KEYS:
        return _call_of(inner)
    name_key = next((key for key in _NAMES if key in value), "")
    arguments_key = next((key for key in _ARGUMENTS if key in value), "")
    if not name_key or not arguments_key or value.keys() - {name_key, arguments_key} - _IGNORED_KEYS:
        return None
    name, arguments = value[name_key], value[arguments_key]
    arguments = _read(arguments) if isinstance(arguments, str) else arguments
    return _Written(name, arguments) if isinstance(name, str) and isinstance(arguments, dict) else None


def read_object(text: str) -> dict[str, object] | None:
    """Parse a text as an object: as JSON, or as what models write in its place; None if it is neither.

    Accepted: a fence around it, double encoding, trailing commas, line breaks in strings, and Python's quotes and
    constants. A truncated text is rejected: packages that repair JSON would complete it, and half a call would run.
    """
    value = _read(text)
    return value if isinstance(value, dict) else None


def _read(text: str) -> object:
    for _ in range(3 if len(text) <= MAX_SEARCHED else 0):
        fence = _FENCE.match(text.strip())
        value = _value(fence[1] if fence else text.strip())
        if not isinstance(value, str):
            return value
        text = value
    return None


def _value(text: str) -> object:
    """Parse a text as JSON or Python; None if it is neither, or its value has no JSON form."""
    for read in (_json, lambda text: _json(_COMMA.sub(lambda found: found[1] or "", text)), ast.literal_eval):
        try:
            value: object = read(text)
            # A set, a tuple, or a key that is no text would be something else in JSON.
            if isinstance(value, str) or (is_object(_text({"value": value})) and _json(_text(value)) == value):
                return value
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return None


def _json(text: str) -> object:
    return json.loads(text, strict=False)


def _text(value: object) -> str:
    return valid_text(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))


def fit(value: dict[str, object], schema: Mapping[str, object]) -> dict[str, object]:
    """The arguments with values of the wrong type converted to those of the tool's JSON Schema, where unambiguous."""
    found = _inside(value, schema, MAX_DEPTH)
    return found if isinstance(found, dict) else value


def _fitted(value: object, schema: object, levels: int) -> object:
    if not isinstance(schema, dict) or not levels:
        return value
    said = schema.get("type")
    kinds = [each for each in (said if isinstance(said, list) else [said]) if isinstance(each, str)]
    if any(_is(value, kind) for kind in kinds):
        return _inside(value, schema, levels - 1)
    choices = schema.get("enum")
    for kind in kinds:
        found = _as(value, kind)
        if found is not None and (not isinstance(choices, list) or found in choices):
            return _inside(found, schema, levels - 1)
    return value


def _inside(value: object, schema: Mapping[str, object], levels: int) -> object:
    items, properties = schema.get("items"), schema.get("properties")
    if isinstance(value, list):
        return [_fitted(each, items, levels) for each in value]
    if isinstance(value, dict) and isinstance(properties, dict):
        return {key: _fitted(each, properties.get(key), levels) for key, each in value.items()}
    return value


def _is(value: object, kind: str) -> bool:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import UndefinedTypeCheck

    with suppress(UndefinedTypeCheck):
        return bool(Draft202012Validator.TYPE_CHECKER.is_type(value, kind))
    return True


def _as(value: object, kind: str) -> object:
    """Convert a value to another type if that is unambiguous, else None."""
    if kind == "string" and isinstance(value, int | float) and not isinstance(value, bool):
        return _text(value)
    if not isinstance(value, str):
        return None
    text = value.strip()
    match kind:
        case "boolean":
            return {"true": True, "false": False}.get(text.lower())
        case "integer" | "number" if _NUMBER.fullmatch(text):
            number = json.loads(text)
            return number if _is(number, kind) else None
        case "array" if text.startswith("["):
            found = _read(text)
            return found if isinstance(found, list) else None
        case "object" if text.startswith("{"):
            return read_object(text)
        case _:
            return None


def _schema(tool: ToolDefinition) -> Mapping[str, object]:
    return decoded(tool.schema, dict[str, object]) or {}
