"""A call's arguments, ids and names, and opaque texts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_agent.conversation.wire import is_object, read_arguments, read_opaque, safe_id, safe_name, write_opaque


@pytest.mark.parametrize(
    ("written", "arguments", "malformed"),
    [
        ("", "{}", ""),
        (' {"a": 1} ', '{"a": 1}', ""),
        ('{"a": 1', "{}", '{"a": 1'),
        ("[1]", "{}", "[1]"),
        ('"text"', "{}", '"text"'),
        ('{"a": NaN}', "{}", '{"a": NaN}'),
        ('{"a": "\\ud800"}', '{"a":"�"}', ""),
    ],
)
def test_arguments(written: str, arguments: str, malformed: str) -> None:
    assert read_arguments(written) == (arguments, malformed)


def test_arguments_nested_beyond_reason() -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    assert read_arguments(deep) == ("{}", deep)
    for wide in ('{"a":' + "[" * 390 + "]" * 390 + "}", '{"a":[' + '{"b":"{[\\""},' * 900 + "1]}"):
        assert read_arguments(wide) == (wide, "")


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_is_written_arguments_are_one_object(written: str) -> None:
    arguments, malformed = read_arguments(written)
    assert is_object(arguments)
    assert isinstance(json.loads(arguments.encode()), dict)
    malformed.encode()


@given(st.text(st.characters(exclude_categories=())))
def test_names_and_ids_are_safe_and_stable(text: str) -> None:
    for safe in (safe_name, safe_id):
        assert 1 <= len(safe(text)) <= 128
        assert safe(text).isascii()
        assert safe(safe(text)) == safe(text)


def test_opaque_of_others_is_nothing() -> None:
    assert read_opaque(write_opaque(signature="s")) == {"signature": "s"}
    for foreign in ("", "nonsense", "[1]", '{"a": 1}', "\ud800"):
        assert read_opaque(foreign) == {}
