"""Calls of weak models: mended where one reading is possible, and never more than that."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.conversation.blocks import Block, Text, ToolCall, ToolDefinition
from tui_agent.conversation.view import View
from tui_agent.conversation.wire import is_object, read_arguments
from tui_agent.models.call_repair import fit, read_object, repaired, valid_blocks
from tui_agent.tools.schema import expected

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "default": 2000},
        "share": {"type": "number"},
        "all": {"type": "boolean", "default": False},
        "kind": {"type": "string", "enum": ["file", "folder"]},
        "names": {"type": "array", "items": {"type": "string"}},
        "edits": {"type": "array", "items": {"type": "object", "properties": {"line": {"type": "integer"}}}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    },
    "required": ["path"],
}
READ = ToolDefinition("read_file", "Reads a file.", json.dumps(SCHEMA))
TOOLS = (READ, ToolDefinition("list_dir", "Lists a folder.", '{"type":"object"}'))
CALL = '{"name": "read_file", "arguments": {"path": "a.txt"}}'
MEANT = ("read_file", {"path": "a.txt"})


def calls_in(blocks: tuple[Block, ...]) -> list[tuple[str, Any]]:
    return [(block.name, json.loads(block.arguments)) for block in blocks if isinstance(block, ToolCall)]


def written(arguments: str, name: str = "read_file") -> ToolCall:
    """A call with these arguments, as an adapter reads it."""
    text, malformed = read_arguments(arguments)
    return ToolCall("1", name, text, malformed=malformed)


def of_text(text: str) -> tuple[Block, ...]:
    return repaired((Text(text),), TOOLS, in_text=True)


@pytest.mark.parametrize("name", ["functions.read_file", "default_api:read_file", "default_api.read_file"])
def test_a_name_with_its_space_before_it_is_the_tool_s(name: str) -> None:
    assert calls_in(repaired((written('{"path": "a.txt"}', name),), TOOLS)) == [MEANT]
    other = written("{}", name.replace("read_file", "no_tool"))
    assert repaired((other,), TOOLS) == (other,)


def test_several_calls_in_one_are_several() -> None:
    one = {"recipient_name": "functions.read_file", "parameters": {"path": "a.txt"}}
    other = {"recipient_name": "functions.list_dir", "parameters": {}}
    both = written(json.dumps({"tool_uses": [one, other]}), "multi_tool_use.parallel")
    blocks = repaired((both,), TOOLS)
    assert calls_in(blocks) == [MEANT, ("list_dir", {})]
    assert len({block.id for block in blocks if isinstance(block, ToolCall)}) == 2
    half: list[dict[str, object]] = [
        {"tool_uses": []},
        {"tool_uses": [one, {**other, "recipient_name": "no_tool"}]},
        {},
    ]
    for broken in half:
        kept = (written(json.dumps(broken), "multi_tool_use.parallel"),)
        assert repaired(kept, TOOLS) is kept


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        '<function=read_file{"path": "a.txt"}</function>',
        f"```json\n{CALL}\n```",
        f"```\n{CALL}\n```\n",
        f"<tool_call>\n{CALL}\n</tool_call>",
        f"<tool_call>[{CALL}]</tool_call>",
        f"[TOOL_CALLS][{CALL}]",
        f"<|python_tag|>{CALL}",
        '<function=read_file>{"path": "a.txt"}</function>',
        '{"name": "read_file", "parameters": {"path": "a.txt"}}',
        '{"type": "function", "function": {"name": "read_file", "arguments": "{\\"path\\": \\"a.txt\\"}"}}',
        "{'name': 'read_file', 'arguments': {'path': 'a.txt',},}",
    ],
)
def test_a_call_written_as_text_is_a_call(text: str) -> None:
    blocks = of_text(text)
    assert calls_in(blocks) == [MEANT]
    assert len(blocks) == 1


def test_what_is_said_before_a_call_stays() -> None:
    blocks = of_text(f"I will read it.\n\n```json\n{CALL}\n```")
    assert blocks[0] == Text("I will read it.")
    assert calls_in(blocks) == [MEANT]


def test_several_calls_come_in_their_order() -> None:
    other = '<tool_call>{"name": "list_dir", "arguments": {}}</tool_call>'
    assert calls_in(of_text(f"<tool_call>{CALL}</tool_call>\n{other}")) == [MEANT, ("list_dir", {})]


@pytest.mark.parametrize(
    "text",
    [
        "The answer is 4.",
        '{"path": "a.txt"}',
        '{"name": "read_file", "arguments": {"path": "a.t',
        f"Such a call looks like this:\n```json\n{CALL}\n```\nIt reads a file.",
        f"<tool_call>{CALL}</tool_call> and then I will see.",
        f'<tool_call>{CALL}</tool_call><tool_call>{{"name": "rm_all", "arguments": {{}}}}</tool_call>',
        "__import__('os').system('true')",
        "{" * 5000,
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert of_text(text) == (Text(text),)


def test_text_is_not_looked_at_where_calls_are_structured() -> None:
    said, call = Text(CALL), written('{"path": "b.txt"}')
    assert repaired((said,), TOOLS) == (said,)
    assert repaired((said, call), TOOLS, in_text=True) == (said, call)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ('{"path": "a.txt",}', {"path": "a.txt"}),
        ('{"path": "a, ]", "names": ["x",],}', {"path": "a, ]", "names": ["x"]}),
        ("{'path': 'a.txt', 'all': True, 'limit': None}", {"path": "a.txt", "all": True, "limit": None}),
        ('"{\\"path\\": \\"a.txt\\"}"', {"path": "a.txt"}),
        ('```json\n{"path": "a.txt"}\n```', {"path": "a.txt"}),
        ('{"path": "two\nlines"}', {"path": "two\nlines"}),
        ('{"path": "a", "edits": [{"line": "3"}]}', {"path": "a", "edits": [{"line": 3}]}),
        ('{"path": "a", "either": "3"}', {"path": "a", "either": "3"}),
    ],
)
def test_arguments_are_read_as_they_were_meant(arguments: str, meant: dict[str, object]) -> None:
    (block,) = repaired((written(arguments),), TOOLS)
    assert calls_in((block,)) == [("read_file", meant)]
    assert isinstance(block, ToolCall)
    assert not block.malformed


@pytest.mark.parametrize("arguments", ['{"path": "a', "path=a", '["a"]', '"a"', "{'path': {1, 2}}", '{"path": NaN}'])
def test_what_cannot_be_read_stays_as_it_was_written(arguments: str) -> None:
    call = written(arguments)
    assert repaired((call,), TOOLS) == (call,)
    assert call.malformed


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_valid = st.fixed_dictionaries(
    {"path": st.text()},
    optional={
        "limit": st.integers(-(2**53), 2**53),
        "share": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
        "all": st.booleans(),
        "kind": st.sampled_from(["file", "folder"]),
        "names": st.lists(st.text(), max_size=3),
        "either": st.text() | st.integers(-(2**53), 2**53),
        "unknown": _values,
    },
)


@given(_valid, st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())
def test_a_valid_call_is_the_same_object(arguments: dict[str, object], between: tuple[str, str], plain: bool) -> None:
    call = written(json.dumps(arguments, separators=between, ensure_ascii=plain))
    blocks: tuple[Block, ...] = (Text("So."), call)
    assert repaired(blocks, TOOLS, in_text=True) is blocks


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "x"]) | st.text(), _values, max_size=6))
def test_no_argument_is_added_or_lost(arguments: dict[str, object]) -> None:
    fitted = fit(arguments, SCHEMA)
    assert list(fitted) == list(arguments)
    assert fit(fitted, SCHEMA) == fitted
    for name, value in fitted.items():
        if value is not arguments[name] and value != arguments[name]:
            assert isinstance(arguments[name], str | list | dict | int | float)


@given(st.text() | st.text("{}[]\",:'\\ntrue1<>/`_ol", max_size=40), st.sampled_from([CALL, "", "```", "</tool_call>"]))
def test_whatever_is_written_no_tool_is_invented(text: str, end: str) -> None:
    whole = text + end
    blocks = of_text(whole)
    for name, arguments in calls_in(blocks):
        assert name in ("read_file", "list_dir")
        assert name in whole
        assert all(key in whole for key in arguments)
    found = read_object(whole)
    assert found is None or is_object(json.dumps(found))


@given(st.integers(1, len(CALL) - 1))
def test_half_a_call_is_none(end: int) -> None:
    for form in (CALL, f"<tool_call>{CALL}</tool_call>", f"```json\n{CALL}\n```"):
        cut = form[: min(end, form.rindex("}"))]
        assert of_text(cut) == (Text(cut),)


def test_a_model_that_called_wrongly_is_shown_how() -> None:
    told = expected(READ)
    assert told.startswith("Expected: read_file(path: string, limit: integer = 2000, share: number = null")
    assert told.endswith('For example, with the arguments {"path":"<path>"}.')


def test_calls_of_one_answer_have_an_id_each() -> None:
    calls = tuple(ToolCall(given, "read_file", "{}") for given in ("a", "a", "a-2", "a", ""))
    assert [call.id for call in valid_blocks(calls, View()) if isinstance(call, ToolCall)] == [
        "a",
        "a-2",
        "a-2-2",
        "a-3",
        "call",
    ]


def test_an_id_that_kimi_gives_twice_keeps_its_form() -> None:
    calls = tuple(ToolCall(f"functions.{given}", "read_file", "{}") for given in ("a:0", "a:0", "a:1", "b:0", "a:0"))
    assert [call.id for call in valid_blocks(calls, View()) if isinstance(call, ToolCall)] == [
        "functions.a:0",
        "functions.a:1",
        "functions.a:2",
        "functions.b:0",
        "functions.a:3",
    ]
