"""What a server tells of its tools, as models are told of them."""

import json
import time
from typing import Any

import pytest
from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

from tests.servers.openai_chat_rules import check_schema
from tui_agent.tools.mcp.known import known_tool, prompt_arguments
from tui_agent.tools.mcp.results import output_of, text_of_prompt, text_of_resource


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


def _embedded(**fields: object) -> dict[str, object]:
    return {"type": "resource", "resource": {"uri": "file:///a", **fields}}


@pytest.mark.parametrize(
    ("block", "text", "pictures"),
    [
        ({"type": "text", "text": "a\x1b[31mb"}, "ab", 0),
        ({"type": "image", "mimeType": "image/png", "data": "eA=="}, "", 1),
        ({"type": "image", "mimeType": "image/x", "data": "eA=="}, "[a picture of the kind image/x: it cannot be", 0),
        (_embedded(mimeType="image/png", blob="eA=="), "", 1),
        (_embedded(mimeType="a/b", blob="x" * 8_000), "[file:///a]\n[6,000 bytes of the kind a/b: no text]", 0),
        (_embedded(blob="xxxx"), "[file:///a]\n[3 bytes of the kind unknown: no text]", 0),
        (_embedded(text="said"), "[file:///a]\nsaid", 0),
        ({"type": "resource_link", "uri": "file:///a", "name": "n"}, "[a resource: file:///a (n)]", 0),
        ({"type": "resource_link", "uri": "file:///a", "name": "n", "description": "d"}, "(d)]", 0),
        ({"type": "audio", "mimeType": "a/b", "data": "eA=="}, "[sound, a/b: it cannot be listened to]", 0),
    ],
)
def test_what_a_server_returns_becomes_text_and_pictures(block: dict[str, object], text: str, pictures: int) -> None:
    for structured in (None, {"k": [1]}):
        given = {"content": [block], "structuredContent": structured, "isError": structured is None}
        output = output_of(CallToolResult.model_validate(given))
        assert text in output.text
        assert ('"k": [\n  1' in output.text) == (structured is not None)
        assert (len(output.images), output.is_error) == (pictures, structured is None)
    messages = [{"role": role, "content": block} for role in ("user", "assistant")]
    prompt = text_of_prompt(GetPromptResult.model_validate({"messages": messages}))
    assert prompt.count(text or "[a picture]") == 2
    assert prompt.count("[assistant] ") == 1
    if block["type"] == "resource":
        resource = text_of_resource(ReadResourceResult.model_validate({"contents": [block["resource"]] * 2}))
        assert resource.count(text.rpartition("\n")[2]) >= 2


def test_twenty_pictures_of_a_server_are_looked_at_and_what_is_said_twice_is_told_once() -> None:
    picture = {"type": "image", "mimeType": "image/png", "data": "eA=="}
    output = output_of(CallToolResult.model_validate({"content": [picture] * 22}))
    assert len(output.images) == 20
    assert output.text == "\n\n".join(["[one picture more than the 20 that are looked at]"] * 2)
    said = {"content": [{"type": "text", "text": '{"a":1}'}], "structuredContent": {"a": 1}}
    assert output_of(CallToolResult.model_validate(said)).text == '{"a":1}'
