import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.conversation.blocks import ToolDefinition
from tui_agent.tools.base import ToolFailure
from tui_agent.tools.files.editing import EditFile, WriteFile
from tui_agent.tools.files.reading import ListDir, ReadFile
from tui_agent.tools.schema import Signature, expected
from tui_agent.tools.search.finding import Glob, Grep


class Step(msgspec.Struct):
    title: str
    done: bool = False


def example(
    program: object,
    /,
    path: str,
    offset: Annotated[int, msgspec.Meta(ge=1)] = 1,
    glob: str | None = None,
    mode: Literal["fast", "slow"] = "fast",
    steps: list[Step] | None = None,
    every: bool = False,
) -> tuple[object, ...]:
    """Do a thing.
    It goes on.

    Args:
        path: The file.
        offset: First line,
            from 1.
        glob: Names.
        mode: How.
        steps: A plan.
        every: All of them.
    """
    return program, path, offset, glob, mode, steps, every


SIGNATURE = Signature.of(example, "example")


def test_definition_is_plain_json_schema() -> None:
    assert SIGNATURE.definition.description == "Do a thing. It goes on."
    schema = json.loads(SIGNATURE.definition.schema)
    assert schema["required"] == ["path"]
    assert schema["properties"]["offset"] == {
        "type": "integer",
        "minimum": 1,
        "description": "First line, from 1.",
        "default": 1,
    }
    assert schema["properties"]["glob"] == {"type": "string", "description": "Names."}
    assert schema["properties"]["mode"]["type"] == "string"
    item = schema["properties"]["steps"]["items"]
    assert item["properties"] == {"title": {"type": "string"}, "done": {"type": "boolean", "default": False}}
    assert "$" not in SIGNATURE.definition.schema


def test_schemas_of_all_tools_are_the_same_bytes_in_every_process() -> None:
    script = (
        "from tui_agent.tools.files.editing import *\nfrom tui_agent.tools.files.reading import *\n"
        "from tui_agent.tools.search.finding import *\nimport sys\nsys.stdout.write(repr([t().definition for t in "
        "(ReadFile, ListDir, WriteFile, EditFile, Glob, Grep)]))"
    )
    here = repr([tool().definition for tool in (ReadFile, ListDir, WriteFile, EditFile, Glob, Grep)])
    other = {"PYTHONHASHSEED": "1"}
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env=other)
    assert there.stdout == here
    assert "$ref" not in here
    assert "anyOf" not in here


@pytest.mark.parametrize(
    ("given_arguments", "expected"),
    [
        ('{"path":"a"}', ("ours", "a", 1, None, "fast", None, False)),
        ('{"path":"a","offset":"5","every":"true"}', ("ours", "a", 5, None, "fast", None, True)),
        ('{"path":"a","offset":5.0,"glob":null,"offset":7}', ("ours", "a", 7, None, "fast", None, False)),
        ('{"path":"a","glob":"null"}', ("ours", "a", 1, "null", "fast", None, False)),
    ],
)
def test_harmless_differences_are_accepted(given_arguments: str, expected: tuple[object, ...]) -> None:
    assert SIGNATURE.call(example, given_arguments, "ours") == expected


