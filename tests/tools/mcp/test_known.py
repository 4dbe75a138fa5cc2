"""What a server tells of its tools, as models are told of them."""

import json
import time
from typing import Any

import pytest

from tests.servers.openai_chat_rules import check_schema
from tui_agent.tools.mcp.known import known_tool, prompt_arguments


def test_a_list_gets_items_where_its_schema_has_none() -> None:
    """A single list without them has OpenAI's servers refuse every request, whichever tool is called."""
    nested = {"type": "object", "properties": {"tags": {"type": ["array", "null"], "default": {"type": "array"}}}}
    properties: dict[str, Any] = {"blocks": {"type": "array"}, "names": {"type": "array", "items": {"type": "string"}}}
    schema = {"type": "object", "properties": {**properties, "deep": {"anyOf": [nested]}}}
    tool, problem = known_tool("send", "Sends.", schema, reads=False)
    told = json.loads(tool.schema)
    check_schema(told, "send")
    assert problem == ""
    assert told["properties"]["blocks"] == {"type": "array", "items": {}}
    assert told["properties"]["names"] == properties["names"]
    tags = told["properties"]["deep"]["anyOf"][0]["properties"]["tags"]
    assert tags == {"type": ["array", "null"], "default": {"type": "array"}, "items": {}}


def test_a_schema_that_is_nested_deep_or_long_is_refused_at_once() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        deep = {"type": "object", "properties": {"x": deep}}
    wide = {f"argument{number}": {"type": "string"} for number in range(3_000)}
    for properties, why in (({"a": deep}, "is nested more than 40 levels deep"), (wide, "characters")):
        began = time.process_time()
        tool, problem = known_tool("send", "Sends.", {"type": "object", "properties": properties}, reads=False)
        assert time.process_time() - began < 1
        assert why in problem
        assert tool.schema == '{"type":"object"}'


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("", {}),
        ("one", {"topic": "one"}),
        ("one two three", {"topic": "one", "text": "two three"}),
        ('"one two" three', {"topic": "one two", "text": "three"}),
        ("'one two' it's  the rest", {"topic": "one two", "text": "it's  the rest"}),
        ('text="a b" one two', {"text": "a b", "topic": "one two"}),
        ("text=a", {"text": "a"}),
        ("other=a b", {"topic": "other=a", "text": "b"}),
        ('topic="unclosed', {"topic": '"unclosed'}),
        ('say "it" here', {"topic": "say", "text": '"it" here'}),
    ],
)
def test_a_prompts_arguments_are_typed_in_order_or_by_name(typed: str, given: dict[str, str]) -> None:
    assert prompt_arguments(("topic", "text"), typed) == given
