"""What is known of a server's tools: read once, kept for later starts, cleaned before anybody sees it.

Everything a server says is untrusted. A definition that a provider would refuse must not reach it, or every request
would fail: such a tool is offered with its schema in words.
"""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.blocks import ToolDefinition, valid_text
from tui_agent.durable import make_private_folder, write_file
from tui_agent.text import clean, one_line
from tui_agent.tools.mcp.configuration import FOLDER, Configured

MOST_TOOLS: Final = 1_000
"""Tools of one server that are listed."""
MOST_DESCRIPTION: Final = 2_000
"""Characters of a tool's description."""
MOST_SCHEMA: Final = 16_000
"""Characters of a schema that is offered as it is."""
MOST_WORDS: Final = 4_000
"""Characters of a schema that is told in words."""
MOST_INSTRUCTIONS: Final = 4_000
"""Characters kept of what a server says of itself."""
MOST_NAME: Final = 64
"""Characters of a tool's name (Anthropic and Gemini, tool definitions)."""
PREFIX: Final = "mcp__"

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_PROPERTY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COMBINED: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const", "$ref")
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""What in a schema is no schema."""
_DEEPEST: Final = 40
_KINDS: Final = {
    "description": str,
    "title": str,
    "outputSchema": dict,
    "annotations": dict,
    "icons": list,
    "_meta": dict,
}


class KnownTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool of a server. `schema`: the JSON text of its arguments' schema; `reads`: it only reads, says the server."""

    name: str
    description: str = ""
    schema: str = '{"type":"object"}'
    reads: bool = False


class KnownPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A prompt that a server offers, with its arguments' names; a name that ends in ``?`` may be left out."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()


class KnownServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server has told of itself. `problems` are sentences about what of it cannot be used."""

    title: str = ""
    instructions: str = ""
    tools: tuple[KnownTool, ...] = ()
    prompts: tuple[KnownPrompt, ...] = ()
    resources: bool = False
    problems: tuple[str, ...] = ()


def tool_name(server: str, tool: str) -> str:
    """How the model calls a tool of a server; the same for the same two names, and short enough for every provider."""
    name = f"{PREFIX}{server}__{_NOT_IN_NAMES.sub('_', tool)}"
    if len(name) <= MOST_NAME and name == f"{PREFIX}{server}__{tool}":
        return name
    digest = sha256(tool.encode(errors="replace")).hexdigest()[:6]
    return f"{name[: MOST_NAME - 7]}_{digest}"


def known_tool(name: str, description: str, schema: Mapping[str, object], *, reads: bool) -> tuple[KnownTool, str]:
    """A tool as it is offered, and what had to be done about it (empty: nothing)."""
    told = clean(description).strip()
    if len(told) > MOST_DESCRIPTION:
        told = f"{told[:MOST_DESCRIPTION]} […]"
    text, problem = _schema_text(schema)
    if problem:
        told = f"{told}\n\nThe arguments, as a JSON Schema: {_in_words(schema)}".strip()
        problem = f"{one_line(name, 60)}: its schema {problem}; it is told in words."
    return KnownTool(one_line(name, 200), told, text, reads), problem


def mend_list(result: object) -> None:
    """Make the tools in an answer such that the SDK's strict reading takes the list: a schema that it would refuse goes
    into the description, and what is no tool at all goes away.
    """
    listed = result.get("tools") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(listed, list):
        return
    tools = [tool for tool in listed if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    for tool in tools:
        schema = tool.get("inputSchema")
        if not _is_readable(schema):
            told = tool["description"] if isinstance(tool.get("description"), str) else ""
            tool["description"] = f"{told}\n\nThe arguments, as the server has them: {_in_words(schema)}".strip()
            tool["inputSchema"] = {"type": "object"}
        for key, kind in _KINDS.items():
            if not isinstance(tool.get(key), kind):
                tool.pop(key, None)
    result["tools"] = tools


def _is_readable(schema: object) -> bool:
    properties = schema.get("properties", {}) if isinstance(schema, dict) else None
    required = schema.get("required", []) if isinstance(schema, dict) else None
    return (
        isinstance(schema, dict)
        and schema.get("type") == "object"
        and isinstance(properties, dict)
        and all(isinstance(each, dict | bool) for each in properties.values())
        and isinstance(required, list)
        and all(isinstance(each, str) for each in required)
    )


def definition_of(server: str, tool: KnownTool, *, deferred: bool) -> ToolDefinition:
    """The tool as the model is told of it."""
    return ToolDefinition(tool_name(server, tool.name), tool.description or tool.name, tool.schema, deferred)


def _schema_text(schema: Mapping[str, object]) -> tuple[str, str]:
    """The schema as JSON text, and why it cannot be offered as it is (then the text lets anything through)."""
    anything = '{"type":"object"}'
    kept = {key: value for key, value in schema.items() if key != "$schema"}
    problem = _problem_of(kept)
    if problem:
        return anything, problem
    kept["type"] = "object"
    text = clean(_as_json(_with_items(kept)))
    return (anything, f"has {len(text):,} characters") if len(text) > MOST_SCHEMA else (text, "")


def _with_items(schema: object) -> object:
    """The schema with every list's items, of any kind where it does not say: OpenAI's servers refuse a request for a
    list that has none, whichever tool is then called.
    """
    if isinstance(schema, list):
        return [_with_items(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: value if key in _DATA else _with_items(value) for key, value in schema.items()}
    kind = schema.get("type")
    listed = kind == "array" or (isinstance(kind, list) and "array" in kind)
    return whole | {"items": {}} if listed and not {"items", "prefixItems"} & schema.keys() else whole


def _problem_of(schema: Mapping[str, object]) -> str:
    """What a provider would refuse (Anthropic, tool definitions: input_schema)."""
    if schema.get("type", "object") != "object":
        return "is not that of an object"
    if found := next((key for key in _COMBINED if key in schema), ""):
        return f"has {found} at its top"
    if not _is_shallow(schema, _DEEPEST):
        return f"is nested more than {_DEEPEST} levels deep"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        return "has properties that are no object"
    odd = next((name for name in properties if not _PROPERTY.fullmatch(str(name))), None)
    if odd is not None:
        return f"names an argument {one_line(str(odd), 40)!r}"
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        return f"is no JSON Schema ({one_line(error.message, 100)})"
    return ""


def _is_shallow(value: object, levels: int) -> bool:
    if levels == 0:
        return False
    if isinstance(value, dict):
        return all(_is_shallow(each, levels - 1) for each in value.values())
    if isinstance(value, list):
        return all(_is_shallow(each, levels - 1) for each in value)
    return True


def _in_words(schema: object) -> str:
    return one_line(_as_json(schema), MOST_WORDS) if _is_shallow(schema, _DEEPEST) else "too deep to be told"


def _as_json(schema: object) -> str:
    return valid_text(json.dumps(schema, ensure_ascii=False, separators=(",", ":"), default=str))


def unique(tools: Iterable[KnownTool]) -> tuple[KnownTool, ...]:
    """The tools in the order of their names, each name once: the same list always gives the same bytes."""
    found: dict[str, KnownTool] = {}
    for tool in tools:
        found.setdefault(tool.name, tool)
    return tuple(found[name] for name in sorted(found))[:MOST_TOOLS]


class Lists:
    """What servers have told, kept in the program's home by the digest of their definition. Reads and writes files."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER / "lists"

    def load(self, server: Configured) -> KnownServer | None:
        """What was known of it last time; None where nothing is, or nothing that can be read."""
        try:
            return msgspec.json.decode(self._path(server).read_bytes(), type=KnownServer)
        except (OSError, ValueError, RecursionError):
            return None

    def save(self, server: Configured, known: KnownServer) -> None:
        """Keep it for later starts. Raises OSError."""
        make_private_folder(self._folder)
        write_file(self._path(server), msgspec.json.encode(known))

    def _path(self, server: Configured) -> Path:
        return self._folder / f"{server.name}-{server.digest}.json"
