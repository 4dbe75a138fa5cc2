"""What is known about a server's tools: read once, stored for later starts, and cleaned before use.

Everything from a server is untrusted. A provider must never get a definition that it would refuse, or every request
would fail: the schema of such a tool goes into its description instead.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from tui_agent.conversation.blocks import valid_text
from tui_agent.regex import regex
from tui_agent.system.durable import make_private_folder, write_file
from tui_agent.system.lenient import decoded_file
from tui_agent.text import clean, one_line
from tui_agent.tools.mcp.configuration import FOLDER, ConfiguredServer

MAX_TOOLS: Final = 1_000
"""The most tools of one server that are listed."""
MAX_DESCRIPTION: Final = 2_000
"""The most characters of a tool's description."""
MAX_SCHEMA: Final = 16_000
"""The most characters of a schema that is offered unchanged."""
MAX_WORDS: Final = 4_000
"""The most characters of a schema that is put into the description."""
MAX_INSTRUCTIONS: Final = 4_000
"""The most characters of a server's instructions."""
MAX_NAME: Final = 64
"""The most characters of a tool's name (Anthropic and Gemini, tool definitions)."""
PREFIX: Final = "mcp__"

_NOT_IN_NAMES: Final = regex(r"[^A-Za-z0-9_-]+")
_TYPED: Final = regex(
    r"""(?:(?P<name>[\w.-]+)=)?(?:(?P<quote>["'])(?P<quoted>.*?)(?P=quote)(?!\S)|(?P<plain>\S+))""", re.DOTALL
)
_PROPERTY: Final = regex(r"[A-Za-z0-9_.-]{1,64}")
_COMBINED: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const", "$ref")
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose values are data, not schemas."""
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
    """A tool of a server. `schema`: its arguments' schema as JSON text; `reads`: the server says that it only reads."""

    name: str
    description: str = ""
    schema: str = '{"type":"object"}'
    reads: bool = False


class KnownPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A prompt that a server offers, and its arguments' names; those ending in ``?`` are optional."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()


class KnownServer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server offers. `problems` are sentences about what of it cannot be used."""

    title: str = ""
    instructions: str = ""
    tools: tuple[KnownTool, ...] = ()
    prompts: tuple[KnownPrompt, ...] = ()
    resources: bool = False
    problems: tuple[str, ...] = ()


def prompt_arguments(names: Sequence[str], typed: str) -> dict[str, str]:
    """A prompt's arguments as typed: in order or as ``name=value``, with quotes around several words. The last one
    needs none: it is the rest of the line.
    """
    given: dict[str, str] = {}
    words: list[tuple[int, str]] = []
    for word in _TYPED.finditer(typed):
        value = word["quoted"] if word["quoted"] is not None else word["plain"]
        if word["name"] in names:
            given[word["name"]] = value
        else:
            words.append((word.start(), value if word["name"] is None else word[0]))
    free = [name for name in names if name not in given]
    if free and len(words) > len(free):
        begin = words[len(free) - 1][0]
        words[len(free) - 1 :] = [(begin, typed[begin:].strip())]
    return given | dict(zip(free, (value for _, value in words), strict=False))


def tool_name(server: str, tool: str) -> str:
    """The name by which the model calls a server's tool: deterministic, and short enough for every provider."""
    name = f"{PREFIX}{server}__{_NOT_IN_NAMES.sub('_', tool)}"
    if len(name) <= MAX_NAME and name == f"{PREFIX}{server}__{tool}":
        return name
    digest = sha256(tool.encode(errors="replace")).hexdigest()[:6]
    return f"{name[: MAX_NAME - 7]}_{digest}"


def known_tool(name: str, description: str, schema: Mapping[str, object], *, reads: bool) -> tuple[KnownTool, str]:
    """A tool as offered to the model, and a sentence about what had to be changed (may be empty)."""
    described = clean(description).strip()
    if len(described) > MAX_DESCRIPTION:
        described = f"{described[:MAX_DESCRIPTION]} […]"
    text, problem = _schema_text(schema)
    if problem:
        described = f"{described}\n\nThe arguments, as a JSON Schema: {_in_words(schema)}".strip()
        problem = f"{one_line(name, 60)}: its schema {problem}; it is told in words."
    return KnownTool(one_line(name, 200), described, text, reads), problem


def mend(result: object) -> None:
    """Change a response so that the SDK's strict parser accepts it. One that does not name its type is complete (MCP
    2026-07-28). In a list of tools, a schema that the parser would refuse goes into the description, and anything that
    is not a tool is dropped.
    """
    if not isinstance(result, dict):
        return
    result.setdefault("resultType", "complete")
    listed = result.get("tools")
    if not isinstance(listed, list):
        return
    tools = [tool for tool in listed if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
    for tool in tools:
        schema = tool.get("inputSchema")
        if not _is_readable(schema):
            described = tool["description"] if isinstance(tool.get("description"), str) else ""
            tool["description"] = f"{described}\n\nThe arguments, as the server has them: {_in_words(schema)}".strip()
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


def _schema_text(schema: Mapping[str, object]) -> tuple[str, str]:
    """The schema as JSON text, and why it cannot be offered unchanged (then the text is a schema that accepts all)."""
    anything = '{"type":"object"}'
    kept = {key: value for key, value in schema.items() if key != "$schema"}
    problem = _problem_of(kept)
    if problem:
        return anything, problem
    kept["type"] = "object"
    text = clean(_as_json(_with_items(kept)))
    return (anything, f"has {len(text):,} characters") if len(text) > MAX_SCHEMA else (text, "")


def _with_items(schema: object) -> object:
    """The schema with `items` added to every array without them: OpenAI's servers refuse a request with such an array
    in any tool.
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
    """Why a provider would refuse the schema; empty if it would not (Anthropic, tool definitions: input_schema)."""
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
    if (size := len(_as_json(schema))) > MAX_SCHEMA:
        return f"has {size:,} characters"  # checking it would take seconds
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
    return one_line(_as_json(schema), MAX_WORDS) if _is_shallow(schema, _DEEPEST) else "too deep to be told"


def _as_json(schema: object) -> str:
    return valid_text(json.dumps(schema, ensure_ascii=False, separators=(",", ":"), default=str))


def unique(tools: Iterable[KnownTool]) -> tuple[KnownTool, ...]:
    """The tools sorted by name, each name once, so that the same list always gives the same bytes."""
    found: dict[str, KnownTool] = {}
    for tool in tools:
        found.setdefault(tool.name, tool)
    return tuple(found[name] for name in sorted(found))[:MAX_TOOLS]


class ServerListCache:
    """Stores what servers offer in the program's home, by the digest of their definition. Reads and writes files."""

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER / "lists"

    def load(self, server: ConfiguredServer) -> KnownServer | None:
        """What was known last time; None if there is no file, or it cannot be read."""
        return decoded_file(self._path(server), KnownServer)

    def save(self, server: ConfiguredServer, known: KnownServer) -> None:
        """Store it for later starts. Raises OSError."""
        make_private_folder(self._folder)
        write_file(self._path(server), msgspec.json.encode(known))

    def _path(self, server: ConfiguredServer) -> Path:
        return self._folder / f"{server.name}-{server.digest}.json"
