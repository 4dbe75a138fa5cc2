"""Describing a typed function to the model as a tool, and calling it with the arguments that the model sends.

The program fills in the function's positional-only parameters (a context, a workspace), the model the others. The
lines below ``Args:`` in its docstring describe the parameters (Google style); the rest is the tool's description.
"""

import inspect
import re
from collections.abc import Callable, Container, Mapping
from difflib import get_close_matches
from functools import lru_cache
from types import MethodType, NoneType
from typing import TypeAlias, TypeVar, get_args, get_type_hints

import msgspec

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.system.lenient import decoded
from tui_agent.tools.base import ToolFailure

Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
Result = TypeVar("Result")

_REFERENCE = "#/$defs/"
_NAMED_FAULTS = 10
_NAME_CHARACTERS = 60


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a tool. `schema` is its JSON Schema, without references."""

    name: str
    annotation: object
    schema: dict[str, Json]
    required: bool
    default: object = None


class Signature(msgspec.Struct, frozen=True):
    """A tool's name, definition and parameters, read from a function."""

    definition: ToolDefinition
    parameters: tuple[Parameter, ...]

    @classmethod
    def of(
        cls, function: Callable[..., object], name: str, *, ours: Container[str] = (), described: bool = True
    ) -> "Signature":
        """Read `function`'s signature and docstring.

        `ours` names further parameters that the program fills in. With `described`, the docstring must describe every
        other parameter. Raises TypeError that names everything that is missing: a docstring, a type, a description;
        also for types that have no JSON Schema, and for ``*args`` and ``**kwargs``.
        """
        if isinstance(function, MethodType) and ours == ():
            return _of_method(function.__func__, name, described)
        return cls._read(function, name, ours, described)

    @classmethod
    def _read(cls, function: Callable[..., object], name: str, ours: Container[str], described: bool) -> "Signature":
        faults: list[str] = []
        description, texts = "", dict[str, str]()
        try:
            description, texts = _read_docstring(function)
        except TypeError as error:
            faults.append(str(error))
        hints = _type_hints(function, name)
        parameters: list[Parameter] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.POSITIONAL_ONLY or parameter.name in ours:
                continue
            try:
                parameters.append(_parameter(parameter, hints, texts, described))
            except TypeError as error:
                faults.append(str(error))
        unknown = texts.keys() - inspect.signature(function).parameters
        if unknown:
            faults.append(f"the docstring describes what is no parameter: {', '.join(sorted(unknown))}")
        if faults:
            raise TypeError(f"{name} cannot be a tool: {'; '.join(faults)}")
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {parameter.name: parameter.schema for parameter in parameters},
            "required": [parameter.name for parameter in parameters if parameter.required],
        }
        definition = ToolDefinition(name, description, msgspec.json.encode(schema).decode())
        return cls(definition, tuple(parameters))

    def parse(self, arguments: str) -> dict[str, object]:
        """Parse the arguments: their values by name, with defaults filled in and types checked.

        Strings are converted to numbers and booleans where they plainly mean one, and null means "not given". Raises
        ToolFailure that names every wrong argument.
        """
        given = self._object(arguments)
        by_name = {parameter.name: parameter for parameter in self.parameters}
        unknown = [name for name in given if name not in by_name]
        faults = [self._unknown(name, given) for name in unknown[:_NAMED_FAULTS]]
        values: dict[str, object] = {}
        for parameter in self.parameters:
            value = given.get(parameter.name)
            if value is None and not parameter.required:
                values[parameter.name] = parameter.default
            elif parameter.name not in given:
                faults.append(f"the argument `{parameter.name}` is missing.")
            else:
                try:
                    values[parameter.name] = msgspec.convert(value, parameter.annotation, strict=False)
                except msgspec.ValidationError as error:
                    faults.append(f"the argument `{parameter.name}` does not fit: {_lowered(str(error))}.")
        if faults:
            if len(unknown) > _NAMED_FAULTS:
                faults.append(f"there are {len(unknown) - _NAMED_FAULTS:,} more that it does not have.")
            raise ToolFailure(f"{self.definition.name}: {' Also, '.join(faults)}", expected(self.definition))
        return values

    def call(self, function: Callable[..., Result], arguments: str, *ours: object) -> Result:
        """Call `function` with the positional values `ours`, and the parsed `arguments` by name.

        Raises ToolFailure for arguments that do not fit, and whatever `function` raises.
        """
        return function(*ours, **self.parse(arguments))

    def _object(self, arguments: str) -> Mapping[str, object]:
        try:
            decoded = msgspec.json.decode(arguments.encode())
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise ToolFailure(
                f"{self.definition.name}: the arguments are not valid JSON ({_lowered(str(error))}).",
                expected(self.definition),
            ) from error
        if not isinstance(decoded, dict):
            raise ToolFailure(
                f"{self.definition.name}: the arguments must be one JSON object.", expected(self.definition)
            )
        return decoded

    def _unknown(self, name: str, given: Mapping[str, object]) -> str:
        free = [parameter.name for parameter in self.parameters if parameter.name not in given]
        shown = name if len(name) <= _NAME_CHARACTERS else f"{name[:_NAME_CHARACTERS]}…"
        words = [word for word in re.split(r"[^a-z]+", shown.lower()) if word in free]
        near = words or get_close_matches(shown.lower(), free, n=1, cutoff=0.5)
        return f"there is no argument `{shown}`{f'; did you mean `{near[0]}`?' if near else '.'}"