@pytest.mark.parametrize(
    ("given_arguments", "words"),
    [
        ("{}", ["`path` is missing", "example(path: string, offset: integer = 1"]),
        ('{"file_path":"a"}', ["`file_path`", "did you mean `path`"]),
        ('{"path":"a","ofset":3}', ["`ofset`", "did you mean `offset`"]),
        ('{"path":"a","offset":"x"}', ["`offset`", "expected `int`"]),
        ('{"path":"a","offset":0}', ["`offset`", ">= 1"]),
        ('{"path":"a","mode":"quick"}', ["`mode`", "fast|slow"]),
        ('{"path":null}', ["`path`"]),
        ('{"path":5}', ["`path`", "expected `str`"]),
        ('{"path":"a","steps":[{"titel":"x"}]}', ["`steps`", "title"]),
        ("[1]", ["one JSON object"]),
        ('{"path":"\\ud800"}', ["not valid JSON"]),
        ('{"path":', ["not valid JSON"]),
        ('{"path":"a","max_offset":5}', ["did you mean `offset`"]),
        ('{"path":"a","xyz":5}', ["there is no argument `xyz`."]),
        (f'{{"path":"a","{"x" * 60}":5}}', [f"`{'x' * 60}`."]),
        (f'{{"path":"a","{"x" * 61}":5}}', [f"`{'x' * 60}…`."]),
        (msgspec.json.encode(dict.fromkeys(map(str, range(11)))).decode(), ["`9`", "there are 1 more"]),
    ],
)
def test_what_does_not_fit_is_named(given_arguments: str, words: list[str]) -> None:
    with pytest.raises(ToolFailure) as failure:
        SIGNATURE.parse(given_arguments)
    for word in words:
        assert word in str(failure.value)


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with suppress(ToolFailure):
        SIGNATURE.parse(text)


def test_a_parameter_without_description_is_refused() -> None:
    def bare(path: str) -> None:
        """No more than this."""

    with pytest.raises(TypeError, match="path"):
        Signature.of(bare, "bare")


class _Inside(msgspec.Struct):
    inside: "list[_Inside]"


def _described(argument: str, text: str) -> Callable[..., None]:
    def function(a: int) -> None: ...

    function.__annotations__["a"] = {"int": int, "inside": _Inside, "two": int | str | None, "any": list}[argument]
    function.__doc__ = text
    return function


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_described("int", ""), "it needs a docstring"),
        (_described("int", "Do it.\n\nArgs:\n    a: One.\n   oddly"), "is neither a parameter nor its continuation"),
        (_described("inside", "Do it.\n\nArgs:\n    a: One."), "_Inside contains itself"),
        (_described("two", "Do it.\n\nArgs:\n    a: One."), "has one type besides None"),
        (_described("any", "Do it.\n\nArgs:\n    a: One."), ""),
    ],
)
def test_which_function_cannot_be_a_tool(function: Callable[..., None], why: str) -> None:
    if why:
        with pytest.raises(TypeError, match=why):
            Signature.of(function, "do")
    else:
        assert '"items":{}' in Signature.of(function, "do").definition.schema


@pytest.mark.parametrize(
    ("schema", "how"),
    [
        ({}, "do(). For example, with the arguments {}"),
        ({"a": {"type": "integer"}}, 'do(a: integer). For example, with the arguments {"a":1}'),
        ({"a": {"type": "number", "minimum": 3}}, '{"a":3}'),
        ({"a": {"type": "boolean"}}, '{"a":true}'),
        ({"a": {"enum": ["x", "y"]}}, 'do(a: x|y). For example, with the arguments {"a":"x"}'),
        ({"a": {"type": "array", "items": {"type": "string"}}}, "do(a: list of string). For example, with the arg"),
        ({"a": {"type": "array", "items": {"type": "string"}}}, '{"a":["<a>"]}'),
        ({"a": {"type": "array"}}, '{"a":[]}'),
        ({"a": {"type": "object", "properties": {"b": {}}}}, "do(a: {b: value}). For example, with the argume"),
        ({"a": {"type": "object", "properties": {"b": {}}}}, '{"a":{"b":"<b>"}}'),
        ({"a": {"type": "object"}}, '{"a":{}}'),
        ({"b": {"type": "string", "default": "x"}}, 'do(b: string = "x"). For example, with the arguments {}'),
    ],
)
def test_how_to_call_a_tool_is_told_in_a_line(schema: dict[str, object], how: str) -> None:
    whole = {"type": "object", "properties": schema, "required": ["a"]}
    assert how in expected(ToolDefinition("do", "", msgspec.json.encode(whole).decode()))
    assert expected(ToolDefinition("do", "", "no JSON")).startswith("Expected: do(). For example")
