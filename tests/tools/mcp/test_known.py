"""What a server tells of its tools, as models are told of them."""

import json
from typing import Any

import pytest
from mcp_types import CallToolResult

from tests.servers.openai_chat_rules import check_schema
from tui_agent.tools.mcp.known import known_tool, prompt_arguments
from tui_agent.tools.mcp.results import output_of


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


@pytest.mark.parametrize(
    ("typed", "given"),
    [
        ("", {}),
        ("one", {"topic": "one"}),
        ("one two three", {"topic": "one", "text": "two three"}),
        ('"one two" three', {"topic": "one two", "text": "three"}),
        ("'one two' it's  the rest", {"topic": "one two", "text": "it's  the rest"}),
        ('one "two three"', {"topic": "one", "text": "two three"}),
        ('text="a b" one two', {"text": "a b", "topic": "one two"}),
        ("text=a", {"text": "a"}),
        ("other=a b", {"topic": "other=a", "text": "b"}),
        ('topic="unclosed', {"topic": '"unclosed'}),
        ('say "it" here', {"topic": "say", "text": '"it" here'}),
    ],
)
def test_a_prompts_arguments_are_typed_in_order_or_by_name(typed: str, given: dict[str, str]) -> None:
    assert prompt_arguments(("topic", "text"), typed) == given


def test_twenty_pictures_of_a_server_are_looked_at_and_what_is_said_twice_is_told_once() -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": "eA=="}
    output = output_of(CallToolResult.model_validate({"content": [picture] * 22}))
    assert len(output.images) == 20
    assert output.text == "\n\n".join(["[one picture more than the 20 that are looked at]"] * 2)
    said = {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}
    assert output_of(CallToolResult.model_validate(said)).text == '{"a":1}'