@lru_cache(maxsize=128)
def _of_method(function: Callable[..., object], name: str, described: bool) -> Signature:
    """A method's signature is that of its class, of which each session has objects of its own."""
    return Signature._read(MethodType(function, object()), name, (), described)


def _type_hints(function: Callable[..., object], name: str) -> dict[str, object]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"{name} cannot be a tool: its type hints cannot be resolved ({error})") from error


def _parameter(
    parameter: inspect.Parameter, hints: Mapping[str, object], texts: Mapping[str, str], described: bool
) -> Parameter:
    """Raises TypeError that says what is missing."""
    name = parameter.name
    if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
        raise TypeError(f"{parameter} stands for any number of arguments: name each")
    if name not in hints:
        raise TypeError(f"the parameter `{name}` needs a type")
    if described and name not in texts:
        raise TypeError(f"the parameter `{name}` needs a description below Args: in the docstring")
    annotation = hints[name]
    required = parameter.default is inspect.Parameter.empty
    try:
        schema = _schema(_without_none(annotation))
        default = None if required else msgspec.to_builtins(parameter.default)
    except TypeError as error:
        reason = str(error).splitlines()[-1]
        raise TypeError(f"the parameter `{name}` cannot be described as JSON: {_lowered(reason)}") from error
    if name in texts:
        schema["description"] = texts[name]
    if default is not None:
        schema["default"] = default
    return Parameter(name, annotation, schema, required, None if required else parameter.default)


def _without_none(annotation: object) -> object:
    """Turn `X | None` into X: an optional argument needs no null, which one provider's schema dialect lacks."""
    if NoneType not in get_args(annotation):
        return annotation
    members = tuple(member for member in get_args(annotation) if member is not NoneType)
    if len(members) != 1:
        raise TypeError(f"{annotation!r}: an optional argument has one type besides None")
    return members[0]


def _schema(annotation: object) -> dict[str, Json]:
    (schema,), components = msgspec.json.schema_components((annotation,), ref_template=_REFERENCE + "{name}")
    inlined = _inline(schema, components, ())
    if not isinstance(inlined, dict):
        raise TypeError(f"{annotation!r} has no JSON Schema of its own")
    return inlined


