"""What a server tells of its tools, as models are told of them."""

import json
import time
from typing import Any

from tests.servers.openai_chat_rules import check_schema
from tui_agent.tools.mcp.known import known_tool


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