def _inline(schema: object, components: Mapping[str, object], above: tuple[str, ...]) -> Json:
    """`schema` with all references replaced by their definitions."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            name = reference.removeprefix(_REFERENCE)
            if name in above:
                raise TypeError(f"the type {name} contains itself: a tool's argument cannot")
            return _inline(components[name], components, (*above, name))
        choices = schema.get("enum")
        only_texts = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
        typed: dict[str, Json] = {"type": "string"} if only_texts else {}
        if schema.get("type") == "array" and "items" not in schema:
            typed = {"items": {}}  # OpenAI's servers refuse a list without them
        return {
            **typed,
            **{
                key: _inline(value, components, above)
                for key, value in schema.items()
                if not (key == "title" and isinstance(value, str))
            },
        }
    if isinstance(schema, list | tuple):
        return [_inline(item, components, above) for item in schema]
    if schema is None or isinstance(schema, str | int | float | bool):
        return schema
    raise TypeError(f"{schema!r} is no JSON")


def expected(definition: ToolDefinition) -> str:
    """How to call a tool, in one line, for a model that called it wrongly: its parameters, and an example."""
    schema = decoded(definition.schema, dict[str, object]) or {}
    properties, required = schema.get("properties"), schema.get("required")
    listed = properties.items() if isinstance(properties, dict) else ()
    fields = {name: field for name, field in listed if isinstance(field, dict)}
    needed = required if isinstance(required, list) else []
    shapes = [_parameter_shape(name, field, required=name in needed) for name, field in fields.items()]
    example = {name: _example(name, field) for name, field in fields.items() if name in needed}
    return (
        f"Expected: {definition.name}({', '.join(shapes)}). "
        f"For example, with the arguments {msgspec.json.encode(example).decode()}."
    )


def _parameter_shape(name: str, schema: Mapping[str, object], *, required: bool) -> str:
    """One parameter, such as ``offset: integer = 1``."""
    text = f"{name}: {_shape(schema)}"
    return text if required else f"{text} = {msgspec.json.encode(schema.get('default')).decode()}"


def _example(name: str, schema: Mapping[str, object]) -> object:
    """An example value; placeholders are in angle brackets."""
    choices, items, fields = schema.get("enum"), schema.get("items"), schema.get("properties")
    if isinstance(choices, list) and choices:
        return choices[0]
    match schema.get("type"):
        case "integer" | "number":
            least = schema.get("minimum")
            return least if isinstance(least, int | float) else 1
        case "boolean":
            return True
        case "array":
            return [_example(name, items)] if isinstance(items, dict) else []
        case "object" if isinstance(fields, dict):
            return {key: _example(key, each) for key, each in fields.items() if isinstance(each, dict)}
        case "object":
            return {}
        case _:
            return f"<{name}>"


def _shape(schema: Mapping[str, object]) -> str:
    choices = schema.get("enum")
    if isinstance(choices, list):
        return "|".join(str(choice) for choice in choices)
    kind = schema.get("type")
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict):
        return f"list of {_shape(items)}"
    fields = schema.get("properties")
    if isinstance(fields, dict):
        return f"{{{', '.join(f'{key}: {_shape(value)}' for key, value in fields.items() if isinstance(value, dict))}}}"
    return str(kind or "value")


def _read_docstring(function: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """The description, and the text of each parameter (with its continuation lines joined). Raises TypeError."""
    text = inspect.getdoc(function)
    if not text:
        raise TypeError("it needs a docstring: that is what the model is told")
    before, heading, section = f"\n{text}".partition("\nArgs:\n")
    lines = section.splitlines()
    end = next((number for number, line in enumerate(lines) if line[:1].strip()), len(lines))
    texts: dict[str, str] = {}
    indent, name = "", ""
    for line in lines[:end]:
        entry = re.match(r"(\s+)\*{0,2}(\w+)(?: \([^)]*\))?: *(\S.*)?$", line)
        if entry and entry[1] == (indent or entry[1]):
            indent, name = entry[1], entry[2]
            texts[name] = entry[3] or ""
        elif name and line.startswith(f"{indent} "):
            texts[name] = f"{texts[name]} {line.strip()}".strip()
        elif line.strip():
            raise TypeError(f"a line below Args: is neither a parameter nor its continuation: {line!r}")
    description = "\n".join([before.strip(), *(["", *lines[end:]] if heading and end < len(lines) else [])])
    return re.sub(r"(?<!\n)\n(?![\n\-])[ \t]*", " ", description.strip()), texts


def _lowered(text: str) -> str:
    return (text[:1].lower() + text[1:]).removesuffix(".")
